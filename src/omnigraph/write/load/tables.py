"""Reads typed columns: Arrow tables, Parquet files, frames of pandas and polars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.errors import InputError, OmniGraphError
from omnigraph.lang.schema.catalog import EdgeType, EntityType, NodeType
from omnigraph.lang.values.arrow import type_name
from omnigraph.lang.values.spelling import show
from omnigraph.records import dataclass
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.wide_columns import vector_bytes
from omnigraph.write.conform import conform, first_repeated
from omnigraph.write.delta import refuse_wide
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.rejects import Reject, source_line
from omnigraph.write.load.spool import SOURCE_LINE

_ROWS = 65_536
_BYTES = 32 << 20
_ENDS = {"from": "src", "to": "dst"}
_SHOWN_ENDS = {"src": "from", "dst": "to"}


def frame_batches(
    value: Any, entity_type: EntityType, name: str
) -> Iterator[pa.RecordBatch] | None:
    """The rows of a table or frame; ``None`` if the value is neither."""
    problem = _Problem(f"the rows of '{entity_type.name}' cannot be read as Arrow", name)
    batches = problem.guard(lambda: _batches(value))
    return None if batches is None else problem.guard_all(batches)


def read_batches(
    batches: Iterable[pa.RecordBatch], entity_type: EntityType, intake: Intake, name: str
) -> None:
    """Read Arrow batches."""
    _Rows(entity_type, intake, intake.open_file(name)).take_all(batches)


def read_parquet(
    path: str, entity_type: EntityType, intake: Intake, groups: range | None = None, before: int = 0
) -> None:
    """Read a Parquet file batch by batch, or only some of its row groups.

    ``before`` is the number of rows in the row groups before them.
    """
    problem = _Problem(f"'{path}' cannot be read as Parquet", path)
    with problem.guard(lambda: pq.ParquetFile(path)) as source:
        rows = _Rows(entity_type, intake, intake.open_file(path))
        rows.take_all(problem.guard_all(_parquet_batches(source, groups)), before + 1)


def _parquet_batches(source: pq.ParquetFile, groups: range | None) -> Iterator[pa.RecordBatch]:
    """The rows, one row group at a time.

    Arrow would keep all of them in memory until the end of a single read.
    """
    metadata: Any = source.metadata
    for number in range(metadata.num_row_groups) if groups is None else groups:
        group = metadata.row_group(number)
        rows = max(1, min(_ROWS, _BYTES * int(group.num_rows) // max(group.total_byte_size, 1)))
        yield from source.iter_batches(batch_size=rows, row_groups=[number])


def _batches(value: Any) -> Any:
    """The batches of a table or frame; ``None`` if the value is neither."""
    if isinstance(value, pa.RecordBatch):
        return [value]
    if isinstance(value, pa.Table):
        return iter(value.to_batches())
    if type(value).__module__.partition(".")[0] == "pandas":
        # Through the stream protocol the index would become a column.
        is_frame = hasattr(value, "columns")
        return iter(_from_pandas(value).to_batches()) if is_frame else None
    if hasattr(value, "__arrow_c_stream__"):
        _refuse_objects(value)
        return iter(pa.RecordBatchReader.from_stream(value))
    return None


def _refuse_objects(frame: Any) -> None:
    """Refuse columns of Python objects, which Polars exports as memory addresses."""
    if type(frame).__module__.partition(".")[0] != "polars":
        return
    for name, type_ in dict(getattr(frame, "schema", {})).items():
        while (inner := getattr(type_, "inner", None)) is not None:
            type_ = inner
        if type(type_).__name__ == "Object" or getattr(type_, "__name__", "") == "Object":
            shown = show(name)
            raise InputError(
                f"the column '{shown}' holds Python objects",
                hint="give the column a type, such as Binary or String",
                details={"property": shown},
            )


def _from_pandas(frame: Any) -> pa.Table:
    """Convert a frame; NaN becomes null, as in most pandas columns."""
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, OverflowError):
        for name in frame.columns:
            try:
                pa.array(frame[name], from_pandas=True)
            except (pa.ArrowException, TypeError, OverflowError):
                shown = show(str(name))
                raise InputError(
                    f"the column '{shown}' holds values of several kinds, or none that Arrow has",
                    details={"property": shown},
                ) from None
        raise


@dataclass(frozen=True, slots=True)
class _Problem:
    """The message for data that a library cannot read, instead of its own."""

    text: str
    file: str

    def guard(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError):
            raise InputError(self.text, details={"file": self.file}) from None

    def guard_all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rest = iter(batches)
        while (batch := self.guard(lambda: next(rest, None))) is not None:
            yield batch


class _Rows:
    """The rows of one table; lines count from 1."""

    def __init__(self, entity_type: EntityType, intake: Intake, file: int) -> None:
        self._entity_type = entity_type
        self._intake = intake
        self._file = file
        self._names = frozenset(entity_type.arrow_schema().names)
        self._is_keyed = isinstance(entity_type, NodeType) and bool(entity_type.key)
        refuse_wide(entity_type)
        # Null vectors take memory as well.
        self._width = vector_bytes(entity_type.arrow_schema())

    def take_all(self, batches: Iterable[pa.RecordBatch], start: int = 1) -> None:
        for batch in batches:
            for offset, piece in _slices(batch, self._width):
                self._take(self._columns(piece), start + offset)
            start += batch.num_rows

    def _columns(self, batch: pa.RecordBatch) -> pa.Table:
        """The columns of the schema, under its names."""
        table = pa.Table.from_batches([batch])
        if isinstance(self._entity_type, EdgeType):
            table = table.rename_columns([_ENDS.get(name, name) for name in table.column_names])
        unknown = [name for name in table.column_names if name not in self._names]
        for name in unknown:
            shown = show(name)
            if self._intake.strict_properties:
                raise self._refused(1, f"{self._entity_type.name} has no property '{shown}'", shown)
            self._intake.ignore(self._entity_type, shown, table.num_rows)
        table = table.select(
            [n for n, name in enumerate(table.column_names) if name not in unknown]
        )
        repeated = first_repeated(table.column_names)
        if repeated is not None:
            shown = show(repeated)
            raise self._refused(1, f"the column '{shown}' is given twice", shown)
        return table

    def _take(self, table: pa.Table, start: int) -> None:
        if not table.num_rows:
            return
        rows, error = self._conformed(table)
        if rows is None or error is not None:
            if table.num_rows > 1:
                # Some row is invalid: bisect to find it.
                half = table.num_rows // 2
                self._take(table.slice(0, half), start)
                self._take(table.slice(half), start + half)
            elif error is not None:
                self._reject(table, start, error)
            return
        # Only for a table with rows: an empty one overwrites nothing.
        gatherer = self._intake.gatherer(self._entity_type)
        if not self._is_keyed:
            given = pa.nulls(table.num_rows, pa.string())
            if KEY in table.column_names:
                given = table[KEY].cast(pa.string()).combine_chunks()
            gatherer.has_given_ids |= given.null_count < len(given)
            self._intake.digest_ids(self._entity_type, given)
        first = source_line(self._file, start)
        lines = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
        with_lines = rows.append_column(SOURCE_LINE, lines).combine_chunks()
        for batch in with_lines.to_batches():
            gatherer.take(batch)
        self._intake.count_records(rows.num_rows)

    def _conformed(self, table: pa.Table) -> tuple[pa.Table | None, OmniGraphError | None]:
        try:
            return conform(self._intake.catalog, self._entity_type.table_key, table)[1], None
        except OmniGraphError as error:
            return None, error

    def _reject(self, row: pa.Table, line: int, error: OmniGraphError) -> None:
        name = error.details.get("property")
        value = None
        if name in row.column_names:
            value = show(_python(row[name]))
        field = None if name is None else _SHOWN_ENDS.get(name, name)
        self._intake.reject(self._file, line, error.message, field=field, value=value)

    def _refused(self, line: int, reason: str, field: str) -> OmniGraphError:
        """The error for an invalid column, which would reject every row."""
        return Reject(self._intake.files[self._file], line, reason, field).error()


def _python(column: pa.ChunkedArray) -> Any:
    try:
        return column[0].as_py()
    except (ValueError, OverflowError):
        # A date outside of Python's calendar.
        return f"a {type_name(column.type)}"


def _slices(batch: pa.RecordBatch, width: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Slices of a batch of limited size."""
    per_row = max(1, width, batch.nbytes // max(batch.num_rows, 1))
    rows = max(1, min(_ROWS, _BYTES // per_row))
    for start in range(0, batch.num_rows, rows):
        yield start, batch.slice(start, rows)
