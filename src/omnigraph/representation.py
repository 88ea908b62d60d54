"""The representations of objects: one line in a prompt, a small table in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

_LONGEST = 60


def brief(value: Any) -> str:
    """A dataclass in one line: collections by size, without empty or nested values.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Pruned:
    ...     uri: str
    ...     points: tuple[int, ...] = ()
    ...     error: str | None = None
    ...     __repr__ = brief
    >>> Pruned("backup", (1, 2))
    <Pruned uri='backup' points=2>
    """
    shown = (
        f" {field.name}={_shown(item)}"
        for field in fields(value)
        if not field.name.startswith("_")
        and (item := getattr(value, field.name)) is not None
        and not (isinstance(item, Sized) and not len(item))
        and not is_dataclass(item)
    )
    return f"<{type(value).__name__}{''.join(shown)}>"


def _shown(item: Any) -> str:
    if isinstance(item, str) and not isinstance(item, Enum):
        return repr(item if len(item) <= _LONGEST else item[: _LONGEST - 1] + "…")
    if isinstance(item, Enum | datetime):
        return str(item)
    return str(len(item)) if isinstance(item, Sized) else str(item)


def html_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A titled table for notebooks; every text is escaped.

    >>> html_table("a < b", ["n"], [[1]])
    '<b>a &lt; b</b><table><tr><th>n</th></tr><tr><td>1</td></tr></table>'
    """
    from html import escape

    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<b>{escape(title)}</b><table>{f'<tr>{head}</tr>' if head else ''}{body}</table>"


def counts_html(title: str, tables: Mapping[str, Any]) -> str:
    """The inserted, updated and deleted rows of each table."""
    names = ("inserted", "updated", "deleted")
    rows = [(key, *(getattr(counts, name) for name in names)) for key, counts in tables.items()]
    return html_table(title, ("table", *names), rows)
