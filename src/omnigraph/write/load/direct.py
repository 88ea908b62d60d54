"""Writes the rows of a load as fragments of their tables while the rest of it is read.

Rows of a large load need not wait in a temporary file until the last record is read: those of a
type that will be appended are written, checked and summed by another thread meanwhile. No version
references the fragments before the commit. A staging marker protects them from a cleanup, and
those that are not staged at the end are deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import BoundedSemaphore

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.names import normal_branch
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.staging import staging_marker
from omnigraph.commit.store import GraphStore
from omnigraph.lang.schema.catalog import EdgeType, EntityType, NodeType
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.storage.tables.fragments import (
    FragmentTarget,
    StagedFragment,
    fragment_target,
    write_staged_fragments,
)
from omnigraph.storage.tables.store import ROWS_PER_FRAGMENT
from omnigraph.write.fragments import FragmentLedger, FragmentRows
from omnigraph.write.load.job import LoadDestination, LoadJob, LoadMode

# The fragments that are written or wait for it; the rows of one are gathered besides.
_WAITING = 2
# A fragment of more bytes is not gathered in memory.
_FRAGMENT_BYTES = 32 << 20
_THREADS = 2
_ENDS = ("src", "dst")


class DirectWrites:
    """The fragments that one load writes while it reads."""

    def __init__(
        self, store: GraphStore, base: Snapshot, mode: LoadMode, branch: str | None
    ) -> None:
        self._store = store
        self._base = base
        self._mode = mode
        self._branch = branch
        self._ledger = FragmentLedger()
        self._cleanup = ExitStack()
        self._pool: ThreadPoolExecutor | None = None
        self._slots = BoundedSemaphore(_WAITING)
        self._writers: list[FragmentWriter] = []

    def takes(self, entity_type: EntityType) -> bool:
        """Whether rows of a type can be written before all are read.

        Not if some may replace existing rows, or are the first of the branch for their table.
        """
        pin = self._base.pin(entity_type.table_key)
        if pin is None or pin.branch != self._branch:
            return False
        if any(prop.type.is_blob for prop in entity_type.properties.values()):
            return False
        is_keyed = isinstance(entity_type, NodeType) and bool(entity_type.key)
        return not pin.row_count or self._mode is not LoadMode.MERGE or not is_keyed

    def open(self, entity_type: EntityType) -> FragmentWriter:
        """A writer of the rows of a type."""
        pool = self._start()
        pin = self._base.pins[entity_type.table_key]
        target = fragment_target(self._store.datasets, self._store.table(pin), pin.ref)
        writer = FragmentWriter(entity_type, target, pool, self._slots, self._ledger)
        self._writers.append(writer)
        return writer

    def _start(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._cleanup.enter_context(staging_marker(self._store, self._branch, self._base))
            self._pool = ThreadPoolExecutor(1, "omnigraph-load")
        return self._pool

    def close(self) -> None:
        """Wait for the thread, and delete what was not staged."""
        with self._cleanup:
            if self._pool is None:
                return
            self._pool.shutdown(cancel_futures=True)
            for writer in self._writers:
                writer.record()
            self._ledger.discard_unstaged(self._store.datasets)
            # Arrow keeps freed memory; an index build after the load gets its own from elsewhere.
            pa.default_memory_pool().release_unused()


@contextmanager
def direct_writes(
    store: GraphStore, base: Snapshot, job: LoadJob, destination: LoadDestination
) -> Iterator[DirectWrites | None]:
    """The direct writes of a load; none for a load that writes nothing."""
    if destination.dry_run:
        yield None
        return
    writes = DirectWrites(store, base, job.mode, normal_branch(destination.branch))
    try:
        yield writes
    finally:
        writes.close()


class FragmentWriter:
    """Writes the rows of one type; a full fragment is written by another thread."""

    def __init__(
        self,
        entity_type: EntityType,
        target: FragmentTarget,
        pool: ThreadPoolExecutor,
        slots: BoundedSemaphore,
        ledger: FragmentLedger,
    ) -> None:
        self._entity_type = entity_type
        self._target = target
        self._pool = pool
        self._slots = slots
        self._ledger = ledger
        self._lines = SourceLines()
        self._gathered: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._written: list[Future[list[StagedFragment]]] = []
        self._recorded = 0
        self._failure: BaseException | None = None
        self._ends: dict[str, list[pa.Array]] = {
            end: [] for end in (_ENDS if isinstance(entity_type, EdgeType) else ())
        }

    @staticmethod
    def fits(rows: int, size: int) -> bool:
        """Whether a fragment of such rows can be gathered in memory."""
        return size * ROWS_PER_FRAGMENT <= _FRAGMENT_BYTES * max(rows, 1)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; the last column is their source line. Raises the failure of an earlier one."""
        self._lines.add(numpy_view(batch.column(batch.num_columns - 1)))
        rows = batch.select(self._entity_type.arrow_schema().names)
        while rows.num_rows:
            some = rows.slice(0, ROWS_PER_FRAGMENT - self._rows)
            rows = rows.slice(some.num_rows)
            self._gathered.append(some)
            self._rows += some.num_rows
            self._bytes += some.nbytes
            if self._rows == ROWS_PER_FRAGMENT or self._bytes > _FRAGMENT_BYTES:
                self._write()

    def _write(self) -> None:
        batches, self._gathered = self._gathered, []
        self._rows = self._bytes = 0
        self._slots.acquire()
        self._written.append(self._pool.submit(self._write_fragment, batches))
        self.record()
        if self._failure is not None:
            raise self._failure

    def _write_fragment(self, batches: Sequence[pa.RecordBatch]) -> list[StagedFragment]:
        try:
            for end, values in self._ends.items():
                column = pa.chunked_array([batch.column(end) for batch in batches])
                values.append(pc.unique(column))
            return write_staged_fragments(self._target, self._entity_type.arrow_schema(), batches)
        finally:
            self._slots.release()

    def record(self) -> None:
        """Record the fragments that are written, so that they are deleted if they are not used."""
        while self._recorded < len(self._written) and self._written[self._recorded].done():
            future = self._written[self._recorded]
            self._recorded += 1
            if future.cancelled():
                continue
            self._failure = self._failure or future.exception()
            if future.exception() is None:
                self._ledger.write(self._target, future.result())

    def close(self) -> FragmentRows:
        """Write the rest; returns all rows."""
        if self._gathered:
            self._write()
        fragments = [fragment for future in self._written for fragment in future.result()]
        self.record()
        return FragmentRows(
            self._entity_type,
            self._target,
            fragments,
            ThreadExecutor(_THREADS),
            self._lines.at,
            self._ledger,
            distinct={
                end: pc.unique(pa.chunked_array(values, pa.string()))
                for end, values in self._ends.items()
            },
        )


class SourceLines:
    """The source lines of many rows; consecutive ones take no memory."""

    def __init__(self) -> None:
        self._parts: list[range | np.ndarray] = []

    def add(self, lines: np.ndarray) -> None:
        """Add the lines of the next rows, ascending."""
        if not len(lines):
            return
        first, last = int(lines[0]), int(lines[-1])
        if last - first != len(lines) - 1:
            self._parts.append(lines.copy())
            return
        before = self._parts[-1] if self._parts else None
        if isinstance(before, range) and before.stop == first:
            self._parts[-1] = range(before.start, last + 1)
        else:
            self._parts.append(range(first, last + 1))

    def at(self, rows: Sequence[int]) -> list[int]:
        """The lines of rows by their numbers."""
        ends = np.cumsum([len(part) for part in self._parts])
        homes = np.searchsorted(ends, rows, side="right").tolist()
        return [
            int(self._parts[home][row - (int(ends[home - 1]) if home else 0)])
            for row, home in zip(rows, homes, strict=True)
        ]
