"""CSV with a header, one file for each type.

A field is text, so every value is read by the type of its property. An empty field is null, and
the empty text where a String is required. Lists and vectors are written as JSON.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from typing import Any

from omnigraph.errors import InputError
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.lang.types import PropType, Scalar
from omnigraph.storage.tables import KEY
from omnigraph.write.delta import Kind
from omnigraph.write.load.intake import Intake

_ENDS = {"from": 0, "src": 0, "to": 1, "dst": 1}
_BOOLS = {"true": True, "false": False}
csv.field_size_limit(256 << 20)


def read_csv(lines: Iterable[str], kind: Kind, intake: Intake, name: str) -> None:
    """Take every row of a CSV text in."""
    file = intake.open_file(name)
    reader = csv.reader(lines, strict=True)
    try:
        header = [column.strip() for column in next(reader, [])]
        _check_header(header, kind, name)
        ends = {header.index(c): _ENDS[c] for c in header if c in _ENDS and _is_edge(kind)}
        read = {
            position: (column, _reader(kind, column))
            for position, column in enumerate(header)
            if position not in ends
        }
        gatherer = intake.gatherer(kind)
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                reason = f"{len(row)} fields instead of {len(header)}"
                intake.reject(file, reader.line_num, reason)
                continue
            data = {column: value(row[position]) for position, (column, value) in read.items()}
            pair = _pair(row, ends) if _is_edge(kind) else None
            gatherer.add(data, pair, file, reader.line_num)
    except csv.Error as error:
        raise InputError(f"{name}:{reader.line_num}: {error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{name}:{reader.line_num + 1}: the text is not UTF-8") from None


def _is_edge(kind: Kind) -> bool:
    return isinstance(kind, EdgeType)


def _check_header(header: list[str], kind: Kind, name: str) -> None:
    if not header:
        raise InputError(f"{name}: a CSV file starts with a header")
    repeated = [column for column in header if header.count(column) > 1]
    if repeated:
        raise InputError(f"{name}:1: the column '{repeated[0]}' appears twice")
    if _is_edge(kind):
        for names in (("from", "src"), ("to", "dst")):
            if not any(column in header for column in names):
                raise InputError(f"{name}:1: an edge needs a column '{names[0]}'")


def _pair(row: list[str], ends: dict[int, int]) -> tuple[Any, Any]:
    found: list[Any] = [None, None]
    for position, end in ends.items():
        found[end] = row[position] or None
    return found[0], found[1]


def _reader(kind: Kind, column: str) -> Callable[[str], Any]:
    if column == KEY or column not in kind.properties:
        return lambda text: text or None
    type_ = kind.properties[column].type
    if type_.scalar is Scalar.STRING and not type_.is_list:
        return (lambda text: text or None) if type_.nullable else (lambda text: text)
    return lambda text: _value(text, type_)


def _value(text: str, type_: PropType) -> Any:
    """The value that a text stands for; what cannot be read is left for the conversion to name."""
    if not text:
        return None
    if type_.is_list or type_.scalar is Scalar.VECTOR:
        try:
            return json.loads(text)
        except ValueError:
            return text
    if type_.scalar is Scalar.BOOL:
        return _BOOLS.get(text.lower(), text)
    if type_.scalar.is_integer:
        return _number(text, int)
    if type_.scalar.is_float:
        return _number(text, float)
    return text


def _number(text: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text) if text.isascii() and "_" not in text else text
    except ValueError:
        return text
