"""Ids of types and properties that are stable across renames.

The ids of the canonical form are hashes of names, so a rename changes them. The ids here are
allocated in sequence and never reused: a rename keeps them, and a name that is dropped and added
again gets new ids. This module does no I/O; the manifest stores the JSON form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from omnigraph.errors import InputError, InternalError
from omnigraph.lang.schema.ast import TypeKind
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.ir import TypeIR
from omnigraph.lang.schema.json_form import MALFORMED, from_json, to_json
from omnigraph.lang.schema.migrate import enum_change, is_wider, match_names
from omnigraph.lang.schema.steps import (
    AddProperty,
    AddType,
    DropProperty,
    DropType,
    RenameProperty,
    RenameType,
    Step,
)
from omnigraph.lang.types import PropType
from omnigraph.records import dataclass


@dataclass(frozen=True, slots=True)
class TypeIdentity:
    """One incarnation of a type, counted under its first name."""

    id: int
    incarnation: int
    properties: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SchemaIdentity:
    """All existing types by ``kind:Name``, and the state of id allocation.

    ``lives`` counts, for every name ever used, the types that have had it.
    """

    next_type: int
    next_property: int
    types: Mapping[str, TypeIdentity]
    lives: Mapping[str, int]

    def type(self, kind: TypeKind | str, name: str) -> TypeIdentity | None:
        """The identity of an existing type."""
        return self.types.get(f"{kind}:{name}")

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        shape: dict[str, Any] = to_json(self)
        return shape

    @staticmethod
    def from_json(value: dict[str, Any]) -> SchemaIdentity:
        """The inverse of ``to_json``; raises ``InputError`` if the data is not an identity."""
        try:
            identity: SchemaIdentity = from_json(SchemaIdentity, value)
        except MALFORMED as error:
            raise InputError(f"invalid schema identity: {type(error).__name__}: {error}") from None
        return identity


def initial_identity(catalog: Catalog) -> SchemaIdentity:
    """The identity of a new graph.

    >>> from omnigraph.lang.schema.compile import compile_schema
    >>> identity = initial_identity(compile_schema("node A { x: I32? } edge E: A -> A"))
    >>> identity.type("node", "A").id, identity.type("edge", "E").id
    (1, 2)
    """
    allocator = _Allocator(SchemaIdentity(1, 1, {}, {}))
    for entry in catalog.ir.types:
        allocator.add_type(entry)
    return allocator.result()


def evolve_identity(
    identity: SchemaIdentity, steps: Iterable[Step], new: Catalog
) -> SchemaIdentity:
    """The identity after applying a supported plan that leads to the schema ``new``."""
    allocator = _Allocator(identity)
    declared = {f"{entry.kind}:{entry.name}": entry for entry in new.ir.types}
    for step in steps:
        if isinstance(step, AddType):
            allocator.add_type(declared[f"{step.type_kind}:{step.name}"])
        elif isinstance(step, DropType):
            allocator.drop_type(step.type_kind, step.name)
        elif isinstance(step, RenameType):
            allocator.rename_type(step.type_kind, step.old, step.new)
        elif isinstance(step, AddProperty):
            allocator.add_property(step.type_kind, step.type_name, step.property_name)
        elif isinstance(step, DropProperty):
            allocator.drop_property(step.type_kind, step.type_name, step.property_name)
        elif isinstance(step, RenameProperty):
            allocator.rename_property(step.type_kind, step.type_name, step.old, step.new)
    evolved = allocator.result()
    expected = {key: {prop.name for prop in entry.properties} for key, entry in declared.items()}
    if {key: set(entry.properties) for key, entry in evolved.types.items()} != expected:
        raise InternalError("the migration steps do not lead to the new schema")
    return evolved


def continue_identity(identity: SchemaIdentity, old: Catalog, new: Catalog) -> SchemaIdentity:
    """The identity after a change, derived from the two schemas alone.

    Types and properties are continued by name or by ``@rename_from``. A property whose new type
    cannot hold the old values is a different property.
    """
    allocator = _Allocator(identity)
    _continue_types(allocator, old.ir.interfaces, new.ir.interfaces)
    _continue_types(allocator, old.ir.nodes, new.ir.nodes)
    _continue_types(allocator, old.ir.edges, new.ir.edges)
    return allocator.result()


def _continue_types(allocator: _Allocator, old: Sequence[TypeIR], new: Sequence[TypeIR]) -> None:
    match = match_names(old, new, "type")
    by_name = {entry.name: entry for entry in old}
    for entry in old:
        if entry.name not in match.kept:
            allocator.drop_type(entry.kind, entry.name)
    for entry in new:
        before = by_name.get(match.pairs.get(entry.name, ""))
        if before is None:
            allocator.add_type(entry)
            continue
        if before.name != entry.name:
            allocator.rename_type(entry.kind, before.name, entry.name)
        _continue_properties(allocator, before, entry)


def _continue_properties(allocator: _Allocator, old: TypeIR, new: TypeIR) -> None:
    kind = new.kind
    match = match_names(old.properties, new.properties, "property")
    by_name = {prop.name: prop for prop in old.properties}
    for name in by_name:
        if name not in match.kept:
            allocator.drop_property(kind, new.name, name)
    for prop in new.properties:
        before = by_name.get(match.pairs.get(prop.name, ""))
        if before is not None and _holds(prop.type, before.type):
            if before.name != prop.name:
                allocator.rename_property(kind, new.name, before.name, prop.name)
            continue
        if before is not None:
            allocator.drop_property(kind, new.name, before.name)
        allocator.add_property(kind, new.name, prop.name)


def _holds(new: PropType, old: PropType) -> bool:
    """Whether a type can hold the values of another."""
    kept = new.as_nullable(old.nullable)
    return kept == old or is_wider(old, kept) or any(enum_change(old, kept))


class _Allocator:
    def __init__(self, identity: SchemaIdentity) -> None:
        self._types = {
            key: (entry.id, entry.incarnation, dict(entry.properties))
            for key, entry in identity.types.items()
        }
        self._lives = dict(identity.lives)
        self._next_type = identity.next_type
        self._next_property = identity.next_property

    def result(self) -> SchemaIdentity:
        types = {key: TypeIdentity(*self._types[key]) for key in sorted(self._types)}
        lives = dict(sorted(self._lives.items()))
        return SchemaIdentity(self._next_type, self._next_property, types, lives)

    def add_type(self, entry: TypeIR) -> None:
        key = f"{entry.kind}:{entry.name}"
        self._lives[key] = self._lives.get(key, 0) + 1
        self._types[key] = (self._next_type, self._lives[key], {})
        self._next_type += 1
        for prop in entry.properties:
            self.add_property(entry.kind, entry.name, prop.name)

    def drop_type(self, kind: TypeKind, name: str) -> None:
        self._types.pop(f"{kind}:{name}", None)

    def rename_type(self, kind: TypeKind, old: str, new: str) -> None:
        key = f"{kind}:{new}"
        self._types[key] = self._types.pop(f"{kind}:{old}")
        self._lives[key] = self._lives.get(key, 0) + 1

    def add_property(self, kind: TypeKind, owner: str, name: str) -> None:
        self._properties(kind, owner)[name] = self._next_property
        self._next_property += 1

    def drop_property(self, kind: TypeKind, owner: str, name: str) -> None:
        self._properties(kind, owner).pop(name, None)

    def rename_property(self, kind: TypeKind, owner: str, old: str, new: str) -> None:
        properties = self._properties(kind, owner)
        properties[new] = properties.pop(old)

    def _properties(self, kind: TypeKind, owner: str) -> dict[str, int]:
        entry = self._types.get(f"{kind}:{owner}")
        if entry is None:
            raise InternalError(f"a migration step names the unknown {kind} '{owner}'")
        return entry[2]
