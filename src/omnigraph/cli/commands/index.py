"""``omnigraph index``: show, complete and rebuild indexes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from omnigraph.cli.options import add_branch
from omnigraph.cli.output.progress import progress_bar
from omnigraph.cli.output.report import field_lines, show_report
from omnigraph.cli.registry import Capability, Commands, family
from omnigraph.cli.targets import echo, open_graph, resolve_target

if TYPE_CHECKING:
    from omnigraph.maintain.optimize.indexes import IndexReport

KEY_WIDTH = 24


def add(commands: Commands) -> None:
    index = family(commands, "index", "show and build indexes", Capability.DIRECT, in_cluster=True)
    parser = index.add(
        "status",
        run_status,
        "show the indexes of a branch",
        description="Shows every index declared in the schema: whether it is built, how many rows "
        "it covers and how many need a scan, its size, and why it would be rebuilt.",
        uri="positional",
    )
    add_branch(parser)
    parser.add_argument(
        "--measure-recall",
        action="store_true",
        help="search for stored vectors and report the recall of each vector index",
    )
    parser = index.add(
        "ensure",
        run_ensure,
        "build missing indexes",
        description="Builds missing indexes and rebuilds unsuitable ones, in one commit.",
        writes=True,
        uri="positional",
    )
    add_branch(parser, "branch to index")
    parser = index.add(
        "rebuild",
        run_rebuild,
        "rebuild indexes",
        description="Rebuilds the indexes of a type, or of one column, in one commit: to replace "
        "damaged indexes, or to train vector indexes on the current rows.",
        writes=True,
    )
    parser.add_argument("type", metavar="TYPE", help="a type, or a table such as node:Person")
    parser.add_argument("column", nargs="?", metavar="COLUMN", help="only indexes of this column")
    add_branch(parser, "branch to index")


def run_status(arguments: argparse.Namespace) -> int:
    with open_graph(arguments, "r") as (graph, target), progress_bar("index status") as line:
        if arguments.measure_recall:
            line.show("measuring")
        report = graph.indexes.status(arguments.branch, measure_recall=arguments.measure_recall)
    return show_report(arguments, _document(arguments, target.uri, report), _status_lines(report))


def run_ensure(arguments: argparse.Namespace) -> int:
    return _build(arguments, "index ensure")


def run_rebuild(arguments: argparse.Namespace) -> int:
    return _build(arguments, "index rebuild")


def _build(arguments: argparse.Namespace, name: str) -> int:
    target = resolve_target(arguments)
    echo(arguments, target, name)
    with open_graph(arguments, "rw", target) as (graph, _), progress_bar(name) as line:
        line.show("building")
        if name == "index ensure":
            report = graph.indexes.ensure(arguments.branch)
        else:
            report = graph.indexes.rebuild(
                arguments.type, arguments.column, branch=arguments.branch
            )
    return show_report(arguments, _document(arguments, target.uri, report), _build_lines(report))


def _document(arguments: argparse.Namespace, uri: str, report: IndexReport) -> dict[str, Any]:
    return {"uri": uri, "branch": arguments.branch, **report.to_json()}


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
        name = f"{fields['table_key']:{KEY_WIDTH}} {fields['column']} ({fields['kind']})"
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
