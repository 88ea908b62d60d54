"""``omnigraph lint``: findings about a schema, or about queries against a schema.

The lines on stdout are what scripts read; where each finding stands in the text is shown with a
caret on stderr.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from omnigraph.cli import files
from omnigraph.cli.output import terminal
from omnigraph.cli.registry import Capability, Commands, add_uri, command
from omnigraph.cli.targets import opened
from omnigraph.errors import InputError
from omnigraph.lang.diagnostics import Diagnostic, Severity, render_all

if TYPE_CHECKING:
    from omnigraph.lang.query.lint import LintReport
    from omnigraph.lang.schema.catalog import Catalog

_LABELS = {Severity.ERROR: "ERROR", Severity.WARNING: "WARN ", Severity.INFO: "INFO "}


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "lint",
        run,
        Capability.DIRECT,
        "check queries against a schema, or a schema alone",
        description="Checks every query of a file against a schema file, or against the schema "
        "of a graph; without --query, the schema file itself.",
        in_cluster=True,
    )
    add_uri(parser)
    parser.add_argument("--schema", metavar="FILE", help="the .pg file, instead of a graph")
    parser.add_argument("--query", metavar="FILE", help="the .gq file")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Lint and report; the exit code says whether there is an error."""
    if arguments.query is None:
        if arguments.schema is None:
            raise InputError("there is nothing to check", hint="pass --query, --schema or both")
        return _lint_schema(arguments.schema, as_json=arguments.json)
    if arguments.schema is not None:
        if arguments.uri is not None or arguments.store is not None:
            raise InputError("a graph and --schema are mutually exclusive: queries have one schema")
        from omnigraph.lang.schema import compile_schema

        catalog = compile_schema(files.read_source(arguments.schema))
        return _lint_queries(catalog, {"kind": "file", "path": arguments.schema}, arguments)
    with opened(arguments, "r") as (graph, target):
        catalog = graph.catalog
    return _lint_queries(catalog, {"kind": "graph", "uri": target.uri}, arguments)


def _lint_queries(catalog: Catalog, origin: dict[str, str], arguments: argparse.Namespace) -> int:
    from omnigraph.lang.query.lint import lint_queries

    report = lint_queries(catalog, files.read_text(arguments.query), origin)
    if arguments.json:
        terminal.show_json(report.to_json())
    else:
        _show_report(report)
    return terminal.FAILURE if report.status == "error" else terminal.OK


def _show_report(report: LintReport) -> None:
    for result in report.results:
        if result.error is None:
            terminal.show(f"OK    query `{result.name}` ({result.kind})")
        else:
            terminal.show(f"ERROR query `{result.name}`: {result.error}")
        for warning in result.warnings:
            terminal.show(f"WARN  query `{result.name}`: {warning}")
    for finding in report.findings:
        terminal.show(f"{_LABELS[finding.severity]} {finding.message}")
    _show_places(report.diagnostics)
    terminal.show(
        f"INFO  Lint complete: {len(report.results)} queries processed "
        f"({_counts(report.errors, report.warnings, report.infos)})"
    )


def _lint_schema(path: str, *, as_json: bool) -> int:
    from omnigraph.lang.schema import analyze_schema
    from omnigraph.lang.schema.lint import lint_schema

    source = files.read_source(path)
    file, found = analyze_schema(source)
    if not found:
        found = lint_schema(file, source)
    errors, warnings, infos = (sum(d.severity is severity for d in found) for severity in _LABELS)
    if as_json:
        terminal.show_json(
            {
                "status": "error" if errors else "ok",
                "schema_source": {"kind": "file", "path": path},
                "errors": errors,
                "warnings": warnings,
                "infos": infos,
                "findings": [diagnostic.to_json() for diagnostic in found],
            }
        )
    else:
        for diagnostic in found:
            label = _LABELS[diagnostic.severity]
            terminal.show(f"{label} {diagnostic.location}: {diagnostic.code}: {diagnostic.message}")
        _show_places(found)
        terminal.show(
            f"INFO  Lint complete: 1 schema processed ({_counts(errors, warnings, infos)})"
        )
    return terminal.FAILURE if errors else terminal.OK


def _counts(errors: int, warnings: int, infos: int) -> str:
    return f"{errors} error(s), {warnings} warning(s), {infos} info item(s)"


def _show_places(diagnostics: Sequence[Diagnostic]) -> None:
    if diagnostics:
        terminal.note_lines(render_all(diagnostics).splitlines())
