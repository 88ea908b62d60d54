"""``omnigraph snapshot``: the tables of a branch, and their versions."""

from __future__ import annotations

import argparse

from omnigraph.cli.about import INTERNAL_SCHEMA
from omnigraph.cli.options import add_branch, add_json, add_uri
from omnigraph.cli.output.report import show_report
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.cli.targets import open_graph


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "snapshot",
        run,
        Capability.ANY,
        "show the tables of a branch, their versions and row counts",
    )
    add_uri(parser)
    add_branch(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    with open_graph(arguments, "r") as (graph, _):
        snapshot = graph.snapshot(arguments.branch)
        tables = sorted(snapshot.tables.items())
    document = {
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
    lines = [
        f"branch: {snapshot.branch}",
        f"manifest_version: {snapshot.version}",
        f"internal_schema_version: {INTERNAL_SCHEMA}",
    ]
    for key, table in tables:
        lines.append(f"{key} v{table['version']} branch={table['branch']} rows={table['rows']}")
    return show_report(arguments, document, lines)
