"""Changes as text, and the options that filter them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.cli.options import add_repeatable, whole_number
from omnigraph.cli.output import terminal

if TYPE_CHECKING:
    from omnigraph.commit.metadata import SchemaEvent
    from omnigraph.commit.receipts import TableCounts
    from omnigraph.merge.diff import Change

PAGE = 1_000
"""Default page size."""

_LONG = 80
_SIGNS = {"insert": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}
_SCHEMA = ("!", "cyan")


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Add the options that filter changes."""
    add_repeatable(parser, "--type", "T", "only changes of this type; repeatable")
    kinds, ops = ("node", "edge"), (*_SIGNS, "schema")
    add_repeatable(parser, "--kind", None, "only changes of nodes, or of edges", kinds)
    add_repeatable(parser, "--op", None, "only this operation; repeatable", ops)


def filters(arguments: argparse.Namespace) -> dict[str, Any]:
    """The filters, as keyword arguments of the engine."""
    given = {"types": arguments.type, "kinds": arguments.kind, "ops": arguments.op}
    return {name: values or None for name, values in given.items()}


def add_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit", type=whole_number(1), default=PAGE, metavar="N", help="maximum number of changes"
    )


def counts_json(tables: Mapping[str, TableCounts]) -> dict[str, dict[str, int]]:
    """The row counts of each table as JSON."""
    names = ("inserted", "updated", "deleted")
    return {
        key: {name: getattr(counts, name) for name in names}
        for key, counts in sorted(tables.items())
    }


def counts_text(key: str, counts: TableCounts) -> str:
    """The row counts of a table as text."""
    return f"{key} +{counts.inserted} ~{counts.updated} -{counts.deleted}"


def change_text(change: Change) -> str:
    """One changed row as text."""
    sign, colour = _SIGNS[change.op.value]
    return f"{terminal.paint(sign, colour)} {change.kind} {change.type_name} {_rest(change)}"


def event_text(event: SchemaEvent) -> str:
    """One schema change as text."""
    sign, colour = _SCHEMA
    return f"{terminal.paint(sign, colour)} {event.describe()}"


def _rest(change: Change) -> str:
    label = f"'{change.id}'"
    if change.endpoints is not None:
        label += f" {change.endpoints['src']} → {change.endpoints['dst']}"
    if change.before is None or change.after is None:
        row = _plain(change.after or change.before or {})
        return f"{label} {_value(row)}" if row else label
    was, now = change.before, change.after
    parts = [f"{name}: {_value(was[name])} → {_value(now[name])}" for name in change.properties]
    return f"{label}  {', '.join(parts)}"


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without nulls, and without the fields already shown on its line."""
    shown = ("id", "src", "dst")
    return {name: value for name, value in row.items() if name not in shown and value is not None}


def _value(value: Any) -> str:
    """A value as JSON, truncated if long."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)}: {_value(value[key])}' for key in value)}}}"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


def format_micros(micros: int) -> str:
    """A time in microseconds since the epoch as text.

    >>> format_micros(1_794_833_300_257_220)
    '2026-11-16 12:48:20 UTC'
    """
    from datetime import UTC, datetime

    from omnigraph.maintain.units import format_time

    return format_time(datetime.fromtimestamp(micros // 1_000_000, UTC))
