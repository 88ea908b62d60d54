"""The task of a worker for one partition of a frame: check each row, write the valid ones.

The code is that of a table in a local load. Rows are counted from the start of the partition. A
frame may yield other rows when it is evaluated again, so the result includes the row numbers.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.lang.schema.catalog import EntityType
from omnigraph.records import dataclass
from omnigraph.spark.load.read_tasks import (
    FragmentSink,
    Split,
    SplitResult,
    TableFragments,
    cached_catalog,
)
from omnigraph.spark.session.tasks import answer_for
from omnigraph.storage.tables.fragments import FragmentTarget
from omnigraph.write.conform import find_type
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.rejects import CollectedRejects, TooManyRejects
from omnigraph.write.load.sources import LoadFile
from omnigraph.write.load.spool import SOURCE_LINE
from omnigraph.write.load.tables import read_batches

_DIGEST_BYTES = 16
DIGESTS = 1 << 8 * _DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class FrameTask:
    """The settings shared by all partitions of a frame. Pickled for other processes."""

    catalog: str
    table_key: str
    file: int
    """The number of the frame in the load."""
    name: str
    """Its name in messages."""
    target: FragmentTarget
    strict_properties: bool = False
    allowed: int = 0
    """The allowed number of rejected rows in the whole load."""
    is_keyed: bool = False
    """Whether a digest of the rows is needed."""


@dataclass(frozen=True, slots=True)
class FrameResult:
    """The result of a partition."""

    split: SplitResult
    rows: np.ndarray | None
    """The numbers of the valid rows, if not all are."""
    digest: int = 0


def read_partition(task: FrameTask, batches: Iterable[pa.RecordBatch]) -> FrameResult:
    """Read a partition and write its valid rows."""
    catalog = cached_catalog(task.catalog)
    entity_type = find_type(catalog, task.table_key)
    sinks: list[_NumberedSink] = []

    def open_sink(entity_type: EntityType) -> _NumberedSink:
        sinks.append(_NumberedSink(entity_type, task.target))
        return sinks[-1]

    rejects = CollectedRejects(task.allowed)
    intake = Intake(catalog, open_sink, rejects, strict_properties=task.strict_properties)
    counted = _Counted(batches, task.is_keyed)
    try:
        read_batches(counted, entity_type, intake, task.name)
        intake.flush()
    except TooManyRejects:
        pass
    tables = {}
    rows = None
    for sink in sinks:
        tables[entity_type.table_key] = TableFragments(
            tuple(sink.close()), entity_type.table_key in intake.given_ids, sink.key_bytes
        )
        rows = sink.numbers() if rejects.collected else None
    result = SplitResult(
        Split(task.file, LoadFile(task.name, "frame", task.table_key)),
        tables,
        intake.records,
        counted.rows,
        counted.rows,
        intake.ignored,
        tuple(rejects.collected),
        rejects.fatal,
    )
    return FrameResult(result, rows, counted.digest)


class _NumberedSink(FragmentSink):
    """A sink that keeps the numbers of its rows."""

    def __init__(self, entity_type: EntityType, target: FragmentTarget) -> None:
        super().__init__(entity_type, target)
        self._numbers: list[np.ndarray] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._numbers.append(batch.column(SOURCE_LINE).to_numpy())
        super().add(batch)

    def numbers(self) -> np.ndarray:
        """The numbers of the rows, from 1; in the first file of an intake they are its lines."""
        return np.concatenate([np.empty(0, np.int64), *self._numbers])


class _Counted:
    """Counts the rows of a partition, and digests them for an idempotency key."""

    def __init__(self, batches: Iterable[pa.RecordBatch], is_keyed: bool) -> None:
        self.rows = 0
        self.digest = 0
        self._batches = batches
        self._is_keyed = is_keyed

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            if self._is_keyed:
                self.digest = (self.digest + _digest(batch)) % DIGESTS
            yield batch


def _digest(batch: pa.RecordBatch) -> int:
    """A digest of rows that does not depend on their order and batches."""
    names = ",".join(batch.schema.names)
    columns = [_values(column) for column in batch.columns]
    return sum(
        int.from_bytes(
            hashlib.blake2b(f"{names}={row!r}".encode(), digest_size=_DIGEST_BYTES).digest(), "big"
        )
        for row in zip(*columns, strict=True)
    )


def _values(column: pa.Array) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        # A date outside of Python's calendar.
        return [column.slice(row, 1).to_string() for row in range(len(column))]


class Partition:
    """The function for ``mapInArrow`` that is sent to workers."""

    def __init__(self, packed: bytes, label: str) -> None:
        self._packed = packed
        self._label = label

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task: FrameTask = pickle.loads(self._packed)
        answer = answer_for(lambda: read_partition(task, batches), self._label)
        yield answer.row(context.partitionId())
