"""``omnigraph changes``: the change feed of a branch, page by page or followed live."""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from omnigraph.cli.options import add_branch
from omnigraph.cli.output import terminal
from omnigraph.cli.output.change_lines import (
    add_filters,
    add_limit,
    change_text,
    check_limit,
    event_text,
    filters,
    format_micros,
)
from omnigraph.cli.output.report import show_report
from omnigraph.cli.registry import Commands, UsageError, family
from omnigraph.cli.targets import open_graph

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.merge.feed import ChangePage

SHORTEST, LONGEST = 0.1, 3_600.0
"""Limits of the polling interval in seconds."""


def add(commands: Commands) -> None:
    changes = family(commands, "changes", "read the changes of a branch, commit by commit")
    parser = changes.add(
        "poll",
        run_poll,
        "show the next changes of a branch",
        description="Shows the next changes of a branch in commit order, and the cursor to "
        "continue from. With --follow it waits for more until interrupted.",
        json="print one JSON document; with --follow, one line per commit",
    )
    add_branch(parser)
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--cursor", metavar="C", help="continue after an earlier page")
    start.add_argument(
        "--start",
        metavar="WHERE",
        help="start without a cursor: now, after:<commit> or beginning; default: beginning",
    )
    add_limit(parser)
    add_filters(parser)
    parser.add_argument("--follow", action="store_true", help="wait for more until interrupted")
    parser.add_argument(
        "--interval",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help=f"polling interval of --follow, from {SHORTEST:g} to {LONGEST:g}",
    )
    parser = changes.add(
        "baseline",
        run_baseline,
        "export a branch with the cursor for later changes",
        description="Exports the head of a branch like `export`, with one more line at the end: "
        "the cursor for later changes. A file without that line is incomplete.",
    )
    add_branch(parser)
    parser.add_argument("--out", required=True, metavar="PATH", help="file to write")


def run_poll(arguments: argparse.Namespace) -> int:
    if not SHORTEST <= arguments.interval <= LONGEST:
        raise UsageError(f"--interval must be from {SHORTEST:g} to {LONGEST:g} seconds")
    check_limit(arguments)
    with open_graph(arguments, "r") as (graph, _):
        page = _poll(graph, arguments, arguments.cursor)
        if arguments.follow:
            _follow(graph, arguments, page)
    document = {
        "blocks": [block.to_json() for block in page.blocks],
        "cursor": page.cursor,
        "caught_up": page.caught_up,
    }
    state = "caught up" if page.caught_up else "there is more"
    return show_report(arguments, document, [*_lines(page), f"cursor: {page.cursor}", state])


def _poll(graph: Graph, arguments: argparse.Namespace, cursor: str | None) -> ChangePage:
    return graph.changes.poll(
        arguments.branch,
        cursor,
        start=arguments.start or "beginning",
        limit=arguments.limit,
        **filters(arguments),
    )


def _follow(graph: Graph, arguments: argparse.Namespace, page: ChangePage) -> None:
    """Show existing changes, then new ones, until interrupted."""
    pause = threading.Event()
    while True:
        if arguments.json:
            for block in page.blocks:
                line = json.dumps({**block.to_json(), "cursor": block.cursor}, ensure_ascii=False)
                terminal.show_json_text(f"{line}\n")
        else:
            terminal.show_lines(_lines(page))
        terminal.flush()
        if page.caught_up:
            pause.wait(arguments.interval)
        page = _poll(graph, arguments, page.cursor)


def _lines(page: ChangePage) -> Iterator[str]:
    for block in page.blocks:
        commit = block.commit
        actor = f" by {commit.actor}" if commit.actor else ""
        name = terminal.paint(commit.commit_id, "yellow")
        yield f"commit {name} {format_micros(commit.created_at)}{actor}"
        for event in block.schema_events:
            yield f"  {event_text(event)}"
        for change in block.changes:
            yield f"  {change_text(change)}"


def run_baseline(arguments: argparse.Namespace) -> int:
    with open_graph(arguments, "r") as (graph, target):
        baseline = graph.changes.baseline(arguments.branch, arguments.out)
    document = {
        "uri": target.uri,
        "branch": arguments.branch,
        "out": arguments.out,
        "records": baseline.records,
        "snapshot_commit_id": baseline.snapshot.commit_id,
        "resume_cursor": baseline.cursor,
    }
    lines = [
        f"wrote {baseline.records} records of branch {arguments.branch} to {arguments.out}",
        f"cursor: {baseline.cursor}",
    ]
    return show_report(arguments, document, lines)
