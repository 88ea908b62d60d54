"""The state on which a member of a group is validated: a snapshot, and the members before it.

What the rules need of the committed rows is looked up once for many members, in one request for
each table and column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.lang.schema.catalog import EdgeType, EntityType
from omnigraph.storage.tables.store import KEY
from omnigraph.write.delta import NO_IDS
from omnigraph.write.validate.lookup import look_up


class GroupState:
    """A snapshot and the rows of earlier members, which have no id in common with later ones."""

    def __init__(self, store: GraphStore, snapshot: Snapshot) -> None:
        self._store = store
        self._snapshot = snapshot
        self._earlier: dict[str, list[pa.Table]] = {}
        self._wanted: dict[tuple[str, str], tuple[list[pa.Array], list[str]]] = {}
        self._looked_up: dict[tuple[str, str], tuple[pa.Array, pa.Table]] = {}
        """By table and column, the values that were looked up, and the rows with one of them."""

    # -- committed rows ------------------------------------------------------------------

    def expect(
        self,
        entity_type: EntityType,
        rows: pa.Table,
        *,
        made_ids: bool,
        columns_of: Callable[[str], Sequence[str]],
    ) -> None:
        """Announce rows of a member; what their rules need is looked up by ``read``.

        ``columns_of`` are the columns of a table that are needed to find a row by its id.
        """
        key = entity_type.table_key
        if not made_ids:
            self._expect(key, KEY, rows[KEY], columns_of(key))
        for columns in entity_type.unique:
            self._expect(key, columns[0], rows[columns[0]], (KEY, *columns))
        if isinstance(entity_type, EdgeType):
            for end, name in (("src", entity_type.from_type), ("dst", entity_type.to_type)):
                self._expect(f"node:{name}", KEY, rows[end], columns_of(f"node:{name}"))
            if entity_type.cardinality.min or entity_type.cardinality.max is not None:
                self._expect(key, "src", rows["src"], (KEY, "src"))

    def _expect(
        self, table_key: str, column: str, values: pa.ChunkedArray, columns: Sequence[str]
    ) -> None:
        arrays, names = self._wanted.setdefault((table_key, column), ([], []))
        arrays += values.chunks
        names += [name for name in columns if name not in names]

    def read(self) -> None:
        """Look up the committed rows that announced rows need."""
        self._looked_up.clear()
        for (table_key, column), (arrays, columns) in self._wanted.items():
            if arrays and self._has_rows(table_key):
                values = pc.unique(pa.concat_arrays(arrays))
                names = list(dict.fromkeys((*columns, column)))
                rows = self._look_up(table_key, column, values, names)
                self._looked_up[table_key, column] = values, rows
        self._wanted.clear()

    def _has_rows(self, table_key: str) -> bool:
        pin = self._snapshot.pin(table_key)
        return pin is not None and pin.row_count > 0

    def _look_up(
        self, table_key: str, column: str, values: pa.Array, columns: list[str]
    ) -> pa.Table:
        values_seen, rows = self._looked_up.get((table_key, column), (values.slice(0, 0), None))
        if rows is None or not (
            pc.all(pc.is_in(values, value_set=values_seen)).as_py()
            and {*columns} <= {*rows.column_names}
        ):
            pin = self._snapshot.pins[table_key]
            return look_up(self._store.table(pin), column, values, columns)
        return _with(rows, column, values).select(columns)

    def existing(self, table_key: str, ids: pa.Array) -> pa.Array:
        """The ids that have a committed row."""
        if not self._has_rows(table_key):
            return NO_IDS
        return _ids(self._look_up(table_key, KEY, ids, [KEY]))

    # -- both ----------------------------------------------------------------------------

    def add(self, table_key: str, rows: pa.Table) -> None:
        """Add the rows of a member, for those after it."""
        self._earlier.setdefault(table_key, []).append(rows)

    def rows(self) -> dict[str, pa.Table]:
        """The rows of all members by table key, in order."""
        return {key: pa.concat_tables(tables) for key, tables in self._earlier.items()}

    def matching(
        self, table_key: str, column: str, values: pa.Array, columns: Sequence[str]
    ) -> pa.Table:
        """The rows with one of the values, committed ones and those of earlier members."""
        names, wanted = list(columns), pc.unique(values)
        parts: list[pa.Table] = []
        if self._has_rows(table_key):
            parts.append(self._look_up(table_key, column, wanted, names))
        for rows in self._earlier.get(table_key, ()):
            replaced = _ids(rows)
            parts = [part.filter(pc.invert(pc.is_in(part[KEY], replaced))) for part in parts]
            new = _with(rows, column, wanted).select(names)
            parts.append(new.cast(parts[0].schema) if parts else new)
        if not parts:
            return pa.schema([(name, pa.string()) for name in names]).empty_table()
        return pa.concat_tables(parts)


def _with(rows: pa.Table, column: str, values: pa.Array) -> pa.Table:
    return rows.filter(pc.is_in(rows[column], value_set=values))


def _ids(rows: pa.Table) -> pa.Array:
    return rows[KEY].combine_chunks()
