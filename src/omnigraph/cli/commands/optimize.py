"""``omnigraph optimize``: putting small parts together, completing indexes."""

from __future__ import annotations

import argparse

from omnigraph.cli.engines import add_engine, chosen_spark
from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import bar
from omnigraph.cli.registry import Capability, Commands, add_json, add_uri, command
from omnigraph.cli.targets import echo, find_target, opened

KEY_WIDTH = 40


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "optimize",
        run,
        Capability.DIRECT,
        "compact tables and complete indexes",
        description="Puts small parts of tables together, removes deleted rows from them and "
        "completes indexes, in one commit. What the graph holds stays the same.",
        in_cluster=True,
    )
    add_uri(parser)
    parser.add_argument("--branch", default="main", metavar="B", help="whose tables")
    parser.add_argument(
        "--if-needed", action="store_true", help="leave alone what would gain little"
    )
    add_engine(parser, ("auto", "local", "spark"))
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Work and show, table by table."""
    target = find_target(arguments)
    echo(arguments, target)
    with opened(arguments, "rw", target) as (graph, _), bar("optimize") as line:
        report = graph.maintenance.optimize(
            arguments.branch,
            engine=arguments.engine,
            spark=chosen_spark(arguments),
            if_needed=arguments.if_needed,
            on_progress=lambda told: line.show(told.phase, told.done, told.total),
        )
    tables = [table.to_json() for table in report.tables]
    if arguments.json:
        terminal.show_json({"uri": target.uri, "tables": tables})
        return terminal.OK
    terminal.show(f"optimize {target.uri} — {len(tables)} tables")
    for table in tables:
        terminal.show(f"{table['table_key']:{KEY_WIDTH}} {_outcome(table)}")
        for pending in table["pending_indexes"]:
            terminal.show(f"  ↳ index pending on '{pending['column']}': {pending['reason']}")
    return terminal.OK


def _outcome(table: dict[str, object]) -> str:
    if table["skipped"]:
        return f"skipped ({table['skipped']})"
    if not table["committed"]:
        return "no-op"
    return f"frags {table['fragments_removed']} → {table['fragments_added']} ✓"
