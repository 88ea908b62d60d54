"""Planning the migration from one schema to another.

Planning is pure and deterministic: it compares two canonical schemas and never looks at data.
A type or property is matched by its name first, then by ``@rename_from``, so leaving that
annotation in place after the rename is harmless.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from omnigraph.lang.schema.ast import (
    Annotation,
    ColumnConstraint,
    Constraint,
    KeyConstraint,
    PropertyConstraint,
    TypeKind,
)
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.ir import (
    EdgeIR,
    InterfaceIR,
    NodeIR,
    PropertyIR,
    SchemaIR,
    canonical_constraints,
    constraint_key,
)
from omnigraph.lang.schema.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    ChangeCardinality,
    ChangeNullability,
    DropConstraint,
    DropMode,
    DropProperty,
    DropType,
    ExtendEnum,
    NarrowEnum,
    RenameProperty,
    RenameType,
    Step,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
    WidenProperty,
    human_type,
)
from omnigraph.lang.types import PropType, Scalar
from omnigraph.representation import brief

_TYPE_METADATA = ("description", "instruction")
_PROPERTY_METADATA = ("description", "vector")
# These act through constraints and renames, which are compared on their own.
_SUGAR = ("rename_from", "key", "unique", "index")
# Types that hold every value of another exactly.
_WIDER = {
    Scalar.I32: frozenset({Scalar.I64, Scalar.F64}),
    Scalar.U32: frozenset({Scalar.U64, Scalar.I64, Scalar.F64}),
    Scalar.F32: frozenset({Scalar.F64}),
}


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The steps in the order in which they are shown and applied."""

    __repr__ = brief

    supported: bool
    steps: tuple[Step, ...]

    @property
    def refusals(self) -> tuple[UnsupportedChange, ...]:
        """The steps that cannot be applied."""
        return tuple(step for step in self.steps if isinstance(step, UnsupportedChange))

    def describe(self) -> list[str]:
        """One line per step."""
        return [step.describe() for step in self.steps]

    def to_json(self) -> dict[str, Any]:
        return {"supported": self.supported, "steps": [step.to_json() for step in self.steps]}


def plan_migration(
    accepted: Catalog | SchemaIR,
    desired: Catalog | SchemaIR,
    allow_data_loss: bool = False,
    given: Collection[str] = (),
) -> MigrationPlan:
    """The plan from the accepted to the desired schema.

    ``given`` names the properties, as ``Type.property``, whose existing rows get a value;
    only those can be added as required.

    >>> from omnigraph.lang.schema.compile import compile_schema
    >>> old = compile_schema("node A { name: String @key }")
    >>> new = compile_schema("node A { name: String @key  age: I32? }")
    >>> plan_migration(old, new).describe()
    ["add property 'A.age' (I32?) on node 'A'"]
    """
    mode = DropMode.HARD if allow_data_loss else DropMode.SOFT
    planner = _Planner(_ir(accepted), _ir(desired), mode, frozenset(given))
    planner.run()
    steps = tuple(planner.steps)
    return MigrationPlan(not any(isinstance(s, UnsupportedChange) for s in steps), steps)


def _ir(schema: Catalog | SchemaIR) -> SchemaIR:
    return schema.ir if isinstance(schema, Catalog) else schema


class NamedDecl(Protocol):
    """A type or a property: anything with a name and annotations."""

    @property
    def name(self) -> str: ...
    @property
    def annotations(self) -> tuple[Annotation, ...]: ...


_T = TypeVar("_T", bound=NamedDecl)


@dataclass(frozen=True, slots=True)
class NameMatch:
    """Which accepted name each desired name continues; ``refused`` says why one cannot."""

    pairs: Mapping[str, str]
    refused: Mapping[str, str]

    @property
    def renames(self) -> dict[str, str]:
        """Old name to new name, for all that change it."""
        return {old: new for new, old in self.pairs.items() if old != new}

    @property
    def kept(self) -> frozenset[str]:
        """The accepted names that continue."""
        return frozenset(self.pairs.values())


