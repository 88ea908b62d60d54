"""The effect of a migration plan on the tables of a graph, by type, and the events it records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.commit.metadata import SchemaEvent
from omnigraph.errors import InputError, InternalError, ValueConversionError
from omnigraph.lang.schema.ast import TypeKind
from omnigraph.lang.schema.catalog import Catalog, EntityType, entity_types
from omnigraph.lang.schema.identified import IdentifiedSchema
from omnigraph.lang.schema.identity import TypeIdentity
from omnigraph.lang.schema.steps import (
    AddProperty,
    AddType,
    ChangeNullability,
    DropMode,
    DropProperty,
    DropType,
    RenameProperty,
    RenameType,
    Step,
    UnsupportedChange,
    WidenProperty,
)
from omnigraph.lang.values.columns import convert_column, json_row
from omnigraph.records import dataclass
from omnigraph.storage.tables.alter import ColumnPlan

Values = Mapping[str, pa.Array]
"""Values for existing rows by ``Type.property``, each as an array of length 1."""


@dataclass(frozen=True, slots=True)
class TypeChange:
    """A type in both schemas: its table before and after, and the steps that affect it."""

    old: EntityType
    new: EntityType
    steps: tuple[Step, ...]
    columns: tuple[ColumnPlan, ...]
    filled: frozenset[str]
    """The properties that get a value in existing rows."""

    @property
    def alters(self) -> bool:
        """Whether the columns of the table change."""
        kinds = AddProperty | RenameProperty | DropProperty | ChangeNullability | WidenProperty
        return any(isinstance(step, kinds) for step in self.steps) or bool(self.filled)

    @property
    def loses(self) -> bool:
        """Whether values are dropped permanently."""
        return any(isinstance(s, DropProperty) and s.mode is DropMode.HARD for s in self.steps)


@dataclass(frozen=True, slots=True)
class SchemaChanges:
    """All changes of the tables of a graph."""

    added: tuple[EntityType, ...] = ()
    dropped: tuple[tuple[EntityType, DropMode], ...] = ()
    changed: tuple[TypeChange, ...] = field(default=())


def changes_of(
    accepted: Catalog, desired: Catalog, steps: Sequence[Step], values: Values
) -> SchemaChanges:
    """The changes of a supported plan; interfaces have no tables."""
    added, dropped, changed = [], [], []
    sources = {
        f"{step.type_kind}:{step.new}": f"{step.type_kind}:{step.old}"
        for step in steps
        if isinstance(step, RenameType)
    }
    new = {f"{step.type_kind}:{step.name}" for step in steps if isinstance(step, AddType)}
    gone = {
        f"{step.type_kind}:{step.name}": step.mode for step in steps if isinstance(step, DropType)
    }
    before = {entity_type.table_key: entity_type for entity_type in entity_types(accepted)}
    for entity_type in entity_types(desired):
        key = entity_type.table_key
        if key in new:
            added.append(entity_type)
            continue
        mine = tuple(step for step in steps if _table_of(step) == key)
        if mine:
            changed.append(_changed(before[sources.get(key, key)], entity_type, mine, values))
    for key, mode in gone.items():
        if key in before:
            dropped.append((before[key], mode))
    return SchemaChanges(tuple(added), tuple(dropped), tuple(changed))


def converted_values(
    desired: Catalog, steps: Sequence[Step], values: Mapping[str, object]
) -> dict[str, pa.Array]:
    """The given values, converted to the types of their columns; raises if one is unused."""
    wanted = {
        f"{step.type_name}.{step.property_name}"
        for step in steps
        if isinstance(step, AddProperty)
        or (isinstance(step, ChangeNullability) and not step.nullable)
        if step.type_kind is not TypeKind.INTERFACE
    }
    types = {entity_type.name: entity_type for entity_type in entity_types(desired)}
    converted = {}
    for name, value in values.items():
        owner, _, prop = name.partition(".")
        if name not in wanted:
            raise InputError(
                f"a value is given for '{name}', which this change neither adds nor makes required",
                hint=f"it can be given for {', '.join(sorted(wanted))}" if wanted else None,
                details={"property": name},
            )
        converted[name] = _converted(name, types[owner], prop, value)
    return converted


def _converted(name: str, entity_type: EntityType, prop: str, value: object) -> pa.Array:
    wanted = entity_type.properties[prop].type
    if wanted.is_blob:
        raise InputError(f"no value can be given for the Blob '{name}'")
    column, problems = convert_column(prop, wanted.as_nullable(False), [value])
    if problems:
        raise ValueConversionError(
            f"the value for '{name}' does not fit: {problems[0].message}",
            details={"property": name},
        )
    if column.null_count:
        raise InputError(f"the value for '{name}' is null", details={"property": name})
    return column


def _table_of(step: Step) -> str | None:
    """The key, in the new schema, of the table that a step affects."""
    if isinstance(step, RenameType):
        return f"{step.type_kind}:{step.new}"
    name = getattr(step, "type_name", getattr(step, "name", None))
    kind = getattr(step, "type_kind", None)
    return None if name is None or kind is None else f"{kind}:{name}"


def _changed(
    old: EntityType, new: EntityType, steps: tuple[Step, ...], values: Values
) -> TypeChange:
    renamed = {step.new: step.old for step in steps if isinstance(step, RenameProperty)}
    added = {step.property_name for step in steps if isinstance(step, AddProperty)}
    mine = {
        name: values[f"{new.name}.{name}"]
        for name in new.properties
        if f"{new.name}.{name}" in values
    }
    before = old.arrow_schema()
    columns = []
    for column in new.arrow_schema():
        name = column.name
        source = None if name in added else renamed.get(name, name)
        is_cast = source is not None and before.field(source).type != column.type
        compute = None
        if is_cast or name in mine:
            compute = _Compute(column.type, mine.get(name), is_new=source is None)
        columns.append(ColumnPlan(column, source, compute))
    return TypeChange(old, new, steps, tuple(columns), frozenset(mine))


def new_values(plan: ColumnPlan, batch: pa.RecordBatch) -> pa.Array:
    """The values of a column after the change."""
    values = batch[plan.source or "id"]
    if plan.compute is not None:
        return plan.compute(values)
    return values if plan.source is not None else pa.nulls(len(batch), plan.field.type)


@dataclass(frozen=True, slots=True)
class _Compute:
    """Converts the values of a column to another type, and replaces nulls by a value."""

    type: pa.DataType
    value: pa.Array | None
    is_new: bool

    def __call__(self, values: pa.Array) -> pa.Array:
        if self.is_new:
            assert self.value is not None
            return self.value.take(pa.array(np.zeros(len(values), np.int64)))
        cast = values.cast(self.type)
        if self.value is None or not cast.null_count:
            return cast
        is_valid = cast.is_valid().to_numpy(zero_copy_only=False)
        indices = np.where(is_valid, np.arange(len(cast)), len(cast))
        return pa.concat_arrays([cast, self.value.cast(self.type)]).take(pa.array(indices))


def schema_events(
    before: IdentifiedSchema,
    after: IdentifiedSchema,
    steps: Iterable[Step],
    values: Mapping[str, pa.Array],
) -> list[SchemaEvent]:
    """One event, by stable ids, for each step of a supported plan, in its order.

    ``values`` are the values for existing rows, by ``Type.property``. The rows before the apply
    and the events determine the rows after it, without reading a table.
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
            # The plan has the new name of the type; the property exists only in the old schema.
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
