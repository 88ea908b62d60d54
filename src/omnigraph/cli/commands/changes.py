"""``omnigraph changes``: the feed of a branch, page by page or as it comes."""

from __future__ import annotations

import argparse
import json
import threading
from typing import TYPE_CHECKING, Any

from omnigraph.cli.output import terminal
from omnigraph.cli.output.change_lines import (
    add_filters,
    add_limit,
    change_text,
    check_limit,
    event_text,
    filters,
    moment_text,
)
from omnigraph.cli.registry import (
    Capability,
    Commands,
    UsageError,
    add_json,
    add_uri,
    command,
    family,
)
from omnigraph.cli.targets import opened

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.merge.feed import ChangeBlock, ChangePage

SHORTEST, LONGEST = 0.1, 3_600.0
"""The seconds between two looks at a branch that is followed."""


def add(commands: Commands) -> None:
    """Declare the command family."""
    forms = family(commands, "changes", "read the changes of a branch, commit by commit")
    parser = _form(
        forms,
        "poll",
        run_poll,
        "show the next changes of a branch",
        "Shows the next changes of a branch in the order of its commits, and the cursor from which "
        "to go on. With --follow it waits for more until it is interrupted.",
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--cursor", metavar="C", help="go on where an earlier page ended")
    place.add_argument(
        "--start",
        metavar="WHERE",
        help="without a cursor: now, after:<commit> or beginning (if not given)",
    )
    add_limit(parser)
    add_filters(parser)
    parser.add_argument("--follow", action="store_true", help="wait for more until interrupted")
    parser.add_argument(
        "--interval",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help=f"how often --follow looks, from {SHORTEST:g} to {LONGEST:g}",
    )
    add_json(parser, "print one JSON document; with --follow one line for each commit")
    parser = _form(
        forms,
        "baseline",
        run_baseline,
        "write a branch out, with the cursor for what follows",
        "Writes the newest state of a branch as export does, with one more line at the end: the "
        "cursor from which its changes go on. A file without that line is not whole.",
    )
    parser.add_argument("--out", required=True, metavar="PATH", help="the file to write")
    add_json(parser)


def _form(
    forms: Commands, name: str, run: Any, text: str, description: str
) -> argparse.ArgumentParser:
    parser = command(
        forms, name, run, Capability.ANY, text, description=description, label="changes"
    )
    add_uri(parser, positional=False)
    parser.add_argument("--branch", default="main", metavar="B", help="whose changes")
    return parser


def run_poll(arguments: argparse.Namespace) -> int:
    """Show a page, or every page that comes."""
    if not SHORTEST <= arguments.interval <= LONGEST:
        raise UsageError(f"--interval must be from {SHORTEST:g} to {LONGEST:g} seconds")
    check_limit(arguments)
    with opened(arguments, "r") as (graph, _):
        page = _page(graph, arguments, arguments.cursor)
        if arguments.follow:
            _follow(graph, arguments, page)
    if arguments.json:
        terminal.show_json(
            {
                "blocks": [block.to_json() for block in page.blocks],
                "cursor": page.cursor,
                "caught_up": page.caught_up,
            }
        )
        return terminal.OK
    _show_blocks(page)
    terminal.show(f"cursor: {page.cursor}")
    terminal.show("caught up" if page.caught_up else "there is more")
    return terminal.OK


def _page(graph: Graph, arguments: argparse.Namespace, cursor: str | None) -> ChangePage:
    return graph.changes.poll(
        arguments.branch,
        cursor,
        start=arguments.start or "beginning",
        limit=arguments.limit,
        **filters(arguments),
    )


def _follow(graph: Graph, arguments: argparse.Namespace, page: ChangePage) -> None:
    """Show what there is, then what comes; only an interrupt ends it."""
    pause = threading.Event()
    while True:
        if arguments.json:
            _show_lines(page)
        else:
            _show_blocks(page)
        terminal.flush()
        if page.caught_up:
            pause.wait(arguments.interval)
        page = _page(graph, arguments, page.cursor)


def _show_lines(page: ChangePage) -> None:
    """One line for each block, each with the cursor behind it."""
    for block in page.blocks:
        line = json.dumps({**block.to_json(), "cursor": block.cursor}, ensure_ascii=False)
        terminal.show_json_text(f"{line}\n")


def _show_blocks(page: ChangePage) -> None:
    for block in page.blocks:
        terminal.show(_title(block))
        for event in block.schema_events:
            terminal.show(f"  {event_text(event)}")
        for change in block.changes:
            terminal.show(f"  {change_text(change)}")


def _title(block: ChangeBlock) -> str:
    commit = block.commit
    actor = f" by {commit.actor}" if commit.actor else ""
    name = terminal.paint(commit.commit_id, "yellow")
    return f"commit {name} {moment_text(commit.created_at)}{actor}"


def run_baseline(arguments: argparse.Namespace) -> int:
    """Write a branch out."""
    with opened(arguments, "r") as (graph, target):
        found = graph.changes.baseline(arguments.branch, arguments.out)
    told = {
        "uri": target.uri,
        "branch": arguments.branch,
        "out": arguments.out,
        "records": found.records,
        "snapshot_commit_id": found.snapshot.commit_id,
        "resume_cursor": found.cursor,
    }
    if arguments.json:
        terminal.show_json(told)
    else:
        terminal.show(
            f"wrote {found.records} records of branch {arguments.branch} to {arguments.out}"
        )
        terminal.show(f"cursor: {found.cursor}")
    return terminal.OK
