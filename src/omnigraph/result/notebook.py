"""Shows a result: as a text table, and as HTML for notebooks.

The HTML has no scripts, loads nothing and escapes every text from the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import Any

from omnigraph.result.columns import Link, ResultColumn
from omnigraph.result.drawing import draw

ROWS_IN_TABLE = 20
ROWS_IN_DRAWING = 200
_WIDEST = 32
_LONGEST = 120
_ITEMS = 6

Row = tuple[Any, ...]


def text_table(columns: Sequence[ResultColumn], rows: Sequence[Row]) -> list[str]:
    """The lines of a table: column names, a rule, then the rows."""
    cells = [[_cut(_one_line(_text(value)), _WIDEST) for value in row] for row in rows]
    names = [_cut(column.name, _WIDEST) for column in columns]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    right = [_is_number(column) for column in columns]

    def line(texts: Sequence[str]) -> str:
        padded = [
            text.rjust(width) if flush else text.ljust(width)
            for text, width, flush in zip(texts, widths, right, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return [line(names), "  ".join("─" * width for width in widths), *map(line, cells)]


def html_page(
    columns: Sequence[ResultColumn], links: Sequence[Link], rows: Sequence[Row], count: int | None
) -> str:
    """A table of the first rows, and a drawing if there are nodes.

    ``count`` is the number of rows, ``None`` if it is not known yet.
    """
    shown = rows[:ROWS_IN_TABLE]
    head = "".join(
        f'<th style="text-align:{_side(column)}">{escape(column.name)}'
        f'<br/><span style="font-weight:normal;opacity:.6">{escape(_kind(column))}</span></th>'
        for column in columns
    )
    body = "".join(f"<tr>{''.join(map(_cell, columns, row))}</tr>" for row in shown)
    drawing = draw(columns, links, rows)
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start">'
        f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f'<div style="opacity:.6;font-size:smaller">{_note(len(shown), count)}</div></div>'
        f"{drawing}</div>"
    )


def _note(shown: int, count: int | None) -> str:
    if count is None:
        return f"the first {shown:,} rows of a result that has not been read to its end"
    total = f"{count:,} row{'' if count == 1 else 's'}"
    return total if shown == count else f"{total}, {count - shown:,} more than shown"


def _cell(column: ResultColumn, value: Any) -> str:
    style = f"text-align:{_side(column)}"
    if value is None:
        return f'<td style="{style};opacity:.45"><i>null</i></td>'
    return f'<td style="{style}">{escape(_cut(_text(value), _LONGEST))}</td>'


def _kind(column: ResultColumn) -> str:
    return str(column.type) if column.entity is None else column.entity.type_name


def _side(column: ResultColumn) -> str:
    return "right" if _is_number(column) else "left"


def _is_number(column: ResultColumn) -> bool:
    return column.type.scalar.is_numeric and not column.type.is_list


def _text(value: Any) -> str:
    """A value as readable text: date-times as in JSON, only the first items of a long list."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    if isinstance(value, list):
        items = [_text(item) for item in value[:_ITEMS]]
        more = [f"… {len(value)} in all"] if len(value) > _ITEMS else []
        return f"[{', '.join(items + more)}]"
    return str(value)


def _one_line(text: str) -> str:
    """A text with control characters escaped, which would break the table or the terminal."""
    return "".join(char if char.isprintable() else "�" if char != "\n" else "⏎" for char in text)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
