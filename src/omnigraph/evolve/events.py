"""The events of a schema apply: what its commit says about types and properties, by stable ids."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.commit.metadata import SchemaEvent
from omnigraph.errors import InternalError
from omnigraph.lang.schema.ast import TypeKind
from omnigraph.lang.schema.identity import Identity, TypeIdentity
from omnigraph.lang.schema.steps import (
    AddProperty,
    AddType,
    DropProperty,
    DropType,
    RenameProperty,
    RenameType,
    Step,
    WidenProperty,
)


def schema_events(before: Identity, after: Identity, steps: Iterable[Step]) -> list[SchemaEvent]:
    """The events of a plan in its order; steps that only change rules are none."""
    found: list[SchemaEvent] = []
    old = {entry.id: entry for entry in before.types.values()}
    for step in steps:
        match step:
            case AddType():
                ids: tuple[int, int | None] = (_type(after, step.type_kind, step.name).id, None)
            case RenameType():
                ids = (_type(after, step.type_kind, step.new).id, None)
            case DropType():
                ids = (_type(before, step.type_kind, step.name).id, None)
            case AddProperty() | WidenProperty():
                owner = _type(after, step.type_kind, step.type_name)
                ids = (owner.id, owner.properties[step.property_name])
            case RenameProperty():
                owner = _type(after, step.type_kind, step.type_name)
                ids = (owner.id, owner.properties[step.new])
            case DropProperty():
                # The type has its new name in the plan; the property is in its old form only.
                owner = old[_type(after, step.type_kind, step.type_name).id]
                ids = (owner.id, owner.properties[step.property_name])
            case _:
                continue
        found.append(SchemaEvent(step.to_json(), *ids))
    return found


def _type(identity: Identity, kind: TypeKind, name: str) -> TypeIdentity:
    found = identity.type(kind, name)
    if found is None:
        raise InternalError(f"a migration step names the unknown {kind} '{name}'")
    return found
