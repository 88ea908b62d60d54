"""What a worker does in one go: read rows or take them, leave some out, and give out the others.

Scans, conditions and values are one pass over Arrow, so that a row goes through Java only where
Spark has to bring rows together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import typed
from omnigraph.plan.arrow import filter_expression
from omnigraph.read.context import columns_read
from omnigraph.read.frame import Frame, repeat_indices
from omnigraph.spark.query.encode import ARROW, LONG, as_double, decoded, encoded
from omnigraph.spark.query.rows import Query, WorkerRun, numbers_of
from omnigraph.spark.query.tables import ID, ROW_ID
from omnigraph.spark.session.failures import carrying
from omnigraph.storage.tables.fragments import TableLocator

LABEL = "query"
WEIGHT = "w"
PIECE = "piece"
_PIECE_ROWS = 65_536

Columns = tuple[tuple[str, str], ...]
"""Variables, each with the column of Spark that holds its row ids."""


# -- where rows come from -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows of a table that conditions keep, a share of its parts for each task."""

    variable: str
    at: TableLocator
    shares: tuple[tuple[int, ...] | None, ...]
    """The parts of each task; none for the whole table."""
    pushed: tuple[typed.TypedExpr, ...] = ()

    def frames(
        self, run: WorkerRun, batches: Iterable[pa.RecordBatch], columns: Sequence[str]
    ) -> Iterator[Frame]:
        condition = filter_expression(typed.And(self.pushed)) if self.pushed else None
        for batch in batches:
            for position in batch.column(0).to_pylist():
                parts = self.shares[position]
                for rows in run.reader(self.variable).scan(columns, condition, parts):
                    numbers = rows[ROW_ID].to_numpy().astype(np.int64)
                    frame = run.frame(len(numbers), {self.variable: numbers})
                    frame.values |= {(self.variable, name): rows[name] for name in columns}
                    yield frame


@dataclass(frozen=True, slots=True)
class Given:
    """Rows of Spark: row ids, and how often each row counts."""

    columns: Columns

    def frames(
        self, run: WorkerRun, batches: Iterable[pa.RecordBatch], columns: Sequence[str]
    ) -> Iterator[Frame]:
        for batch in batches:
            numbers = {name: batch[column].to_numpy() for name, column in self.columns}
            weights = batch[WEIGHT].to_numpy()
            yield run.frame(batch.num_rows, numbers, None if (weights == 1).all() else weights)


# -- what is made of them -------------------------------------------------------------------------


class Output(Protocol):
    """What a worker gives out."""

    @property
    def schema(self) -> str:
        """The columns, as Spark wants to know them."""

    def exprs(self) -> Iterator[typed.TypedExpr]:
        """What is asked of the rows."""

    def batches(self, run: WorkerRun, frame: Frame) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True)
class Numbers:
    """Who the rows are."""

    columns: Columns

    @property
    def schema(self) -> str:
        return ", ".join(f"{name} {LONG}" for name in (*dict(self.columns).values(), WEIGHT))

    def exprs(self) -> Iterator[typed.TypedExpr]:
        yield from ()

    def batches(self, run: WorkerRun, frame: Frame) -> Iterator[pa.RecordBatch]:
        arrays = [pa.array(numbers_of(frame, name)) for name, _ in self.columns]
        names = [column for _, column in self.columns]
        yield pa.record_batch([*arrays, pa.array(frame.counts())], [*names, WEIGHT])


@dataclass(frozen=True, slots=True)
class Item:
    """A value for Spark to sort, group or add up: under a name, in one of its types."""

    name: str
    expr: typed.TypedExpr
    type: str
    is_number: bool = False
    """Whether it is the row id of a variable."""
    is_place: bool = False
    """Whether it is the place in a fused ranking rather than its score."""

    def array(self, run: WorkerRun, frame: Frame, *, as_sum: bool) -> pa.Array:
        if self.is_number:
            assert isinstance(self.expr, typed.Entity)
            return pa.array(numbers_of(frame, self.expr.variable))
        if self.is_place:
            assert isinstance(self.expr, typed.Rrf)
            return run.searches.places(frame, self.expr)
        values = run.values(frame, self.expr)
        return as_double(values) if as_sum else encoded(values)


@dataclass(frozen=True, slots=True)
class Encoded:
    """Values for Spark, beside who the rows are."""

    items: tuple[Item, ...]
    columns: Columns = ()
    sums: frozenset[str] = frozenset()
    """Which items are to be added up."""

    @property
    def schema(self) -> str:
        own = [f"{item.name} {item.type}" for item in self.items]
        return ", ".join([*own, Numbers(self.columns).schema])

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
        (own,) = Numbers(self.columns).batches(run, frame)
        names = [item.name for item in self.items]
        yield pa.record_batch([*arrays, *own.columns], [*names, *own.schema.names])


@dataclass(frozen=True, slots=True)
class Pieces:
    """Rows of the result, each batch as one value: Spark hands them over as they are."""

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
        columns = [run.values(frame, expr) for expr in self.returned]
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

    query: Query
    source: Scan | Given
    filters: tuple[typed.TypedExpr, ...]
    output: Output
    most: int | None = None
    """How many rows are enough."""

    def function(self) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """For ``mapInArrow``."""
        work = self

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return work.run(batches)

        return carrying(run, LABEL)

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
        """What a scan reads at once of what is asked for later."""
        if isinstance(self.source, Given):
            return []
        exprs = (*self.filters, *self.output.exprs())
        return sorted({name for expr in exprs for _, name in columns_read(expr, searched=True)})


# -- groups that are through ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decode:
    """From groups as Spark has them to rows of the result."""

    query: Query
    columns: tuple[tuple[str, str | None], ...]
    """The column of Spark for each of the result; with the variable whose row id it holds."""
    types: bytes

    def function(self) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        work = self

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return work.run(batches)

        return carrying(run, LABEL)

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
                    found = run.reader(variable).values([ID], values.to_numpy())
                    arrays.append(found[ID])
            yield packed(pa.RecordBatch.from_arrays(arrays, schema=schema))
