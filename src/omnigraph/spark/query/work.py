"""One pass of a worker: scan or receive rows, filter them, and emit values.

Scans, conditions and values are one pass over Arrow, so that rows cross into the JVM only where
Spark joins, groups or sorts them. Values are encoded as Spark integers, doubles and strings with
the equality and order of the engine: null stays null, all NaN are equal and the greatest value,
zero has one sign. Lists have no order, so their text is enough to compare them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.query import typed
from omnigraph.lang.values.arrow import date_width
from omnigraph.plan.arrow import filter_expression
from omnigraph.read.frame import Frame, repeat_indices
from omnigraph.read.values import columns_read, values_of
from omnigraph.records import dataclass
from omnigraph.spark.query.rows import ID, Splits, WorkerQuery, WorkerRun, row_ids_in, row_ids_of
from omnigraph.storage.tables.fragments import TableLocator

LONG, DOUBLE, TEXT = "bigint", "double", "string"
ARROW = {LONG: pa.int64(), DOUBLE: pa.float64(), TEXT: pa.string()}
_SIGN = np.uint64(1 << 63)
WEIGHT = "w"
PIECE = "piece"
_PIECE_ROWS = 65_536
Columns = tuple[tuple[str, str], ...]
"""The Spark column with the row ids of each variable."""


def spark_type(type_: pa.DataType) -> str:
    """The Spark type of encoded values."""
    if pa.types.is_floating(type_):
        return DOUBLE
    if pa.types.is_string(type_) or pa.types.is_nested(type_):
        return TEXT
    return LONG


def encoded(values: pa.Array) -> pa.Array:
    """A column for Spark.

    >>> encoded(pa.array([0, None, 2**64 - 1], pa.uint64())).to_pylist()
    [-9223372036854775808, None, 9223372036854775807]
    """
    type_ = values.type
    if pa.types.is_string(type_):
        return values
    if pa.types.is_nested(type_):
        plain = _with_numbers(values).to_pylist()
        return pa.array([None if v is None else json.dumps(v) for v in plain], pa.string())
    if pa.types.is_floating(type_):
        # Zero and minus zero are equal.
        return pc.add(values.cast(pa.float64()), pa.scalar(0.0))
    if pa.types.is_uint64(type_):
        missing = values.is_null().to_numpy(zero_copy_only=False)
        numbers = values.fill_null(0).to_numpy() ^ _SIGN
        return pa.array(numbers.view(np.int64), mask=missing)
    if pa.types.is_date(type_):
        return values.view(date_width(type_)).cast(pa.int64())
    return values.cast(pa.int64())


def decoded(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """The inverse of ``encoded``."""
    if pa.types.is_string(type_):
        return values
    if pa.types.is_nested(type_):
        return _lists(values, type_)
    if pa.types.is_floating(type_):
        return values.cast(type_, safe=False)
    if pa.types.is_uint64(type_):
        missing = values.is_null().to_numpy(zero_copy_only=False)
        numbers = values.fill_null(0).to_numpy().view(np.uint64) ^ _SIGN
        return pa.array(numbers, mask=missing)
    if pa.types.is_date(type_):
        return values.cast(date_width(type_)).view(type_)
    return values.cast(type_)


def as_double(values: pa.Array) -> pa.Array:
    """Numbers as doubles, for sums."""
    return values.cast(pa.float64(), safe=False)


def _with_numbers(values: pa.Array) -> pa.Array:
    """Lists of dates as lists of integers: Python dates would lose the time of day."""
    item = values.type.value_type
    return values.cast(pa.list_(date_width(item))) if pa.types.is_date(item) else values


def _lists(values: pa.Array, type_: pa.DataType) -> pa.Array:
    plain = [None if text is None else json.loads(text) for text in values.to_pylist()]
    item = type_.value_type
    if not pa.types.is_date(item):
        return pa.array(plain, type_)
    offsets = np.cumsum([0, *(len(items or ()) for items in plain)])
    flat = pa.array([item for items in plain for item in items or ()], date_width(item)).view(item)
    missing = pa.array([items is None for items in plain])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, type=type_, mask=missing)


# -- input -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableScan:
    """The rows of a table that match conditions, one split of the table per task."""

    variable: str
    locator: TableLocator
    splits: Splits
    pushed: tuple[typed.TypedExpr, ...] = ()

    def frames(
        self, run: WorkerRun, batches: Iterable[pa.RecordBatch], columns: Sequence[str]
    ) -> Iterator[Frame]:
        condition = filter_expression(typed.And(self.pushed)) if self.pushed else None
        table = run.table(self.variable)
        for split in table.scan_splits(batches, self.splits, columns, condition):
            for rows in split:
                frame = run.frame(rows.num_rows, {self.variable: row_ids_of(rows)})
                frame.values |= {(self.variable, name): rows[name] for name in columns}
                yield frame


@dataclass(frozen=True, slots=True)
class FrameRows:
    """Rows of a DataFrame: row ids, and the weight of each row."""

    columns: Columns

    def frames(
        self, run: WorkerRun, batches: Iterable[pa.RecordBatch], columns: Sequence[str]
    ) -> Iterator[Frame]:
        for batch in batches:
            numbers = {name: batch[column].to_numpy() for name, column in self.columns}
            weights = batch[WEIGHT].to_numpy()
            yield run.frame(batch.num_rows, numbers, None if (weights == 1).all() else weights)


# -- output -------------------------------------------------------------------------


class RowOutput(Protocol):
    """What a pass of the workers emits."""

    @property
    def schema(self) -> str:
        """The columns in the schema language of Spark."""

    def exprs(self) -> Iterator[typed.TypedExpr]:
        """The expressions it evaluates."""

    def batches(self, run: WorkerRun, frame: Frame) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class RowIdOutput:
    """The row ids of the variables."""

    columns: Columns

    @property
    def schema(self) -> str:
        return ", ".join(f"{name} {LONG}" for name in (*dict(self.columns).values(), WEIGHT))

    def exprs(self) -> Iterator[typed.TypedExpr]:
        yield from ()

    def batches(self, run: WorkerRun, frame: Frame) -> Iterator[pa.RecordBatch]:
        arrays = [pa.array(row_ids_in(frame, name)) for name, _ in self.columns]
        names = [column for _, column in self.columns]
        yield pa.record_batch([*arrays, pa.array(frame.counts())], [*names, WEIGHT])


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """A named value in a Spark type, for Spark to sort, group or sum."""

    name: str
    expr: typed.TypedExpr
    type: str
    is_number: bool = False
    """Whether it is the row id of a variable."""
    is_rank: bool = False
    """Whether it is the rank in a fused ranking rather than its score."""

    def array(self, run: WorkerRun, frame: Frame, *, as_sum: bool) -> pa.Array:
        if self.is_number:
            assert isinstance(self.expr, typed.Entity)
            return pa.array(row_ids_in(frame, self.expr.variable))
        if self.is_rank:
            assert isinstance(self.expr, typed.Rrf)
            return run.searches.ranks(frame, self.expr)
        values = values_of(run, frame, self.expr)
        return as_double(values) if as_sum else encoded(values)


@dataclass(frozen=True, slots=True)
class EncodedOutput:
    """Values for Spark, with the row ids of the variables."""

    items: tuple[EncodedColumn, ...]
    columns: Columns = ()
    sums: frozenset[str] = frozenset()
    """Which columns are summed."""

    @property
    def schema(self) -> str:
        own = [f"{item.name} {item.type}" for item in self.items]
        return ", ".join([*own, RowIdOutput(self.columns).schema])

    def exprs(self) -> Iterator[typed.TypedExpr]:
        for item in self.items:
            if not item.is_number:
                yield item.expr

    def batches(self, run: WorkerRun, frame: Frame) -> Iterator[pa.RecordBatch]:
        run.fetch(frame, self.exprs())
        arrays = [
            item.array(run, frame, as_sum=item.name in self.sums).cast(ARROW[item.type])
            for item in self.items
        ]
        (own,) = RowIdOutput(self.columns).batches(run, frame)
        names = [item.name for item in self.items]
        yield pa.record_batch([*arrays, *own.columns], [*names, *own.schema.names])


@dataclass(frozen=True, slots=True)
class ResultOutput:
    """Rows of the result, each batch as one serialized value that Spark does not interpret."""

    returned: tuple[typed.TypedExpr, ...]
    types: bytes
    """The columns of the result."""

    @property
    def schema(self) -> str:
        return f"{PIECE} binary"

    def exprs(self) -> Iterator[typed.TypedExpr]:
        yield from self.returned

    def batches(self, run: WorkerRun, frame: Frame) -> Iterator[pa.RecordBatch]:
        schema = pa.ipc.read_schema(pa.py_buffer(self.types))
        run.fetch(frame, self.returned)
        columns = [values_of(run, frame, expr) for expr in self.returned]
        whole = pa.RecordBatch.from_arrays(columns, schema=schema)
        if frame.weights is None:
            yield packed(whole)
            return
        for indices in repeat_indices(frame.weights, _PIECE_ROWS):
            yield packed(whole.take(pa.array(indices)))


def packed(batch: pa.RecordBatch) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.record_batch([pa.array([sink.getvalue().to_pybytes()], pa.binary())], [PIECE])


def unpacked(piece: bytes) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(pa.py_buffer(piece)) as reader:
        yield from reader


# -- the work -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowWork:
    """One pass of a worker."""

    query: WorkerQuery
    source: TableScan | FrameRows
    filters: tuple[typed.TypedExpr, ...]
    output: RowOutput
    most: int | None = None
    """The most rows to emit."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        run = WorkerRun(self.query)
        left = self.most
        for frame in self.source.frames(run, batches, self._columns()):
            for condition in self.filters:
                frame = frame.where(run.keeps(frame, condition)) if frame.rows else frame
            if left is not None:
                frame = frame.slice(0, left)
                left -= frame.rows
            if frame.rows:
                yield from self.output.batches(run, frame)
            if left == 0:
                return

    def _columns(self) -> list[str]:
        """The columns that a scan reads along with the rows."""
        if isinstance(self.source, FrameRows):
            return []
        exprs = (*self.filters, *self.output.exprs())
        return sorted({name for expr in exprs for _, name in columns_read(expr, searched=True)})


# -- finished groups ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decode:
    """Decodes groups to rows of the result."""

    query: WorkerQuery
    columns: tuple[tuple[str, str | None], ...]
    """The Spark column of each result column, and the variable whose row id it holds."""
    types: bytes

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = pa.ipc.read_schema(pa.py_buffer(self.types))
        run = WorkerRun(self.query)
        for batch in batches:
            arrays = []
            for (name, variable), wanted in zip(self.columns, schema, strict=True):
                values = batch[name]
                if variable is None:
                    arrays.append(decoded(values, wanted.type))
                else:
                    arrays.append(run.table(variable).values([ID], values.to_numpy())[ID])
            yield packed(pa.RecordBatch.from_arrays(arrays, schema=schema))
