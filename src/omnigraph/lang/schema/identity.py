"""Ids of types and properties that survive renames.

The ids of the canonical form are hashes of names, so a rename changes them. These here are
allocated one by one and never used again: a rename keeps them, a name that is dropped and comes
back starts a new life with new ids. The data is pure; the manifest stores its JSON form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.errors import InputError, InternalError
from omnigraph.lang.schema.ast import TypeKind
from omnigraph.lang.schema.catalog import Catalog, EdgeType, Interface, NodeType
from omnigraph.lang.schema.steps import (
    AddProperty,
    AddType,
    DropProperty,
    DropType,
    RenameProperty,
    RenameType,
    Step,
)


@dataclass(frozen=True, slots=True)
class TypeIdentity:
    """One life of a type. ``incarnation`` counts the lives begun under its first name."""

    id: int
    incarnation: int
    properties: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Identity:
    """All living types by ``kind:Name``, and what the next allocation must know.

    ``lives`` counts for every name ever used how many types have carried it.
    """

    types: Mapping[str, TypeIdentity]
    lives: Mapping[str, int]
    next_type: int
    next_property: int

    def type(self, kind: TypeKind | str, name: str) -> TypeIdentity | None:
        """The identity of a living type."""
        return self.types.get(f"{kind}:{name}")

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        return {
            "next_type": self.next_type,
            "next_property": self.next_property,
            "types": {
                key: {
                    "id": self.types[key].id,
                    "incarnation": self.types[key].incarnation,
                    "properties": dict(sorted(self.types[key].properties.items())),
                }
                for key in sorted(self.types)
            },
            "lives": dict(sorted(self.lives.items())),
        }

    @staticmethod
    def from_json(value: dict[str, Any]) -> Identity:
        """The inverse of ``to_json``; raises ``InputError`` when the data is no identity."""
        try:
            types = {
                str(key): TypeIdentity(
                    int(entry["id"]),
                    int(entry["incarnation"]),
                    {str(name): int(number) for name, number in entry["properties"].items()},
                )
                for key, entry in value["types"].items()
            }
            lives = {str(key): int(count) for key, count in value["lives"].items()}
            return Identity(types, lives, int(value["next_type"]), int(value["next_property"]))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"invalid schema identity: {type(error).__name__}: {error}") from None


def initial_identity(catalog: Catalog) -> Identity:
    """The identity of a new graph.

    >>> from omnigraph.lang.schema import compile_schema
    >>> identity = initial_identity(compile_schema("node A { x: I32? } edge E: A -> A"))
    >>> identity.type("node", "A").id, identity.type("edge", "E").id
    (1, 2)
    """
    allocator = _Allocator(Identity({}, {}, 1, 1))
    for kind, name, properties in _declared(catalog):
        allocator.add_type(kind, name, properties)
    return allocator.result()


def evolve_identity(identity: Identity, steps: Iterable[Step], new: Catalog) -> Identity:
    """The identity after a supported plan was applied; ``new`` is the schema it leads to."""
    allocator = _Allocator(identity)
    declared = {f"{kind}:{name}": (kind, name, props) for kind, name, props in _declared(new)}
    for step in steps:
        if isinstance(step, AddType):
            allocator.add_type(*declared[f"{step.type_kind}:{step.name}"])
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
    expected = {key: set(properties) for key, (_, _, properties) in declared.items()}
    if {key: set(entry.properties) for key, entry in evolved.types.items()} != expected:
        raise InternalError("the migration steps do not lead to the new schema")
    return evolved


def _declared(catalog: Catalog) -> list[tuple[TypeKind, str, list[str]]]:
    groups: tuple[tuple[TypeKind, Iterable[Interface | NodeType | EdgeType]], ...] = (
        (TypeKind.INTERFACE, catalog.interfaces.values()),
        (TypeKind.NODE, catalog.node_types.values()),
        (TypeKind.EDGE, catalog.edge_types.values()),
    )
    return [(kind, t.name, list(t.properties)) for kind, types in groups for t in types]


class _Allocator:
    def __init__(self, identity: Identity) -> None:
        self._types = {
            key: (entry.id, entry.incarnation, dict(entry.properties))
            for key, entry in identity.types.items()
        }
        self._lives = dict(identity.lives)
        self._next_type = identity.next_type
        self._next_property = identity.next_property

    def result(self) -> Identity:
        types = {key: TypeIdentity(*self._types[key]) for key in sorted(self._types)}
        lives = dict(sorted(self._lives.items()))
        return Identity(types, lives, self._next_type, self._next_property)

    def add_type(self, kind: TypeKind, name: str, properties: Iterable[str]) -> None:
        key = f"{kind}:{name}"
        self._lives[key] = self._lives.get(key, 0) + 1
        self._types[key] = (self._next_type, self._lives[key], {})
        self._next_type += 1
        for prop in properties:
            self.add_property(kind, name, prop)

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
