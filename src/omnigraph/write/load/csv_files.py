"""Reads CSV with a header, one file per type.

A field is text, so every value is read by the type of its property. An empty field is null, or
the empty string if a String is required. Lists and vectors are written as JSON.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from omnigraph.errors import OmniGraphError
from omnigraph.lang.schema.catalog import EdgeType, EntityType
from omnigraph.lang.types import PropType, Scalar
from omnigraph.lang.values.spelling import show
from omnigraph.storage.tables.store import KEY
from omnigraph.write.conform import first_repeated
from omnigraph.write.load import limits
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.records import exact_float
from omnigraph.write.load.rejects import Reject

_ENDS = ("from", "src", "to", "dst")
_MARKS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_BOOLS = {"true": True, "false": False}
_MARK = b"\xef\xbb\xbf"
_QUOTED = re.compile(rb'(?<![^,])"(?:[^"]++|"")*+(?:"|\Z)')
csv.field_size_limit(limits.LONGEST_RECORD)


def read_csv(stream: BinaryIO, entity_type: EntityType, intake: Intake, name: str) -> None:
    """Read every row of a CSV text."""
    _CsvReader(entity_type, intake, name).run(stream)


class _CsvReader:
    """The reader of one file; malformed CSV ends the load."""

    def __init__(self, entity_type: EntityType, intake: Intake, name: str) -> None:
        self._entity_type = entity_type
        self._is_edge = isinstance(entity_type, EdgeType)
        self._intake = intake
        self._name = name
        self._file = intake.open_file(name)
        self._line = 0
        self._last = ""
        self._begin()

    def run(self, stream: BinaryIO) -> None:
        rows = self._rows(stream)
        first = next(rows, None)
        if first is None:
            return
        header = [column.strip() for column in first[1]]
        self._check_header(header)
        ends = [header.index(c) for c in _ENDS if c in header] if self._is_edge else []
        source, target = ends or (0, 0)
        read = [
            (position, column, _value_reader(self._entity_type, column))
            for position, column in enumerate(header)
            if position not in ends
        ]
        for line, row in rows:
            # Only once there is a row: a header alone does not overwrite a table.
            gatherer = self._intake.gatherer(self._entity_type)
            if len(row) != len(header):
                reason = f"{len(row)} fields instead of {len(header)}"
                self._intake.reject(self._file, line, reason)
                continue
            data = {column: value(row[position]) for position, column, value in read}
            if not ends:
                gatherer.add(data, None, self._file, line)
            elif row[source] and row[target]:
                gatherer.add(data, (row[source], row[target]), self._file, line)
            else:
                missing = "to" if row[source] else "from"
                self._intake.reject(self._file, line, f"edge missing '{missing}'", field=missing)

    def _rows(self, stream: BinaryIO) -> Iterator[tuple[int, list[str]]]:
        """The non-empty rows, each with its first line number."""
        reader = csv.reader(self._lines(stream), strict=True)
        while True:
            start = self._begin()
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error:
                # Python's reader gives no details.
                reason = "the quotes do not match"
                hint = None
                if "\r" in self._last.rstrip("\r\n"):
                    reason = "a line ends with a carriage return alone"
                    hint = "end the lines with a line feed, alone or after a carriage return"
                raise self._error(start, reason, hint=hint) from None
            if row:
                yield start, row

    def _begin(self) -> int:
        """Begin the next record; returns its first line number."""
        self._start = self._line + 1
        self._size = self._commas = self._fields = 0
        return self._start

    def _lines(self, stream: BinaryIO) -> Iterator[str]:
        while line := stream.readline(limits.LONGEST_RECORD - self._size + 1):
            self._line += 1
            self._check_size(line)
            self._intake.count_bytes(len(line))
            if self._line == 1:
                line = line.removeprefix(_MARK)
            if b"\0" in line:
                raise self._error(self._line, "there is a zero byte in the text")
            try:
                self._last = line.decode("utf-8")
                yield self._last
            except UnicodeDecodeError:
                raise self._error(self._line, "the text is not UTF-8") from None

    def _check_size(self, line: bytes) -> None:
        """End the load before it parses a record that would take too much memory."""
        is_quoted = bool(self._size)
        self._size += len(line)
        self._intake.check_length(self._file, self._start, self._size)
        self._commas += line.count(b",")
        if self._commas >= limits.MOST_FIELDS:
            # Commas in quotes do not separate fields. Only a quoted field continues on a new line.
            bare = _QUOTED.sub(b"", b'"' + line if is_quoted else line)
            self._fields += bare.count(b",")
            if self._fields >= limits.MOST_FIELDS:
                reason = f"the record has more than {limits.MOST_FIELDS} fields"
                self._intake.end(self._file, self._start, reason)

    def _check_header(self, header: list[str]) -> None:
        separator = next((mark for mark in _MARKS if mark in header[0]), None)
        if len(header) == 1 and separator is not None:
            text = f"the columns are separated by {_MARKS[separator]}"
            raise self._error(1, text, hint="separate them by commas")
        repeated = first_repeated(header)
        if repeated is not None:
            raise self._error(1, f"the column '{show(repeated)}' appears twice", repeated)
        if "" in header:
            raise self._error(1, f"column {header.index('') + 1} has no name")
        if not self._is_edge:
            return
        for names in (("from", "src"), ("to", "dst")):
            columns = [column for column in header if column in names]
            if not columns:
                raise self._error(1, f"an edge needs a column '{names[0]}'", names[0])
            if len(columns) > 1:
                text = f"the columns '{columns[0]}' and '{columns[1]}' mean the same"
                raise self._error(1, text, columns[1])

    def _error(
        self, line: int, reason: str, field: str | None = None, hint: str | None = None
    ) -> OmniGraphError:
        shown = None if field is None else show(field)
        error = Reject(self._name, line, reason, shown).error()
        error.hint = hint
        return error


def _value_reader(entity_type: EntityType, column: str) -> Callable[[str], Any]:
    if column == KEY or column not in entity_type.properties:
        return lambda text: text or None
    type_ = entity_type.properties[column].type
    if type_.scalar is Scalar.STRING and not type_.is_list:
        return (lambda text: text or None) if type_.nullable else (lambda text: text)
    return lambda text: _value(text, type_)


def _value(text: str, type_: PropType) -> Any:
    """The value of a text; an unreadable one is returned as it is, for the conversion to report."""
    if not text:
        return None
    if type_.is_list or type_.scalar is Scalar.VECTOR:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    if type_.scalar is Scalar.BOOL:
        return _BOOLS.get(text.lower(), text)
    if type_.scalar.is_integer:
        return _number(text, _integer)
    if type_.scalar.is_float:
        return _number(text, float)
    return text


def _integer(text: str) -> Any:
    """An integer in any JSON notation, such as ``5.0`` and ``1e3``."""
    try:
        return int(text)
    except ValueError:
        return exact_float(text)


def _number(text: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text) if text.isascii() and "_" not in text else text
    except ValueError:
        return text