def match_names(accepted: Sequence[_T], desired: Sequence[_T], what: str) -> NameMatch:
    """Pair types or properties of two schemas."""
    names = {thing.name for thing in accepted}
    pairs = {thing.name: thing.name for thing in desired if thing.name in names}
    taken = set(pairs)
    refused: dict[str, str] = {}
    for thing in desired:
        old = _rename_from(thing)
        if thing.name in pairs or old is None:
            continue
        if old not in names:
            refused[thing.name] = f"@rename_from names '{old}', which is not an accepted {what}"
        elif old in taken:
            refused[thing.name] = f"@rename_from names '{old}', which another {what} continues"
        else:
            pairs[thing.name] = old
            taken.add(old)
    return NameMatch(pairs, refused)


def _rename_from(thing: NamedDecl) -> str | None:
    return next((a.value for a in thing.annotations if a.name == "rename_from" and a.value), None)


class _Planner:
    def __init__(
        self, accepted: SchemaIR, desired: SchemaIR, mode: DropMode, given: frozenset[str]
    ) -> None:
        self.steps: list[Step] = []
        self._accepted = accepted
        self._desired = desired
        self._mode = mode
        self._given = given

    def run(self) -> None:
        self._interfaces()
        nodes = match_names(self._accepted.nodes, self._desired.nodes, "node type")
        self._types(TypeKind.NODE, self._accepted.nodes, self._desired.nodes, nodes, {})
        edges = match_names(self._accepted.edges, self._desired.edges, "edge type")
        self._types(TypeKind.EDGE, self._accepted.edges, self._desired.edges, edges, nodes.renames)

    # -- types ---------------------------------------------------------------------------

    def _interfaces(self) -> None:
        accepted = {interface.name: interface for interface in self._accepted.interfaces}
        wanted = {interface.name for interface in self._desired.interfaces}
        for interface in self._desired.interfaces:
            old = accepted.get(interface.name)
            if old is None:
                self.steps.append(AddType(TypeKind.INTERFACE, interface.name))
            else:
                self._properties(TypeKind.INTERFACE, old, interface)
        for name in accepted:
            if name not in wanted:
                self._refuse(f"interface:{name}", f"removing interface '{name}' is not supported")

    def _types(
        self,
        kind: TypeKind,
        accepted: Sequence[NodeIR] | Sequence[EdgeIR],
        desired: Sequence[NodeIR] | Sequence[EdgeIR],
        match: NameMatch,
        node_renames: Mapping[str, str],
    ) -> None:
        by_name: dict[str, NodeIR | EdgeIR] = {thing.name: thing for thing in accepted}
        for new in desired:
            if new.name in match.refused:
                self._refuse(f"{kind}:{new.name}", match.refused[new.name])
            elif new.name not in match.pairs:
                self.steps.append(AddType(kind, new.name))
            else:
                self._type(kind, by_name[match.pairs[new.name]], new, node_renames)
        for old in accepted:
            if old.name not in match.kept:
                self.steps.append(DropType(kind, old.name, self._mode))

    def _type(
        self,
        kind: TypeKind,
        old: NodeIR | EdgeIR,
        new: NodeIR | EdgeIR,
        node_renames: Mapping[str, str],
    ) -> None:
        if old.name != new.name:
            self.steps.append(RenameType(kind, old.name, new.name))
        entity = f"{kind}:{new.name}"
        if isinstance(old, NodeIR) and isinstance(new, NodeIR):
            if old.implements != new.implements:
                self._refuse(
                    entity, f"changing the interfaces of node '{new.name}' is not supported"
                )
        elif isinstance(old, EdgeIR) and isinstance(new, EdgeIR):
            self._edge_shape(entity, old, new, node_renames)
        self._type_annotations(kind, old, new)
        columns = self._properties(kind, old, new)
        self.steps += constraint_steps(kind, new.name, old.constraints, new.constraints, columns)

    def _edge_shape(
        self, entity: str, old: EdgeIR, new: EdgeIR, node_renames: Mapping[str, str]
    ) -> None:
        ends = tuple(node_renames.get(end, end) for end in (old.from_type, old.to_type))
        if ends != (new.from_type, new.to_type):
            self._refuse(
                entity,
                f"changing the endpoints of edge '{new.name}' from {ends[0]} -> {ends[1]} "
                f"to {new.from_type} -> {new.to_type} is not supported",
            )
        if old.cardinality != new.cardinality:
            step = ChangeCardinality(TypeKind.EDGE, new.name, old.cardinality, new.cardinality)
            self.steps.append(step)

    def _type_annotations(self, kind: TypeKind, old: NamedDecl, new: NamedDecl) -> None:
        entity = f"{kind}:{new.name}"
        self._other_annotations(entity, old.annotations, new.annotations, _TYPE_METADATA, {})
        self.steps += type_metadata_steps(kind, old, new)

    # -- properties ----------------------------------------------------------------------

    def _properties(
        self,
        kind: TypeKind,
        old: InterfaceIR | NodeIR | EdgeIR,
        new: InterfaceIR | NodeIR | EdgeIR,
    ) -> dict[str, str]:
        """Plan the properties of one type; returns how columns are renamed."""
        match = match_names(old.properties, new.properties, "property")
        by_name = {prop.name: prop for prop in old.properties}
        for prop in new.properties:
            entity = f"{kind}:{new.name}.{prop.name}"
            if prop.name in match.refused:
                self._refuse(entity, match.refused[prop.name])
            elif prop.name in match.pairs:
                before = by_name[match.pairs[prop.name]]
                self._property(kind, new, before, prop, match.renames)
            elif (
                prop.type.nullable
                or kind is TypeKind.INTERFACE
                or f"{new.name}.{prop.name}" in self._given
            ):
                self.steps.append(AddProperty(kind, new.name, prop.name, prop.type))
            else:
                self._refuse(
                    entity,
                    f"adding required property '{new.name}.{prop.name}' to an existing type "
                    "is not supported; make it nullable",
                    "OG-MF-103",
                )
        for prop in old.properties:
            if prop.name not in match.kept:
                self.steps.append(DropProperty(kind, new.name, prop.name, self._mode))
        return match.renames

    def _property(
        self,
        kind: TypeKind,
        of: InterfaceIR | NodeIR | EdgeIR,
        old: PropertyIR,
        new: PropertyIR,
        renames: Mapping[str, str],
    ) -> None:
        owner = of.name
        if old.name != new.name:
            self.steps.append(RenameProperty(kind, owner, old.name, new.name))
        if old.type != new.type:
            self._property_type(kind, of, new.name, old.type, new.type)
        entity = f"{kind}:{owner}.{new.name}"
        self._other_annotations(
            entity, old.annotations, new.annotations, _PROPERTY_METADATA, renames
        )
        self.steps += property_metadata_steps(kind, owner, old, new)

    def _property_type(
        self,
        kind: TypeKind,
        of: InterfaceIR | NodeIR | EdgeIR,
        name: str,
        old: PropType,
        new: PropType,
    ) -> None:
        owner = of.name
        kept = new.as_nullable(old.nullable)
        added, removed = enum_change(old, kept)
        if added:
            self.steps.append(ExtendEnum(kind, owner, name, added))
        if removed:
            self.steps.append(NarrowEnum(kind, owner, name, removed))
        if kept != old and not (added or removed):
            if not is_wider(old, kept) or (name in _key_of(of) and kept.scalar.is_float):
                change = f"'{owner}.{name}' from {human_type(old)} to {human_type(new)}"
                reason = f"changing the type of {change} is not supported"
                self._refuse(f"{kind}:{owner}.{name}", reason, "OG-MF-106")
                return
            self.steps.append(WidenProperty(kind, owner, name, old, kept))
        if new.nullable != old.nullable:
            self.steps.append(ChangeNullability(kind, owner, name, new.nullable))

    # -- annotations ---------------------------------------------------------------------

    def _other_annotations(
        self,
        entity: str,
        old: Iterable[Annotation],
        new: Iterable[Annotation],
        metadata: tuple[str, ...],
        renames: Mapping[str, str],
    ) -> None:
        """Refuse a change of what is neither metadata nor compared elsewhere."""
        before = [_followed(a, renames) for a in _without(old, metadata + _SUGAR)]
        after = list(_without(new, metadata + _SUGAR))
        if before == after:
            return
        changed = sorted({a.name for a in before + after if a not in before or a not in after})
        names = ", ".join(f"@{name}" for name in changed)
        self._refuse(entity, f"changing {names or 'annotations'} on {entity} is not supported")

    def _refuse(self, entity: str, reason: str, code: str | None = None) -> None:
        self.steps.append(UnsupportedChange(entity, reason, code))


