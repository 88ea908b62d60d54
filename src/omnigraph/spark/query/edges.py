"""The edges of a type as pairs of row ids, beside the row of the edge itself.

Edges hold the ids of their ends as texts. A worker finds their rows in the ids of the node table,
as long as these fit into it; beyond, Spark joins. An end that is not there gets a negative number
of its own: one can walk through it, but never end there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.spark.query.tables import ROW_ID, reader_of
from omnigraph.storage.tables.fragments import TableLocator
from omnigraph.topology.cache import one_array

SRC, DST, EDGE = "s", "d", "e"
MOST_IDS = 2_000_000
"""So many ids of nodes are held by each worker; beyond, Spark brings ids and ends together."""


@dataclass(frozen=True, slots=True)
class EdgeScan:
    """Edges with the rows of their ends, or with their ids where these do not fit."""

    query: str
    at: TableLocator
    ends: tuple[TableLocator, TableLocator]
    shares: tuple[tuple[int, ...], ...]
    held: tuple[bool, bool]
    """Whether the ids of each end are held here."""

    @property
    def schema(self) -> str:
        kinds = ["bigint" if held else "string" for held in self.held]
        return f"{SRC} {kinds[0]}, {DST} {kinds[1]}, {EDGE} bigint"

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = reader_of(self.query, self.at)
        for batch in batches:
            for position in batch.column(0).to_pylist():
                found = list(reader.scan(["src", "dst"], None, self.shares[position]))
                if not found:
                    continue
                # All at once: finding ids makes a table of all of them first.
                rows = pa.Table.from_batches(found)
                edge = rows[ROW_ID].cast(pa.int64()).combine_chunks()
                ends = [self._end(one_array(rows[name]), e) for e, name in enumerate(_ENDS)]
                yield pa.record_batch([*ends, edge], [SRC, DST, EDGE])

    def _end(self, texts: pa.Array, end: int) -> pa.Array:
        if not self.held[end]:
            return texts
        ids, row_ids = reader_of(self.query, self.ends[end]).numbered()
        return pa.array(numbers_of_ids(texts, ids, row_ids))


_ENDS = ("src", "dst")


def numbers_of_ids(
    texts: pa.Array, ids: pa.Array, row_ids: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The rows of ids; what has none gets a number below zero."""
    places = pc.index_in(texts, value_set=ids)
    numbers = np.full(len(texts), -1, np.int64)
    there = places.is_valid().to_numpy(zero_copy_only=False)
    numbers[there] = row_ids[places.drop_null().to_numpy()]
    for place in np.flatnonzero(~there).tolist():
        numbers[place] = number_of_missing(texts[place].as_py())
    return numbers


def number_of_missing(text: str) -> int:
    """A number for an id that is not there, the same in every worker.

    >>> number_of_missing("nobody") < 0
    True
    """
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
    return -1 - (int.from_bytes(digest, "little") >> 1)
