"""What a worker does with one partition of a frame: judge each row, write the good ones.

The same code as for a table that is loaded in one process. Rows are counted from the beginning of
the partition. A frame may give other rows when it is asked again, so that a partition also tells
what is needed to find its rows later.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import OmniGraphError
from omnigraph.spark.load.read_tasks import Done, FragmentSink, Taken, cached_catalog
from omnigraph.spark.load.splits import Split
from omnigraph.spark.session.failures import Carried, pack, typed, unpack
from omnigraph.storage.tables.fragments import FragmentTarget
from omnigraph.write.conform import find_type
from omnigraph.write.delta import Kind
from omnigraph.write.load.files import SourceFile
from omnigraph.write.load.intake import Intake
from omnigraph.write.load.rejects import CollectedRejects, TooManyRejects
from omnigraph.write.load.spool import PLACE
from omnigraph.write.load.tables import read_batches

ANSWER = "position long, failed boolean, answer binary"
_ANSWER = pa.schema([("position", pa.int64()), ("failed", pa.bool_()), ("answer", pa.binary())])
_DIGEST_BYTES = 16
DIGESTS = 1 << 8 * _DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class FrameTask:
    """What all partitions of a frame have in common. Made to be sent to other processes."""

    catalog: str
    table_key: str
    file: int
    """The number of the frame in the load."""
    name: str
    """What messages call it."""
    place: FragmentTarget
    strict_properties: bool = False
    allowed: int = 0
    """How many rows may be refused in the whole load."""
    is_keyed: bool = False
    """Whether it matters which rows these are."""


@dataclass(frozen=True, slots=True)
class FrameResult:
    """What became of a partition."""

    done: Done
    rows: np.ndarray | None
    """The numbers of the good rows, where that is not all of them."""
    digest: int = 0


def read_partition(reading: FrameTask, batches: Iterable[pa.RecordBatch]) -> FrameResult:
    """Read a partition and write what is good of it."""
    catalog = cached_catalog(reading.catalog)
    kind = find_type(catalog, reading.table_key)
    sinks: list[_NumberedSink] = []

    def sink(kind: Kind) -> _NumberedSink:
        sinks.append(_NumberedSink(kind, reading.place))
        return sinks[-1]

    rejects = CollectedRejects(reading.allowed)
    intake = Intake(catalog, sink, rejects, strict_properties=reading.strict_properties)
    counted = _Counted(batches, reading.is_keyed)
    try:
        read_batches(counted, kind, intake, reading.name)
        intake.settle()
    except TooManyRejects:
        pass
    tables = {}
    rows = None
    for each in sinks:
        tables[kind.table_key] = Taken(
            tuple(each.close()), kind.table_key in intake.given_ids, each.key_bytes
        )
        rows = each.numbers() if rejects.found else None
    done = Done(
        Split(reading.file, SourceFile(reading.name, "frame", reading.table_key)),
        tables,
        intake.records,
        counted.rows,
        counted.rows,
        intake.ignored,
        tuple(rejects.found),
        rejects.last,
    )
    return FrameResult(done, rows, counted.digest)


class _NumberedSink(FragmentSink):
    """Rows on their way to storage that remembers their numbers."""

    def __init__(self, kind: Kind, place: FragmentTarget) -> None:
        super().__init__(kind, place)
        self._places: list[np.ndarray] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._places.append(batch.column(PLACE).to_numpy())
        super().add(batch)

    def numbers(self) -> np.ndarray:
        """The numbers of the rows, from 1; in the first file of an intake places are lines."""
        return np.concatenate([np.empty(0, np.int64), *self._places])


class _Counted:
    """The batches of a partition, counted as they pass, and told from others where asked."""

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
    """What tells rows from others, in whatever order and pieces they come."""
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
        # A day that Python's calendar does not have.
        return [column.slice(row, 1).to_string() for row in range(len(column))]


# -- answers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker says about its partition: what it did, or why it could not."""

    failed: bool
    packed: bytes

    def done(self) -> FrameResult:
        found: FrameResult = pickle.loads(self.packed)
        return found

    def error(self) -> OmniGraphError:
        return unpack(self.packed)


def answer_for(work: Callable[[], FrameResult], label: str) -> Answer:
    """Do the work; only errors that may pass when it is repeated are raised, for Spark to see."""
    try:
        return Answer(False, pickle.dumps(work()))
    except Exception as error:
        found = typed(error, label)
        if found is not error or found.retryable:
            raise Carried(found) from None
        return Answer(True, pack(found))


class Partition:
    """What a worker is sent for ``mapInArrow``."""

    def __init__(self, packed: bytes, label: str) -> None:
        self._packed = packed
        self._label = label

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        reading: FrameTask = pickle.loads(self._packed)
        answer = answer_for(lambda: read_partition(reading, batches), self._label)
        yield pa.record_batch(
            [[context.partitionId()], [answer.failed], [answer.packed]], schema=_ANSWER
        )
