"""Checks a whole query file against a schema, without running queries.

The report has a stable form for scripts: counts, one result per query, and findings about the file
as a whole. ``diagnostics`` has every finding again with its location in the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from omnigraph.lang.diagnostics import Diagnostic, Phase, Severity, Source
from omnigraph.lang.query import ast
from omnigraph.lang.query.checked import CheckedQuery, CheckedRead, StatementKind
from omnigraph.lang.query.checker import examine_query
from omnigraph.lang.query.connections import is_connected
from omnigraph.lang.query.describe import Descriptor, describe
from omnigraph.lang.query.parser import duplicate_names, parse_queries
from omnigraph.lang.query.typed import EntityKind
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.json_form import to_json
from omnigraph.records import dataclass

NO_PARAMS = "mutation declares no params; hardcoded mutations are easy to miss"
_SEVERITIES = (Severity.ERROR, Severity.WARNING, Severity.INFO)
_OPTIONAL = {"optional": True}


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The lint result of one query; ``operation`` only for a valid one."""

    name: str
    kind: str
    status: str
    warnings: tuple[str, ...] = field(metadata=_OPTIONAL)
    error: str | None = field(metadata=_OPTIONAL)
    operation: Descriptor | None = field(metadata=_OPTIONAL)


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding about the file as a whole."""

    severity: Severity
    code: str
    message: str
    type_name: str | None = field(default=None, metadata=_OPTIONAL)
    property_name: str | None = field(default=None, metadata={"json": "property", **_OPTIONAL})
    query_names: tuple[str, ...] = field(default=(), metadata=_OPTIONAL)

    @property
    def rank(self) -> tuple[int, str, str, str]:
        severity = _SEVERITIES.index(self.severity)
        return severity, self.type_name or "", self.property_name or "", self.message


@dataclass(frozen=True, slots=True)
class LintReport:
    query_path: str
    schema_source: Mapping[str, str]
    results: tuple[QueryResult, ...] = ()
    findings: tuple[Finding, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = field(default=(), repr=False)

    @property
    def errors(self) -> int:
        broken = sum(result.error is not None for result in self.results)
        return broken + self._count(Severity.ERROR)

    @property
    def warnings(self) -> int:
        return sum(len(r.warnings) for r in self.results) + self._count(Severity.WARNING)

    @property
    def infos(self) -> int:
        return self._count(Severity.INFO)

    @property
    def status(self) -> str:
        return "error" if self.errors else "ok"

    def _count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "schema_source": dict(self.schema_source),
            "query_path": self.query_path,
            "queries_processed": len(self.results),
            "errors": self.errors,
            "warnings": self.warnings,
            "infos": self.infos,
            "results": to_json(self.results),
            "findings": to_json(self.findings),
            "diagnostics": [diagnostic.to_json() for diagnostic in self.diagnostics],
        }


def lint_queries(catalog: Catalog, source: Source, schema_source: Mapping[str, str]) -> LintReport:
    """Check every query of a text.

    >>> from omnigraph.lang.schema.compile import compile_schema
    >>> catalog = compile_schema("node Person { name: String @key }")
    >>> text = "query q() { match { $p: Persn } return { $p.name } }"
    >>> report = lint_queries(catalog, Source("q.gq", text), {"kind": "file", "path": "s.pg"})
    >>> report.results[0].error
    'type error: T1: unknown node type `Persn`'
    """
    file, problems = parse_queries(source)
    if problems:
        first = problems[0]
        message = f"{first.location}: {first.text}"
        finding = Finding(Severity.ERROR, "Q000", message)
        return LintReport(
            source.name, schema_source, findings=(finding,), diagnostics=tuple(problems)
        )
    results: list[QueryResult] = []
    diagnostics: list[Diagnostic] = duplicate_names(source, file)
    findings = [Finding(Severity.ERROR, problem.code, problem.message) for problem in diagnostics]
    valid: list[CheckedQuery] = []
    for query in file.queries:
        checked, problems = examine_query(catalog, source, query)
        if checked is not None:
            valid.append(checked)
            problems += _warnings(source, query, checked)
        diagnostics += problems
        results.append(_result(catalog, query, checked, problems))
    uncovered = _uncovered(catalog, valid)
    findings += uncovered
    findings.sort(key=lambda finding: finding.rank)
    spans = {query.name: query.name_span for query in file.queries}
    for finding in uncovered:
        # The property is in the schema; the query without the assignment is in this file.
        span = spans[finding.query_names[0]]
        diagnostics.append(
            Diagnostic(
                Phase.LINT,
                finding.code,
                finding.message,
                source,
                span,
                f"set it in an update of {finding.type_name}, if it may change",
                finding.severity,
            )
        )
    return LintReport(
        source.name, schema_source, tuple(results), tuple(findings), tuple(diagnostics)
    )


def _result(
    catalog: Catalog, query: ast.Query, checked: CheckedQuery | None, problems: list[Diagnostic]
) -> QueryResult:
    errors = [finding for finding in problems if finding.severity is Severity.ERROR]
    warnings = [finding.message for finding in problems if finding.severity is Severity.WARNING]
    more = f" (+{len(errors) - 1} more)" if len(errors) > 1 else ""
    return QueryResult(
        query.name,
        "mutation" if query.is_mutation else "read",
        "error" if errors else "ok",
        tuple(warnings),
        f"{errors[0].text}{more}" if errors else None,
        None if checked is None else describe(catalog, checked),
    )


def _warnings(source: Source, query: ast.Query, checked: CheckedQuery) -> list[Diagnostic]:
    """Warnings beyond those of the checker."""

    def warn(code: str, message: str, hint: str | None = None) -> Diagnostic:
        span = query.name_span
        return Diagnostic(Phase.LINT, code, message, source, span, hint, Severity.WARNING)

    if isinstance(checked, CheckedRead):
        if is_connected(checked.pattern):
            return []
        message = "some patterns share no variable: every combination of their rows is returned"
        return [warn("L205", message, "connect them by a traversal or a condition")]
    warnings: list[Diagnostic] = []
    if not query.params:
        warnings.append(warn("L101", NO_PARAMS))
    kinds = {statement.kind is StatementKind.DELETE for statement in checked.statements}
    if len(kinds) == 2:
        message = "this mixes inserts/updates and deletes, which is refused before it runs"
        warnings.append(warn("L102", message, "split into separate mutations"))
    return warnings


def _uncovered(catalog: Catalog, queries: Iterable[CheckedQuery]) -> list[Finding]:
    """Nullable properties of updated node types that no query sets (L201)."""
    updating: dict[str, set[str]] = {}
    assigned: dict[str, set[str]] = {}
    for query in queries:
        if isinstance(query, CheckedRead):
            continue
        for statement in query.statements:
            is_node = statement.entity is EntityKind.NODE
            if statement.kind is StatementKind.UPDATE and is_node:
                updating.setdefault(statement.type_name, set()).add(query.name)
                given = (name for name, _ in statement.assignments)
                assigned.setdefault(statement.type_name, set()).update(given)
    findings: list[Finding] = []
    for type_name, query_names in updating.items():
        node = catalog.node_types[type_name]
        for name, prop in node.properties.items():
            settable = prop.type.nullable and name not in node.key and name not in node.embeds
            if settable and name not in assigned[type_name]:
                message = f"{type_name}.{name} exists in schema but no update query sets it"
                names = tuple(sorted(query_names))
                findings.append(Finding(Severity.WARNING, "L201", message, type_name, name, names))
    return findings
