"""``omnigraph lint`` and ``fmt``: findings about schema and query files, and their layout."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from omnigraph.cli import files
from omnigraph.cli.flags import UsageError
from omnigraph.cli.options import add_json, add_switch
from omnigraph.cli.output import terminal
from omnigraph.cli.output.report import show_report
from omnigraph.cli.targets import open_graph
from omnigraph.errors import InputError, LanguageError
from omnigraph.lang.diagnostics import Diagnostic, Severity, render_all

if TYPE_CHECKING:
    from omnigraph.lang.query.lint import LintReport
    from omnigraph.lang.schema.catalog import Catalog

_LABELS = {Severity.ERROR: "ERROR", Severity.WARNING: "WARN ", Severity.INFO: "INFO "}


def add_lint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schema", metavar="FILE", help=".pg file, instead of a graph")
    parser.add_argument("--query", metavar="FILE", help=".gq file")
    add_json(parser, "print the report as JSON")


def run_lint(arguments: argparse.Namespace) -> int:
    """Checks every query of a file against a schema file or the schema of a graph; without --query,
    checks the schema file itself.
    """
    if arguments.schema is not None and (arguments.uri or arguments.store) is not None:
        raise UsageError("a graph and --schema are mutually exclusive: queries have one schema")
    if arguments.query is None:
        if arguments.schema is None:
            raise UsageError("nothing to check: pass --query, --schema or both")
        return _lint_schema(arguments)
    if arguments.schema is not None:
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


KINDS = ("pg", "gq")


def add_fmt(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="files to format; - reads stdin and writes stdout"
    )
    action = parser.add_mutually_exclusive_group()
    add_switch(
        action,
        "--check",
        "change nothing; list the files that would change, and exit with 1 if there are any",
    )
    add_switch(action, "--stdout", "print the result instead of rewriting the file")
    parser.add_argument("--kind", choices=KINDS, help="language, if the file name does not show it")


def run_fmt(arguments: argparse.Namespace) -> int:
    """Rewrites .pg and .gq files in their canonical layout, in place."""
    exit_code = terminal.OK
    for path in arguments.files:
        try:
            changed = _format_one(path, arguments)
        except LanguageError as error:
            exit_code = terminal.fail(error.render().splitlines())
        except InputError as error:
            exit_code = terminal.fail(error.message, hint=error.hint)
        else:
            if changed and arguments.check:
                terminal.show(path)
                exit_code = terminal.FAILURE
    return exit_code


def _format_one(path: str, arguments: argparse.Namespace) -> bool:
    """Format one file; returns whether its text changes."""
    source = files.read_text(path)
    if (arguments.kind or _kind_of(path)) == "pg":
        from omnigraph.lang.schema.format import format_schema as format_text
    else:
        from omnigraph.lang.query.format import format_queries as format_text
    formatted = format_text(source)
    changed = formatted != source.text
    if arguments.stdout or (path == files.STDIN and not arguments.check):
        terminal.show_source(formatted)
    elif changed and not arguments.check:
        files.replace_text(path, formatted)
    return changed


def _kind_of(path: str) -> str:
    suffix = PurePath(path).suffix.lower().lstrip(".")
    if suffix in KINDS:
        return suffix
    name = files.STDIN_NAME if path == files.STDIN else path
    raise InputError(
        f"{name}: neither a .pg nor a .gq file", hint="choose the language with --kind pg|gq"
    )
