"""``omnigraph index``, ``optimize``, ``repair``, ``cleanup``, ``doctor`` and ``verify``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from omnigraph.cli.flags import UsageError
from omnigraph.cli.options import (
    add_branch,
    add_engine,
    add_retention,
    add_switch,
    parse_duration,
    spark_config,
)
from omnigraph.cli.output import terminal
from omnigraph.cli.output.doctor_page import render_doctor
from omnigraph.cli.output.hints import hint_for_options
from omnigraph.cli.output.progress import progress_bar
from omnigraph.cli.output.report import field_lines, show_report
from omnigraph.cli.targets import echo, open_for_write, open_graph, require_consent, resolve_target
from omnigraph.errors import InputError
from omnigraph.maintain.units import format_bytes

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.maintain.cleanup.report import CleanupReport
    from omnigraph.maintain.optimize.indexes import IndexReport
    from omnigraph.maintain.verify.report import VerifyReport

_INDEX_WIDTH, _TABLE_WIDTH = 24, 40


def add_index_status(parser: argparse.ArgumentParser) -> None:
    add_branch(parser)
    add_switch(
        parser,
        "--measure-recall",
        "search for stored vectors and report the recall of each vector index",
    )


def add_index_ensure(parser: argparse.ArgumentParser) -> None:
    add_branch(parser, "branch to index")


def add_index_rebuild(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("type", metavar="TYPE", help="a type, or a table such as node:Person")
    parser.add_argument("column", nargs="?", metavar="COLUMN", help="only indexes of this column")
    add_branch(parser, "branch to index")


def run_index_status(arguments: argparse.Namespace) -> int:
    """Shows every index declared in the schema: whether it is built, how many rows it covers and
    how many need a scan, its size, and why it would be rebuilt.
    """
    with open_graph(arguments, "r") as (graph, target), progress_bar("index status") as line:
        if arguments.measure_recall:
            line.show("measuring")
        report = graph.indexes.status(arguments.branch, measure_recall=arguments.measure_recall)
    document = {"uri": target.uri, "branch": arguments.branch, **report.to_json()}
    return show_report(arguments, document, _status_lines(report))


def run_index_ensure(arguments: argparse.Namespace) -> int:
    """Builds missing indexes and rebuilds unsuitable ones, in one commit."""
    return _build(arguments, lambda graph: graph.indexes.ensure(arguments.branch))


def run_index_rebuild(arguments: argparse.Namespace) -> int:
    """Rebuilds the indexes of a type, or of one column, in one commit: to replace damaged indexes,
    or to train vector indexes on the current rows.
    """
    columns, branch = (arguments.type, arguments.column), arguments.branch
    return _build(arguments, lambda graph: graph.indexes.rebuild(*columns, branch=branch))


def _build(arguments: argparse.Namespace, build: Callable[[Graph], IndexReport]) -> int:
    with open_for_write(arguments) as (graph, target), progress_bar(arguments.command) as line:
        line.show("building")
        report = build(graph)
    document = {"uri": target.uri, "branch": arguments.branch, **report.to_json()}
    return show_report(arguments, document, _build_lines(report))


def _build_lines(report: IndexReport) -> Iterator[str]:
    for key, column, kind in report.built:
        yield f"built {key} {column} ({kind.name.lower()})"
    if not report.built:
        yield "nothing to build"
    for state in report.pending:
        if state.reason is not None:
            yield f"pending {state.table_key} {state.column}: {state.reason}"
    yield from field_lines({"commit_id": report.commit_id})


def _status_lines(report: IndexReport) -> Iterator[str]:
    for index in report.indexes:
        fields = index.to_json()
        name = f"{fields['table_key']:{_INDEX_WIDTH}} {fields['column']} ({fields['kind']})"
        yield f"{name}  {_state(fields)}"
        for key, value in fields["parameters"].items():
            yield f"  {key}: {str(value).lower() if isinstance(value, bool) else value}"
        if fields["rebuild"] is not None:
            yield f"  ↳ to be rebuilt: {fields['rebuild']}"


def _state(fields: dict[str, Any]) -> str:
    if not fields["built"]:
        return f"pending: {fields['reason'] or 'not built yet'}"
    state = f"{fields['method']} rows={fields['rows']} outside={fields['rows_outside']}"
    state += f" bytes={fields['bytes']} segments={fields['segments']}"
    return state if fields["recall"] is None else f"{state} recall={fields['recall']:.3f}"


def add_optimize(parser: argparse.ArgumentParser) -> None:
    add_branch(parser, "branch to optimize")
    add_switch(parser, "--if-needed", "skip tables that would gain little")
    add_engine(parser, ("auto", "local", "spark"))


def run_optimize(arguments: argparse.Namespace) -> int:
    """Compacts small fragments, drops deleted rows from them and completes indexes, in one commit.
    The content of the graph does not change.
    """
    spark = spark_config(arguments)
    with open_for_write(arguments) as (graph, target), progress_bar("optimize") as line:
        report = graph.maintenance.optimize(
            arguments.branch,
            engine=arguments.engine,
            spark=spark,
            if_needed=arguments.if_needed,
            on_progress=line.update,
        )
    tables = [table.to_json() for table in report.tables]
    return show_report(
        arguments, {"uri": target.uri, "tables": tables}, _optimize_lines(target.uri, tables)
    )


def _optimize_lines(uri: str, tables: list[dict[str, Any]]) -> Iterator[str]:
    yield f"optimize {uri} — {len(tables)} tables"
    for table in tables:
        yield f"{table['table_key']:{_TABLE_WIDTH}} {_outcome(table)}"
        for pending in table["pending_indexes"]:
            yield f"  ↳ index pending on '{pending['column']}': {pending['reason']}"


def _outcome(table: dict[str, Any]) -> str:
    if table["skipped"]:
        return f"skipped ({table['skipped']})"
    if not table["committed"]:
        return "no-op"
    return f"frags {table['fragments_removed']} → {table['fragments_added']} ✓"


def add_repair(parser: argparse.ArgumentParser) -> None:
    add_branch(parser, "branch to repair")
    add_switch(parser, "--confirm", "repair; without this, only a preview")
    add_switch(parser, "--force", "with --confirm: also adopt versions that changed rows")


def run_repair(arguments: argparse.Namespace) -> int:
    """Finds tables whose newest version is not the published one. --confirm adopts versions that
    changed no row, --force the others too. Data is never rewritten.
    """
    if arguments.force and not arguments.confirm:
        raise UsageError("--force needs --confirm")
    with open_for_write(arguments) as (graph, target):
        report = graph.maintenance.repair(
            arguments.branch, confirm=arguments.confirm, force=arguments.force
        )
    tables = [table.to_json() for table in report.tables]
    document = {
        "uri": target.uri,
        "confirm": report.confirm,
        "force": report.force,
        "manifest_version": report.manifest_version,
        "tables": tables,
    }
    show_report(arguments, document, _repair_lines(document))
    refused = [table["table_key"] for table in tables if table["action"] == "refused"]
    if refused:
        return terminal.fail(
            f"repair refused {', '.join(refused)}: rows were changed outside of OmniGraph",
            hint="inspect the tables; --force adopts their current content",
        )
    return terminal.OK


def _repair_lines(document: dict[str, Any]) -> Iterator[str]:
    tables = document["tables"]
    mode = "confirm" if document["confirm"] else "preview"
    yield f"repair {document['uri']} — {mode} mode, {len(tables)} tables"
    for table in tables:
        yield (
            f"{table['table_key']:{_TABLE_WIDTH}} {table['classification']} {table['action']} "
            f"v{table['manifest_version']} → v{table['lance_head_version']}"
        )
    if not document["confirm"] and any(table["action"] == "preview" for table in tables):
        yield "nothing was changed; rerun with --confirm"


def add_cleanup(parser: argparse.ArgumentParser) -> None:
    add_retention(parser, "versions of each table")
    parser.add_argument(
        "--min-age",
        metavar="DUR",
        help="keep anything younger; default: one hour, one day for orphaned files",
    )
    parser.add_argument(
        "--feed-retention", metavar="DUR", help="keep commits of this period for change feeds"
    )


def run_cleanup(arguments: argparse.Namespace) -> int:
    """Deletes table versions that exceed the limits and are not referenced, and the leftovers of
    interrupted writers. With both limits, a version must exceed both.
    """
    keep = arguments.keep
    if keep is None and arguments.older_than is None:
        raise InputError(
            "cleanup needs a policy: pass --keep, --older-than or both",
            hint="for example: omnigraph cleanup --keep 10 --older-than 7d",
        )
    older_than = parse_duration(arguments.older_than)
    min_age = parse_duration(arguments.min_age)
    feed_retention = parse_duration(arguments.feed_retention)
    target = resolve_target(arguments)
    limits = {"keep": keep, "older than": arguments.older_than}
    policy = ", ".join(f"{name} {limit}" for name, limit in limits.items() if limit is not None)
    if not arguments.confirm and not arguments.dry_run:
        terminal.note(
            "cleanup is destructive — rerun with --confirm. "
            f"Policy for {target.uri}: {policy}. --dry-run reports what would be deleted"
        )
        return terminal.OK
    if not arguments.dry_run:
        require_consent(arguments, target, "cleanup")
        echo(arguments, target)
    with open_graph(arguments, "rw", target) as (graph, _), progress_bar("cleanup") as line:
        report = graph.maintenance.cleanup(
            keep,
            older_than,
            dry_run=arguments.dry_run,
            min_age=min_age,
            feed_retention=feed_retention,
            on_progress=line.update,
        )
    document = {"uri": target.uri, "keep_versions": keep, "older_than_secs": older_than}
    return show_report(
        arguments, {**document, **report.to_json()}, _cleanup_lines(report, target.uri, policy)
    )


def _cleanup_lines(report: CleanupReport, uri: str, policy: str) -> Iterator[str]:
    versions = sum(table.old_versions_removed for table in report.tables)
    removed = sum(table.bytes_removed for table in report.tables)
    verb = "would remove" if report.dry_run else "removed"
    yield (
        f"cleanup {uri} ({policy}) — {verb} {versions} versions ({removed} bytes) "
        f"across {len(report.tables)} tables"
    )
    failures = [f"{table.table_key}: {table.error}" for table in report.tables if table.error]
    if failures:
        yield f"failed: {'; '.join(failures)}"
    manifest = report.manifest
    yield (
        f"history: {manifest.old_versions_removed} manifest versions "
        f"({format_bytes(manifest.bytes_removed)}); "
        f"main is complete from version {manifest.floor} on"
    )
    for name, removal in (
        ("orphaned forks", report.forks),
        ("orphaned files", report.files),
        ("dropped tables", report.dropped),
        ("topologies", report.topologies),
        ("markers", report.markers),
    ):
        if removal.count:
            yield f"{name}: {removal.count} ({format_bytes(removal.bytes)})"
    for skipped in report.skipped:
        yield f"skipped: {skipped.what}: {skipped.reason}"
    yield f"total: {format_bytes(report.bytes_removed)}"


def add_doctor(parser: argparse.ArgumentParser) -> None:
    add_branch(parser, "branch to examine")


def run_doctor(arguments: argparse.Namespace) -> int:
    with open_graph(arguments, "r") as (graph, target):
        report = graph.maintenance.doctor(arguments.branch)
    document = {**report.to_json(), "uri": target.uri}
    return show_report(arguments, document, render_doctor(report).splitlines())


def add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--branch", metavar="B", help="only this branch")
    add_switch(parser, "--no-checksums", "do not compare file contents")


def run_verify(arguments: argparse.Namespace) -> int:
    """Checks that every table opens, history is connected, rows satisfy the schema, indexes match
    the rows and files are unchanged since they were written. Changes nothing. Exits with 1 if there
    is damage.
    """
    target = resolve_target(arguments)
    with progress_bar("verify") as line:
        options: dict[str, Any] = {
            "checksums": not arguments.no_checksums,
            "on_progress": line.update,
        }
        if target.is_served:
            with open_graph(arguments, "r", target) as (graph, _):
                report = graph.maintenance.verify(arguments.branch, **options)
        else:
            from omnigraph.api.maintenance import verify_graph

            # Also for a graph that is too damaged to be opened.
            report = verify_graph(target.uri, arguments.branch, **options)
    document = {"uri": target.uri, **report.to_json()}
    show_report(arguments, document, _verify_lines(report, target.uri, not arguments.no_checksums))
    return terminal.OK if report.is_sound else terminal.FAILURE


def _verify_lines(report: VerifyReport, uri: str, with_checksums: bool) -> Iterator[str]:
    yield f"verify {uri} — {'sound' if report.is_sound else 'damaged'}"
    yield (
        f"checked {len(report.branches)} branches, {report.tables} tables, {report.rows} rows, "
        f"{report.indexes} indexes, {report.files} files ({format_bytes(report.bytes)})"
    )
    if with_checksums:
        yield f"checksums: {report.checked} files match, {report.unverified} not recorded"
    for problem in report.problems:
        location = ", ".join(filter(None, (problem.table, problem.branch, problem.file)))
        weight = problem.weight.value
        label = terminal.paint(weight, "red" if weight == "error" else "yellow")
        yield f"{label} {problem.code.value} [{location}]: {problem.message}"
        if problem.hint:
            yield f"  hint: {hint_for_options(problem.hint)}"
