"""Rows that a mutation has made so far and nobody else sees.

Whole rows, last one wins by id. Single inserts are kept as plain values and become Arrow once
somebody looks, so a query of many inserts does not copy its rows again and again.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.storage.tables import KEY
from omnigraph.write.delta import Kind


class PendingTable:
    """The pending rows of one table."""

    def __init__(self, kind: Kind, columns: tuple[str, ...] | None = None) -> None:
        self.kind = kind
        schema = kind.arrow_schema()
        names = schema.names if columns is None else [n for n in schema.names if n in columns]
        self.schema = pa.schema([schema.field(name) for name in names])
        self._image = self.schema.empty_table()
        self._new: dict[str, list[pa.Scalar]] = {}

    def insert(self, row_id: str, values: dict[str, pa.Scalar]) -> None:
        """One whole row; what is not given is null."""
        row = [
            pa.scalar(row_id, pa.string()) if field.name == KEY else values.get(field.name)
            for field in self.schema
        ]
        self._new.pop(row_id, None)
        self._new[row_id] = [
            pa.scalar(None, field.type) if value is None else value
            for field, value in zip(self.schema, row, strict=True)
        ]

    def put(self, rows: pa.Table) -> None:
        """Whole rows that replace those with the same ids."""
        image = self.image()
        kept = image.filter(pc.invert(pc.is_in(image[KEY], value_set=_ids(rows))))
        self._image = pa.concat_tables([kept, rows.select(self.schema.names).cast(self.schema)])

    def image(self) -> pa.Table:
        """All pending rows, each id once."""
        if self._new:
            new, self._new = self._new, {}
            arrays = [
                _array([row[position] for row in new.values()], field)
                for position, field in enumerate(self.schema)
            ]
            self.put(pa.Table.from_arrays(arrays, schema=self.schema))
        return self._image

    def ids(self) -> pa.Array:
        """The ids that the pending rows shadow."""
        return _ids(self.image())

    def __len__(self) -> int:
        return len(self._new) + int(self._image.num_rows)


def _ids(rows: pa.Table) -> pa.Array:
    return rows[KEY].combine_chunks()


def _array(scalars: list[pa.Scalar], field: pa.Field) -> pa.Array:
    if pa.types.is_date64(field.type):
        # Through Python a moment would lose its time of day.
        numbers = [s.value if s.is_valid else None for s in scalars]
        return pa.array(numbers, pa.int64()).view(field.type)
    values: list[Any] = [scalar.as_py() for scalar in scalars]
    return pa.array(values, field.type)
