"""Changes as every command shows them, and the options that choose some of them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.cli.output import terminal
from omnigraph.cli.registry import UsageError

if TYPE_CHECKING:
    from omnigraph.commit.metadata import SchemaEvent
    from omnigraph.commit.receipts import TableCounts
    from omnigraph.merge.diff import Change

PAGE = 1_000
"""How many changes are shown at once unless the caller says otherwise."""

_LONG = 80
_SIGNS = {"insert": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}
_SCHEMA = ("!", "cyan")


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
        choices=(*_SIGNS, "schema"),
        help="only this operation; again for more",
    )


def filters(arguments: argparse.Namespace) -> dict[str, Any]:
    """The chosen changes, as the arguments of the engine."""
    return {"types": arguments.type, "kinds": arguments.kind, "ops": arguments.op}


def add_limit(parser: argparse.ArgumentParser) -> None:
    """How much is shown at once."""
    parser.add_argument(
        "--limit", type=int, default=PAGE, metavar="N", help="at most so many changes at once"
    )


def check_limit(arguments: argparse.Namespace) -> None:
    if arguments.limit < 1:
        raise UsageError("--limit must be at least 1")


def counts_json(counts: TableCounts) -> dict[str, int]:
    """The rows that changed in a table, as scripts read them."""
    return {
        "inserted": counts.inserted,
        "updated": counts.updated,
        "deleted": counts.deleted,
    }


def counts_text(key: str, counts: TableCounts) -> str:
    """The same for people."""
    return f"{key} +{counts.inserted} ~{counts.updated} -{counts.deleted}"


def change_text(change: Change) -> str:
    """One change as people read it."""
    sign, colour = _SIGNS[change.op.value]
    return f"{terminal.paint(sign, colour)} {change.kind} {change.type_name} {_rest(change)}"


def event_text(event: SchemaEvent) -> str:
    """One event of the schema as people read it."""
    sign, colour = _SCHEMA
    return f"{terminal.paint(sign, colour)} {event.describe()}"


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
    """A value as JSON; a long text or list only to begin with."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)}: {_value(value[key])}' for key in value)}}}"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


def moment_text(micros: int) -> str:
    """A moment as people read it.

    >>> moment_text(1_794_833_300_257_220)
    '2026-11-16 12:48:20 UTC'
    """
    from datetime import UTC, datetime

    from omnigraph.maintain.units import format_time

    return format_time(datetime.fromtimestamp(micros // 1_000_000, UTC))
