"""The steps of a migration plan: their data, their JSON form and their descriptions.

The JSON form (tag ``kind``, this key order) and the human texts are stable: programs and scripts
depend on them.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Any, ClassVar, get_args

from omnigraph.errors import InputError
from omnigraph.lang.schema.ast import Annotation, Cardinality, Constraint, TypeKind
from omnigraph.lang.schema.json_form import MALFORMED, from_json, to_json
from omnigraph.lang.schema.lint_codes import lint_code
from omnigraph.lang.types import PropType
from omnigraph.records import dataclass


class DropMode(StrEnum):
    """Whether earlier versions of dropped data stay readable."""

    SOFT = "soft"
    HARD = "hard"


def human_type(prop_type: PropType) -> str:
    """A type as migration steps show it.

    >>> from omnigraph.lang.types import Scalar
    >>> human_type(PropType(Scalar.STRING, nullable=True, enum_values=("a", "b")))
    'Enum(a|b)?'
    """
    if prop_type.enum_values is None:
        return str(prop_type)
    core = f"Enum({'|'.join(prop_type.enum_values)})"
    return f"{core}?" if prop_type.nullable else core


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """One change of a schema."""

    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **to_json(self)}


@dataclass(frozen=True, slots=True)
class TypeStep(MigrationStep):
    """A step about a whole type."""

    type_kind: TypeKind
    name: str


@dataclass(frozen=True, slots=True)
class MemberStep(MigrationStep):
    """A step about a part of a type."""

    type_kind: TypeKind
    type_name: str

    @property
    def owner(self) -> str:
        return f"{self.type_kind} '{self.type_name}'"


@dataclass(frozen=True, slots=True)
class PropertyStep(MemberStep):
    """A step about one property."""

    property_name: str

    @property
    def path(self) -> str:
        return f"{self.type_name}.{self.property_name}"


@dataclass(frozen=True, slots=True)
class RetypeStep(PropertyStep):
    """A property gets another type."""

    old: PropType = field(metadata={"json": "from"})
    new: PropType = field(metadata={"json": "to"})

    def describe(self) -> str:
        verb = self.kind.removesuffix("_property")
        change = f"from {human_type(self.old)} to {human_type(self.new)}"
        return f"{verb} property '{self.path}' of {self.owner} {change}"


@dataclass(frozen=True, slots=True)
class AddType(TypeStep):
    kind: ClassVar[str] = "add_type"

    def describe(self) -> str:
        return f"add {self.type_kind} type '{self.name}'"


@dataclass(frozen=True, slots=True)
class RenameType(MigrationStep):
    kind: ClassVar[str] = "rename_type"
    type_kind: TypeKind
    old: str = field(metadata={"json": "from"})
    new: str = field(metadata={"json": "to"})

    def describe(self) -> str:
        return f"rename {self.type_kind} type '{self.old}' -> '{self.new}'"


@dataclass(frozen=True, slots=True)
class AddProperty(PropertyStep):
    kind: ClassVar[str] = "add_property"
    property_type: PropType

    def describe(self) -> str:
        shown = human_type(self.property_type)
        return f"add property '{self.path}' ({shown}) on {self.owner}"


@dataclass(frozen=True, slots=True)
class RenameProperty(MemberStep):
    kind: ClassVar[str] = "rename_property"
    old: str = field(metadata={"json": "from"})
    new: str = field(metadata={"json": "to"})

    def describe(self) -> str:
        name = self.type_name
        return f"rename property '{name}.{self.old}' -> '{name}.{self.new}' on {self.owner}"


@dataclass(frozen=True, slots=True)
class ExtendEnum(PropertyStep):
    kind: ClassVar[str] = "extend_enum"
    added_values: tuple[str, ...]

    def describe(self) -> str:
        values = ", ".join(self.added_values)
        return f"extend enum '{self.path}' on {self.owner} with ({values})"


@dataclass(frozen=True, slots=True)
class NarrowEnum(PropertyStep):
    """Enum values are removed; no row may have them."""

    kind: ClassVar[str] = "narrow_enum"
    removed_values: tuple[str, ...]

    def describe(self) -> str:
        values = ", ".join(self.removed_values)
        return f"narrow enum '{self.path}' on {self.owner} by ({values})"


@dataclass(frozen=True, slots=True)
class ChangeNullability(PropertyStep):
    """A property becomes optional, or required."""

    kind: ClassVar[str] = "change_nullability"
    nullable: bool

    def describe(self) -> str:
        what = "optional" if self.nullable else "required"
        return f"make property '{self.path}' of {self.owner} {what}"


@dataclass(frozen=True, slots=True)
class WidenProperty(RetypeStep):
    """A number gets a type that holds every value of the old one exactly."""

    kind: ClassVar[str] = "widen_property"


@dataclass(frozen=True, slots=True)
class NarrowProperty(RetypeStep):
    """The reverse of ``WidenProperty``: a difference between two states, never part of a plan."""

    kind: ClassVar[str] = "narrow_property"


@dataclass(frozen=True, slots=True)
class AddConstraint(MemberStep):
    kind: ClassVar[str] = "add_constraint"
    constraint: Constraint

    def describe(self) -> str:
        return f"add constraint {self.constraint} on {self.owner}"


@dataclass(frozen=True, slots=True)
class DropConstraint(MemberStep):
    kind: ClassVar[str] = "drop_constraint"
    constraint: Constraint

    def describe(self) -> str:
        return f"drop constraint {self.constraint} of {self.owner}"


@dataclass(frozen=True, slots=True)
class ChangeCardinality(MemberStep):
    kind: ClassVar[str] = "change_cardinality"
    old: Cardinality = field(metadata={"json": "from"})
    new: Cardinality = field(metadata={"json": "to"})

    def describe(self) -> str:
        return f"change cardinality of {self.owner} from {self.old} to {self.new}"


@dataclass(frozen=True, slots=True)
class UpdateTypeMetadata(TypeStep):
    kind: ClassVar[str] = "update_type_metadata"
    annotations: tuple[Annotation, ...]

    def describe(self) -> str:
        shown = _shown(self.annotations)
        return f"update metadata on {self.type_kind} '{self.name}' ({shown})"


@dataclass(frozen=True, slots=True)
class UpdatePropertyMetadata(PropertyStep):
    kind: ClassVar[str] = "update_property_metadata"
    annotations: tuple[Annotation, ...]

    def describe(self) -> str:
        shown = _shown(self.annotations)
        return f"update metadata on property '{self.path}' of {self.owner} ({shown})"


@dataclass(frozen=True, slots=True)
class DropType(TypeStep):
    kind: ClassVar[str] = "drop_type"
    mode: DropMode

    def describe(self) -> str:
        return f"drop {self.type_kind} type '{self.name}' ({self.mode} mode)"


@dataclass(frozen=True, slots=True)
class DropProperty(PropertyStep):
    kind: ClassVar[str] = "drop_property"
    mode: DropMode

    def describe(self) -> str:
        return f"drop property '{self.path}' of {self.owner} ({self.mode} mode)"


@dataclass(frozen=True, slots=True)
class UnsupportedChange(MigrationStep):
    """A change that cannot be applied; it makes the whole plan unsupported."""

    kind: ClassVar[str] = "unsupported_change"
    entity: str
    reason: str
    code: str | None = field(default=None, metadata={"optional": True})

    @property
    def message(self) -> str:
        """``[CODE] reason``, or the reason alone."""
        return f"[{self.code}] {self.reason}" if self.code else self.reason

    def describe(self) -> str:
        bracket = ""
        if self.code is not None:
            entry = lint_code(self.code)
            bracket = f" [{self.code}, {entry.tier}]" if entry else f" [{self.code}]"
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
_STEPS: dict[str, type[Step]] = {step.kind: step for step in get_args(Step)}


def step_from_json(value: dict[str, Any]) -> Step:
    """The inverse of ``to_json``; raises ``InputError`` if the data is not a step.

    >>> step_from_json({"kind": "drop_type", "type_kind": "node", "name": "A", "mode": "soft"})
    DropType(type_kind=<TypeKind.NODE: 'node'>, name='A', mode=<DropMode.SOFT: 'soft'>)
    """
    try:
        step: Step = from_json(_STEPS[value["kind"]], value)
    except MALFORMED as error:
        raise InputError(f"invalid migration step: {type(error).__name__}: {error}") from None
    return step


def _shown(annotations: tuple[Annotation, ...]) -> str:
    return ", ".join(map(str, annotations)) or "removed"
