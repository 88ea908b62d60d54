"""``omnigraph verify``: check the integrity of a graph, down to its bytes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from omnigraph.cli.options import add_json, add_uri
from omnigraph.cli.output import terminal
from omnigraph.cli.output.hints import hint_for_options
from omnigraph.cli.output.progress import progress_bar
from omnigraph.cli.output.report import show_report
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.cli.targets import resolve_target
from omnigraph.maintain.units import format_bytes

if TYPE_CHECKING:
    from omnigraph.maintain.verify.report import VerifyReport


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "verify",
        run,
        Capability.DIRECT,
        "check the integrity of a graph, down to its bytes",
        description="Checks that every table opens, history is connected, rows satisfy the "
        "schema, indexes match the rows and files are unchanged since they were written. Changes "
        "nothing. Exits with 1 if there is damage.",
        in_cluster=True,
    )
    add_uri(parser)
    parser.add_argument("--branch", metavar="B", help="only this branch")
    parser.add_argument("--no-checksums", action="store_true", help="do not compare file contents")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check a graph, including one that no longer opens."""
    target = resolve_target(arguments)
    from omnigraph.api.maintenance import verify_graph

    with progress_bar("verify") as line:
        report = verify_graph(
            target.storage("verify"),
            arguments.branch,
            checksums=not arguments.no_checksums,
            on_progress=line.update,
        )
    document = {"uri": target.uri, **report.to_json()}
    show_report(arguments, document, _lines(report, target.uri, not arguments.no_checksums))
    return terminal.OK if report.is_sound else terminal.FAILURE


def _lines(report: VerifyReport, uri: str, with_checksums: bool) -> Iterator[str]:
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
