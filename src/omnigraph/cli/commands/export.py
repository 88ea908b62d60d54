"""``omnigraph export``: the graph as JSON lines or Parquet files."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from omnigraph.cli.engines import add_engine, spark_config
from omnigraph.cli.options import add_snapshot, add_uri, snapshot_arguments
from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import progress_bar
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.cli.targets import open_graph
from omnigraph.errors import InputError

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "export",
        run,
        Capability.ANY,
        "export the graph",
        description="Writes the graph as JSON lines, which `load` reads, or as Parquet files.",
    )
    add_uri(parser)
    add_snapshot(parser, "tag")
    parser.add_argument(
        "--type", action="append", default=[], metavar="T", help="only this type; repeatable"
    )
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="KEY",
        help="only this table, such as node:Person; repeatable",
    )
    parser.add_argument(
        "--format", choices=("ndjson", "parquet"), default="ndjson", help="output format"
    )
    parser.add_argument(
        "--out", metavar="PATH", help="output file, or directory for Parquet; default: stdout"
    )
    parser.add_argument("--jsonl", action="store_true", help=argparse.SUPPRESS)
    add_engine(parser, ("local", "spark"))


def run(arguments: argparse.Namespace) -> int:
    if arguments.jsonl:
        terminal.warn("`omnigraph export --jsonl` is deprecated; use `omnigraph export` instead")
    with open_graph(arguments, "r") as (graph, _):
        types = _types(graph, arguments.type, arguments.table)
        with progress_bar("export") as line:
            if arguments.out is not None:
                line.show("writing")
            snapshot = graph.snapshot(**snapshot_arguments(arguments))
            exported: Any = snapshot.export(
                arguments.out,
                arguments.format,
                types=types,
                engine=arguments.engine,
                spark=spark_config(arguments),
            )
        if isinstance(exported, int):
            terminal.note(f"exported {exported} rows to {arguments.out}")
        else:
            for text in exported:
                terminal.show_json_text(text if text.endswith("\n") else f"{text}\n")
    return terminal.OK


def _types(graph: Graph, names: list[str], keys: list[str]) -> list[str] | None:
    """The table keys to export; a name may denote a node type, an edge type, or both."""
    if not names and not keys:
        return None
    catalog = graph.catalog
    tables = {node.table_key: name for name, node in catalog.node_types.items()}
    tables |= {edge.table_key: name for name, edge in catalog.edge_types.items()}
    for name in names:
        if name not in tables.values():
            existing = ", ".join(tables.values())
            raise InputError(f"unknown export type '{name}'", hint=f"types: {existing}")
    for key in keys:
        if key not in tables:
            raise InputError(f"unknown export table '{key}'", hint=f"tables: {', '.join(tables)}")
    return [key for key, name in tables.items() if name in names or key in keys]
