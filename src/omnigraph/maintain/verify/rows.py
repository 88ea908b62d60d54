"""Rows against the rules of the schema, by the validator that every write goes through.

A table is judged as if all its rows were just being written into an empty graph. Of a large table
the keys are taken a share at a time, so that memory does not grow with it: equal keys are always
in the same share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import (
    CardinalityViolation,
    OmniGraphError,
    UniqueViolation,
    ValueViolation,
)
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.maintain.verify.report import LISTED, ProblemCode, VerifyProblem
from omnigraph.storage.tables.blobs import is_stored_blob
from omnigraph.storage.tables.store import KEY, Data
from omnigraph.storage.tables.table import Table
from omnigraph.write.delta import Effect, Kind, TableDelta
from omnigraph.write.validate.cardinality import cardinality_violations
from omnigraph.write.validate.committed import Committed
from omnigraph.write.validate.finder import Dangling
from omnigraph.write.validate.in_memory_keys import InMemoryFinder
from omnigraph.write.validate.unique import unique_violations
from omnigraph.write.validate.values import table_violations
from omnigraph.write.validate.violations import Violation

KEYS_AT_ONCE = 4_000_000

_CODES: dict[type[OmniGraphError], ProblemCode] = {
    UniqueViolation: ProblemCode.DUPLICATE_VALUE,
    ValueViolation: ProblemCode.VALUE_BROKEN,
    CardinalityViolation: ProblemCode.CARDINALITY_BROKEN,
}


@dataclass(frozen=True, slots=True)
class Share:
    """The rows of a table whose value in one column falls into one of several shares."""

    table: Table
    by: str
    columns: tuple[str, ...]
    number: int = 0
    of: int = 1

    is_large = True
    is_judged = True

    @property
    def num_rows(self) -> int:
        """At most so many."""
        return self.table.count()

    @property
    def names(self) -> Sequence[str]:
        return self.columns

    def select(self, columns: Sequence[str]) -> pa.Table:
        names = list(dict.fromkeys((*columns, self.by)))
        found = self.table.read(names, limit=0)
        kept = [pa.Table.from_batches([self._mine(batch)]) for batch in self.table.scan(names)]
        return pa.concat_tables([found, *kept]).select(list(columns))

    def _mine(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.of == 1:
            return batch
        return batch.filter(pa.array(share_of(batch[self.by], self.of) == self.number))

    def data(self) -> Data:
        return self.select(self.columns)

    def rows_at(self, positions: np.ndarray) -> pa.RecordBatchReader:
        return self.select(self.columns).take(pa.array(positions)).to_reader()


def share_of(values: pa.Array, shares: int) -> npt.NDArray[np.int64]:
    """Which share each value falls into: any number that equal values have in common.

    >>> share_of(pa.array(["a", "b", "a", ""]), 2).tolist()
    [1, 0, 1, 0]
    """
    texts = values if pa.types.is_string(values.type) else values.cast(pa.string())
    texts = pc.fill_null(texts, "")
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    before = np.concatenate([[0], np.cumsum(letters, dtype=np.int64)])
    share: npt.NDArray[np.int64] = (before[ends[1:]] - before[ends[:-1]]) % shares
    return share


def broken_rules(
    store: GraphStore, kind: Kind, table: Table, ends: Mapping[str, Table]
) -> Iterator[VerifyProblem]:
    """What breaks the rules about sets of rows; ``ends`` are the tables of nodes, by their keys."""
    most = max(each.count() for each in (table, *ends.values()))
    shares = -(-max(most, 1) // KEYS_AT_ONCE)
    for number in range(shares):
        ids = TableDelta(kind, Effect.OVERWRITE, Share(table, KEY, (KEY,), number, shares))
        yield from _told(unique_violations(ids, _finder(store, {kind.table_key: ids})), kind)
        for columns in kind.unique:
            names = (KEY, *(c for c in columns if c != KEY))
            part = Share(table, columns[0], names, number, shares)
            delta = TableDelta(kind, Effect.OVERWRITE, part, made_ids=True)
            found = unique_violations(delta, _finder(store, {kind.table_key: delta}))
            yield from _told(found, kind)
        if isinstance(kind, EdgeType):
            for end, name in (("src", kind.from_type), ("dst", kind.to_type)):
                rows = Share(table, end, (KEY, "src", "dst"), number, shares)
                delta = TableDelta(kind, Effect.OVERWRITE, rows)
                deltas = {kind.table_key: delta}
                node_key = f"node:{name}"
                if node_key in ends:
                    nodes = Share(ends[node_key], KEY, (KEY,), number, shares)
                    deltas[node_key] = TableDelta(kind, Effect.OVERWRITE, nodes)
                finder = _finder(store, deltas)
                yield from _dangling(kind, name, end, finder.missing_ends(delta, end, node_key))
                if end == "src":
                    yield from _told(cardinality_violations(delta, finder), kind)


def _dangling(
    kind: EdgeType, node: str, end: str, found: Iterator[Dangling]
) -> Iterator[VerifyProblem]:
    for each in islice(found, LISTED):
        yield VerifyProblem(
            ProblemCode.DANGLING_EDGE,
            f"edge {kind.name} '{each.edge_id}': {end} '{each.value}' not found in {node}",
            "add the node again or delete the edge; or restore the graph from a backup",
            table=kind.table_key,
        )


def _finder(store: GraphStore, deltas: dict[str, TableDelta]) -> InMemoryFinder:
    """All rows are in the deltas: no other table is looked at."""
    nothing = Snapshot(0, None, MappingProxyType({}), None)
    return InMemoryFinder(Committed(store, nothing, deltas), deltas)


def broken_values(kind: Kind, table: Table) -> Iterator[VerifyProblem]:
    """Every column of every row is read, blobs apart; gives values that no write would take."""
    columns = [column.name for column in table.schema if not is_stored_blob(column)]

    def found() -> Iterator[Violation]:
        for batch in table.scan(columns):
            yield from table_violations(kind, pa.Table.from_batches([batch]))

    return _told(found(), kind)


def _told(violations: Iterator[Violation], kind: Kind) -> Iterator[VerifyProblem]:
    """The first violations of one rule; more would tell nothing new."""
    for violation in islice(violations, LISTED):
        yield VerifyProblem(
            _CODES.get(violation.error_class, ProblemCode.VALUE_BROKEN),
            violation.message,
            "correct the rows with a mutation, or restore the graph from a backup",
            table=kind.table_key,
        )
