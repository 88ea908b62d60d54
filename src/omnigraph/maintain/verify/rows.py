"""Rows against the rules of the schema, by the validator of all writes.

A table is validated as if all its rows were written into an empty graph. A large table is split by
its keys, so that memory does not grow with it: equal keys are always in the same split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import CardinalityViolation, OmniGraphError, UniqueViolation, ValueViolation
from omnigraph.lang.schema.catalog import EdgeType, EntityType
from omnigraph.maintain.verify.report import LISTED, ProblemCode, VerifyProblem
from omnigraph.records import dataclass
from omnigraph.storage.tables.store import KEY, Data
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.wide_columns import is_stored_blob
from omnigraph.write.delta import Effect, TableDelta
from omnigraph.write.validate.finder import Committed, Dangling, InMemoryFinder
from omnigraph.write.validate.rules import (
    Violation,
    cardinality_violations,
    table_violations,
    unique_violations,
)

KEYS_AT_ONCE = 4_000_000

_CODES: dict[type[OmniGraphError], ProblemCode] = {
    UniqueViolation: ProblemCode.DUPLICATE_VALUE,
    ValueViolation: ProblemCode.VALUE_BROKEN,
    CardinalityViolation: ProblemCode.CARDINALITY_BROKEN,
}


@dataclass(frozen=True, slots=True)
class KeySplit:
    """The rows of a table whose value in one column falls into one of several splits."""

    table: Table
    by: str
    columns: tuple[str, ...]
    number: int = 0
    of: int = 1

    is_large = True
    is_judged = True

    @property
    def num_rows(self) -> int:
        """An upper bound."""
        return self.table.count()

    @property
    def names(self) -> Sequence[str]:
        return self.columns

    def select(self, columns: Sequence[str]) -> pa.Table:
        names = list(dict.fromkeys((*columns, self.by)))
        empty = self.table.read(names, limit=0)
        kept = []
        for batch in self.table.scan(names):
            if self.of > 1:
                is_inside = split_numbers(batch[self.by], self.of) == self.number
                batch = batch.filter(pa.array(is_inside))
            kept.append(pa.Table.from_batches([batch]))
        return pa.concat_tables([empty, *kept]).select(list(columns))

    def distinct(self, column: str) -> pa.Array:
        return pc.unique(self.select([column])[column])

    def data(self) -> Data:
        return self.select(self.columns)

    def rows_at(self, positions: np.ndarray) -> pa.RecordBatchReader:
        return self.select(self.columns).take(pa.array(positions)).to_reader()


def split_numbers(values: pa.Array, splits: int) -> npt.NDArray[np.int64]:
    """The split of each value; equal values are in the same split.

    >>> split_numbers(pa.array(["a", "b", "a", ""]), 2).tolist()
    [1, 0, 1, 0]
    """
    texts = values if pa.types.is_string(values.type) else values.cast(pa.string())
    texts = pc.fill_null(texts, "")
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    characters = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    before = np.concatenate([[0], np.cumsum(characters, dtype=np.int64)])
    numbers: npt.NDArray[np.int64] = (before[ends[1:]] - before[ends[:-1]]) % splits
    return numbers


def broken_rules(
    store: GraphStore, entity_type: EntityType, table: Table, ends: Mapping[str, Table]
) -> Iterator[VerifyProblem]:
    """Violations of the rules about sets of rows; ``ends`` are the node tables, by their keys."""
    most = max(checked.count() for checked in (table, *ends.values()))
    splits = -(-max(most, 1) // KEYS_AT_ONCE)
    for number in range(splits):
        ids = TableDelta(
            entity_type, Effect.OVERWRITE, KeySplit(table, KEY, (KEY,), number, splits)
        )
        yield from _problems(unique_violations(ids, _finder(store, {entity_type.table_key: ids})))
        for columns in entity_type.unique:
            names = (KEY, *(c for c in columns if c != KEY))
            part = KeySplit(table, columns[0], names, number, splits)
            delta = TableDelta(entity_type, Effect.OVERWRITE, part, made_ids=True)
            violations = unique_violations(delta, _finder(store, {entity_type.table_key: delta}))
            yield from _problems(violations)
        if isinstance(entity_type, EdgeType):
            for end, name in (("src", entity_type.from_type), ("dst", entity_type.to_type)):
                rows = KeySplit(table, end, (KEY, "src", "dst"), number, splits)
                delta = TableDelta(entity_type, Effect.OVERWRITE, rows)
                deltas = {entity_type.table_key: delta}
                node_key = f"node:{name}"
                if node_key in ends:
                    nodes = KeySplit(ends[node_key], KEY, (KEY,), number, splits)
                    deltas[node_key] = TableDelta(entity_type, Effect.OVERWRITE, nodes)
                finder = _finder(store, deltas)
                yield from _dangling(
                    entity_type, name, end, finder.missing_ends(delta, end, node_key)
                )
                if end == "src":
                    yield from _problems(cardinality_violations(delta, finder))


def _dangling(
    entity_type: EdgeType, node: str, end: str, dangling: Iterator[Dangling]
) -> Iterator[VerifyProblem]:
    for edge in islice(dangling, LISTED):
        yield VerifyProblem(
            ProblemCode.DANGLING_EDGE,
            f"edge {entity_type.name} '{edge.edge_id}': {end} '{edge.value}' not found in {node}",
            "add the node again or delete the edge; or restore the graph from a backup",
        )


def _finder(store: GraphStore, deltas: dict[str, TableDelta]) -> InMemoryFinder:
    """All rows are in the deltas: no other table is read."""
    empty = Snapshot(0, None, MappingProxyType({}), None)
    return InMemoryFinder(Committed(store, empty, deltas), deltas)


def broken_values(entity_type: EntityType, table: Table) -> Iterator[VerifyProblem]:
    """Read every column of every row, except blobs, and yield invalid values."""
    columns = [column.name for column in table.schema if not is_stored_blob(column)]

    def violations() -> Iterator[Violation]:
        for batch in table.scan(columns):
            yield from table_violations(entity_type, pa.Table.from_batches([batch]))

    return _problems(violations())


def _problems(violations: Iterator[Violation]) -> Iterator[VerifyProblem]:
    """The first violations of one rule."""
    for violation in islice(violations, LISTED):
        yield VerifyProblem(
            _CODES.get(violation.error_class, ProblemCode.VALUE_BROKEN),
            violation.message,
            "correct the rows with a mutation, or restore the graph from a backup",
        )
