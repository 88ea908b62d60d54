"""``omnigraph verify``: whether a graph is what it says it is, down to its bytes."""

from __future__ import annotations

import argparse

from omnigraph.cli.output import terminal
from omnigraph.cli.output.hints import in_options
from omnigraph.cli.output.progress import bar
from omnigraph.cli.registry import Capability, Commands, add_json, add_uri, command
from omnigraph.cli.targets import find_target
from omnigraph.maintain.units import format_bytes


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "verify",
        run,
        Capability.DIRECT,
        "check the graph, down to its bytes",
        description="Checks that every table opens, history is connected, rows keep the rules, "
        "indexes agree with rows and files are what was written. Changes nothing. Exit code 1 "
        "when something is wrong.",
        in_cluster=True,
    )
    add_uri(parser)
    parser.add_argument("--branch", metavar="B", help="only this branch")
    parser.add_argument(
        "--no-checksums",
        action="store_true",
        help="do not compare the bytes of files; trust the disk",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check and report; also a graph that does not open any more."""
    target = find_target(arguments)
    from omnigraph.api.maintenance import verify_graph

    with bar("verify") as line:
        report = verify_graph(
            target.storage("verify"),
            arguments.branch,
            checksums=not arguments.no_checksums,
            on_progress=lambda told: line.show(told.phase, told.done, told.total),
        )
    if arguments.json:
        terminal.show_json({"uri": target.uri, **report.to_json()})
        return terminal.OK if report.is_sound else terminal.FAILURE
    state = "sound" if report.is_sound else "damaged"
    terminal.show(f"verify {target.uri} — {state}")
    terminal.show(
        f"looked at {len(report.branches)} branches, {report.tables} tables, {report.rows} rows, "
        f"{report.indexes} indexes, {report.files} files ({format_bytes(report.bytes)})"
    )
    if not arguments.no_checksums:
        terminal.show(f"checksums: {report.checked} files agree, {report.unverified} not recorded")
    for problem in report.problems:
        place = ", ".join(filter(None, (problem.table, problem.branch, problem.file)))
        word = terminal.paint(problem.weight.value, _colour(problem.weight.value))
        terminal.show(f"{word} {problem.code.value} [{place}]: {problem.message}")
        if problem.hint:
            terminal.show(f"  hint: {in_options(problem.hint)}")
    return terminal.OK if report.is_sound else terminal.FAILURE


def _colour(weight: str) -> str:
    return "red" if weight == "error" else "yellow"
