"""``omnigraph snapshot``: the tables of a branch, and their versions."""

from __future__ import annotations

import argparse

from omnigraph.cli.about import INTERNAL_SCHEMA
from omnigraph.cli.output import terminal
from omnigraph.cli.registry import Capability, Commands, add_json, add_uri, command
from omnigraph.cli.targets import opened


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "snapshot",
        run,
        Capability.ANY,
        "show the tables of a branch, their versions and rows",
    )
    add_uri(parser)
    parser.add_argument("--branch", default="main", metavar="B", help="the branch")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Look and show."""
    with opened(arguments, "r") as (graph, _):
        snapshot = graph.snapshot(arguments.branch)
        tables = sorted(snapshot.tables.items())
    if arguments.json:
        terminal.show_json(
            {
                "branch": snapshot.branch,
                "manifest_version": snapshot.version,
                "internal_schema_version": INTERNAL_SCHEMA,
                "tables": [
                    {
                        "table_key": key,
                        "table_path": table["path"],
                        "table_version": table["version"],
                        "table_branch": None if table["branch"] == "main" else table["branch"],
                        "row_count": table["rows"],
                    }
                    for key, table in tables
                ],
            }
        )
        return terminal.OK
    terminal.show(f"branch: {snapshot.branch}")
    terminal.show(f"manifest_version: {snapshot.version}")
    terminal.show(f"internal_schema_version: {INTERNAL_SCHEMA}")
    for key, table in tables:
        terminal.show(f"{key} v{table['version']} branch={table['branch']} rows={table['rows']}")
    return terminal.OK
