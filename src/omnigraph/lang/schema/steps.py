"""The steps of a migration plan: what they are, how they are stored and how they read.

The JSON form (tag ``kind``, this key order) and the human texts are contract: programs and
scripts depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from omnigraph.errors import InputError
from omnigraph.lang.schema.ast import Annotation, Cardinality, Constraint, IndexConstraint, TypeKind
from omnigraph.lang.schema.ir import (
    annotation_from_json,
    annotation_to_json,
    constraint_from_json,
    constraint_to_json,
)
from omnigraph.lang.schema.lint_codes import Tier, lint_code
from omnigraph.lang.schema.render import human_type, render_annotation, render_constraint
from omnigraph.lang.types import PropType

Json = dict[str, Any]


class DropMode(StrEnum):
    """Whether earlier versions of dropped data stay readable."""

    SOFT = "soft"
    HARD = "hard"


@dataclass(frozen=True, slots=True)
class AddType:
    kind: ClassVar[str] = "add_type"
    type_kind: TypeKind
    name: str

    def to_json(self) -> Json:
        return {"kind": self.kind, "type_kind": str(self.type_kind), "name": self.name}

    def describe(self) -> str:
        return f"add {self.type_kind} type '{self.name}'"


@dataclass(frozen=True, slots=True)
class RenameType:
    kind: ClassVar[str] = "rename_type"
    type_kind: TypeKind
    old: str
    new: str

    def to_json(self) -> Json:
        head = {"kind": self.kind, "type_kind": str(self.type_kind)}
        return {**head, "from": self.old, "to": self.new}

    def describe(self) -> str:
        return f"rename {self.type_kind} type '{self.old}' -> '{self.new}'"


@dataclass(frozen=True, slots=True)
class AddProperty:
    kind: ClassVar[str] = "add_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    property_type: PropType

    def to_json(self) -> Json:
        return {**_property_head(self), "property_type": self.property_type.to_json()}

    def describe(self) -> str:
        shown = human_type(self.property_type)
        return f"add property '{_dotted(self)}' ({shown}) on {_owner(self)}"


@dataclass(frozen=True, slots=True)
class RenameProperty:
    kind: ClassVar[str] = "rename_property"
    type_kind: TypeKind
    type_name: str
    old: str
    new: str

    def to_json(self) -> Json:
        return {**_type_head(self), "from": self.old, "to": self.new}

    def describe(self) -> str:
        name = self.type_name
        return f"rename property '{name}.{self.old}' -> '{name}.{self.new}' on {_owner(self)}"


@dataclass(frozen=True, slots=True)
class ExtendEnum:
    kind: ClassVar[str] = "extend_enum"
    type_kind: TypeKind
    type_name: str
    property_name: str
    added_values: tuple[str, ...]

    def to_json(self) -> Json:
        return {**_property_head(self), "added_values": list(self.added_values)}

    def describe(self) -> str:
        values = ", ".join(self.added_values)
        return f"extend enum '{_dotted(self)}' on {_owner(self)} with ({values})"


@dataclass(frozen=True, slots=True)
class NarrowEnum:
    """Values go that no row may hold any more."""

    kind: ClassVar[str] = "narrow_enum"
    type_kind: TypeKind
    type_name: str
    property_name: str
    removed_values: tuple[str, ...]

    def to_json(self) -> Json:
        return {**_property_head(self), "removed_values": list(self.removed_values)}

    def describe(self) -> str:
        values = ", ".join(self.removed_values)
        return f"narrow enum '{_dotted(self)}' on {_owner(self)} by ({values})"


@dataclass(frozen=True, slots=True)
class ChangeNullability:
    """A property becomes optional, or required."""

    kind: ClassVar[str] = "change_nullability"
    type_kind: TypeKind
    type_name: str
    property_name: str
    nullable: bool

    def to_json(self) -> Json:
        return {**_property_head(self), "nullable": self.nullable}

    def describe(self) -> str:
        what = "optional" if self.nullable else "required"
        return f"make property '{_dotted(self)}' of {_owner(self)} {what}"


@dataclass(frozen=True, slots=True)
class WidenProperty:
    """A number gets a type that holds every value of the old one exactly."""

    kind: ClassVar[str] = "widen_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    old: PropType
    new: PropType

    def to_json(self) -> Json:
        return {**_property_head(self), "from": self.old.to_json(), "to": self.new.to_json()}

    def describe(self) -> str:
        change = f"from {human_type(self.old)} to {human_type(self.new)}"
        return f"widen property '{_dotted(self)}' of {_owner(self)} {change}"


@dataclass(frozen=True, slots=True)
class NarrowProperty:
    """The reverse of ``WidenProperty``: a difference between two states, never part of a plan."""

    kind: ClassVar[str] = "narrow_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    old: PropType
    new: PropType

    def to_json(self) -> Json:
        return {**_property_head(self), "from": self.old.to_json(), "to": self.new.to_json()}

    def describe(self) -> str:
        change = f"from {human_type(self.old)} to {human_type(self.new)}"
        return f"narrow property '{_dotted(self)}' of {_owner(self)} {change}"


@dataclass(frozen=True, slots=True)
class AddConstraint:
    kind: ClassVar[str] = "add_constraint"
    type_kind: TypeKind
    type_name: str
    constraint: Constraint

    def to_json(self) -> Json:
        return {**_type_head(self), "constraint": constraint_to_json(self.constraint)}

    def describe(self) -> str:
        return f"add constraint {render_constraint(self.constraint)} on {_owner(self)}"


@dataclass(frozen=True, slots=True)
class DropConstraint:
    kind: ClassVar[str] = "drop_constraint"
    type_kind: TypeKind
    type_name: str
    constraint: Constraint

    def to_json(self) -> Json:
        return {**_type_head(self), "constraint": constraint_to_json(self.constraint)}

    def describe(self) -> str:
        return f"drop constraint {render_constraint(self.constraint)} of {_owner(self)}"


@dataclass(frozen=True, slots=True)
class ChangeCardinality:
    kind: ClassVar[str] = "change_cardinality"
    type_kind: TypeKind
    type_name: str
    old: Cardinality
    new: Cardinality

    def to_json(self) -> Json:
        return {**_type_head(self), "from": _bounds(self.old), "to": _bounds(self.new)}

    def describe(self) -> str:
        return f"change cardinality of {_owner(self)} from {self.old} to {self.new}"


@dataclass(frozen=True, slots=True)
class UpdateTypeMetadata:
    kind: ClassVar[str] = "update_type_metadata"
    type_kind: TypeKind
    name: str
    annotations: tuple[Annotation, ...]

    def to_json(self) -> Json:
        head = {"kind": self.kind, "type_kind": str(self.type_kind), "name": self.name}
        return {**head, "annotations": [annotation_to_json(a) for a in self.annotations]}

    def describe(self) -> str:
        shown = _shown(self.annotations)
        return f"update metadata on {self.type_kind} '{self.name}' ({shown})"


@dataclass(frozen=True, slots=True)
class UpdatePropertyMetadata:
    kind: ClassVar[str] = "update_property_metadata"
    type_kind: TypeKind
    type_name: str
    property_name: str
    annotations: tuple[Annotation, ...]

    def to_json(self) -> Json:
        annotations = [annotation_to_json(a) for a in self.annotations]
        return {**_property_head(self), "annotations": annotations}

    def describe(self) -> str:
        shown = _shown(self.annotations)
        return f"update metadata on property '{_dotted(self)}' of {_owner(self)} ({shown})"


@dataclass(frozen=True, slots=True)
class DropType:
    kind: ClassVar[str] = "drop_type"
    type_kind: TypeKind
    name: str
    mode: DropMode

    def to_json(self) -> Json:
        head = {"kind": self.kind, "type_kind": str(self.type_kind), "name": self.name}
        return {**head, "mode": str(self.mode)}

    def describe(self) -> str:
        return f"drop {self.type_kind} type '{self.name}' ({self.mode} mode)"


@dataclass(frozen=True, slots=True)
class DropProperty:
    kind: ClassVar[str] = "drop_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    mode: DropMode

    def to_json(self) -> Json:
        return {**_property_head(self), "mode": str(self.mode)}

    def describe(self) -> str:
        return f"drop property '{_dotted(self)}' of {_owner(self)} ({self.mode} mode)"


@dataclass(frozen=True, slots=True)
class UnsupportedChange:
    """A change that cannot be applied; one of them makes the whole plan unsupported."""

    kind: ClassVar[str] = "unsupported_change"
    entity: str
    reason: str
    code: str | None = None

    @property
    def message(self) -> str:
        """``[CODE] reason``, or the reason alone."""
        return f"[{self.code}] {self.reason}" if self.code else self.reason

    def to_json(self) -> Json:
        found: Json = {"kind": self.kind, "entity": self.entity, "reason": self.reason}
        if self.code is not None:
            found["code"] = self.code
        return found

    def describe(self) -> str:
        bracket = ""
        if self.code is not None:
            known = lint_code(self.code)
            bracket = f" [{self.code}, {known.tier}]" if known else f" [{self.code}]"
        return f"unsupported change on {self.entity}{bracket}: {self.reason}"


Step = (
    AddType
    | RenameType
    | AddProperty
    | RenameProperty
    | ExtendEnum
    | NarrowEnum
    | ChangeNullability
    | WidenProperty
    | NarrowProperty
    | AddConstraint
    | DropConstraint
    | ChangeCardinality
    | UpdateTypeMetadata
    | UpdatePropertyMetadata
    | DropType
    | DropProperty
    | UnsupportedChange
)


def tier_of(step: Step) -> Tier:
    """What applying a step needs: nothing, a look at the rows, or a word of agreement.

    >>> tier_of(DropType(TypeKind.NODE, "A", DropMode.HARD))
    <Tier.DESTRUCTIVE: 'destructive'>
    """
    match step:
        case UnsupportedChange():
            return Tier.DESTRUCTIVE
        case DropType() | DropProperty():
            return Tier.DESTRUCTIVE if step.mode is DropMode.HARD else Tier.SAFE
        case NarrowEnum() | ChangeCardinality():
            return Tier.VALIDATED
        case ChangeNullability():
            return Tier.SAFE if step.nullable else Tier.VALIDATED
        case AddConstraint():
            return Tier.SAFE if isinstance(step.constraint, IndexConstraint) else Tier.VALIDATED
    return Tier.SAFE


def step_from_json(value: Json) -> Step:
    """The inverse of ``to_json``; raises ``InputError`` when the data is no step.

    >>> step_from_json({"kind": "drop_type", "type_kind": "node", "name": "A", "mode": "soft"})
    DropType(type_kind=<TypeKind.NODE: 'node'>, name='A', mode=<DropMode.SOFT: 'soft'>)
    """
    try:
        return _step(value["kind"], value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"invalid migration step: {type(error).__name__}: {error}") from None


def _step(kind: str, value: Json) -> Step:
    if kind == UnsupportedChange.kind:
        return UnsupportedChange(value["entity"], value["reason"], value.get("code"))
    type_kind = TypeKind(value["type_kind"])
    if kind == AddType.kind:
        return AddType(type_kind, value["name"])
    if kind == RenameType.kind:
        return RenameType(type_kind, value["from"], value["to"])
    if kind == DropType.kind:
        return DropType(type_kind, value["name"], DropMode(value["mode"]))
    if kind == UpdateTypeMetadata.kind:
        annotations = tuple(annotation_from_json(a) for a in value["annotations"])
        return UpdateTypeMetadata(type_kind, value["name"], annotations)
    owner = value["type_name"]
    if kind == RenameProperty.kind:
        return RenameProperty(type_kind, owner, value["from"], value["to"])
    if kind == AddConstraint.kind:
        return AddConstraint(type_kind, owner, constraint_from_json(value["constraint"]))
    if kind == DropConstraint.kind:
        return DropConstraint(type_kind, owner, constraint_from_json(value["constraint"]))
    if kind == ChangeCardinality.kind:
        old, new = (Cardinality(value[at]["min"], value[at]["max"]) for at in ("from", "to"))
        return ChangeCardinality(type_kind, owner, old, new)
    return _property_step(kind, type_kind, owner, value["property_name"], value)


def _property_step(kind: str, type_kind: TypeKind, owner: str, name: str, value: Json) -> Step:
    if kind == AddProperty.kind:
        return AddProperty(type_kind, owner, name, PropType.from_json(value["property_type"]))
    if kind == ExtendEnum.kind:
        return ExtendEnum(type_kind, owner, name, tuple(value["added_values"]))
    if kind == NarrowEnum.kind:
        return NarrowEnum(type_kind, owner, name, tuple(value["removed_values"]))
    if kind == ChangeNullability.kind:
        return ChangeNullability(type_kind, owner, name, bool(value["nullable"]))
    if kind in (WidenProperty.kind, NarrowProperty.kind):
        old, new = (PropType.from_json(value[at]) for at in ("from", "to"))
        of = WidenProperty if kind == WidenProperty.kind else NarrowProperty
        return of(type_kind, owner, name, old, new)
    if kind == UpdatePropertyMetadata.kind:
        annotations = tuple(annotation_from_json(a) for a in value["annotations"])
        return UpdatePropertyMetadata(type_kind, owner, name, annotations)
    if kind == DropProperty.kind:
        return DropProperty(type_kind, owner, name, DropMode(value["mode"]))
    raise ValueError(f"unknown kind {kind!r}")


_OfProperty = (
    AddProperty
    | ExtendEnum
    | NarrowEnum
    | ChangeNullability
    | WidenProperty
    | NarrowProperty
    | UpdatePropertyMetadata
    | DropProperty
)
_OfType = _OfProperty | RenameProperty | AddConstraint | DropConstraint | ChangeCardinality


def _bounds(cardinality: Cardinality) -> Json:
    return {"min": cardinality.min, "max": cardinality.max}


def _type_head(step: _OfType) -> Json:
    kind = {"kind": step.kind, "type_kind": str(step.type_kind)}
    return {**kind, "type_name": step.type_name}


def _property_head(step: _OfProperty) -> Json:
    return {**_type_head(step), "property_name": step.property_name}


def _dotted(step: _OfProperty) -> str:
    return f"{step.type_name}.{step.property_name}"


def _owner(step: _OfType) -> str:
    return f"{step.type_kind} '{step.type_name}'"


def _shown(annotations: tuple[Annotation, ...]) -> str:
    return ", ".join(render_annotation(a) for a in annotations) or "removed"
