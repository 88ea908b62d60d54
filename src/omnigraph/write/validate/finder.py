"""Finds violations of rules about sets of rows.

A finder finds violations; rules word their messages. The finder here keeps keys in memory, that of
``spark.load.joined_keys`` joins them in Spark; both return the same results in the same order.
The tables that were read are recorded: the publish asserts their versions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.lang.values.arrow import to_timestamp
from omnigraph.records import dataclass
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import Table
from omnigraph.write.delta import NO_IDS, Deltas, RowSource, TableDelta
from omnigraph.write.row_security import RowSecurity, RowVisibility
from omnigraph.write.validate.group_state import GroupState
from omnigraph.write.validate.lookup import any_present, look_up

_ROW, _OTHER = "row~", "other~"


class Committed:
    """The committed rows of one snapshot, as seen by a write.

    ``group`` has the rows of the members of its group that are committed before it.
    """

    def __init__(
        self,
        store: GraphStore,
        snapshot: Snapshot,
        deltas: Deltas,
        group: GroupState | None = None,
        security: RowSecurity | None = None,
    ) -> None:
        """``security`` is given if the actor of the write may not see all rows."""
        self._store = store
        self._group = group
        self._snapshot = snapshot
        self._deltas = deltas
        self._seen: set[str] = set()
        self.security = security
        self.visible = None if security is None else RowVisibility(security, self._rows_before)
        """The rows that the actor of the write sees; ``None`` if it sees all."""

    @property
    def consulted(self) -> dict[str, int]:
        """The versions of tables that were read and are not written."""
        written = {key for key, delta in self._deltas.items() if not delta.is_empty}
        pins = {key: self._snapshot.pin(key) for key in sorted(self._seen - written)}
        return {key: pin.version for key, pin in pins.items() if pin is not None}

    def matching(
        self, table_key: str, column: str, values: pa.Array, columns: Sequence[str]
    ) -> pa.Table:
        """The rows with one of the values that the write neither deletes nor overwrites."""
        table = self.staying(table_key)
        if self._group is not None:
            return self._group.matching(table_key, column, values, columns)
        if table is None:
            return pa.schema([(name, pa.string()) for name in columns]).empty_table()
        rows = look_up(table, column, values, columns)
        delta = self._deltas.get(table_key)
        if delta is None or not len(delta.deleted):
            return rows
        return rows.filter(pc.invert(pc.is_in(rows[KEY], value_set=delta.deleted)))

    def everything(self, table_key: str, columns: Sequence[str]) -> pa.Table | None:
        """All rows of a table before the write."""
        table = self.before(table_key)
        return None if table is None else table.read(columns)

    def present(self, table_key: str, ids: pa.Array) -> pa.Array:
        """The ids that have a remaining row."""
        rows = self.matching(table_key, KEY, ids, [KEY])
        return rows[KEY].combine_chunks() if rows.num_rows else NO_IDS

    def visible_ids(self, table_key: str, ids: pa.Array) -> pa.Array:
        """Those of the ids of existing rows that the actor of the write sees."""
        return ids if self.visible is None else self.visible.visible(table_key, ids)

    def refuse_hidden(self, table_key: str, ids: pa.Array) -> None:
        """Refuse a write that depends on rows which its actor does not see."""
        if self.security is None or self.visible is None:
            return
        if len(self.visible.hidden(table_key, ids)):
            raise self.security.denied()

    def _rows_before(
        self, table_key: str, ids: pa.Array, columns: Sequence[str]
    ) -> pa.Table | None:
        """The rows with one of the ids before the write."""
        table = self.before(table_key)
        if self._group is not None:
            return self._group.matching(table_key, KEY, ids, columns)
        return None if table is None else look_up(table, KEY, ids, columns)

    def before(self, table_key: str) -> Table | None:
        """The table before the write; ``None`` if it has no rows."""
        self._seen.add(table_key)
        pin = self._snapshot.pin(table_key)
        return None if pin is None or not pin.row_count else self._store.table(pin)

    def staying(self, table_key: str) -> Table | None:
        """The table before the write; ``None`` if it has no rows or is overwritten."""
        delta = self._deltas.get(table_key)
        if delta is not None and delta.replaces:
            self._seen.add(table_key)
            return None
        return self.before(table_key)


@dataclass(frozen=True, slots=True)
class DuplicateValue:
    """A row with the unique values of another row."""

    row: int
    values: tuple[Any, ...]
    first: str
    """The id of the first row with the values."""
    second: str
    """The id of this row."""


@dataclass(frozen=True, slots=True)
class Dangling:
    """An edge with a missing end; ``row`` is set if the edge is in the write."""

    edge_id: str
    value: str
    row: int | None = None


@dataclass(frozen=True, slots=True)
class CardinalityBreach:
    """A source with too many or too few edges after the write, and the last row with one."""

    source: str
    count: int
    row: int | None


class Finder(Protocol):
    """Finds violations among the rows of one write and the committed rows."""

    at_once: int
    """The number of rules that may run in parallel threads."""

    def repeated_ids(self, delta: TableDelta) -> Iterator[tuple[int, str]]:
        """Rows with the id of an earlier row of the delta."""

    def existing_ids(self, delta: TableDelta) -> Iterator[tuple[int, str]]:
        """Rows with the id of a committed row that stays."""

    def repeated_values(
        self, delta: TableDelta, columns: tuple[str, ...]
    ) -> Iterator[DuplicateValue]:
        """Rows with the values of an earlier row of the delta; nulls are not compared."""

    def existing_values(
        self, delta: TableDelta, columns: tuple[str, ...]
    ) -> Iterator[DuplicateValue]:
        """Rows with the values of a committed row that is not replaced."""

    def missing_ends(self, delta: TableDelta, end: str, node_key: str) -> Iterator[Dangling]:
        """Edges of a delta whose end is neither committed nor in the same write."""

    def left_behind(self, delta: TableDelta, edge: EdgeType, end: str) -> Iterator[Dangling]:
        """Committed edges that stay although the delta removes one of their nodes."""

    def cardinality_breaches(
        self, delta: TableDelta, entity_type: EdgeType
    ) -> Iterator[CardinalityBreach]:
        """Sources whose edges change and violate the bounds of the edge type."""


class Keys(Protocol):
    """Answers queries about many keys."""

    def finder(self, committed: Committed, deltas: Deltas) -> Finder:
        """The finder of the rules over one snapshot."""

    def superseded(self, rows: RowSource) -> Sequence[int]:
        """The positions of rows whose id a later row repeats."""

    def meets(self, table: Table, rows: RowSource) -> bool:
        """Whether some row has the id of a row of the table."""


class InMemoryKeys:
    """``Keys`` in memory."""

    def finder(self, committed: Committed, deltas: Deltas) -> Finder:
        return InMemoryFinder(committed, deltas)

    def superseded(self, rows: RowSource) -> Sequence[int]:
        ids = rows.select([KEY])[KEY]
        if len(pc.unique(ids)) == len(ids):
            return ()
        last: dict[str, int] = {row_id: row for row, row_id in enumerate(ids.to_pylist())}
        kept = np.fromiter(last.values(), dtype=np.int64)
        dropped: list[int] = np.setdiff1d(np.arange(len(ids)), kept).tolist()
        return dropped

    def meets(self, table: Table, rows: RowSource) -> bool:
        return any_present(table, rows.select([KEY])[KEY].combine_chunks())


class InMemoryFinder:
    """Works on columns, and on single rows only to report violations."""

    at_once = 2

    def __init__(self, committed: Committed, deltas: Deltas) -> None:
        self._committed = committed
        self._deltas = deltas
        self._lost: dict[str, pa.Array] = {}
        self._last: tuple[tuple[str, tuple[str, ...]], pa.Table] | None = None

    # -- uniqueness ----------------------------------------------------------------------

    def repeated_ids(self, delta: TableDelta) -> Iterator[tuple[int, str]]:
        ids = delta.column(KEY)
        if len(pc.unique(ids)) == len(ids):
            return
        seen: set[str] = set()
        for position, value in enumerate(ids.to_pylist()):
            if value in seen:
                yield position, value
            seen.add(value)

    def existing_ids(self, delta: TableDelta) -> Iterator[tuple[int, str]]:
        ids = delta.column(KEY).combine_chunks()
        existing = self._committed.present(delta.table_key, ids)
        if len(existing):
            mask = pc.is_in(ids, value_set=existing)
            for position in pc.indices_nonzero(mask).to_pylist():
                yield position, ids[position].as_py()

    def repeated_values(
        self, delta: TableDelta, columns: tuple[str, ...]
    ) -> Iterator[DuplicateValue]:
        rows = self._valued(delta, columns)
        groups = rows.group_by(list(columns)).aggregate([(_ROW, "count"), (_ROW, "min")])
        if groups.num_rows == rows.num_rows:
            return
        repeated = groups.filter(pc.greater(groups[f"{_ROW}_count"], pa.scalar(1, pa.int64())))
        shared = rows.join(repeated, list(columns), join_type="inner").sort_by(_ROW)
        ids = dict(zip(rows[_ROW].to_pylist(), rows[KEY].to_pylist(), strict=True))
        for record in displayable(shared).to_pylist():
            first = record[f"{_ROW}_min"]
            if record[_ROW] != first:
                values = tuple(record[column] for column in columns)
                yield DuplicateValue(record[_ROW], values, ids[first], record[KEY])

    def existing_values(
        self, delta: TableDelta, columns: tuple[str, ...]
    ) -> Iterator[DuplicateValue]:
        rows = self._valued(delta, columns)
        if not rows.num_rows:
            return
        lead = rows[columns[0]].combine_chunks()
        there = self._committed.matching(delta.table_key, columns[0], lead, [KEY, *columns])
        if not there.num_rows:
            return
        # A row that this write replaces frees its values.
        there = one_zero(_without(there, delta)).rename_columns([_OTHER, *columns])
        both = rows.join(there, list(columns), join_type="inner").sort_by(_ROW)
        self._committed.refuse_hidden(delta.table_key, pc.unique(both[_OTHER]))
        for record in displayable(both).to_pylist():
            values = tuple(record[column] for column in columns)
            yield DuplicateValue(record[_ROW], values, record[_OTHER], record[KEY])

    def _valued(self, delta: TableDelta, columns: tuple[str, ...]) -> pa.Table:
        """The rows of a delta without nulls in the columns, with their positions."""
        wanted = (delta.table_key, columns)
        if self._last is None or self._last[0] != wanted:
            assert delta.rows is not None
            rows = delta.rows.select([KEY, *columns])
            rows = rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
            for column in columns:
                rows = rows.filter(pc.is_valid(rows[column]))
            self._last = (wanted, one_zero(rows))
        return self._last[1]

    # -- endpoints -----------------------------------------------------------------------

    def missing_ends(self, delta: TableDelta, end: str, node_key: str) -> Iterator[Dangling]:
        missing = self._missing(node_key, delta.distinct(end))
        if not len(missing):
            return
        column = delta.column(end)
        mask = pc.is_in(column, value_set=missing)
        ids = delta.column(KEY)
        for position in pc.indices_nonzero(mask).to_pylist():
            yield Dangling(ids[position].as_py(), column[position].as_py(), position)

    def _missing(self, node_key: str, wanted: pa.Array) -> pa.Array:
        """Those of the distinct ids that no node has."""
        delta = self._deltas.get(node_key)
        if delta is not None and delta.num_rows:
            new = delta.column(KEY).combine_chunks()
            wanted = wanted.filter(pc.invert(pc.is_in(wanted, value_set=new)))
        if not len(wanted):
            return NO_IDS
        existing = self._committed.present(node_key, wanted)
        existing = self._committed.visible_ids(node_key, existing)
        return wanted.filter(pc.invert(pc.is_in(wanted, value_set=existing)))

    def left_behind(self, delta: TableDelta, edge: EdgeType, end: str) -> Iterator[Dangling]:
        gone = self._gone(delta)
        if not len(gone):
            return
        left = self._committed.matching(edge.table_key, end, gone, [KEY, end])
        changed = self._deltas.get(edge.table_key)
        if changed is not None and changed.num_rows:
            left = _without(left, changed)
        for edge_id, value in zip(left[KEY].to_pylist(), left[end].to_pylist(), strict=True):
            yield Dangling(edge_id, value)

    def _gone(self, delta: TableDelta) -> pa.Array:
        """The ids of nodes that the delta removes."""
        if not delta.replaces:
            return delta.deleted
        if delta.table_key not in self._lost:
            before = self._committed.everything(delta.table_key, [KEY])
            gone = NO_IDS if before is None else _without(before, delta)[KEY].combine_chunks()
            self._lost[delta.table_key] = gone
        return self._lost[delta.table_key]

    # -- cardinality ---------------------------------------------------------------------

    def cardinality_breaches(
        self, delta: TableDelta, entity_type: EdgeType
    ) -> Iterator[CardinalityBreach]:
        affected = self._alive(entity_type, self._affected(delta))
        if not len(affected):
            return
        there = self._committed.matching(delta.table_key, "src", affected, [KEY, "src"])
        there = _without(there, delta)
        counts = _counts(there, delta)
        low = entity_type.cardinality.min
        high = math.inf if entity_type.cardinality.max is None else entity_type.cardinality.max
        sources = [s for s in affected.to_pylist() if not low <= counts.get(s, 0) <= high]
        if sources and self._committed.security is not None:
            # Hidden edges count, but no message may say so.
            ids = self._committed.visible_ids(delta.table_key, there[KEY].combine_chunks())
            visible = _counts(there.filter(pc.is_in(there[KEY], value_set=ids)), delta)
            if any(counts.get(s, 0) > high >= visible.get(s, 0) for s in sources):
                raise self._committed.security.denied()
            counts = visible
        for source in sources:
            yield CardinalityBreach(source, counts.get(source, 0), _last_row(delta, source))

    def _affected(self, delta: TableDelta) -> pa.Array:
        """New sources of the edges in the delta, and the old ones of what it moves or deletes."""
        parts = [NO_IDS]
        if delta.rows is not None:
            parts.append(delta.column("src").combine_chunks())
        if delta.replaces:
            before = self._committed.everything(delta.table_key, ["src"])
            if before is not None:
                parts.append(before["src"].combine_chunks())
        else:
            touched = delta.deleted
            if not delta.new_ids:
                touched = pa.concat_arrays([delta.column(KEY).combine_chunks(), touched])
            parts.append(self._before(delta, touched))
        return pc.unique(pa.concat_arrays([part.cast(pa.string()) for part in parts]))

    def _before(self, delta: TableDelta, ids: pa.Array) -> pa.Array:
        table = self._committed.before(delta.table_key) if len(ids) else None
        return (
            NO_IDS if table is None else look_up(table, KEY, ids, ["src"])["src"].combine_chunks()
        )

    def _alive(self, entity_type: EdgeType, sources: pa.Array) -> pa.Array:
        node = self._deltas.get(f"node:{entity_type.from_type}")
        if node is not None and node.replaces:
            return sources.filter(pc.is_in(sources, value_set=node.column(KEY).combine_chunks()))
        if node is None or not len(node.deleted):
            return sources
        return sources.filter(pc.invert(pc.is_in(sources, value_set=node.deleted)))


def _counts(there: pa.Table, delta: TableDelta) -> dict[str, int]:
    """The number of edges of each source: those that stay, and those of the delta."""
    sources = [there["src"]]
    if delta.rows is not None:
        sources.append(delta.column("src"))
    chunks = [chunk for column in sources for chunk in column.chunks]
    counted = pc.value_counts(pa.chunked_array(chunks, pa.string()))
    return {entry["values"]: entry["counts"] for entry in counted.to_pylist()}


def _last_row(delta: TableDelta, source: str) -> int | None:
    if delta.rows is None:
        return None
    hits = pc.indices_nonzero(pc.equal(delta.column("src"), pa.scalar(source, pa.string())))
    return hits[len(hits) - 1].as_py() if len(hits) else None


def _without(rows: pa.Table, delta: TableDelta) -> pa.Table:
    """The rows that a delta has no row for."""
    mine = delta.column(KEY).combine_chunks()
    return rows.filter(pc.invert(pc.is_in(rows[KEY], value_set=mine)))


def one_zero(rows: pa.Table) -> pa.Table:
    """Normalise minus zero to zero: they are equal numbers, but a join compares bits."""
    for position, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            same = pc.add(rows[field.name], pa.scalar(0.0, field.type))
            rows = rows.set_column(position, field, same)
    return rows


def displayable(rows: pa.Table) -> pa.Table:
    """Rows for messages, which show timestamps with the time of day."""
    for position, field in enumerate(rows.schema):
        if pa.types.is_date64(field.type):
            moments = to_timestamp(rows[field.name].combine_chunks())
            rows = rows.set_column(position, field.name, moments)
    return rows
