"""The rows of one state of the graph that an actor sees, for everything that is not a query.

Any state, also an old one: it is read from storage, and no index of it is built in memory.
Conditions are evaluated by storage where it can. The ends of edges are looked up by id if there are
few; otherwise the ids of all visible nodes of a type are read once. A condition of a caller is only
evaluated on visible rows: an error in it would tell something about the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.query import typed
from omnigraph.lang.schema.catalog import Catalog, EdgeType, EntityType, entity_types
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.plan.arrow import filter_expression, pushable
from omnigraph.plan.view import ALL, HIDDEN, View
from omnigraph.storage.tables.conditions import columns_of as filter_columns
from omnigraph.storage.tables.table import ROW_ID, Table
from omnigraph.topology.cache import one_array
from omnigraph.topology.visible import columns_of, true_rows

if TYPE_CHECKING:
    from omnigraph.commit.snapshot import Snapshot
    from omnigraph.commit.store import GraphStore

Mask = npt.NDArray[np.bool_]

ID = typed.ID_COLUMN
ENDS = ("src", "dst")
_POSITIONS = ("position", "blob_id")
"""Where a Blob is stored, in what a scan returns for it: the only structs that there are."""
_FEW = 2_000
"""Up to this many ids are looked up; for more, a column is read."""


class VisibleRows:
    """The visible rows of a snapshot. For one call: it keeps the ids that it has read."""

    def __init__(self, store: GraphStore, catalog: Catalog, snapshot: Snapshot, view: View) -> None:
        self._store = store
        self._catalog = catalog
        self._snapshot = snapshot
        self.view = view
        self._nodes: dict[str, pa.Array] = {}

    # -- rows of a type ------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """The numbers of visible rows by table key."""
        types = entity_types(self._catalog)
        return {entity_type.table_key: self.count(entity_type) for entity_type in types}

    def count(self, entity_type: EntityType) -> int:
        """The number of visible rows."""
        key = entity_type.table_key
        pin = self._snapshot.pin(key)
        if pin is None or self.view.hides(key):
            return 0
        if self.view.sees_all(key):
            return pin.row_count
        condition = self.view.condition(key)
        if condition is not None and pushable(condition) and not self._tested_ends(entity_type):
            return self._store.table(pin).count(filter_expression(condition))
        return int(self.keys(entity_type).num_rows)

    def read(
        self,
        entity_type: EntityType,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
    ) -> pa.Table:
        """The visible rows as one table."""
        batches = list(self.scan(entity_type, columns, filter))
        return pa.Table.from_batches(batches, self._empty(entity_type, columns).schema)

    def scan(
        self,
        entity_type: EntityType,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The visible rows batch by batch, in no particular order."""
        shown = entity_type.arrow_schema().names if columns is None else list(columns)
        needed = []
        if filter is not None:
            needed = filter_columns(filter, self._table(entity_type).schema)
        for judged in self._judged(entity_type, [*shown, *needed]):
            rows = _without_positions(judged)
            kept = rows if filter is None else rows.filter(filter)
            yield from kept.select(shown).combine_chunks().to_batches()

    def keys(self, entity_type: EntityType) -> pa.Table:
        """The ids and the row ids of the visible rows."""
        schema = pa.schema([(ID, pa.string()), (ROW_ID, pa.uint64())])
        parts = self._judged(entity_type, [ID], row_ids=True)
        rows = [part.select(schema.names).cast(schema) for part in parts]
        return pa.concat_tables([schema.empty_table(), *rows])

    def find(self, entity_type: EntityType, row_id: str, columns: Sequence[str]) -> pa.Table:
        """Columns of the row with an id, and its row id; empty if it is hidden or missing.

        Either takes the same steps.
        """
        key = entity_type.table_key
        wanted = pc.field(ID) == row_id
        names = list(columns)
        if self.view.sees_all(key):
            return self._table(entity_type).read(names, wanted, row_ids=True)
        if self.view.hides(key):
            return self._table(entity_type).read(names, limit=0, row_ids=True)
        rows = self._matching(entity_type, names, wanted)
        for column, end in self._tested_ends(entity_type):
            ends = rows[column].combine_chunks() if rows.num_rows else pa.array([row_id])
            seen = self.sees_nodes(end, ends)
            rows = rows.filter(pa.array(seen)) if rows.num_rows else rows
        return rows.select([*names, ROW_ID])

    # -- some rows -----------------------------------------------------------------------

    def ids_among(self, entity_type: EntityType, ids: pa.Array) -> pa.Array:
        """The ids of a list whose rows exist and are visible."""
        if self.view.hides(entity_type.table_key) or not len(ids):
            return ids.slice(0, 0)
        rows = self._rows_among(entity_type, ids)
        for column, end in self._tested_ends(entity_type):
            rows = rows.filter(pa.array(self.sees_nodes(end, one_array(rows[column]))))
        return one_array(rows[ID])

    def mask(self, entity_type: EntityType, rows: pa.Table) -> Mask:
        """Which rows in memory, with all of their columns, are visible in this state."""
        key = entity_type.table_key
        seen = matches(rows, self.view.condition(key))
        for column, end in self._tested_ends(entity_type):
            if seen.any():
                seen &= self.sees_nodes(end, one_array(rows[column]))
        return seen

    def sees_nodes(self, key: str, ids: pa.Array) -> Mask:
        """For each id, whether a node of the table is visible; a missing one is not."""
        rule = self.view.rule(key)
        if rule is ALL or rule is HIDDEN:
            return np.full(len(ids), rule is ALL, np.bool_)
        visible = self._nodes.get(key)
        if visible is None:
            node_type = self._catalog.node_types[key.partition(":")[2]]
            distinct = pc.unique(ids)
            if len(distinct) <= _FEW:
                visible = one_array(self._rows_among(node_type, distinct)[ID])
            else:
                visible = self._nodes[key] = one_array(self.keys(node_type)[ID])
        seen: Mask = numpy_view(pc.is_in(ids, value_set=visible))
        return seen

    # -- inside --------------------------------------------------------------------------

    def _judged(
        self, entity_type: EntityType, columns: Sequence[str], *, row_ids: bool = False
    ) -> Iterator[pa.Table]:
        """The visible rows in pieces, with at least some columns."""
        key = entity_type.table_key
        if self.view.hides(key) or self._snapshot.pin(key) is None:
            return
        condition, ends = self.view.condition(key), self._tested_ends(entity_type)
        for _, end in ends:
            self._read_nodes(end)
        pushed, rest = _parts(condition)
        names = dict.fromkeys([*columns, *(column for column, _ in ends), *columns_of(rest)])
        for batch in self._table(entity_type).scan(list(names), pushed, row_ids=row_ids):
            rows = pa.Table.from_batches([batch])
            if rest is not None:
                rows = rows.filter(pa.array(matches(rows, rest)))
            for column, end in ends:
                rows = rows.filter(pa.array(self.sees_nodes(end, one_array(rows[column]))))
            yield rows

    def _read_nodes(self, key: str) -> None:
        """Read the ids of all visible nodes of a table at once."""
        if key not in self._nodes and self.view.rule(key) is not HIDDEN:
            node_type = self._catalog.node_types[key.partition(":")[2]]
            self._nodes[key] = one_array(self.keys(node_type)[ID])

    def _rows_among(self, entity_type: EntityType, ids: pa.Array) -> pa.Table:
        """Rows by id that pass the own rule of their type, with their ends."""
        if len(ids) <= _FEW:
            return self._matching(entity_type, [ID], pc.field(ID).isin(ids))
        rows = self._matching(entity_type, [ID], None)
        return rows.filter(pc.is_in(rows[ID], value_set=ids))

    def _matching(
        self, entity_type: EntityType, columns: list[str], wanted: pc.Expression | None
    ) -> pa.Table:
        """Rows that pass the own rule of their type, with the ends that must be tested.

        ``wanted`` is a condition of ours, on ids.
        """
        pushed, rest = _parts(self.view.condition(entity_type.table_key))
        if wanted is not None:
            pushed = wanted if pushed is None else wanted & pushed
        ends = [column for column, _ in self._tested_ends(entity_type)]
        names = list(dict.fromkeys([*columns, *ends, *columns_of(rest)]))
        rows = self._table(entity_type).read(names, pushed, row_ids=True)
        return rows if rest is None else rows.filter(pa.array(matches(rows, rest)))

    def _tested_ends(self, entity_type: EntityType) -> list[tuple[str, str]]:
        """The columns of an edge whose nodes are not all visible, with their tables."""
        if not isinstance(entity_type, EdgeType):
            return []
        ends = zip(ENDS, self.view.ends(entity_type.table_key), strict=False)
        return [(column, key) for column, key in ends if self.view.rule(key) is not ALL]

    def _table(self, entity_type: EntityType) -> Table:
        return self._store.table(self._snapshot.pins[entity_type.table_key])

    def _empty(self, entity_type: EntityType, columns: Sequence[str] | None) -> pa.Table:
        return self._table(entity_type).read(columns, limit=0)


def matches(rows: pa.Table, condition: typed.TypedExpr | None) -> Mask:
    """Which rows in memory match a condition."""
    columns = {name: one_array(rows[name]) for name in columns_of(condition)}
    return true_rows(condition, columns, rows.num_rows)


def _without_positions(rows: pa.Table) -> pa.Table:
    """Rows whose Blobs do not say where they are stored: that adds up the sizes of hidden ones."""
    for index, field in enumerate(rows.schema):
        if pa.types.is_struct(field.type):
            blobs = one_array(rows[field.name])
            parts = [
                pa.array(np.zeros(len(blobs)), part.type)
                if part.name in _POSITIONS
                else blobs.field(number)
                for number, part in enumerate(field.type)
            ]
            column = pa.StructArray.from_arrays(parts, fields=[*field.type], mask=blobs.is_null())
            rows = rows.set_column(index, field, column)
    return rows


def _parts(
    condition: typed.TypedExpr | None,
) -> tuple[pc.Expression | None, typed.TypedExpr | None]:
    """What storage evaluates of a condition, and what is left."""
    if condition is None:
        return None, None
    return (filter_expression(condition), None) if pushable(condition) else (None, condition)
