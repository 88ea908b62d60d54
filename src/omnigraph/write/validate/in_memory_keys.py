"""Finds violations of rules about sets of rows, with all keys in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.lang.values.arrow import to_timestamp
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import Table
from omnigraph.write.delta import NO_IDS, Deltas, RowSource, TableDelta
from omnigraph.write.validate.committed import Committed, any_present
from omnigraph.write.validate.finder import CardinalityBreach, Dangling, DuplicateValue, Finder

_ROW, _OTHER = "row~", "other~"


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
    """Works on columns, and row by row only to report violations."""

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
        repeated = groups.filter(pc.greater(groups[f"{_ROW}_count"], 1))
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
        column = delta.column(end)
        missing = self._missing(node_key, column)
        if not len(missing):
            return
        mask = pc.is_in(column, value_set=missing)
        ids = delta.column(KEY)
        for position in pc.indices_nonzero(mask).to_pylist():
            yield Dangling(ids[position].as_py(), column[position].as_py(), position)

    def _missing(self, node_key: str, column: pa.ChunkedArray) -> pa.Array:
        wanted = pc.unique(column)
        delta = self._deltas.get(node_key)
        if delta is not None and delta.num_rows:
            new = delta.column(KEY).combine_chunks()
            wanted = wanted.filter(pc.invert(pc.is_in(wanted, value_set=new)))
        if not len(wanted):
            return NO_IDS
        existing = self._committed.present(node_key, wanted)
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
        self, delta: TableDelta, kind: EdgeType
    ) -> Iterator[CardinalityBreach]:
        affected = self._alive(kind, self._affected(delta))
        if not len(affected):
            return
        counts = self._counts(delta, affected)
        low, high = kind.cardinality.min, kind.cardinality.max
        for source in affected.to_pylist():
            count = counts.get(source, 0)
            if count < low or (high is not None and count > high):
                yield CardinalityBreach(source, count, _last_row(delta, source))

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
        if not len(ids):
            return NO_IDS
        edges = self._committed.raw_matching(delta.table_key, KEY, ids, ["src"])
        return edges["src"].combine_chunks() if edges is not None else NO_IDS

    def _alive(self, kind: EdgeType, sources: pa.Array) -> pa.Array:
        node = self._deltas.get(f"node:{kind.from_type}")
        if node is not None and node.replaces:
            return sources.filter(pc.is_in(sources, value_set=node.column(KEY).combine_chunks()))
        if node is None or not len(node.deleted):
            return sources
        return sources.filter(pc.invert(pc.is_in(sources, value_set=node.deleted)))

    def _counts(self, delta: TableDelta, affected: pa.Array) -> dict[str, int]:
        there = self._committed.matching(delta.table_key, "src", affected, [KEY, "src"])
        sources = [_without(there, delta)["src"]]
        if delta.rows is not None:
            sources.append(delta.column("src"))
        chunks = [chunk for column in sources for chunk in column.chunks]
        counted = pc.value_counts(pa.chunked_array(chunks, pa.string()))
        return {entry["values"]: entry["counts"] for entry in counted.to_pylist()}


def _last_row(delta: TableDelta, source: str) -> int | None:
    if delta.rows is None:
        return None
    hits = pc.indices_nonzero(pc.equal(delta.column("src"), source))
    return hits[len(hits) - 1].as_py() if len(hits) else None


def _without(rows: pa.Table, delta: TableDelta) -> pa.Table:
    """The rows that a delta has no row for."""
    mine = delta.column(KEY).combine_chunks()
    return rows.filter(pc.invert(pc.is_in(rows[KEY], value_set=mine)))


def one_zero(rows: pa.Table) -> pa.Table:
    """Zero and minus zero are equal numbers, but a join compares their bits."""
    for position, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            same = pc.add(rows[field.name], pa.scalar(0.0, field.type))
            rows = rows.set_column(position, field, same)
    return rows


def displayable(rows: pa.Table) -> pa.Table:
    """Rows for messages, which show moments with their time of day."""
    for position, field in enumerate(rows.schema):
        if pa.types.is_date64(field.type):
            moments = to_timestamp(rows[field.name].combine_chunks())
            rows = rows.set_column(position, field.name, moments)
    return rows
