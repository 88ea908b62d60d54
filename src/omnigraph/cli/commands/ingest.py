"""``omnigraph ingest``: the old form of ``load``, kept for scripts."""

from __future__ import annotations

import argparse

from omnigraph.cli.commands.load import MODES
from omnigraph.cli.output import terminal
from omnigraph.cli.registry import Capability, Commands, add_json, add_local_files, add_uri, command
from omnigraph.cli.targets import echo, find_target, opened


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "ingest",
        run,
        Capability.ANY,
        "load a file into a branch (old form of load)",
        writes=True,
        is_hidden=True,
    )
    add_uri(parser)
    parser.add_argument("--data", required=True, metavar="FILE", help="the file")
    parser.add_argument(
        "--mode", choices=MODES, default="merge", help="what happens to rows that are there already"
    )
    parser.add_argument("--branch", default="main", metavar="B", help="where to")
    parser.add_argument("--from", dest="base", default="main", metavar="BASE", help="its base")
    add_local_files(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Load, with a warning that there is a better command."""
    terminal.warn("`omnigraph ingest` is deprecated; use `omnigraph load` instead")
    target = find_target(arguments)
    echo(arguments, target)
    with opened(arguments, "rw", target) as (graph, _):
        receipt = graph.load(
            arguments.data,
            arguments.mode,
            arguments.branch,
            arguments.base,
            allow_local_files=arguments.allow_local_files,
        )
    tables = [
        {"table_key": key, "rows_loaded": counts.affected}
        for key, counts in sorted(receipt.tables.items())
    ]
    if arguments.json:
        terminal.show_json(
            {
                "uri": target.uri,
                "branch": receipt.branch,
                "base_branch": arguments.base,
                "branch_created": receipt.branch_created,
                "mode": arguments.mode,
                "tables": tables,
                "actor_id": receipt.actor,
            }
        )
        return terminal.OK
    state = "created" if receipt.branch_created else "exists"
    terminal.show(
        f"ingested {target.uri} into branch {receipt.branch} from {arguments.base} "
        f"with {arguments.mode} (branch {state})"
    )
    for table in tables:
        terminal.show(f"{table['table_key']} rows_loaded={table['rows_loaded']}")
    if receipt.actor is not None:
        terminal.show(f"actor_id: {receipt.actor}")
    return terminal.OK
