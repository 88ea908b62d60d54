"""A schema with its stable ids, and the difference between two schemas.

The difference is computed by ids and never by names, so it is correct across any number of changes
and in both directions. Its steps can be applied in order, except that all renames of a difference
are applied at once, since names may be swapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.identity import (
    SchemaIdentity,
    TypeIdentity,
    continue_identity,
    initial_identity,
)
from omnigraph.lang.schema.ir import EdgeIR, PropertyIR, TypeIR
from omnigraph.lang.schema.migrate import (
    cardinality_steps,
    constraint_steps,
    property_metadata_steps,
    type_metadata_steps,
    value_steps,
)
from omnigraph.lang.schema.steps import (
    AddProperty,
    AddType,
    DropMode,
    DropProperty,
    DropType,
    RenameProperty,
    RenameType,
    Step,
)
from omnigraph.records import dataclass

# The order of the steps of one change; all other steps come after these, in their own order.
_PHASES = tuple(
    step.kind for step in (DropType, RenameType, AddType, DropProperty, RenameProperty, AddProperty)
)


def phase(kind: str) -> int:
    """The rank of a kind of step among the steps of one change.

    >>> sorted(["add_property", "rename_type", "widen_property"], key=phase)
    ['rename_type', 'add_property', 'widen_property']
    """
    return _PHASES.index(kind) if kind in _PHASES else len(_PHASES)


@dataclass(frozen=True, slots=True)
class IdentifiedType:
    """One type with its ids."""

    type: TypeIR
    identity: TypeIdentity

    @property
    def properties(self) -> dict[int, PropertyIR]:
        """By their ids, in the order of their names."""
        return {self.identity.properties[prop.name]: prop for prop in self.type.properties}

    def to_json(self) -> dict[str, Any]:
        """Plain data, keys in a fixed order."""
        head: dict[str, Any] = {"type_kind": str(self.type.kind), "name": self.type.name}
        return {**head, **self.shape_json(), "type_id": self.identity.id}

    def shape_json(self) -> dict[str, Any]:
        """A type without its name: the endpoints of an edge, and the properties."""
        ends: dict[str, Any] = {}
        if isinstance(self.type, EdgeIR):
            ends = {"from_type": self.type.from_type, "to_type": self.type.to_type}
        properties = [
            {"name": prop.name, "property_type": prop.type.to_json(), "property_id": number}
            for number, prop in self.properties.items()
        ]
        return {**ends, "properties": properties}


@dataclass(frozen=True)
class IdentifiedSchema:
    """A schema and the ids of its types and properties."""

    catalog: Catalog
    identity: SchemaIdentity

    @staticmethod
    def new(catalog: Catalog) -> IdentifiedSchema:
        """The first schema of a graph."""
        return IdentifiedSchema(catalog, initial_identity(catalog))

    @staticmethod
    def recorded(catalog: Catalog, identity: Mapping[str, Any]) -> IdentifiedSchema:
        """A schema with the stored form of its ids."""
        return IdentifiedSchema(catalog, SchemaIdentity.from_json(dict(identity)))

    def followed_by(self, catalog: Catalog) -> IdentifiedSchema:
        """A schema with which another program replaced this one."""
        if catalog.schema_hash == self.catalog.schema_hash:
            return self
        identity = continue_identity(self.identity, self.catalog, catalog)
        return IdentifiedSchema(catalog, identity)

    @cached_property
    def types(self) -> Mapping[int, IdentifiedType]:
        """Every type by its id: interfaces, nodes, edges, each in the order of their names."""
        by_id: dict[int, IdentifiedType] = {}
        for entry in self.catalog.ir.types:
            identity = self.identity.types[f"{entry.kind}:{entry.name}"]
            by_id[identity.id] = IdentifiedType(entry, identity)
        return by_id

    def to_json(self) -> dict[str, Any]:
        """Plain data, keys in a fixed order."""
        return {"types": [entry.to_json() for entry in self.types.values()]}


@dataclass(frozen=True, slots=True)
class IdentifiedStep:
    """A step of a difference, with the ids of its type and property."""

    step: Step
    type_id: int
    property_id: int | None = None


def schema_difference(
    before: IdentifiedSchema | None, after: IdentifiedSchema
) -> list[IdentifiedStep]:
    """The steps from one schema to another, or to a first one.

    >>> from omnigraph.lang.schema.compile import compile_schema
    >>> old = IdentifiedSchema.new(compile_schema("node A { x: I32? }"))
    >>> new = old.followed_by(compile_schema('node B @rename_from("A") { x: I64? }'))
    >>> [change.step.describe() for change in schema_difference(old, new)]
    ["rename node type 'A' -> 'B'", "widen property 'B.x' of node 'B' from I32? to I64?"]
    >>> [change.step.kind for change in schema_difference(new, old)]
    ['rename_type', 'narrow_property']
    """
    was = {} if before is None else before.types
    steps: list[IdentifiedStep] = []
    for number, entry in was.items():
        if number not in after.types:
            step = DropType(entry.type.kind, entry.type.name, DropMode.SOFT)
            steps.append(IdentifiedStep(step, number))
    for number, entry in after.types.items():
        old = was.get(number)
        if old is None:
            steps.append(IdentifiedStep(AddType(entry.type.kind, entry.type.name), number))
        else:
            steps += _type_steps(old, entry)
    return sorted(steps, key=lambda entry: phase(entry.step.kind))


def _type_steps(old: IdentifiedType, new: IdentifiedType) -> Iterator[IdentifiedStep]:
    kind, name, number = new.type.kind, new.type.name, new.identity.id
    if old.type.name != name:
        yield IdentifiedStep(RenameType(kind, old.type.name, name), number)
    was, now = old.properties, new.properties
    for prop_id, prop in was.items():
        if prop_id not in now:
            step = DropProperty(kind, name, prop.name, DropMode.SOFT)
            yield IdentifiedStep(step, number, prop_id)
    for prop_id, prop in now.items():
        if prop_id not in was:
            added = AddProperty(kind, name, prop.name, prop.type)
            yield IdentifiedStep(added, number, prop_id)
            continue
        if was[prop_id].name != prop.name:
            renamed = RenameProperty(kind, name, was[prop_id].name, prop.name)
            yield IdentifiedStep(renamed, number, prop_id)
        for changed in value_steps(kind, name, prop.name, was[prop_id].type, prop.type):
            yield IdentifiedStep(changed, number, prop_id)
        for changed in property_metadata_steps(kind, name, was[prop_id], prop):
            yield IdentifiedStep(changed, number, prop_id)
    for rule in _rule_steps(old, new):
        yield IdentifiedStep(rule, number)


def _rule_steps(old: IdentifiedType, new: IdentifiedType) -> Iterator[Step]:
    one, other = old.type, new.type
    if isinstance(one, EdgeIR) and isinstance(other, EdgeIR):
        yield from cardinality_steps(one, other)
    yield from type_metadata_steps(one, other)
    now = new.properties
    renames = {prop.name: now[key].name for key, prop in old.properties.items() if key in now}
    yield from constraint_steps(other.kind, other.name, one.constraints, other.constraints, renames)
