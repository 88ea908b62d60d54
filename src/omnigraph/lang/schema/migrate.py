"""Plans the migration from one schema to another.

Planning is pure and deterministic: it compares two canonical schemas and never reads data. A type
or property is matched by its name first, then by ``@rename_from``, so that annotation may stay in
the schema after the rename.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

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
    NodeIR,
    PropertyIR,
    SchemaIR,
    TypeIR,
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
    NarrowProperty,
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
from omnigraph.records import dataclass
from omnigraph.representation import brief

_TYPE_METADATA = ("description", "instruction")
_PROPERTY_METADATA = ("description", "vector")
# These become constraints and renames, which are compared separately.
_SUGAR = ("rename_from", "key", "unique", "index")
# For each type, the types that hold all of its values exactly.
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
    planner = _Planner(mode, given)
    old, new = (s.ir if isinstance(s, Catalog) else s for s in (accepted, desired))
    planner.types(old.interfaces, new.interfaces, "interface", {})
    renames = planner.types(old.nodes, new.nodes, "node type", {})
    planner.types(old.edges, new.edges, "edge type", renames)
    steps = tuple(planner.steps)
    return MigrationPlan(not any(isinstance(s, UnsupportedChange) for s in steps), steps)


_Named = PropertyIR | TypeIR


@dataclass(frozen=True, slots=True)
class NameMatch:
    """The accepted name that each desired name continues; ``refused`` has reasons for refusals."""

    pairs: Mapping[str, str]
    refused: Mapping[str, str]

    @property
    def renames(self) -> dict[str, str]:
        """Old name to new name, for all renamed ones."""
        return {old: new for new, old in self.pairs.items() if old != new}

    @property
    def kept(self) -> frozenset[str]:
        """The accepted names that continue."""
        return frozenset(self.pairs.values())


def match_names(accepted: Sequence[_Named], desired: Sequence[_Named], what: str) -> NameMatch:
    """Pair types or properties of two schemas."""
    names = {thing.name for thing in accepted}
    pairs = {thing.name: thing.name for thing in desired if thing.name in names}
    taken = set(pairs)
    refused: dict[str, str] = {}
    for thing in desired:
        renames = (a.value for a in thing.annotations if a.name == "rename_from" and a.value)
        old = next(renames, None)
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


class _Planner:
    def __init__(self, mode: DropMode, given: Collection[str]) -> None:
        self.steps: list[Step] = []
        self._mode = mode
        self._given = given

    # -- types ---------------------------------------------------------------------------

    def types(
        self,
        accepted: Sequence[TypeIR],
        desired: Sequence[TypeIR],
        what: str,
        node_renames: Mapping[str, str],
    ) -> dict[str, str]:
        """Plan the types of one kind; returns their renames."""
        match = match_names(accepted, desired, what)
        by_name = {entry.name: entry for entry in accepted}
        for new in desired:
            if new.name in match.refused:
                self._refuse(f"{new.kind}:{new.name}", match.refused[new.name])
            elif new.name not in match.pairs:
                self.steps.append(AddType(new.kind, new.name))
            else:
                self._type(by_name[match.pairs[new.name]], new, node_renames)
        for old in accepted:
            if old.name in match.kept:
                continue
            if old.kind is TypeKind.INTERFACE:
                reason = f"removing interface '{old.name}' is not supported"
                self._refuse(f"interface:{old.name}", reason)
            else:
                self.steps.append(DropType(old.kind, old.name, self._mode))
        return match.renames

    def _type(self, old: TypeIR, new: TypeIR, node_renames: Mapping[str, str]) -> None:
        kind, entity = new.kind, f"{new.kind}:{new.name}"
        if old.name != new.name:
            self.steps.append(RenameType(kind, old.name, new.name))
        if isinstance(old, NodeIR) and isinstance(new, NodeIR):
            if old.implements != new.implements:
                reason = f"changing the interfaces of node '{new.name}' is not supported"
                self._refuse(entity, reason)
        elif isinstance(old, EdgeIR) and isinstance(new, EdgeIR):
            self._edge_shape(entity, old, new, node_renames)
        self._other_annotations(entity, old.annotations, new.annotations, _TYPE_METADATA, {})
        self.steps += type_metadata_steps(old, new)
        columns = self._properties(old, new)
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
        self.steps += cardinality_steps(old, new)

    # -- properties ----------------------------------------------------------------------

    def _properties(self, old: TypeIR, new: TypeIR) -> dict[str, str]:
        """Plan the properties of one type; returns the renames of columns."""
        kind = new.kind
        match = match_names(old.properties, new.properties, "property")
        by_name = {prop.name: prop for prop in old.properties}
        for prop in new.properties:
            entity = f"{kind}:{new.name}.{prop.name}"
            if prop.name in match.refused:
                self._refuse(entity, match.refused[prop.name])
            elif prop.name in match.pairs:
                self._property(new, by_name[match.pairs[prop.name]], prop, match.renames)
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
        self, owner: TypeIR, old: PropertyIR, new: PropertyIR, renames: Mapping[str, str]
    ) -> None:
        kind, entity = owner.kind, f"{owner.kind}:{owner.name}.{new.name}"
        if old.name != new.name:
            self.steps.append(RenameProperty(kind, owner.name, old.name, new.name))
        steps = list(value_steps(kind, owner.name, new.name, old.type, new.type))
        key = next((c.columns for c in owner.constraints if isinstance(c, KeyConstraint)), ())
        # Row ids are built from the text of the key, and the text of a float differs.
        widened = next((s.new for s in steps if isinstance(s, WidenProperty)), None)
        is_respelled = widened is not None and widened.scalar.is_float and new.name in key
        if is_respelled or any(isinstance(step, NarrowProperty) for step in steps):
            change = f"from {human_type(old.type)} to {human_type(new.type)}"
            reason = f"changing the type of '{owner.name}.{new.name}' {change} is not supported"
            self._refuse(entity, reason, "OG-MF-106")
        else:
            self.steps += steps
        self._other_annotations(
            entity, old.annotations, new.annotations, _PROPERTY_METADATA, renames
        )
        self.steps += property_metadata_steps(kind, owner.name, old, new)

    # -- annotations ---------------------------------------------------------------------

    def _other_annotations(
        self,
        entity: str,
        old: Iterable[Annotation],
        new: Iterable[Annotation],
        metadata: tuple[str, ...],
        renames: Mapping[str, str],
    ) -> None:
        """Refuse a change of an annotation that is neither metadata nor compared elsewhere."""
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
    """The added and removed constraints of a type; renamed columns are no change."""
    # Compared by their text: as numbers, the bounds 0 and 0.0 would be equal.
    renamed = canonical_constraints(_renamed(constraint, renames) for constraint in old)
    before = {constraint_key(constraint): constraint for constraint in renamed}
    after = {constraint_key(constraint): constraint for constraint in new}
    for key, constraint in after.items():
        if key not in before:
            yield AddConstraint(kind, owner, constraint)
    for key, constraint in before.items():
        if key not in after:
            yield DropConstraint(kind, owner, constraint)


def cardinality_steps(old: EdgeIR, new: EdgeIR) -> Iterator[Step]:
    if old.cardinality != new.cardinality:
        yield ChangeCardinality(new.kind, new.name, old.cardinality, new.cardinality)


def type_metadata_steps(old: TypeIR, new: TypeIR) -> Iterator[Step]:
    metadata = _only(new.annotations, _TYPE_METADATA)
    if metadata != _only(old.annotations, _TYPE_METADATA):
        yield UpdateTypeMetadata(new.kind, new.name, metadata)


def property_metadata_steps(
    kind: TypeKind, owner: str, old: PropertyIR, new: PropertyIR
) -> Iterator[Step]:
    metadata = _only(new.annotations, _PROPERTY_METADATA)
    if metadata != _only(old.annotations, _PROPERTY_METADATA):
        yield UpdatePropertyMetadata(kind, owner, new.name, metadata)


def value_steps(
    kind: TypeKind, owner: str, name: str, old: PropType, new: PropType
) -> Iterator[Step]:
    """The steps that change the values of a property."""
    kept = new.as_nullable(old.nullable)
    added, removed = enum_change(old, kept)
    if added:
        yield ExtendEnum(kind, owner, name, added)
    if removed:
        yield NarrowEnum(kind, owner, name, removed)
    if kept != old and not (added or removed):
        change = WidenProperty if is_wider(old, kept) else NarrowProperty
        yield change(kind, owner, name, old, kept)
    if new.nullable != old.nullable:
        yield ChangeNullability(kind, owner, name, new.nullable)


def enum_change(old: PropType, new: PropType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The added and removed values of an enum; empty if one of the types is not an enum."""
    if old.enum_values is None or new.enum_values is None:
        return (), ()
    before, after = set(old.enum_values), set(new.enum_values)
    return tuple(sorted(after - before)), tuple(sorted(before - after))


def is_wider(old: PropType, new: PropType) -> bool:
    """Whether ``new`` is a wider numeric type than ``old`` and otherwise equal."""
    return replace(old, scalar=new.scalar) == new and new.scalar in _WIDER.get(old.scalar, ())


def _renamed(constraint: Constraint, renames: Mapping[str, str]) -> Constraint:
    columns = tuple(renames.get(c, c) for c in constraint.columns)
    if isinstance(constraint, ColumnConstraint):
        return replace(constraint, columns=columns)
    assert isinstance(constraint, PropertyConstraint)
    return replace(constraint, property=columns[0])


def _followed(annotation: Annotation, renames: Mapping[str, str]) -> Annotation:
    """An annotation after renames: an ``@embed`` follows its source property."""
    if annotation.name != "embed" or annotation.value is None:
        return annotation
    return replace(annotation, value=renames.get(annotation.value, annotation.value))


def _only(annotations: Iterable[Annotation], names: tuple[str, ...]) -> tuple[Annotation, ...]:
    return tuple(a for a in annotations if a.name in names)


def _without(annotations: Iterable[Annotation], names: tuple[str, ...]) -> Iterable[Annotation]:
    return (a for a in annotations if a.name not in names)
