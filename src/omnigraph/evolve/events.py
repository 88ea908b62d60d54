"""The events of a schema apply: its changes of types and properties, by stable ids.

They describe everything that the apply does to rows: the rows before and the events give the rows
after, without reading a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from omnigraph.commit.metadata import SchemaEvent
from omnigraph.errors import InternalError
from omnigraph.lang.schema.identified import IdentifiedSchema
from omnigraph.lang.schema.identity import TypeIdentity
from omnigraph.lang.schema.steps import (
    AddProperty,
    AddType,
    ChangeNullability,
    DropProperty,
    DropType,
    RenameProperty,
    RenameType,
    Step,
    UnsupportedChange,
)
from omnigraph.lang.values.columns import json_row


def schema_events(
    before: IdentifiedSchema,
    after: IdentifiedSchema,
    steps: Iterable[Step],
    values: Mapping[str, pa.Array],
) -> list[SchemaEvent]:
    """One event for each step of a supported plan, in its order.

    ``values`` are those that existing rows get, by ``Type.property``.
    """
    return [_event(before, after, step, values) for step in steps]


def _event(
    before: IdentifiedSchema, after: IdentifiedSchema, step: Step, values: Mapping[str, pa.Array]
) -> SchemaEvent:
    match step:
        case UnsupportedChange():
            raise InternalError("an unsupported change was applied")
        case DropType():
            return SchemaEvent(step.to_json(), _type(before, step.type_kind, step.name).id)
        case RenameType():
            return SchemaEvent(step.to_json(), _type(after, step.type_kind, step.new).id)
        case AddType():
            number = _type(after, step.type_kind, step.name).id
            return SchemaEvent({**step.to_json(), **after.types[number].shape_json()}, number)
    named = step.to_json()
    owner = _type(after, step.type_kind, named.get("type_name") or named["name"])
    match step:
        case DropProperty():
            # The type has its new name in the plan; the property is in its old form only.
            properties = before.types[owner.id].identity.properties
            return SchemaEvent(named, owner.id, properties[step.property_name])
        case RenameProperty():
            return SchemaEvent(named, owner.id, owner.properties[step.new])
        case AddProperty() | ChangeNullability():
            named |= _value(values, f"{step.type_name}.{step.property_name}")
    prop = named.get("property_name")
    return SchemaEvent(named, owner.id, None if prop is None else owner.properties[prop])


def _value(values: Mapping[str, pa.Array], name: str) -> dict[str, Any]:
    return json_row({"value": values[name]}, 0) if name in values else {}


def _type(schema: IdentifiedSchema, kind: str, name: str) -> TypeIdentity:
    identity = schema.identity.type(kind, name)
    if identity is None:
        raise InternalError(f"a migration step names the unknown {kind} '{name}'")
    return identity
