"""Rules about sets of rows, evaluated by Spark joins: for keys that exceed the memory limit.

The violations and their order are those of the rules in memory. For each rule at most the first
million are returned; a load that rejects rows evaluates it again.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InternalError
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.logs import logger
from omnigraph.records import dataclass
from omnigraph.spark.session.engine import SparkEngine
from omnigraph.spark.session.failures import carrying
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.fragments import (
    TableLocator,
    delete_addresses,
    fragment_groups,
    locate_table,
    open_version,
    row_addresses,
)
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import Table
from omnigraph.write.delta import Deltas, RowSource, TableDelta
from omnigraph.write.fragments import FragmentRows, Replaced, RowsSplit, read_rows
from omnigraph.write.validate.finder import (
    CardinalityBreach,
    Committed,
    Dangling,
    DuplicateValue,
    Finder,
    displayable,
    one_zero,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOG = logger("omnigraph")

KEY_BYTES = 1 << 30
"""Keys of more bytes than this are joined by Spark."""
_MOST = 1_000_000
_ROWS_IN_SPLIT = 500_000
_FIRST_ROWS = f"ORDER BY row LIMIT {_MOST}"
_ADDRESSES = "id string, fragment long, address long, rowid long"
_CHECKING, _REPLACING = "checking", "finding replaced rows"


@dataclass(frozen=True, slots=True)
class KeyJoins:
    """Joins keys in Spark if they exceed a number of bytes."""

    engine: SparkEngine
    limit: int = KEY_BYTES

    def for_keys(self, size: int, datasets: Datasets) -> JoinedKeys | None:
        """Joined keys for ``size`` bytes; ``None`` if they fit into memory."""
        if size <= self.limit:
            return None
        _LOG.info(f"{size} bytes of keys exceed {self.limit}, so Spark joins them")
        return JoinedKeys(self.engine, datasets)


class JoinedKeys:
    """``Keys`` with Spark joins."""

    def __init__(self, engine: SparkEngine, datasets: Datasets) -> None:
        self._engine = engine
        self._datasets = datasets

    def finder(self, committed: Committed, deltas: Deltas) -> Finder:
        return JoinedFinder(self, committed, deltas)

    def superseded(self, rows: RowSource) -> Sequence[int]:
        superseded = self.ask(
            "SELECT row FROM (SELECT row, max(row) OVER (PARTITION BY id) AS last FROM {d}) "
            "WHERE row < last",
            d=self.waiting(rows),
        )
        dropped: list[int] = np.sort(superseded["row"].to_numpy()).tolist()
        return dropped

    def meets(self, table: Table, rows: RowSource) -> bool:
        existing = self.ask(
            "SELECT c.id FROM {c} c LEFT SEMI JOIN {d} d ON c.id = d.id LIMIT 1",
            c=self.table(table),
            d=self.waiting(rows),
        )
        return bool(existing.num_rows)

    def replaced(self, locator: TableLocator, table: Table, rows: FragmentRows) -> list[Replaced]:
        """Delete the replaced rows of a table, fragment by fragment."""
        pairs = self.sql(
            "SELECT c.fragment, c.address, c.rowid, d.row FROM {c} c JOIN {d} d ON c.id = d.id",
            c=_frame(self._engine.session, _addresses, _splits(locator, table), _ADDRESSES),
            d=self.waiting(rows),
        )
        delete = _deleting(locator)
        frame = pairs.groupBy("fragment").applyInArrow(delete, "answer binary")
        packed_results = self._engine.run(frame.toArrow, _REPLACING)["answer"]
        return [pickle.loads(answer) for answer in packed_results.to_pylist()]

    # -- frames --------------------------------------------------------------------------

    def waiting(self, rows: RowSource | None, *columns: str) -> DataFrame:
        """The new rows as a frame."""
        if not isinstance(rows, FragmentRows):
            raise InternalError("Spark joins only rows in fragments")
        read, schema = partial(_new_rows, columns), f"row long, id string{_key_types(columns)}"
        return _frame(self._engine.session, read, rows.splits(_ROWS_IN_SPLIT), schema)

    def table(self, table: Table, *columns: str) -> DataFrame:
        """The committed rows as a frame."""
        read, schema = partial(_table_rows, columns), f"seq long, id string{_key_types(columns)}"
        splits = _splits(locate_table(self._datasets, table), table)
        return _frame(self._engine.session, read, splits, schema)

    def sql(self, text: str, **frames: DataFrame) -> DataFrame:
        session: Any = self._engine.session
        frame: DataFrame = session.sql(text, **frames)
        return frame

    def ask(self, text: str, **frames: DataFrame) -> pa.Table:
        """Run a query with a small result."""
        return self._engine.run(lambda: self.sql(text, **frames).toArrow(), _CHECKING)


def _splits(locator: TableLocator, table: Table) -> list[TableSplit]:
    groups = fragment_groups(table.fragments(), _ROWS_IN_SPLIT)
    return [TableSplit(locator, group, number) for number, group in enumerate(groups)]


def _deleting(locator: TableLocator) -> Callable[[pa.Table], pa.Table]:
    """A function for ``applyInArrow`` that deletes rows of one fragment."""
    # Pickled, so that no plan shows storage options.
    packed = pickle.dumps(locator)

    def delete(groups: Iterable[pa.Table]) -> Iterator[pa.Table]:
        for rows in groups:
            number = rows["fragment"][0].as_py()
            addresses = np.sort(rows["address"].to_numpy())
            deletions = delete_addresses(pickle.loads(packed), number, addresses)
            replaced: Replaced = (rows["row"].to_numpy(), rows["rowid"].to_numpy(), deletions)
            yield pa.table({"answer": pa.array([pickle.dumps(replaced)], pa.binary())})

    carried = carrying(delete, _REPLACING)
    return lambda rows: next(carried([rows]))


class JoinedFinder:
    """The rules over one snapshot, each as one Spark query."""

    at_once = 1

    def __init__(self, keys: JoinedKeys, committed: Committed, deltas: Deltas) -> None:
        if any(len(delta.deleted) for delta in deltas.values()):
            raise InternalError("Spark joins the keys of loads, which delete nothing by id")
        self._keys = keys
        self._committed = committed
        self._deltas = deltas

    # -- uniqueness ----------------------------------------------------------------------

    def repeated_ids(self, delta: TableDelta) -> Iterator[tuple[int, str]]:
        rows = self._keys.ask(
            "SELECT row, id FROM ("
            "  SELECT row, id, first(row) OVER (PARTITION BY id ORDER BY row) AS first FROM {d}"
            f") WHERE row > first {_FIRST_ROWS}",
            d=self._keys.waiting(delta.rows),
        )
        yield from _tuples(rows, "row", "id")

    def existing_ids(self, delta: TableDelta) -> Iterator[tuple[int, str]]:
        there = self._committed.staying(delta.table_key)
        if there is None:
            return
        rows = self._keys.ask(
            f"SELECT d.row, d.id FROM {{d}} d LEFT SEMI JOIN {{c}} c ON d.id = c.id {_FIRST_ROWS}",
            d=self._keys.waiting(delta.rows),
            c=self._keys.table(there),
        )
        yield from _tuples(rows, "row", "id")

    def repeated_values(
        self, delta: TableDelta, columns: tuple[str, ...]
    ) -> Iterator[DuplicateValue]:
        keys = ", ".join(f"k{number}" for number in range(len(columns)))
        rows = self._keys.ask(
            "SELECT row, id, other FROM ("
            "  SELECT row, id, first(row) OVER w AS first, first(id) OVER w AS other FROM {d}"
            f"  WINDOW w AS (PARTITION BY {keys} ORDER BY row)"
            f") WHERE row > first {_FIRST_ROWS}",
            d=self._keys.waiting(delta.rows, *columns),
        )
        yield from _duplicates(delta, columns, rows)

    def existing_values(
        self, delta: TableDelta, columns: tuple[str, ...]
    ) -> Iterator[DuplicateValue]:
        there = self._committed.staying(delta.table_key)
        if there is None:
            return
        same = " AND ".join(f"d.k{number} = c.k{number}" for number in range(len(columns)))
        rows = self._keys.ask(
            f"SELECT d.row, d.id, c.id AS other FROM {{d}} d JOIN {{c}} c ON {same} "
            # A row that this write replaces frees its values.
            f"LEFT ANTI JOIN {{m}} m ON c.id = m.id {_FIRST_ROWS}",
            d=self._keys.waiting(delta.rows, *columns),
            c=self._keys.table(there, *columns),
            m=self._keys.waiting(delta.rows),
        )
        yield from _duplicates(delta, columns, rows)

    # -- endpoints -----------------------------------------------------------------------

    def missing_ends(self, delta: TableDelta, end: str, node_key: str) -> Iterator[Dangling]:
        node = self._deltas.get(node_key)
        there = self._committed.staying(node_key)
        node_ids = []
        if node is not None and node.num_rows:
            node_ids.append(self._keys.waiting(node.rows).select("id"))
        if there is not None:
            node_ids.append(self._keys.table(there).select("id"))
        edges = self._keys.waiting(delta.rows, end)
        if node_ids:
            rows = self._keys.ask(
                "SELECT e.row, e.id, e.k0 FROM {e} e LEFT ANTI JOIN {n} n ON e.k0 = n.id "
                f"{_FIRST_ROWS}",
                e=edges,
                n=reduce(lambda one, other: one.union(other), node_ids),
            )
        else:
            rows = self._keys.ask(f"SELECT row, id, k0 FROM {{e}} {_FIRST_ROWS}", e=edges)
        for row, edge_id, value in _tuples(rows, "row", "id", "k0"):
            yield Dangling(edge_id, value, row)

    def left_behind(self, delta: TableDelta, edge: EdgeType, end: str) -> Iterator[Dangling]:
        before = self._committed.before(delta.table_key)
        there = self._committed.staying(edge.table_key)
        if before is None or there is None:
            return
        frames = {
            "e": self._keys.table(there, end),
            "b": self._keys.table(before),
            "n": self._keys.waiting(delta.rows),
        }
        text = (
            "SELECT e.seq, e.id, e.k0 FROM {e} e LEFT SEMI JOIN ("
            "  SELECT b.id FROM {b} b LEFT ANTI JOIN {n} n ON b.id = n.id"
            ") g ON e.k0 = g.id"
        )
        changed = self._deltas.get(edge.table_key)
        if changed is not None and changed.num_rows:
            text += " LEFT ANTI JOIN {c} c ON e.id = c.id"
            frames["c"] = self._keys.waiting(changed.rows)
        rows = self._keys.ask(f"{text} ORDER BY seq LIMIT {_MOST}", **frames)
        for edge_id, value in _tuples(rows, "id", "k0"):
            yield Dangling(edge_id, value)

    # -- cardinality ---------------------------------------------------------------------

    def cardinality_breaches(
        self, delta: TableDelta, entity_type: EdgeType
    ) -> Iterator[CardinalityBreach]:
        frames = {"d": self._keys.waiting(delta.rows, "src")}
        counted = ["SELECT k0, 1 AS n, row, CAST(NULL AS LONG) AS seq, true AS hit FROM {d}"]
        before = self._committed.before(delta.table_key)
        if before is not None:
            frames["b"] = self._keys.table(before, "src")
            gone = "SELECT k0, 0 AS n, CAST(NULL AS LONG) AS row, seq, true AS hit FROM {b} b"
            stay = "SELECT k0, 1 AS n, CAST(NULL AS LONG) AS row, seq, false AS hit FROM {b} b"
            if delta.replaces:
                counted.append(gone)
            elif delta.new_ids:
                counted.append(stay)
            else:
                frames["m"] = self._keys.waiting(delta.rows)
                counted.append(f"{gone} LEFT SEMI JOIN {{m}} m ON b.id = m.id")
                counted.append(f"{stay} LEFT ANTI JOIN {{m}} m ON b.id = m.id")
        low, high = entity_type.cardinality.min, entity_type.cardinality.max
        beyond = f"count < {low}" if high is None else f"(count < {low} OR count > {high})"
        text = (
            "SELECT k0, count, last FROM ("
            "  SELECT k0, sum(n) AS count, min(row) AS first, max(row) AS last,"
            "    min(seq) AS seq, max(hit) AS hit"
            f"  FROM ({' UNION ALL '.join(counted)}) GROUP BY k0"
            ") s"
        )
        node = self._deltas.get(f"node:{entity_type.from_type}")
        if node is not None and node.replaces:
            text += " LEFT SEMI JOIN {a} a ON s.k0 = a.id"
            frames["a"] = self._keys.waiting(node.rows)
        rows = self._keys.ask(
            f"{text} WHERE hit AND {beyond} ORDER BY first NULLS LAST, seq LIMIT {_MOST}", **frames
        )
        for source, count, last in _tuples(rows, "k0", "count", "last"):
            yield CardinalityBreach(source, count, last)


def _duplicates(
    delta: TableDelta, columns: tuple[str, ...], rows: pa.Table
) -> Iterator[DuplicateValue]:
    """Duplicates with their values, for messages."""
    if not rows.num_rows:
        return
    assert isinstance(delta.rows, FragmentRows)
    values = displayable(delta.rows.rows_of(rows["row"].to_numpy(), columns))
    shown = zip(*(values[column].to_pylist() for column in columns), strict=True)
    for (row, row_id, other), value in zip(_tuples(rows, "row", "id", "other"), shown, strict=True):
        yield DuplicateValue(row, value, other, row_id)


def _tuples(rows: pa.Table, *columns: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows[column].to_pylist() for column in columns), strict=True)


@dataclass(frozen=True, slots=True)
class TableSplit:
    """Some fragments of a table, and the number of the split."""

    locator: TableLocator
    fragments: tuple[int, ...]
    number: int


def _frame(session: SparkSession, read: Any, splits: Sequence[Any], schema: str) -> DataFrame:
    """The rows that ``read`` returns for each split.

    Both are sent inside the function, so that no plan and no log shows them.
    """
    packed = pickle.dumps((read, list(splits)))

    def read_all(positions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read_split, splits_here = pickle.loads(packed)
        for batch in positions:
            for position in batch.column(0).to_pylist():
                yield from read_split(splits_here[position])

    count = len(splits)
    tasks = session.range(0, count, 1, max(count, 1))
    return tasks.mapInArrow(carrying(read_all, _CHECKING), schema)


def _key_types(columns: Sequence[str]) -> str:
    """The keys ``k0``, ``k1``, …: strings that are equal if the values are."""
    return "".join(f", k{number} string" for number in range(len(columns)))


def _new_rows(columns: tuple[str, ...], split: RowsSplit) -> Iterator[pa.RecordBatch]:
    """``row``, ``id`` and the keys of rows without null keys."""
    for positions, batch in read_rows(split, [KEY, *columns]):
        yield from _keyed(pa.array(positions), batch, "row", columns)


def _table_rows(columns: tuple[str, ...], split: TableSplit) -> Iterator[pa.RecordBatch]:
    """``seq``, which is the order of the rows, ``id`` and the keys of a table."""
    table = open_version(split.locator)
    count = split.number << 40
    names = list(dict.fromkeys((KEY, *columns)))
    for batch in table.scan(names, fragments=split.fragments):
        order = np.arange(count, count + batch.num_rows)
        count += batch.num_rows
        yield from _keyed(pa.array(order), batch, "seq", columns)


def _keyed(
    order: pa.Array, batch: pa.RecordBatch, name: str, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    rows = one_zero(pa.Table.from_batches([batch]))
    keys = [_texts(rows[column].combine_chunks()) for column in columns]
    names = [name, KEY, *(f"k{number}" for number in range(len(keys)))]
    ids = rows[KEY].combine_chunks().cast(pa.string())
    keyed = pa.table([order, ids, *keys], names)
    for number in range(len(keys)):
        keyed = keyed.filter(pc.is_valid(keyed[f"k{number}"]))
    yield from keyed.to_batches()


def _texts(column: pa.Array) -> pa.Array:
    if pa.types.is_temporal(column.type):
        width = pa.int32() if column.type.bit_width == 32 else pa.int64()
        column = column.cast(width)
    return column.cast(pa.string())


def _addresses(split: TableSplit) -> Iterator[pa.RecordBatch]:
    for number, rows in row_addresses(split.locator, split.fragments, KEY):
        fragment = pa.array(np.full(rows.num_rows, number, np.int64))
        names = [KEY, "fragment", "address", "rowid"]
        yield from pa.table([rows[KEY], fragment, rows[1], rows[2]], names).to_batches()
