"""States of the graph with their schemas and views, and the changes of a type between two."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.lang.schema.catalog import EdgeType, EntityType, entity_types
from omnigraph.lang.schema.identified import IdentifiedSchema
from omnigraph.merge.change_filter import ChangeFilter, type_id
from omnigraph.merge.changes import Earlier, TableChanges, find_changes
from omnigraph.plan.view import WHOLE, View
from omnigraph.records import dataclass


@dataclass(frozen=True, slots=True)
class SchemaSnapshot:
    """A snapshot, its schema, and what the reader sees of it."""

    snapshot: Snapshot
    schema: IdentifiedSchema
    view: View = WHOLE


def is_seen_whole(before: SchemaSnapshot | None, after: SchemaSnapshot) -> bool:
    """Whether the reader sees everything in both states."""
    return after.view.is_whole and (before is None or before.view.is_whole)


def wanted_types(state: SchemaSnapshot, wanted: ChangeFilter) -> Iterator[EntityType]:
    """The types that a filter selects: nodes before edges, in the order of names."""
    for entity_type in entity_types(state.schema.catalog):
        if wanted.takes(kind_name(entity_type), type_id(state.schema, entity_type)):
            yield entity_type


def changes_of_type(
    store: GraphStore,
    before: SchemaSnapshot | None,
    after: SchemaSnapshot,
    entity_type: EntityType,
) -> TableChanges:
    """The changes of a type of the later state, whatever its earlier name."""
    new = after.snapshot.pin(entity_type.table_key)
    pin, earlier = earlier_table(before, after, entity_type)
    return find_changes(store, entity_type, pin, new, earlier)


def earlier_table(
    before: SchemaSnapshot | None, after: SchemaSnapshot, entity_type: EntityType
) -> tuple[Pin | None, Earlier | None]:
    """The table of a type in the earlier state, and its columns if they had other names."""
    old = earlier_type(before, after, entity_type)
    if before is None or old is None:
        return None, None
    earlier = earlier_of(before.schema, after.schema, old, entity_type)
    return before.snapshot.pin(old.table_key), earlier


def earlier_type(
    before: SchemaSnapshot | None, after: SchemaSnapshot, entity_type: EntityType
) -> EntityType | None:
    """A type of the later state as it was in the earlier one; ``None`` if it is new."""
    if before is None:
        return None
    number = type_id(after.schema, entity_type)
    return next(
        (
            candidate
            for candidate in entity_types(before.schema.catalog)
            if type_id(before.schema, candidate) == number
        ),
        None,
    )


def earlier_of(
    before: IdentifiedSchema, after: IdentifiedSchema, old: EntityType, new: EntityType
) -> Earlier | None:
    """The column names of a type in another schema; ``None`` if they are the same."""
    then = before.identity.types[old.table_key].properties
    now = after.identity.types[new.table_key].properties
    # A property that was dropped and added again is a different one with the same name.
    if old == new and then == now:
        return None
    was = {number: name for name, number in then.items()}
    own = [name for name in new.arrow_schema().names if name not in new.properties]
    names = {name: was[number] for name, number in now.items() if number in was}
    return Earlier(old, {**{name: name for name in own}, **names})


def kind_name(entity_type: EntityType) -> str:
    return "edge" if isinstance(entity_type, EdgeType) else "node"
