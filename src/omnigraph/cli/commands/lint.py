"""``omnigraph lint``: findings about a schema, or about queries against a schema.

The lines on stdout are for scripts; stderr shows the location of each finding with a caret.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from omnigraph.cli import files
from omnigraph.cli.options import add_json, add_uri
from omnigraph.cli.output import terminal
from omnigraph.cli.output.report import show_report
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.cli.targets import open_graph
from omnigraph.errors import InputError
from omnigraph.lang.diagnostics import Diagnostic, Severity, render_all

if TYPE_CHECKING:
    from omnigraph.lang.query.lint import LintReport
    from omnigraph.lang.schema.catalog import Catalog

_LABELS = {Severity.ERROR: "ERROR", Severity.WARNING: "WARN ", Severity.INFO: "INFO "}


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "lint",
        run,
        Capability.DIRECT,
        "check queries against a schema, or a schema alone",
        description="Checks every query of a file against a schema file or the schema of a graph; "
        "without --query, checks the schema file itself.",
        in_cluster=True,
    )
    add_uri(parser)
    parser.add_argument("--schema", metavar="FILE", help=".pg file, instead of a graph")
    parser.add_argument("--query", metavar="FILE", help=".gq file")
    add_json(parser, "print the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Lint and report; exit code 1 if there is an error."""
    if arguments.query is None:
        if arguments.schema is None:
            raise InputError("nothing to check", hint="pass --query, --schema or both")
        return _lint_schema(arguments)
    if arguments.schema is not None:
        if arguments.uri is not None or arguments.store is not None:
            raise InputError("a graph and --schema are mutually exclusive: queries have one schema")
        from omnigraph.lang.schema.compile import compile_schema

        catalog = compile_schema(files.read_source(arguments.schema))
        return _lint_queries(catalog, {"kind": "file", "path": arguments.schema}, arguments)
    with open_graph(arguments, "r") as (graph, target):
        catalog = graph.catalog
    return _lint_queries(catalog, {"kind": "graph", "uri": target.uri}, arguments)


def _lint_queries(catalog: Catalog, origin: dict[str, str], arguments: argparse.Namespace) -> int:
    from omnigraph.lang.query.lint import lint_queries

    report = lint_queries(catalog, files.read_text(arguments.query), origin)
    show_report(arguments, report.to_json(), _query_lines(report))
    return terminal.FAILURE if report.status == "error" else terminal.OK


def _query_lines(report: LintReport) -> Iterator[str]:
    for result in report.results:
        if result.error is None:
            yield f"OK    query `{result.name}` ({result.kind})"
        else:
            yield f"ERROR query `{result.name}`: {result.error}"
        for warning in result.warnings:
            yield f"WARN  query `{result.name}`: {warning}"
    for finding in report.findings:
        yield f"{_LABELS[finding.severity]} {finding.message}"
    _note_locations(report.diagnostics)
    yield _summary(f"{len(report.results)} queries", report.errors, report.warnings, report.infos)


def _lint_schema(arguments: argparse.Namespace) -> int:
    from omnigraph.lang.schema.compile import analyze_schema
    from omnigraph.lang.schema.lint import lint_schema

    source = files.read_source(arguments.schema)
    file, diagnostics = analyze_schema(source)
    if not diagnostics:
        diagnostics = lint_schema(file, source)
    errors, warnings, infos = (
        sum(diagnostic.severity is severity for diagnostic in diagnostics) for severity in _LABELS
    )
    document = {
        "status": "error" if errors else "ok",
        "schema_source": {"kind": "file", "path": arguments.schema},
        "errors": errors,
        "warnings": warnings,
        "infos": infos,
        "findings": [diagnostic.to_json() for diagnostic in diagnostics],
    }
    summary = _summary("1 schema", errors, warnings, infos)
    show_report(arguments, document, _schema_lines(diagnostics, summary))
    return terminal.FAILURE if errors else terminal.OK


def _schema_lines(diagnostics: Sequence[Diagnostic], summary: str) -> Iterator[str]:
    for diagnostic in diagnostics:
        label = _LABELS[diagnostic.severity]
        yield f"{label} {diagnostic.location}: {diagnostic.code}: {diagnostic.message}"
    _note_locations(diagnostics)
    yield summary


def _summary(processed: str, errors: int, warnings: int, infos: int) -> str:
    counts = f"{errors} error(s), {warnings} warning(s), {infos} info item(s)"
    return f"INFO  Lint complete: {processed} processed ({counts})"


def _note_locations(diagnostics: Sequence[Diagnostic]) -> None:
    if diagnostics:
        terminal.note_lines(render_all(diagnostics).splitlines())
