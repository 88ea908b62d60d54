"""``omnigraph diff``: what differs between two states, and how changes are shown everywhere."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from omnigraph.cli.output import terminal
from omnigraph.cli.output.change_lines import (
    add_filters,
    change_text,
    counts_json,
    counts_text,
    event_text,
    filters,
)
from omnigraph.cli.output.pager import show_paged
from omnigraph.cli.registry import Capability, Commands, add_json, add_uri, command
from omnigraph.cli.targets import opened, snapshot_named

if TYPE_CHECKING:
    from omnigraph.merge.diff import Diff


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "diff",
        run,
        Capability.ANY,
        "show what differs between two states",
        description="Shows the net difference between two states, each a branch, a tag or a "
        "commit: what became of the schema, how many rows of each type, then every row.",
    )
    parser.add_argument("before", metavar="BEFORE", help="a branch, a tag or a commit")
    parser.add_argument("after", nargs="?", default="main", metavar="AFTER", help="another")
    add_uri(parser, positional=False)
    add_filters(parser)
    parser.add_argument("--summary", action="store_true", help="only count")
    parser.add_argument(
        "--exit-code", action="store_true", help="exit with 1 when there are differences"
    )
    parser.add_argument("--no-pager", action="store_true", help="print everything at once")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare and show."""
    with opened(arguments, "r") as (graph, _):
        before, after = (snapshot_named(graph, n) for n in (arguments.before, arguments.after))
        found = before.diff(after, summary=arguments.summary, **filters(arguments))
    if arguments.json:
        terminal.show_json(_told(arguments, found))
    else:
        show_paged(_lines(found), is_wanted=not arguments.no_pager)
    return terminal.FAILURE if arguments.exit_code and not found.is_empty else terminal.OK


def _told(arguments: argparse.Namespace, found: Diff) -> dict[str, Any]:
    return {
        "from": {"ref": arguments.before, "manifest_version": found.from_version},
        "to": {
            "ref": arguments.after,
            "branch": found.branch,
            "manifest_version": found.to_version,
        },
        "stats": found.stats,
        "tables": {key: counts_json(each) for key, each in found.tables.items()},
        "schema_events": [event.to_json() for event in found.schema_events],
        "changes": [change.to_json() for change in found.changes],
    }


def _lines(found: Diff) -> Iterator[str]:
    if found.is_empty:
        yield "no differences"
    for event in found.schema_events:
        yield event_text(event)
    for key, counts in found.tables.items():
        yield counts_text(key, counts)
    if found.changes:
        yield ""
    for change in found.changes:
        yield change_text(change)
