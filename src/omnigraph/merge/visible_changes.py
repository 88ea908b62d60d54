"""The changes between two states as somebody sees them who does not see all rows.

The earlier and the later image of a row are judged apart, each in its own state: a row that becomes
visible is an insert, one that becomes hidden a delete, and a row that is hidden in both states does
not appear. An edge also appears and disappears with its ends, although its own row did not change.

Only changed rows are judged, and the edges of nodes that became visible or hidden, which are found
by their ends. All visible ids of a type are compared only if its rule differs between the states:
after a schema change that concerns the rule, or between branches with different rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.group_members import WrittenIds
from omnigraph.commit.metadata import SchemaEvent
from omnigraph.commit.store import GraphStore
from omnigraph.lang.schema.catalog import EdgeType, EntityType
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.merge.change_filter import ChangeFilter, type_id
from omnigraph.merge.changes import TableChanges, ids_without, row_schema
from omnigraph.merge.states import (
    SchemaSnapshot,
    changes_of_type,
    earlier_table,
    earlier_type,
    wanted_types,
)
from omnigraph.plan.view import RowAccess
from omnigraph.read.visible_rows import ENDS, VisibleRows
from omnigraph.records import dataclass
from omnigraph.storage.tables.deltas import rows_of
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import ROW_ID
from omnigraph.topology.cache import one_array
from omnigraph.topology.visible import columns_of
from omnigraph.write.delta import NO_IDS

_FEW = 2_000


@dataclass(frozen=True, slots=True)
class _Visible:
    """The visible changes of a type."""

    changes: TableChanges
    flipped: pa.Array
    """The ids of rows in both states that are visible in only one of them."""


class VisibleChanges:
    """Compares two states, each seen through its own view."""

    def __init__(
        self,
        store: GraphStore,
        before: SchemaSnapshot | None,
        after: SchemaSnapshot,
        applied: Sequence[SchemaEvent] = (),
    ) -> None:
        """``applied`` are the events of a schema apply, which describe all that it did to rows."""
        self._store = store
        self._before = before
        self._after = after
        self._applied = applied
        self._rows_before = None if before is None else _visible_rows(store, before)
        self._rows_after = _visible_rows(store, after)
        self._nodes: dict[str, _Visible] = {}

    def tables(self, wanted: ChangeFilter) -> Iterator[tuple[EntityType, TableChanges]]:
        """The visible changes of every wanted type: nodes before edges, in the order of names."""
        for entity_type in wanted_types(self._after, wanted):
            changes = self._of(entity_type).changes
            if not changes.is_empty:
                yield entity_type, changes

    def tables_of_member(
        self, wanted: ChangeFilter, members: Sequence[WrittenIds], member: int
    ) -> Iterator[tuple[EntityType, TableChanges]]:
        """The visible changes of one member of a group of commits.

        There is no state between the members. A row belongs to the member that wrote it; an edge
        that appears or disappears with an end to the last, or the first, of those that wrote it and
        its ends, so that no edge precedes its nodes or outlives them.
        """
        for entity_type, changes in self.tables(wanted):
            own = self._of_member(entity_type, changes, members, member)
            if not own.is_empty:
                yield entity_type, own

    # -- one type ------------------------------------------------------------------------

    def _of(self, entity_type: EntityType) -> _Visible:
        key = entity_type.table_key
        if isinstance(entity_type, EdgeType):
            return self._compare(entity_type)
        if key not in self._nodes:
            self._nodes[key] = self._compare(entity_type)
        return self._nodes[key]

    def _compare(self, entity_type: EntityType) -> _Visible:
        old = earlier_type(self._before, self._after, entity_type)
        plain, is_renamed = self._plain(entity_type)
        after = plain.after.filter(
            _seen(self._rows_after, entity_type, plain.after, in_memory=not is_renamed)
        )
        if old is None or self._rows_before is None:
            return _Visible(TableChanges(plain.before.slice(0, 0), after), NO_IDS)
        before = plain.before.filter(
            _seen(self._rows_before, old, plain.before, in_memory=not is_renamed)
        )
        unchanged = self._unchanged(entity_type, old, plain)
        seen_before = _seen(self._rows_before, old, unchanged, in_memory=False)
        seen_after = _seen(self._rows_after, entity_type, unchanged, in_memory=False)
        gone = unchanged.filter(pc.and_not(seen_before, seen_after))
        new = unchanged.filter(pc.and_not(seen_after, seen_before))
        changes = TableChanges(
            pa.concat_tables([before, gone]).sort_by(KEY),
            pa.concat_tables([after, new]).sort_by(KEY),
        )
        only_once = pa.concat_arrays([changes.inserted, changes.deleted])
        missing = pa.concat_arrays([plain.inserted, plain.deleted])
        return _Visible(changes, ids_without(only_once, missing))

    def _plain(self, entity_type: EntityType) -> tuple[TableChanges, bool]:
        """All changes of a type, and whether its columns had other names or types before."""
        if self._applied:
            empty = row_schema(entity_type.arrow_schema()).empty_table()
            return TableChanges(empty, empty), True
        _, earlier = earlier_table(self._before, self._after, entity_type)
        changes = changes_of_type(self._store, self._before, self._after, entity_type)
        return changes, earlier is not None

    # -- rows that did not change --------------------------------------------------------

    def _unchanged(self, entity_type: EntityType, old: EntityType, plain: TableChanges) -> pa.Table:
        """Equal rows of both states that may be visible in only one of them."""
        if not self._has_same_rule(old, entity_type):
            assert self._rows_before is not None
            ids = _in_one(
                _column(self._rows_before.keys(old), KEY),
                _column(self._rows_after.keys(entity_type), KEY),
            )
        elif isinstance(entity_type, EdgeType):
            ids = self._edges_of_flipped(entity_type)
        else:
            ids = NO_IDS
        ids = ids_without(ids, plain.ids)
        pin = self._after.snapshot.pin(entity_type.table_key)
        if pin is None or not len(ids):
            return plain.after.slice(0, 0)
        table = self._store.table(pin)
        where = pc.field(KEY).isin(ids) if len(ids) <= _FEW else None
        rows = table.read([KEY], where, row_ids=True)
        rows = rows.filter(pc.is_in(rows[KEY], value_set=ids))
        schema = pa.schema([field for field in plain.after.schema if field.name != ROW_ID])
        row_ids = numpy_view(rows[ROW_ID]).astype(np.int64)
        return rows_of(table, row_ids, schema, None, {name: name for name in schema.names})

    def _edges_of_flipped(self, edge: EdgeType) -> pa.Array:
        """The ids of edges, in the later state, with an end that became visible or hidden."""
        nodes = self._after.schema.catalog.node_types
        flipped = [self._of(nodes[name]).flipped for name in (edge.from_type, edge.to_type)]
        pin = self._after.snapshot.pin(edge.table_key)
        if pin is None or not any(map(len, flipped)):
            return NO_IDS
        table = self._store.table(pin)
        if sum(map(len, flipped)) <= _FEW:
            tests = [pc.field(end).isin(ids) for end, ids in zip(ENDS, flipped, strict=True)]
            return _column(table.read([KEY], tests[0] | tests[1]), KEY)
        rows = table.read([KEY, *ENDS])
        masks = [pc.is_in(rows[end], value_set=ids) for end, ids in zip(ENDS, flipped, strict=True)]
        return _column(rows.filter(pc.or_(*masks)), KEY)

    def _has_same_rule(self, old: EntityType, new: EntityType) -> bool:
        """Whether equal rows are judged alike in both states, apart from the ends of an edge."""
        assert self._before is not None
        schemas = self._before.schema, self._after.schema
        rule = self._before.view.rule(old.table_key)
        if rule != self._after.view.rule(new.table_key):
            return False
        ends = [
            [type_id(schema, schema.catalog.node_types[name]) for name in _end_types(entity_type)]
            for schema, entity_type in zip(schemas, (old, new), strict=True)
        ]
        if ends[0] != ends[1]:
            return False
        if isinstance(rule, RowAccess):
            return True
        names = columns_of(rule)
        then = schemas[0].identity.types[old.table_key].properties
        now = schemas[1].identity.types[new.table_key].properties
        filled = {event.property_id for event in self._applied if "value" in event.step}
        return all(
            then.get(name) == now.get(name) and now.get(name) not in filled for name in names
        )

    # -- members of a group --------------------------------------------------------------

    def _of_member(
        self,
        entity_type: EntityType,
        changes: TableChanges,
        members: Sequence[WrittenIds],
        member: int,
    ) -> TableChanges:
        if not isinstance(entity_type, EdgeType):
            return changes.of_rows(members[member].get(entity_type.table_key, ()))
        nodes = self._after.schema.catalog.node_types
        ends = [nodes[name] for name in (entity_type.from_type, entity_type.to_type)]
        own = _writers(members, entity_type.table_key)
        writers = [
            {row_id: k for row_id, k in _writers(members, end.table_key).items() if row_id in some}
            for end in ends
            for some in [frozenset(self._of(end).flipped.to_pylist())]
        ]
        updated = frozenset(changes.updated.to_pylist())
        mine = []
        for rows, choose in ((changes.after, max), (changes.before, min)):
            columns = (rows[name].to_pylist() for name in (KEY, *ENDS))
            for row_id, *end_ids in zip(*columns, strict=True):
                writers_of_row = [own[row_id]] if row_id in own else []
                if row_id not in updated:
                    pairs = zip(writers, end_ids, strict=True)
                    writers_of_row += [some[end_id] for some, end_id in pairs if end_id in some]
                if choose(writers_of_row, default=len(members) - 1) == member:
                    mine.append(row_id)
        return changes.of_rows(mine)


def _visible_rows(store: GraphStore, state: SchemaSnapshot) -> VisibleRows:
    return VisibleRows(store, state.schema.catalog, state.snapshot, state.view)


def _seen(
    visible: VisibleRows, entity_type: EntityType, rows: pa.Table, *, in_memory: bool
) -> pa.Array:
    """Which rows are visible in a state: by their values here, or by the state itself."""
    if not rows.num_rows or visible.view.sees_all(entity_type.table_key):
        return pa.array(np.ones(rows.num_rows, np.bool_))
    if in_memory:
        return pa.array(visible.mask(entity_type, rows))
    return pc.is_in(_column(rows, KEY), visible.ids_among(entity_type, _column(rows, KEY)))


def _writers(members: Sequence[WrittenIds], key: str) -> Mapping[str, int]:
    """The member that wrote each row of a table."""
    return {row_id: k for k, ids in enumerate(members) for row_id in ids.get(key, ())}


def _in_one(ids: pa.Array, others: pa.Array) -> pa.Array:
    """The ids that only one of two lists has."""
    return pa.concat_arrays([ids_without(ids, others), ids_without(others, ids)])


def _end_types(entity_type: EntityType) -> tuple[str, ...]:
    if not isinstance(entity_type, EdgeType):
        return ()
    return entity_type.from_type, entity_type.to_type


def _column(rows: pa.Table, name: str) -> pa.Array:
    return one_array(rows[name])
