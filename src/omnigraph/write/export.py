"""A snapshot written out: JSON lines in the form that load reads, or a directory of Parquet.

Nodes come before edges and rows by their ids, so two exports of one state are the same bytes.
Rows stream; no table is held in memory.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import InputError, ValueConversionError
from omnigraph.lang.schema.catalog import Catalog, EdgeType
from omnigraph.lang.types import Scalar
from omnigraph.storage.tables import KEY
from omnigraph.write.conform import find_type
from omnigraph.write.delta import Kind
from omnigraph.write.moments import to_timestamp

_BATCH = 4_096
_DAY_ZERO = date(1970, 1, 1)


class Export:
    """The tables of a snapshot that are to be written out."""

    def __init__(
        self,
        store: GraphStore,
        catalog: Catalog,
        snapshot: Snapshot,
        types: Iterable[str] | None = None,
    ) -> None:
        self._store = store
        self._snapshot = snapshot
        every: list[Kind] = [*catalog.node_types.values(), *catalog.edge_types.values()]
        if types is not None:
            wanted = {find_type(catalog, name).table_key for name in types}
            every = [kind for kind in every if kind.table_key in wanted]
        self._kinds = every

    def lines(self) -> Iterator[str]:
        """One JSON object after the other, each without its line end."""
        for kind, pin in self._pinned():
            write = _Encoder(kind)
            for batch in self._batches(kind, pin):
                yield from write.lines(batch)

    def write_lines(self, path: Path) -> int:
        """Write a file of JSON lines; gives how many."""
        count = 0
        with _opened(path) as file:
            for line in self.lines():
                file.write(line)
                file.write("\n")
                count += 1
        return count

    def write_parquet(self, folder: Path) -> int:
        """Write ``nodes/<Type>.parquet`` and ``edges/<Type>.parquet``; gives how many rows."""
        count = 0
        for kind, pin in self._pinned():
            place = folder / ("edges" if isinstance(kind, EdgeType) else "nodes")
            _made(place)
            schema = _parquet_schema(kind)
            with pq.ParquetWriter(place / f"{kind.name}.parquet", schema) as writer:
                for batch in self._batches(kind, pin):
                    writer.write_batch(_parquet_batch(batch, schema))
                    count += batch.num_rows
        return count

    def _pinned(self) -> Iterator[tuple[Kind, Pin]]:
        for kind in self._kinds:
            pin = self._snapshot.pin(kind.table_key)
            if pin is not None:
                yield kind, pin

    def _batches(self, kind: Kind, pin: Pin) -> Iterator[pa.RecordBatch]:
        if not pin.row_count:
            return
        schema = kind.arrow_schema()
        table = self._store.table(pin)
        for batch in table.sorted_scan(schema.names, KEY, _BATCH):
            yield pa.RecordBatch.from_arrays(
                [
                    batch[field.name].cast(field.type)
                    if batch[field.name].type != field.type
                    else batch[field.name]
                    for field in schema
                ],
                schema=schema,
            )


def _parquet_schema(kind: Kind) -> pa.Schema:
    """Parquet has no ``date64``: moments are timestamps there."""
    fields = []
    for field in kind.arrow_schema():
        inner = field.type.value_type if pa.types.is_list(field.type) else field.type
        if pa.types.is_date64(inner):
            moment = pa.timestamp("ms")
            field = field.with_type(pa.list_(moment) if inner is not field.type else moment)
        fields.append(field)
    return pa.schema(fields)


def _parquet_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        column if column.type == field.type else to_timestamp(column).cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class _Encoder:
    """Rows of one type as JSON lines."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._is_edge = isinstance(kind, EdgeType)
        self._head = json.dumps({"edge" if self._is_edge else "type": kind.name})[:-1]

    def lines(self, batch: pa.RecordBatch) -> Iterator[str]:
        names = [KEY, *self._kind.properties]
        columns: list[Sequence[Any]] = [
            batch[KEY].to_pylist(),
            *(self._column(name, batch[name]) for name in self._kind.properties),
        ]
        rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        if not self._is_edge:
            for row in rows:
                yield f'{self._head}, "data": {_json(row)}}}'
            return
        ends = zip(batch["src"].to_pylist(), batch["dst"].to_pylist(), strict=True)
        for row, (source, target) in zip(rows, ends, strict=True):
            yield (
                f'{self._head}, "from": {_json(source)}, "to": {_json(target)}, '
                f'"data": {_json(row)}}}'
            )

    def _column(self, name: str, column: pa.Array) -> list[Any]:
        type_ = self._kind.properties[name].type
        if type_.scalar is Scalar.DATETIME:
            column = to_timestamp(column)
        values: list[Any] = column.to_pylist()
        if type_.scalar.is_float or type_.scalar is Scalar.VECTOR:
            self._refuse_infinite(name, column)
        plain = _PLAIN.get(type_.scalar)
        if plain is None:
            return values
        if type_.is_list:
            return [None if v is None else [plain(item) for item in v] for v in values]
        return [None if value is None else plain(value) for value in values]

    def _refuse_infinite(self, name: str, column: pa.Array) -> None:
        flat = column.flatten() if hasattr(column, "flatten") else column
        if pc.all(pc.is_finite(flat)).as_py() is False:
            raise ValueConversionError(
                f"{self._kind.name}.{name} holds a number that JSON cannot",
                hint="export as Parquet",
                details={"property": name},
            )


def _days(value: date) -> int:
    return (value - _DAY_ZERO).days


def _moment(value: datetime) -> str:
    return value.isoformat(timespec="milliseconds")


def _blob(value: bytes) -> str:
    return "base64:" + base64.b64encode(value).decode("ascii")


_PLAIN: dict[Scalar, Callable[[Any], Any]] = {
    Scalar.DATE: _days,
    Scalar.DATETIME: _moment,
    Scalar.BLOB: _blob,
}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _made(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from None


def _opened(path: Path) -> Any:
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> InputError:
    reason = (error.strerror or "it cannot be written").lower()
    return InputError(f"cannot write '{path}': {reason}")
