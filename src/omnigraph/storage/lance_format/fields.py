"""The columns of a table as Lance writes them down, taken apart and put together again.

Lance numbers the columns of a table, and finds their values in data files by these numbers. A
column keeps its number when it is renamed, so no file changes. From Python a schema with chosen
numbers can only be made of the messages that Lance stores: protobuf, of which a schema uses
numbers and byte strings alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from lance.schema import LanceSchema

from omnigraph.errors import InternalError

_NAME, _ID, _PARENT, _NULLABLE = 2, 3, 4, 6
_NUMBER, _BYTES = 0, 2
_WORD = 1 << 64


@dataclass(frozen=True, slots=True)
class FieldProto:
    """One column, or a part of one, as the entries of its message."""

    entries: tuple[tuple[int, int | bytes], ...]

    @classmethod
    def parse(cls, raw: bytes) -> FieldProto:
        return cls(tuple(_parsed(raw)))

    @property
    def name(self) -> str:
        found = self._get(_NAME, b"")
        return found.decode() if isinstance(found, bytes) else ""

    @property
    def id(self) -> int:
        return self._number(_ID)

    @property
    def parent(self) -> int:
        return self._number(_PARENT)

    def renamed(self, name: str) -> FieldProto:
        return self._with(_NAME, name.encode())

    def as_nullable(self, nullable: bool) -> FieldProto:
        return self._with(_NULLABLE, int(nullable))

    def shifted(self, by: int) -> FieldProto:
        """The same under a number that is so much greater; its parent moves with it."""
        moved = self._with(_ID, self.id + by)
        return moved if self.parent < 0 else moved._with(_PARENT, self.parent + by)

    def raw(self) -> bytes:
        return b"".join(_written(number, value) for number, value in self.entries)

    def _get(self, number: int, default: int | bytes) -> int | bytes:
        return next((value for known, value in self.entries if known == number), default)

    def _number(self, number: int) -> int:
        found = self._get(number, 0)
        if not isinstance(found, int):
            raise InternalError("a column is not written down as expected")
        return found - _WORD if found >= _WORD >> 1 else found

    def _with(self, number: int, value: int | bytes) -> FieldProto:
        entries = [entry for entry in self.entries if entry[0] != number]
        # What is zero or empty is left out, as Lance does.
        if value:
            entries.append((number, value % _WORD if isinstance(value, int) else value))
        return replace(self, entries=tuple(sorted(entries, key=lambda entry: entry[0])))


@dataclass(frozen=True, slots=True)
class ColumnProto:
    """A column with all of its parts, itself first."""

    fields: tuple[FieldProto, ...]

    @property
    def name(self) -> str:
        return self.fields[0].name

    @property
    def last_id(self) -> int:
        return max(field.id for field in self.fields)

    def altered(self, name: str, nullable: bool) -> ColumnProto:
        first = self.fields[0].renamed(name).as_nullable(nullable)
        return ColumnProto((first, *self.fields[1:]))

    def shifted(self, by: int) -> ColumnProto:
        return ColumnProto(tuple(field.shifted(by) for field in self.fields))


def columns_of(schema: LanceSchema) -> list[ColumnProto]:
    """The columns of a table in their order."""
    groups: list[list[FieldProto]] = []
    for raw in _state(schema)[1:]:
        field = FieldProto.parse(raw)
        if field.parent < 0:
            groups.append([])
        groups[-1].append(field)
    return [ColumnProto(tuple(group)) for group in groups]


def new_column(field: pa.Field, first_id: int) -> ColumnProto:
    """A column that no table has yet, numbered from a number on."""
    (made,) = columns_of(LanceSchema.from_pyarrow(pa.schema([field])))
    return made.shifted(first_id)


def schema_of(like: LanceSchema, columns: Iterable[ColumnProto]) -> LanceSchema:
    """A schema of such columns, with everything else that another one says."""
    raw = [field.raw() for column in columns for field in column.fields]
    return LanceSchema._from_protos(_state(like)[0], *raw)


def _state(schema: LanceSchema) -> Sequence[Any]:
    """What a schema is stored as: its metadata, then a message for each field."""
    reduced: Any = schema.__reduce__()
    found: Sequence[Any] = reduced[1]
    return found


# -- the encoding ---------------------------------------------------------------------------------


def _parsed(raw: bytes) -> Iterable[tuple[int, int | bytes]]:
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, form = tag >> 3, tag & 7
        value, at = _varint(raw, at)
        if form == _NUMBER:
            yield number, value
        elif form == _BYTES:
            yield number, raw[at : at + value]
            at += value
        else:
            raise InternalError("a column is not written down as expected")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _written(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _as_varint(number << 3 | _NUMBER) + _as_varint(value)
    return _as_varint(number << 3 | _BYTES) + _as_varint(len(value)) + value


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
