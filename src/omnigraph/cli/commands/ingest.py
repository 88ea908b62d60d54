"""``omnigraph ingest``: the deprecated form of ``load``, kept for scripts."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from omnigraph.cli.commands.load import MODES
from omnigraph.cli.options import add_branch, add_json, add_local_files, add_uri
from omnigraph.cli.output import terminal
from omnigraph.cli.output.report import field_lines, show_report
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.cli.targets import echo, open_graph, resolve_target


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "ingest",
        run,
        Capability.ANY,
        "load a file into a branch (deprecated form of load)",
        writes=True,
        is_hidden=True,
    )
    add_uri(parser)
    parser.add_argument("--data", required=True, metavar="FILE", help="file to load")
    parser.add_argument("--mode", choices=MODES, default="merge", help="how to treat existing rows")
    add_branch(parser, "branch to load into")
    parser.add_argument(
        "--from", dest="base", default="main", metavar="BASE", help="base of a new branch"
    )
    add_local_files(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    terminal.warn("`omnigraph ingest` is deprecated; use `omnigraph load` instead")
    target = resolve_target(arguments)
    echo(arguments, target)
    with open_graph(arguments, "rw", target) as (graph, _):
        receipt = graph.load(
            arguments.data,
            arguments.mode,
            arguments.branch,
            arguments.base,
            allow_local_files=arguments.allow_local_files,
        )
    document = {
        "uri": target.uri,
        "branch": receipt.branch,
        "base_branch": arguments.base,
        "branch_created": receipt.branch_created,
        "mode": arguments.mode,
        "tables": [
            {"table_key": key, "rows_loaded": counts.affected}
            for key, counts in sorted(receipt.tables.items())
        ],
        "actor_id": receipt.actor,
    }
    return show_report(arguments, document, _lines(document))


def _lines(document: dict[str, Any]) -> Iterator[str]:
    state = "created" if document["branch_created"] else "exists"
    yield (
        f"ingested {document['uri']} into branch {document['branch']} "
        f"from {document['base_branch']} with {document['mode']} (branch {state})"
    )
    for table in document["tables"]:
        yield f"{table['table_key']} rows_loaded={table['rows_loaded']}"
    yield from field_lines(document, "actor_id")
