"""Rows that a mutation has made so far and nobody else sees.

Whole rows, last one wins by id. Single inserts are kept as plain values and become Arrow once
somebody looks, so a query of many inserts does not copy its rows again and again.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.storage.tables.store import KEY
from omnigraph.write.delta import Kind


class PendingTable:
    """The pending rows of one table."""

    def __init__(self, kind: Kind, columns: tuple[str, ...] | None = None) -> None:
        self.kind = kind
        schema = kind.arrow_schema()
        names = schema.names if columns is None else [n for n in schema.names if n in columns]
        self.schema = pa.schema([schema.field(name) for name in names])
        self._image = self.schema.empty_table()
        self._new: dict[str, dict[str, pa.Array]] = {}

    def insert(self, row_id: str, values: dict[str, pa.Array]) -> None:
        """One whole row, each value an array of one; what is not given is null."""
        self._new.pop(row_id, None)
        self._new[row_id] = {KEY: pa.array([row_id], pa.string()), **values}

    def put(self, rows: pa.Table) -> None:
        """Whole rows that replace those with the same ids."""
        rows = rows.select(self.schema.names).cast(self.schema)
        image = self.image()
        if image.num_rows:
            kept = image.filter(pc.invert(pc.is_in(image[KEY], value_set=_ids(rows))))
            rows = pa.concat_tables([kept, rows])
        self._image = rows

    def image(self) -> pa.Table:
        """All pending rows, each id once."""
        if self._new:
            rows, self._new = list(self._new.values()), {}
            columns = [_column(rows, field) for field in self.schema]
            self.put(pa.Table.from_arrays(columns, schema=self.schema))
        return self._image

    def ids(self) -> pa.Array:
        """The ids that the pending rows shadow."""
        return _ids(self.image())

    def __len__(self) -> int:
        return int(self.image().num_rows)


def _ids(rows: pa.Table) -> pa.Array:
    return rows[KEY].combine_chunks()


def _column(rows: list[dict[str, pa.Array]], field: pa.Field) -> pa.Array:
    missing = pa.nulls(1, field.type)
    return pa.concat_arrays([row.get(field.name, missing) for row in rows])
