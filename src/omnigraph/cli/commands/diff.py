"""``omnigraph diff``: the difference between two states."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from omnigraph.cli.options import add_json, add_uri
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
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.cli.targets import find_snapshot, open_graph

if TYPE_CHECKING:
    from omnigraph.merge.diff import Diff


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "diff",
        run,
        Capability.ANY,
        "show the difference between two states",
        description="Shows the net difference between two states, each a branch, a tag or a "
        "commit: schema changes, row counts per type, then every row.",
    )
    parser.add_argument("before", metavar="BEFORE", help="a branch, tag or commit")
    parser.add_argument("after", nargs="?", default="main", metavar="AFTER", help="another one")
    add_uri(parser, positional=False)
    add_filters(parser)
    parser.add_argument("--summary", action="store_true", help="only show counts")
    parser.add_argument(
        "--exit-code", action="store_true", help="exit with 1 if there are differences"
    )
    parser.add_argument("--no-pager", action="store_true", help="do not use a pager")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    with open_graph(arguments, "r") as (graph, _):
        before, after = (find_snapshot(graph, name) for name in (arguments.before, arguments.after))
        diff = before.diff(after, summary=arguments.summary, **filters(arguments))
    if arguments.json:
        terminal.show_json(
            {
                "from": {"ref": arguments.before, "manifest_version": diff.from_version},
                "to": {
                    "ref": arguments.after,
                    "branch": diff.branch,
                    "manifest_version": diff.to_version,
                },
                "stats": diff.stats,
                "tables": {key: counts_json(counts) for key, counts in diff.tables.items()},
                "schema_events": [event.to_json() for event in diff.schema_events],
                "changes": [change.to_json() for change in diff.changes],
            }
        )
    else:
        show_paged(_lines(diff), is_wanted=not arguments.no_pager)
    return terminal.FAILURE if arguments.exit_code and not diff.is_empty else terminal.OK


def _lines(diff: Diff) -> Iterator[str]:
    if diff.is_empty:
        yield "no differences"
    yield from map(event_text, diff.schema_events)
    for key, counts in diff.tables.items():
        yield counts_text(key, counts)
    if diff.changes:
        yield ""
    yield from map(change_text, diff.changes)