def constraint_steps(
    kind: TypeKind,
    owner: str,
    old: Sequence[Constraint],
    new: Sequence[Constraint],
    renames: Mapping[str, str],
) -> Iterator[Step]:
    """The rules that a type gets and loses, apart from those whose columns were renamed."""
    # Compared by their text: as numbers, the bounds 0 and 0.0 would be the same.
    renamed = canonical_constraints(_renamed(constraint, renames) for constraint in old)
    before = {constraint_key(constraint): constraint for constraint in renamed}
    after = {constraint_key(constraint): constraint for constraint in new}
    for key, constraint in after.items():
        if key not in before:
            yield AddConstraint(kind, owner, constraint)
    for key, constraint in before.items():
        if key not in after:
            yield DropConstraint(kind, owner, constraint)


def type_metadata_steps(kind: TypeKind, old: NamedDecl, new: NamedDecl) -> Iterator[Step]:
    metadata = _only(new.annotations, _TYPE_METADATA)
    if metadata != _only(old.annotations, _TYPE_METADATA):
        yield UpdateTypeMetadata(kind, new.name, metadata)


def property_metadata_steps(
    kind: TypeKind, owner: str, old: NamedDecl, new: NamedDecl
) -> Iterator[Step]:
    metadata = _only(new.annotations, _PROPERTY_METADATA)
    if metadata != _only(old.annotations, _PROPERTY_METADATA):
        yield UpdatePropertyMetadata(kind, owner, new.name, metadata)


