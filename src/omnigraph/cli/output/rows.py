"""The rows of a query in every output format."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.cli.command_context import stdout
from omnigraph.cli.operator_config import FORMATS, OperatorConfig
from omnigraph.cli.output import terminal
from omnigraph.errors import InputError
from omnigraph.escaping import escape
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.result.result import Result

_BINARY = ("arrow", "parquet")
_LEAST_WIDTH = 8
_IN_MEMORY = 8 << 20


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a table."""

    width: int = 80
    wraps: bool = False


def add_format(parser: argparse.ArgumentParser, formats: Sequence[str] = FORMATS) -> None:
    """Add the options of the output format."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--format", choices=formats, help="output format")
    group.add_argument("--json", action="store_true", help="the same as --format json")
    parser.add_argument("--out", metavar="FILE", help="output file; default: stdout")


def resolve_format(
    arguments: argparse.Namespace, operator: OperatorConfig, own: str | None = None
) -> str:
    if arguments.json:
        return "json"
    return str(arguments.format or own or operator.defaults.output)


def layout_of(operator: OperatorConfig) -> Layout:
    defaults = operator.defaults
    return Layout(defaults.table_max_column_width, defaults.table_cell_layout == "wrap")


def show_result(result: Result, format: str, layout: Layout, out: str | None) -> None:
    """Print the rows of a query, or write them to a file."""
    if format in _BINARY:
        _show_binary(result, format, out)
        return
    target = {"branch": None, "snapshot": None, **result.target}
    show_envelope({**result.envelope(), "target": target}, format, layout, out)


def show_envelope(
    envelope: Mapping[str, Any], format: str, layout: Layout, out: str | None
) -> None:
    """Print a ReadOutput as text, or write it to a file."""
    text = rows_text(envelope, format, layout)
    if out is None:
        (terminal.show_json_text if format in ("json", "jsonl") else terminal.show_raw)(text)
    else:
        from omnigraph.write.destinations import replaced_file

        with replaced_file(Path(out)) as write:
            write(text.encode("utf-8"))


def show_lines(head: Mapping[str, Any], rows: Iterator[Mapping[str, Any]], out: str | None) -> None:
    """Print rows as lines of JSON, or write them to a file, after a line with their number.

    Nothing is printed before all rows have arrived; many of them wait in a file.
    """
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:
        count = 0
        for row in rows:
            spool.write(f"{compact(row)}\n".encode())
            count += 1
        spool.seek(0)
        first = {"kind": "metadata", **head, "row_count": count}
        pieces = chain([f"{compact(first)}\n".encode()], iter(lambda: spool.read(1 << 16), b""))
        if out is None:
            for piece in pieces:
                terminal.show_bytes(piece)
            return
        from omnigraph.write.destinations import replaced_file

        with replaced_file(Path(out)) as write:
            for piece in pieces:
                write(piece)


def rows_text(envelope: Mapping[str, Any], format: str, layout: Layout) -> str:
    """A ReadOutput as text.

    >>> read = {"query_name": "q", "target": {"branch": "main", "snapshot": None},
    ...         "row_count": 1, "columns": ["p.name"], "rows": [{"p.name": "Ana"}]}
    >>> print(rows_text(read, "kv", Layout()), end="")
    1 rows from branch main via q
    row 1
    p.name: Ana
    """
    rows: Sequence[Mapping[str, Any]] = envelope["rows"]
    columns = envelope.get("columns") or sorted({name for row in rows for name in row})
    if format == "json":
        document = {key: value for key, value in envelope.items() if key != "columns" or value}
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    if format == "jsonl":
        head = {key: envelope[key] for key in ("query_name", "target", "row_count")}
        lines = [{"kind": "metadata", **head}, *rows]
        return "".join(f"{compact(line)}\n" for line in lines)
    cells = [[_cell(row.get(name)) for name in columns] for row in rows]
    if format == "csv":
        return "".join(f"{','.join(map(_csv, line))}\n" for line in [columns, *cells])
    lines_of = _kv if format == "kv" else _table
    names, shown = list(map(escape, columns)), [list(map(escape, row)) for row in cells]
    texts = [escape(_head(envelope)), *lines_of(names, shown, layout)]
    return "".join(f"{text}\n" for text in texts)


def _cell(value: Any) -> str:
    """A value as text: strings verbatim, everything else as JSON."""
    return value if isinstance(value, str) else compact(value)


def compact(value: Any) -> str:
    """A value as JSON without white space."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _head(envelope: Mapping[str, Any]) -> str:
    target = envelope["target"]
    snapshot = target.get("snapshot")
    source = f"snapshot {snapshot}" if snapshot else f"branch {target.get('branch')}"
    return f"{envelope['row_count']} rows from {source} via {envelope['query_name']}"


def _csv(text: str) -> str:
    if any(sign in text for sign in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _kv(columns: Sequence[str], cells: Sequence[Sequence[str]], layout: Layout) -> Iterator[str]:
    if not cells:
        yield "(no rows)"
    for number, row in enumerate(cells, 1):
        if number > 1:
            yield ""
        yield f"row {number}"
        for name, value in zip(columns, row, strict=True):
            yield f"{name}: {value}"


def _table(columns: Sequence[str], cells: Sequence[Sequence[str]], layout: Layout) -> Iterator[str]:
    if not columns:
        yield "(no rows)"
        return
    most = max(layout.width, _LEAST_WIDTH)
    widths = [
        min(
            max(len(name), min(max((len(row[at]) for row in cells), default=0), layout.width)), most
        )
        for at, name in enumerate(columns)
    ]
    yield from _line([*columns], widths, layout)
    yield "-+-".join("-" * width for width in widths)
    for row in cells:
        yield from _line(row, widths, layout)


def _line(texts: Sequence[str], widths: Sequence[int], layout: Layout) -> Iterator[str]:
    cells = [_fit(text, width, layout) for text, width in zip(texts, widths, strict=True)]
    for at in range(max(map(len, cells))):
        yield " | ".join(
            (cell[at] if at < len(cell) else "").ljust(width)
            for cell, width in zip(cells, widths, strict=True)
        )


def _fit(text: str, width: int, layout: Layout) -> list[str]:
    if len(text) <= width:
        return [text]
    if layout.wraps:
        return [text[at : at + width] for at in range(0, len(text), width)]
    return [f"{text[: width - 1]}…"]


def _show_binary(result: Result, format: str, out: str | None) -> None:
    if out is None and terminal.is_terminal(stdout()):
        raise InputError(
            f"refusing to write {format} to a terminal",
            hint="name a file with --out, or use a pipe",
        )
    from omnigraph.result.files import write_arrow, write_parquet

    write_rows = write_arrow if format == "arrow" else write_parquet
    if out is None:
        write_rows(result, terminal.show_bytes)
        return
    from omnigraph.write.destinations import replaced_file

    with replaced_file(Path(out)) as write:
        write_rows(result, write)
