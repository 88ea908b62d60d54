"""``omnigraph export``: the graph as JSON lines or Parquet files."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from omnigraph.cli.engines import add_engine, chosen_spark
from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import bar
from omnigraph.cli.registry import Capability, Commands, add_uri, command
from omnigraph.cli.targets import opened
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "export",
        run,
        Capability.ANY,
        "write the graph out",
        description="Writes the graph as JSON lines that load takes, or as Parquet files.",
    )
    add_uri(parser)
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--branch", metavar="B", help="the branch; main when nothing is said")
    place.add_argument("--snapshot", metavar="ID", help="the state that a commit left")
    place.add_argument("--tag", metavar="NAME", help="the state that a tag names")
    parser.add_argument(
        "--type", action="append", default=[], metavar="T", help="only this type; again for more"
    )
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="KEY",
        help="only this table, such as node:Person; again for more",
    )
    parser.add_argument(
        "--format", choices=("ndjson", "parquet"), default="ndjson", help="the format"
    )
    parser.add_argument(
        "--out", metavar="PATH", help="a file, stdout if not given; for Parquet a directory"
    )
    parser.add_argument("--jsonl", action="store_true", help=argparse.SUPPRESS)
    add_engine(parser, ("local", "spark"))


def run(arguments: argparse.Namespace) -> int:
    """Write out."""
    if arguments.jsonl:
        terminal.warn("`omnigraph export --jsonl` is deprecated; use `omnigraph export` instead")
    with opened(arguments, "r") as (graph, _):
        types = _types(graph, arguments.type, arguments.table)
        with bar("export") as line:
            if arguments.out is not None:
                line.show("writing")
            branch = "main" if arguments.branch is None else arguments.branch
            snapshot = graph.snapshot(branch, commit=arguments.snapshot, tag=arguments.tag)
            exported: Any = snapshot.export(
                arguments.out,
                arguments.format,
                types=types,
                engine=arguments.engine,
                spark=chosen_spark(arguments),
            )
        if isinstance(exported, int):
            terminal.note(f"exported {exported} rows to {arguments.out}")
        else:
            for text in exported:
                terminal.show_json_text(text if text.endswith("\n") else f"{text}\n")
    return terminal.OK


def _types(graph: Graph, names: list[str], keys: list[str]) -> list[str] | None:
    """The types to write; a name may be one of a node, of an edge, or of both."""
    if not names and not keys:
        return None
    catalog = graph.catalog
    known = {kind.table_key: name for name, kind in catalog.node_types.items()}
    known |= {kind.table_key: name for name, kind in catalog.edge_types.items()}
    for name in names:
        if name not in known.values():
            there = ", ".join(known.values())
            raise InputError(f"unknown export type '{name}'", hint=f"there is {there}")
    for key in keys:
        if key not in known:
            raise InputError(f"unknown export table '{key}'", hint=f"there is {', '.join(known)}")
    return [key for key, name in known.items() if name in names or key in keys]
