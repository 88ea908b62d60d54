"""CSV with a header, one file for each type.

A field is text, so every value is read by the type of its property. An empty field is null, and
the empty text where a String is required. Lists and vectors are written as JSON.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from omnigraph.errors import OmniGraphError
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.lang.types import PropType, Scalar
from omnigraph.lang.values.spelling import show
from omnigraph.storage.tables.store import KEY
from omnigraph.write.column_names import first_repeated
from omnigraph.write.delta import Kind
from omnigraph.write.load import limits
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.numbers import exact_float
from omnigraph.write.load.rejects import Reject

_ENDS = {"from": 0, "src": 0, "to": 1, "dst": 1}
_MARKS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_BOOLS = {"true": True, "false": False}
_MARK = b"\xef\xbb\xbf"
_QUOTED = re.compile(rb'(?<![^,])"(?:[^"]++|"")*+(?:"|\Z)')
csv.field_size_limit(limits.LONGEST_RECORD)


def read_csv(stream: BinaryIO, kind: Kind, intake: Intake, name: str) -> None:
    """Take every row of a CSV text in."""
    _CsvReader(kind, intake, name).run(stream)


class _CsvReader:
    """One file; what its text itself is wrong in ends the load."""

    def __init__(self, kind: Kind, intake: Intake, name: str) -> None:
        self._kind = kind
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
        self._check_commas(header)
        self._check_header(header)
        ends = {header.index(c): _ENDS[c] for c in header if c in _ENDS and self._is_edge}
        read = [
            (position, column, _value_reader(self._kind, column))
            for position, column in enumerate(header)
            if position not in ends
        ]
        for line, row in rows:
            # Not before there is a row: a header alone does not replace a table by nothing.
            gatherer = self._intake.gatherer(self._kind)
            if len(row) != len(header):
                reason = f"{len(row)} fields instead of {len(header)}"
                self._intake.reject(self._file, line, reason)
                continue
            data = {column: value(row[position]) for position, column, value in read}
            if not self._is_edge:
                gatherer.add(data, None, self._file, line)
            elif (pair := _pair(row, ends)) is not None:
                gatherer.add(data, pair, self._file, line)
            else:
                missing = "from" if not _filled(row, ends, 0) else "to"
                self._intake.reject(self._file, line, f"edge missing '{missing}'", field=missing)

    def _rows(self, stream: BinaryIO) -> Iterator[tuple[int, list[str]]]:
        """The rows that are not empty, each with the line it begins on."""
        reader = csv.reader(self._lines(stream), strict=True)
        while True:
            start = self._begin()
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error:
                # The reader says no more than that, and not where on the line.
                reason = "the quotes do not match"
                hint = None
                if "\r" in self._last.rstrip("\r\n"):
                    reason = "a line ends with a carriage return alone"
                    hint = "end the lines with a line feed, alone or after a carriage return"
                raise self._error(start, reason, hint=hint) from None
            if row:
                yield start, row

    def _begin(self) -> int:
        """The line that the next record begins on; nothing of it was read yet."""
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
        """End the load before a record is parsed that would take too much memory."""
        is_quoted = bool(self._size)
        self._size += len(line)
        self._intake.check_length(self._file, self._start, self._size)
        self._commas += line.count(b",")
        if self._commas >= limits.MOST_FIELDS:
            # Those in quotes part no fields. A record goes on over a line end only in quotes.
            bare = _QUOTED.sub(b"", b'"' + line if is_quoted else line)
            self._fields += bare.count(b",")
            if self._fields >= limits.MOST_FIELDS:
                reason = f"the record has more than {limits.MOST_FIELDS} fields"
                self._intake.end(self._file, self._start, reason)

    @property
    def _is_edge(self) -> bool:
        return isinstance(self._kind, EdgeType)

    def _check_commas(self, header: list[str]) -> None:
        """One column whose name has another mark in it is a file of other habits."""
        separator = next((mark for mark in _MARKS if mark in header[0]), None)
        if len(header) == 1 and separator is not None:
            raise self._error(
                1,
                f"the columns are parted by {_MARKS[separator]}",
                hint="part them by commas",
            )

    def _check_header(self, header: list[str]) -> None:
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


def _filled(row: list[str], ends: dict[int, int], wanted: int) -> str:
    return next(row[position] for position, end in ends.items() if end == wanted)


def _pair(row: list[str], ends: dict[int, int]) -> tuple[str, str] | None:
    source, target = _filled(row, ends, 0), _filled(row, ends, 1)
    return (source, target) if source and target else None


def _value_reader(kind: Kind, column: str) -> Callable[[str], Any]:
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
    """An integer as JSON may spell one: also ``5.0`` and ``1e3``."""
    try:
        return int(text)
    except ValueError:
        return exact_float(text)


def _number(text: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text) if text.isascii() and "_" not in text else text
    except ValueError:
        return text
