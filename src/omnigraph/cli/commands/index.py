"""``omnigraph index``: which indexes there are, completing them, building them anew."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import bar
from omnigraph.cli.registry import Capability, Commands, add_json, add_uri, command, family
from omnigraph.cli.targets import Target, echo, find_target, opened

if TYPE_CHECKING:
    from omnigraph.maintain.optimize.indexes import IndexReport

KEY_WIDTH = 24


def add(commands: Commands) -> None:
    """Declare the command family."""
    forms = family(commands, "index", "look at indexes and build them")
    parser = _form(
        forms,
        "status",
        run_status,
        "show the indexes of a branch",
        "Shows every index that the schema asks for: whether it is built, how many rows it knows "
        "and how many only a scan finds, its size, and why it would be built anew.",
    )
    add_uri(parser)
    _add_rest(parser)
    parser.add_argument(
        "--measure-recall",
        action="store_true",
        help="search for stored vectors and tell how much each index of vectors finds",
    )
    parser = _form(
        forms,
        "ensure",
        run_ensure,
        "build the indexes that are missing",
        "Builds the indexes that are missing, and anew those that do not fit, in one commit.",
    )
    add_uri(parser)
    _add_rest(parser)
    parser = _form(
        forms,
        "rebuild",
        run_rebuild,
        "build indexes anew",
        "Builds the indexes of a type, or of one column of it, again, in one commit: for indexes "
        "that are damaged, or to learn their parameters from the rows that there are now.",
    )
    parser.add_argument("type", metavar="TYPE", help="the type, or a table such as node:Person")
    parser.add_argument("column", nargs="?", metavar="COLUMN", help="only the indexes of this one")
    add_uri(parser, positional=False)
    _add_rest(parser)


def _form(
    forms: Commands, name: str, run: Any, text: str, description: str
) -> argparse.ArgumentParser:
    return command(
        forms,
        name,
        run,
        Capability.DIRECT,
        text,
        description=description,
        label="index",
        writes=name != "status",
        in_cluster=True,
    )


def _add_rest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--branch", default="main", metavar="B", help="whose tables")
    add_json(parser)


def run_status(arguments: argparse.Namespace) -> int:
    """Look."""
    with opened(arguments, "r") as (graph, target), bar("index status") as line:
        if arguments.measure_recall:
            line.show("measuring")
        report = graph.indexes.status(arguments.branch, measure_recall=arguments.measure_recall)
    if arguments.json:
        _show_json(arguments, target, report)
        return terminal.OK
    _show_states(report)
    return terminal.OK


def run_ensure(arguments: argparse.Namespace) -> int:
    """Build what is missing."""
    target = find_target(arguments)
    echo(arguments, target, "index ensure")
    with opened(arguments, "rw", target) as (graph, _), bar("index ensure") as line:
        line.show("building")
        report = graph.indexes.ensure(arguments.branch)
    return _show_built(arguments, target, report)


def run_rebuild(arguments: argparse.Namespace) -> int:
    """Build again what is named."""
    target = find_target(arguments)
    echo(arguments, target, "index rebuild")
    with opened(arguments, "rw", target) as (graph, _), bar("index rebuild") as line:
        line.show("building")
        report = graph.indexes.rebuild(arguments.type, arguments.column, branch=arguments.branch)
    return _show_built(arguments, target, report)


def _show_json(arguments: argparse.Namespace, target: Target, report: IndexReport) -> None:
    terminal.show_json({"uri": target.uri, "branch": arguments.branch, **report.to_json()})


def _show_built(arguments: argparse.Namespace, target: Target, report: IndexReport) -> int:
    if arguments.json:
        _show_json(arguments, target, report)
        return terminal.OK
    for key, column, kind in report.built:
        terminal.show(f"built {key} {column} ({kind.name.lower()})")
    if not report.built:
        terminal.show("nothing to build")
    for state in report.pending:
        if state.reason is not None:
            terminal.show(f"pending {state.table_key} {state.column}: {state.reason}")
    if report.commit_id is not None:
        terminal.show(f"commit_id: {report.commit_id}")
    return terminal.OK


def _show_states(report: IndexReport) -> None:
    for state in report.indexes:
        told = state.to_json()
        name = f"{told['table_key']:{KEY_WIDTH}} {told['column']} ({told['kind']})"
        terminal.show(f"{name}  {_state(told)}")
        for key, value in told["parameters"].items():
            terminal.show(f"  {key}: {_plain(value)}")
        if told["rebuild"] is not None:
            terminal.show(f"  ↳ to be built anew: {told['rebuild']}")


def _state(told: dict[str, Any]) -> str:
    if not told["built"]:
        return f"pending: {told['reason'] or 'not built yet'}"
    found = f"{told['method']} rows={told['rows']} outside={told['rows_outside']}"
    found += f" bytes={told['bytes']} segments={told['segments']}"
    return found if told["recall"] is None else f"{found} recall={told['recall']:.3f}"


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
