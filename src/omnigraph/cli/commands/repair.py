"""``omnigraph repair``: tables written outside of OmniGraph."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from omnigraph.cli.commands.optimize import KEY_WIDTH
from omnigraph.cli.options import add_branch, add_json, add_uri
from omnigraph.cli.output import terminal
from omnigraph.cli.output.report import show_report
from omnigraph.cli.registry import Capability, Commands, UsageError, command
from omnigraph.cli.targets import echo, open_graph, resolve_target


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "repair",
        run,
        Capability.DIRECT,
        "find and adopt table versions written outside of OmniGraph",
        description="Finds tables whose newest version is not the published one. --confirm adopts "
        "versions that changed no row, --force the others too. Data is never rewritten.",
        in_cluster=True,
    )
    add_uri(parser)
    add_branch(parser, "branch to repair")
    parser.add_argument(
        "--confirm", action="store_true", help="repair; without this, only a preview"
    )
    parser.add_argument(
        "--force", action="store_true", help="with --confirm: also adopt versions that changed rows"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.force and not arguments.confirm:
        raise UsageError("--force needs --confirm")
    target = resolve_target(arguments)
    echo(arguments, target)
    with open_graph(arguments, "rw", target) as (graph, _):
        report = graph.maintenance.repair(
            arguments.branch, confirm=arguments.confirm, force=arguments.force
        )
    tables = [table.to_json() for table in report.tables]
    document = {
        "uri": target.uri,
        "confirm": report.confirm,
        "force": report.force,
        "manifest_version": report.manifest_version,
        "tables": tables,
    }
    show_report(arguments, document, _lines(document))
    refused = [table["table_key"] for table in tables if table["action"] == "refused"]
    if refused:
        return terminal.fail(
            f"repair refused {', '.join(refused)}: rows were changed outside of OmniGraph",
            hint="inspect the tables; --force adopts their current content",
        )
    return terminal.OK


def _lines(document: dict[str, Any]) -> Iterator[str]:
    tables = document["tables"]
    mode = "confirm" if document["confirm"] else "preview"
    yield f"repair {document['uri']} — {mode} mode, {len(tables)} tables"
    for table in tables:
        yield (
            f"{table['table_key']:{KEY_WIDTH}} {table['classification']} {table['action']} "
            f"v{table['manifest_version']} → v{table['lance_head_version']}"
        )
    if not document["confirm"] and any(table["action"] == "preview" for table in tables):
        yield "nothing was changed; rerun with --confirm"