def enum_change(old: PropType, new: PropType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The values that an enum gets and loses; none where one of the types is not an enum."""
    if old.enum_values is None or new.enum_values is None:
        return (), ()
    before, after = set(old.enum_values), set(new.enum_values)
    return tuple(sorted(after - before)), tuple(sorted(before - after))


def is_wider(old: PropType, new: PropType) -> bool:
    """Whether a type holds every value of another, and differs from it in nothing else."""
    return replace(old, scalar=new.scalar) == new and new.scalar in _WIDER.get(old.scalar, ())


def _key_of(of: InterfaceIR | NodeIR | EdgeIR) -> tuple[str, ...]:
    """The columns that the ids of rows are spelled from."""
    if not isinstance(of, NodeIR):
        return ()
    return next((c.columns for c in of.constraints if isinstance(c, KeyConstraint)), ())


def _renamed(constraint: Constraint, renames: Mapping[str, str]) -> Constraint:
    columns = tuple(renames.get(c, c) for c in constraint.columns)
    if isinstance(constraint, ColumnConstraint):
        return replace(constraint, columns=columns)
    assert isinstance(constraint, PropertyConstraint)
    return replace(constraint, property=columns[0])


def _followed(annotation: Annotation, renames: Mapping[str, str]) -> Annotation:
    """An ``@embed`` keeps its source property when that is renamed."""
    if annotation.name != "embed" or annotation.value is None:
        return annotation
    return replace(annotation, value=renames.get(annotation.value, annotation.value))


def _only(annotations: Iterable[Annotation], names: tuple[str, ...]) -> tuple[Annotation, ...]:
    return tuple(a for a in annotations if a.name in names)


def _without(annotations: Iterable[Annotation], names: tuple[str, ...]) -> Iterable[Annotation]:
    return (a for a in annotations if a.name not in names)
