"""``omnigraph optimize``: compact tables and complete indexes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from omnigraph.cli.engines import add_engine, spark_config
from omnigraph.cli.options import add_branch, add_json, add_uri
from omnigraph.cli.output.progress import progress_bar
from omnigraph.cli.output.report import show_report
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.cli.targets import echo, open_graph, resolve_target

KEY_WIDTH = 40


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "optimize",
        run,
        Capability.DIRECT,
        "compact tables and complete indexes",
        description="Compacts small fragments, drops deleted rows from them and completes "
        "indexes, in one commit. The content of the graph does not change.",
        in_cluster=True,
    )
    add_uri(parser)
    add_branch(parser, "branch to optimize")
    parser.add_argument(
        "--if-needed", action="store_true", help="skip tables that would gain little"
    )
    add_engine(parser, ("auto", "local", "spark"))
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    target = resolve_target(arguments)
    echo(arguments, target)
    with open_graph(arguments, "rw", target) as (graph, _), progress_bar("optimize") as line:
        report = graph.maintenance.optimize(
            arguments.branch,
            engine=arguments.engine,
            spark=spark_config(arguments),
            if_needed=arguments.if_needed,
            on_progress=line.update,
        )
    tables = [table.to_json() for table in report.tables]
    return show_report(arguments, {"uri": target.uri, "tables": tables}, _lines(target.uri, tables))


def _lines(uri: str, tables: list[dict[str, Any]]) -> Iterator[str]:
    yield f"optimize {uri} — {len(tables)} tables"
    for table in tables:
        yield f"{table['table_key']:{KEY_WIDTH}} {_outcome(table)}"
        for pending in table["pending_indexes"]:
            yield f"  ↳ index pending on '{pending['column']}': {pending['reason']}"


def _outcome(table: dict[str, Any]) -> str:
    if table["skipped"]:
        return f"skipped ({table['skipped']})"
    if not table["committed"]:
        return "no-op"
    return f"frags {table['fragments_removed']} → {table['fragments_added']} ✓"
