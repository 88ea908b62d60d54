"""Exports a snapshot: JSON lines in the format of load, or a directory of Parquet files.

Nodes come before edges, and rows are sorted by id, so two exports of one state are identical. Rows
are streamed; no table is loaded into memory. A file or directory is renamed to its final name at
the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.commit.snapshot import Pin, Snapshot, SnapshotLease
from omnigraph.commit.store import GraphStore, detect_removal
from omnigraph.errors import InputError, RestrictedView, ValueConversionError
from omnigraph.lang.schema.catalog import Catalog, EdgeType, EntityType, entity_types
from omnigraph.lang.values.arrow import to_timestamp
from omnigraph.lang.values.columns import exported_values
from omnigraph.plan.view import WHOLE, View
from omnigraph.read.visible_rows import VisibleRows
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import Table
from omnigraph.write.conform import find_type
from omnigraph.write.destinations import new_folder, replaced_file

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_ROWS = 4_096
_BYTES = 4 << 20
_GROUP_ROWS = 65_536
_GROUP_BYTES = 16 << 20


class Encoder:
    """Rows of one type: all properties, including nulls, and the id."""

    def __init__(self, entity_type: EntityType) -> None:
        self._entity_type = entity_type
        self._is_edge = isinstance(entity_type, EdgeType)
        self._head = _JSON({"edge" if self._is_edge else "type": entity_type.name})[:-1]

    def lines(self, batch: pa.RecordBatch) -> Iterator[str]:
        """One JSON object per row, without a line end."""
        names = [KEY, *self._entity_type.properties]
        columns: list[Sequence[Any]] = [
            batch[KEY].to_pylist(),
            *(self._column(name, batch[name]) for name in self._entity_type.properties),
        ]
        rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        if not self._is_edge:
            for row in rows:
                yield f'{self._head}, "data": {_JSON(row)}}}'
            return
        ends = zip(batch["src"].to_pylist(), batch["dst"].to_pylist(), strict=True)
        for row, (source, target) in zip(rows, ends, strict=True):
            yield (
                f'{self._head}, "from": {_JSON(source)}, "to": {_JSON(target)}, '
                f'"data": {_JSON(row)}}}'
            )

    def _column(self, name: str, column: pa.Array) -> list[Any]:
        try:
            return exported_values(column, self._entity_type.properties[name].type)
        except ValueError as error:
            raise ValueConversionError(
                f"{self._entity_type.name}.{name} holds {error} that JSON cannot",
                hint="export as Parquet",
                details={"property": name},
            ) from None


class Export:
    """The tables of a snapshot to export."""

    def __init__(
        self,
        store: GraphStore,
        catalog: Catalog,
        snapshot: Snapshot,
        types: Iterable[str] | None = None,
        view: View = WHOLE,
    ) -> None:
        """Only the rows that ``view`` shows are exported."""
        self._store = store
        self._snapshot = snapshot
        self._visible = VisibleRows(store, catalog, snapshot, view)
        self._lease = SnapshotLease(store.root.uri, snapshot)
        every = entity_types(catalog)
        if types is not None:
            wanted = {_named(catalog, name).table_key for name in types}
            every = [entity_type for entity_type in every if entity_type.table_key in wanted]
        self._entity_types = every

    def lines(self) -> Iterator[str]:
        """One JSON object per row, without line ends."""
        for entity_type, pin in self._pinned():
            encoder = Encoder(entity_type)
            for batch in self._batches(entity_type, pin):
                yield from encoder.lines(batch)

    def write_lines(self, path: Path, last: str | None = None) -> int:
        """Write a file of JSON lines, compressed if it ends in .gz or .zst; returns their number.

        The ``last`` line marks the file as complete and is not counted.
        """
        count = 0
        with replaced_file(path) as write:
            for line in self.lines():
                write(f"{line}\n".encode())
                count += 1
            if last is not None:
                write(f"{last}\n".encode())
        return count

    def write_parquet(self, folder: Path) -> int:
        """Write ``nodes/<Type>.parquet``, ``edges/<Type>.parquet``; returns the number of rows."""
        count = 0
        with new_folder(folder) as top:
            for entity_type, pin in self._pinned():
                folder_of_type = top / ("edges" if isinstance(entity_type, EdgeType) else "nodes")
                folder_of_type.mkdir(exist_ok=True)
                path = folder_of_type / f"{entity_type.name}.parquet"
                count += write_parquet(path, entity_type, self._batches(entity_type, pin))
        return count

    @property
    def datasets(self) -> Datasets:
        return self._store.datasets

    def require_whole(self) -> None:
        """Refuse unless every row of the types is exported."""
        keys = [entity_type.table_key for entity_type in self._entity_types]
        if not self._visible.view.whole_for(keys):
            raise RestrictedView(
                "some of the rows are not visible to this actor",
                hint="export in this process, with engine='local'",
            )

    def tables(self) -> Iterator[tuple[EntityType, Table]]:
        """The tables to export, for callers that write all rows themselves."""
        self.require_whole()
        for entity_type, pin in self._pinned():
            yield entity_type, self._store.table(pin)

    def lasting(self) -> AbstractContextManager[None]:
        """Context for reading the tables: reports files removed by cleanup as such."""
        return detect_removal(self._store, self._snapshot)

    def _pinned(self) -> Iterator[tuple[EntityType, Pin]]:
        for entity_type in self._entity_types:
            pin = self._snapshot.pin(entity_type.table_key)
            if pin is not None:
                yield entity_type, pin

    def _batches(self, entity_type: EntityType, pin: Pin) -> Iterator[pa.RecordBatch]:
        if not pin.row_count:
            return
        schema = entity_type.arrow_schema()
        with self.lasting():
            table = self._store.table(pin)
            seen = None
            if not self._visible.view.sees_all(entity_type.table_key):
                seen = self._visible.keys(entity_type)
            for batch in table.sorted_scan(schema.names, KEY, _ROWS, _BYTES, seen):
                yield typed_batch(batch, schema)


def typed_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same rows in exactly the columns of their type."""
    return pa.RecordBatch.from_arrays(
        [
            batch[field.name].cast(field.type)
            if batch[field.name].type != field.type
            else batch[field.name]
            for field in schema
        ],
        schema=schema,
    )


def _named(catalog: Catalog, name: object) -> EntityType:
    if not isinstance(name, str):
        raise InputError(f"types holds {type(name).__name__}", hint="pass the names of types")
    return find_type(catalog, name)


def write_parquet(path: Path, entity_type: EntityType, batches: Iterable[pa.RecordBatch]) -> int:
    """Write a file of typed batches; returns the number of rows."""
    schema, count = _parquet_schema(entity_type), 0
    with pq.ParquetWriter(path, schema) as writer:
        for rows in _parquet_groups(batches, schema):
            writer.write_table(rows)
            count += rows.num_rows
    return count


def _parquet_schema(entity_type: EntityType) -> pa.Schema:
    """The schema for Parquet, which has no ``date64``: timestamps are used instead."""
    fields = []
    for field in entity_type.arrow_schema():
        inner = field.type.value_type if pa.types.is_list(field.type) else field.type
        if pa.types.is_date64(inner):
            moment = pa.timestamp("ms")
            field = field.with_type(pa.list_(moment) if inner is not field.type else moment)
        fields.append(field)
    return pa.schema(fields)


def _parquet_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Batches combined to the row groups of a Parquet file."""
    group: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        group.append(_parquet_batch(batch, schema))
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(group, schema)
            group, rows, size = [], 0, 0
    if group:
        yield pa.Table.from_batches(group, schema)


def _parquet_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        column if column.type == field.type else to_timestamp(column).cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
