"""Columns that come typed already: Arrow tables, Parquet files, frames of pandas and polars."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.errors import InputError, OmniGraphError
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.storage.tables import KEY
from omnigraph.write.conform import conform
from omnigraph.write.delta import Kind
from omnigraph.write.load.intake import Intake
from omnigraph.write.validate.values import table_violations

_BATCH = 65_536
_ENDS = {"from": "src", "to": "dst"}


def as_arrow(value: Any) -> pa.Table | None:
    """An Arrow table of whatever kind of frame this is; none when it is none."""
    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatch):
        return pa.Table.from_batches([value])
    module = type(value).__module__.partition(".")[0]
    if module == "pandas":
        return pa.Table.from_pandas(value, preserve_index=False)
    if module == "polars":
        return value.to_arrow()
    if hasattr(value, "__arrow_c_stream__"):
        return pa.table(value)
    return None


def read_table(table: pa.Table, kind: Kind, intake: Intake, name: str) -> None:
    """Take the rows of a table in; lines count from 1."""
    file = intake.open_file(name)
    for start, part in _parts(table):
        _take(part, kind, intake, file, start)


def read_parquet(path: str, kind: Kind, intake: Intake) -> None:
    """Take the rows of a Parquet file in, batch by batch."""
    file = intake.open_file(path)
    try:
        with pq.ParquetFile(path) as source:
            start = 1
            for batch in source.iter_batches(batch_size=_BATCH):
                _take(pa.Table.from_batches([batch]), kind, intake, file, start)
                start += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OmniGraphError):
            raise
        raise InputError(f"'{path}' cannot be read as Parquet") from None


def _parts(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    for start in range(0, table.num_rows, _BATCH):
        yield start + 1, table.slice(start, _BATCH)


def _take(table: pa.Table, kind: Kind, intake: Intake, file: int, start: int) -> None:
    if isinstance(kind, EdgeType):
        table = table.rename_columns([_ENDS.get(name, name) for name in table.column_names])
    known = set(kind.arrow_schema().names)
    for name in [name for name in table.column_names if name not in known]:
        intake.ignore(kind, name, table.num_rows, file, start)
        table = table.drop_columns([name])
    gatherer = intake.gatherer(kind)
    gatherer.has_given_ids |= KEY in table.column_names
    try:
        _, rows = conform(intake.catalog, kind.table_key, table)
    except OmniGraphError as error:
        if table.num_rows > 1 and intake.rejects.goes_on:
            _halves(table, kind, intake, file, start)
            return
        intake.reject(file, start, error.message)
        return
    intake.records += rows.num_rows
    lines = np.arange(start, start + rows.num_rows, dtype=np.int64)
    bad: dict[int, str] = {}
    for violation in table_violations(kind, rows):
        if violation.row is not None:
            bad.setdefault(violation.row, violation.message)
    for row in sorted(bad):
        intake.reject(file, int(lines[row]), bad[row])
    files = pa.array(np.full(rows.num_rows, file, dtype=np.int32))
    placed = rows.append_column("file~", files).append_column("line~", pa.array(lines))
    if bad:
        placed = placed.take(pa.array([r for r in range(rows.num_rows) if r not in bad]))
    for batch in placed.combine_chunks().to_batches():
        gatherer.spool.add(pa.RecordBatch.from_arrays(batch.columns, schema=gatherer.spool.schema))


def _halves(table: pa.Table, kind: Kind, intake: Intake, file: int, start: int) -> None:
    """Something in here does not fit: look closer until it is one row."""
    half = table.num_rows // 2
    _take(table.slice(0, half), kind, intake, file, start)
    _take(table.slice(half), kind, intake, file, start + half)
