"""Column descriptors of Lance tables, parsed and rebuilt.

Lance assigns field ids to the columns of a table and locates their values in data files by these
ids. A renamed column keeps its id, so no file changes. In Python a schema with chosen field ids can
only be built from the protobuf messages that Lance stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from lance.schema import LanceSchema

from omnigraph.errors import InternalError
from omnigraph.records import dataclass
from omnigraph.storage.lance_format.manifests import WireError, WireField, read_fields, write_field

_NAME, _ID, _PARENT, _NULLABLE = 2, 3, 4, 6
_WORD = 1 << 64


@dataclass(frozen=True, slots=True)
class FieldProto:
    """The message of one column, or of a field nested in one."""

    entries: tuple[WireField, ...]

    @classmethod
    def parse(cls, raw: bytes) -> FieldProto:
        try:
            return cls(tuple(read_fields(raw)))
        except WireError:
            raise InternalError("Lance describes a column in an unknown format") from None

    @property
    def name(self) -> str:
        value = self._get(_NAME, b"")
        return value.decode() if isinstance(value, bytes) else ""

    @property
    def id(self) -> int:
        return self._integer(_ID)

    @property
    def parent(self) -> int:
        return self._integer(_PARENT)

    def altered(self, name: str, nullable: bool) -> FieldProto:
        return self._with(_NAME, name.encode())._with(_NULLABLE, int(nullable))

    def shifted(self, by: int) -> FieldProto:
        """The same field with its id and the id of its parent increased by ``by``."""
        moved = self._with(_ID, self.id + by)
        return moved if self.parent < 0 else moved._with(_PARENT, self.parent + by)

    def raw(self) -> bytes:
        return b"".join(entry.raw for entry in self.entries)

    def _get(self, number: int, default: int | bytes) -> int | bytes:
        return next((entry.value for entry in self.entries if entry.number == number), default)

    def _integer(self, number: int) -> int:
        value = self._get(number, 0)
        if not isinstance(value, int):
            raise InternalError("Lance describes a column in an unknown format")
        return value - _WORD if value >= _WORD >> 1 else value

    def _with(self, number: int, value: int | bytes) -> FieldProto:
        entries = [entry for entry in self.entries if entry.number != number]
        # Zero and empty values are omitted, as Lance does.
        if value:
            stored = value % _WORD if isinstance(value, int) else value
            entries.append(write_field(number, stored))
        return FieldProto(tuple(sorted(entries, key=lambda entry: entry.number)))


@dataclass(frozen=True, slots=True)
class ColumnProto:
    """A column followed by all fields nested in it."""

    fields: tuple[FieldProto, ...]

    @property
    def name(self) -> str:
        return self.fields[0].name

    @property
    def last_id(self) -> int:
        return max(field.id for field in self.fields)

    def altered(self, name: str, nullable: bool) -> ColumnProto:
        return ColumnProto((self.fields[0].altered(name, nullable), *self.fields[1:]))

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
    """A new column whose field ids start at ``first_id``."""
    (column,) = columns_of(LanceSchema.from_pyarrow(pa.schema([field])))
    return column.shifted(first_id)


def schema_of(like: LanceSchema, columns: Iterable[ColumnProto]) -> LanceSchema:
    """A schema with these columns and the metadata of ``like``."""
    raw = [field.raw() for column in columns for field in column.fields]
    return LanceSchema._from_protos(_state(like)[0], *raw)


def _state(schema: LanceSchema) -> Sequence[Any]:
    """The pickled state of a schema: its metadata, then one message per field."""
    reduced: Any = schema.__reduce__()
    state: Sequence[Any] = reduced[1]
    return state
