"""The edges of a type as pairs of row ids, with the row id of the edge itself.

Edge tables have the ids of their ends as texts. A worker looks their rows up in the ids of the node
table, as long as these fit into its memory; beyond, Spark joins. A missing end gets a negative
number of its own: a traversal can pass it, but never ends there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.spark.query.tables import ID, Splits, row_ids_of, worker_table
from omnigraph.storage.tables.fragments import TableLocator
from omnigraph.topology.cache import one_array

SRC, DST, EDGE = "s", "d", "e"
MOST_IDS = 2_000_000
"""The most ids of nodes that a worker caches; beyond, Spark joins ids and ends."""


@dataclass(frozen=True, slots=True)
class IdScan:
    """The ids of a node table with their row ids."""

    query: str
    locator: TableLocator
    splits: Splits
    schema = f"{ID} string, number bigint"

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = worker_table(self.query, self.locator)
        for split in table.scan_splits(batches, self.splits, [ID]):
            for rows in split:
                yield pa.record_batch([rows[ID], pa.array(row_ids_of(rows))], [ID, "number"])


@dataclass(frozen=True, slots=True)
class EdgeScan:
    """Edges with the row ids of their ends, or with the ids of ends that do not fit."""

    query: str
    locator: TableLocator
    splits: Splits
    ends: tuple[TableLocator, TableLocator]
    is_resolved: tuple[bool, bool]
    """Whether workers look up the row ids of each end."""

    @property
    def schema(self) -> str:
        types = ["bigint" if is_resolved else "string" for is_resolved in self.is_resolved]
        return f"{SRC} {types[0]}, {DST} {types[1]}, {EDGE} bigint"

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = worker_table(self.query, self.locator)
        for split in table.scan_splits(batches, self.splits, ["src", "dst"]):
            scanned = list(split)
            if not scanned:
                continue
            # All at once: every lookup hashes all ids of the node table first.
            rows = pa.Table.from_batches(scanned)
            src, dst = self._end(rows["src"], 0), self._end(rows["dst"], 1)
            yield pa.record_batch([src, dst, pa.array(row_ids_of(rows))], [SRC, DST, EDGE])

    def _end(self, column: pa.ChunkedArray, end: int) -> pa.Array:
        texts = one_array(column)
        if not self.is_resolved[end]:
            return texts
        cache = worker_table(self.query, self.ends[end]).cache
        return pa.array(numbers_of_ids(texts, cache.column(ID), cache.row_ids()))


def numbers_of_ids(
    texts: pa.Array, ids: pa.Array, row_ids: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The row ids of ids; a missing id gets a number below zero."""
    indices = pc.index_in(texts, value_set=ids)
    numbers = np.full(len(texts), -1, np.int64)
    present = indices.is_valid().to_numpy(zero_copy_only=False)
    numbers[present] = row_ids[indices.drop_null().to_numpy()]
    for index in np.flatnonzero(~present).tolist():
        numbers[index] = number_of_missing(texts[index].as_py())
    return numbers


def number_of_missing(text: str) -> int:
    """A number for a missing id, the same in every worker.

    >>> number_of_missing("nobody") < 0
    True
    """
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
    return -1 - (int.from_bytes(digest, "little") >> 1)
