"""``omnigraph diff``: what differs between two states, and how changes are shown everywhere."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.cli import terminal
from omnigraph.cli.commands import Capability, Commands, add_json, add_uri, command
from omnigraph.cli.log import counts_json, counts_text
from omnigraph.cli.pager import show_paged
from omnigraph.cli.targets import opened

if TYPE_CHECKING:
    from omnigraph.merge.diff import Change, Diff

_SIGNS = {"insert": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "diff",
        run,
        Capability.ANY,
        "show what differs between two states",
        description="Shows the net difference between two states, each a branch, a tag or a "
        "commit: how many rows of each type, then every row.",
    )
    parser.add_argument("before", metavar="BEFORE", help="a branch, a tag or a commit")
    parser.add_argument(
        "after", nargs="?", default="main", metavar="AFTER", help="another; main if not given"
    )
    add_uri(parser, positional=False)
    add_filters(parser)
    parser.add_argument("--summary", action="store_true", help="only count")
    parser.add_argument(
        "--exit-code", action="store_true", help="exit with 1 when there are differences"
    )
    parser.add_argument("--no-pager", action="store_true", help="print everything at once")
    add_json(parser)


def add_filters(parser: argparse.ArgumentParser) -> None:
    """The options that choose some changes."""
    parser.add_argument(
        "--type", action="append", metavar="T", help="only changes of this type; again for more"
    )
    parser.add_argument(
        "--kind",
        action="append",
        choices=("node", "edge"),
        help="only changes of nodes, or of edges",
    )
    parser.add_argument(
        "--op",
        action="append",
        choices=tuple(_SIGNS),
        help="only this operation; again for more",
    )


def filters(arguments: argparse.Namespace) -> dict[str, Any]:
    """The chosen changes, as the arguments of the engine."""
    return {"types": arguments.type, "kinds": arguments.kind, "ops": arguments.op}


def run(arguments: argparse.Namespace) -> int:
    """Compare and show."""
    with opened(arguments, "r") as (graph, _):
        found = graph.changes.diff(
            arguments.before, arguments.after, summary=arguments.summary, **filters(arguments)
        )
    if arguments.json:
        terminal.show_json(_told(arguments, found))
    else:
        show_paged(_lines(found), is_wanted=not arguments.no_pager)
    return terminal.FAILURE if arguments.exit_code and found.tables else terminal.OK


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
        "changes": [change.to_json() for change in found.changes],
    }


def _lines(found: Diff) -> Iterator[str]:
    if not found.tables:
        yield "no differences"
    for key, counts in found.tables.items():
        yield counts_text(key, counts)
    if found.changes:
        yield ""
    for change in found.changes:
        yield change_text(change)


def change_text(change: Change) -> str:
    """One change as people read it."""
    sign, colour = _SIGNS[change.op.value]
    return f"{terminal.paint(sign, colour)} {change.kind} {change.type_name} {_rest(change)}"


def _rest(change: Change) -> str:
    name = f"'{change.id}'"
    if change.endpoints is not None:
        name += f" {change.endpoints['src']} → {change.endpoints['dst']}"
    if change.before is None or change.after is None:
        row = _plain(change.after or change.before or {})
        return f"{name} {_value(row)}" if row else name
    was, now = change.before, change.after
    parts = [f"{each}: {_value(was[each])} → {_value(now[each])}" for each in change.properties]
    return f"{name}  {', '.join(parts)}"


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without what its line says already, and without what is not there."""
    known = ("id", "src", "dst")
    return {name: value for name, value in row.items() if name not in known and value is not None}


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
