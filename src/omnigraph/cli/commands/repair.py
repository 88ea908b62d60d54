"""``omnigraph repair``: tables that were written past the graph."""

from __future__ import annotations

import argparse

from omnigraph.cli.commands.optimize import KEY_WIDTH
from omnigraph.cli.output import terminal
from omnigraph.cli.registry import Capability, Commands, UsageError, add_json, add_uri, command
from omnigraph.cli.targets import echo, find_target, opened


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "repair",
        run,
        Capability.DIRECT,
        "find and adopt what was written past the graph",
        description="Finds tables whose newest version is not the one that the graph shows. "
        "--confirm adopts what changed no row, --force also the rest. Data is never rewritten.",
        in_cluster=True,
    )
    add_uri(parser)
    parser.add_argument("--branch", default="main", metavar="B", help="whose tables")
    parser.add_argument("--confirm", action="store_true", help="do it; without this only a preview")
    parser.add_argument(
        "--force", action="store_true", help="with --confirm: adopt what changed rows too"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Look or mend, and show."""
    if arguments.force and not arguments.confirm:
        raise UsageError("--force needs --confirm")
    target = find_target(arguments)
    echo(arguments, target)
    with opened(arguments, "rw", target) as (graph, _):
        report = graph.maintenance.repair(
            arguments.branch, confirm=arguments.confirm, force=arguments.force
        )
    tables = [table.to_json() for table in report.tables]
    if arguments.json:
        terminal.show_json(
            {
                "uri": target.uri,
                "confirm": report.confirm,
                "force": report.force,
                "manifest_version": report.manifest_version,
                "tables": tables,
            }
        )
    else:
        mode = "confirm" if arguments.confirm else "preview"
        terminal.show(f"repair {target.uri} — {mode} mode, {len(report.tables)} tables")
        for table in tables:
            versions = f"v{table['manifest_version']} → v{table['lance_head_version']}"
            terminal.show(
                f"{table['table_key']:{KEY_WIDTH}} {table['classification']} "
                f"{table['action']} {versions}"
            )
        if not arguments.confirm and any(t["action"] == "preview" for t in tables):
            terminal.show("nothing was changed; rerun with --confirm")
    refused = [t["table_key"] for t in tables if t["action"] == "refused"]
    if refused:
        return terminal.fail(
            f"repair refused {', '.join(refused)}: rows were changed past the graph",
            hint="look at the tables; --force adopts what is there",
        )
    return terminal.OK
