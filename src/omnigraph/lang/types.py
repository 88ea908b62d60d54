"""The value types of both languages.

``PropType`` describes a property, a parameter or the value of an expression. The Arrow types are
defined in ``lang.values.arrow``, so that this module does not import Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from omnigraph.argument_checks import reads_json
from omnigraph.lang.closest import closest
from omnigraph.records import dataclass

MAX_VECTOR_DIMENSION = 2_147_483_647
"""The limit of the storage format."""
MOST_DIMENSIONS = 65_536
"""The limit for a new schema: a null vector takes as much memory as a value."""
I32_RANGE = (-(2**31), 2**31 - 1)
I64_RANGE = (-(2**63), 2**63 - 1)
U32_RANGE = (0, 2**32 - 1)
U64_RANGE = (0, 2**64 - 1)
F32_MAX = 3.4028234663852886e38
SAFE_INTEGER = 2**53 - 1
"""The greatest integer that a double represents exactly together with its neighbours."""


class Scalar(StrEnum):
    """The element types; the values are the spellings in schema texts."""

    STRING = "String"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATE = "Date"
    DATETIME = "DateTime"
    BLOB = "Blob"
    VECTOR = "Vector"

    @property
    def is_integer(self) -> bool:
        return self in _INTEGERS

    @property
    def is_float(self) -> bool:
        return self is Scalar.F32 or self is Scalar.F64

    @property
    def is_numeric(self) -> bool:
        return self in _NUMERIC


_INTEGERS = frozenset({Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64})
_NUMERIC = _INTEGERS | {Scalar.F32, Scalar.F64}

INTEGER_RANGES: dict[Scalar, tuple[int, int]] = {
    Scalar.I32: I32_RANGE,
    Scalar.I64: I64_RANGE,
    Scalar.U32: U32_RANGE,
    Scalar.U64: U64_RANGE,
}

SCALAR_NAMES: dict[str, Scalar] = {str(s): s for s in Scalar if s is not Scalar.VECTOR}


_OTHER_NAMES: dict[str, str] = {
    "int": "I32",
    "integer": "I32",
    "int32": "I32",
    "int64": "I64",
    "long": "I64",
    "uint32": "U32",
    "uint64": "U64",
    "float": "F64",
    "double": "F64",
    "number": "F64",
    "float32": "F32",
    "float64": "F64",
    "text": "String",
    "str": "String",
    "varchar": "String",
    "boolean": "Bool",
    "timestamp": "DateTime",
    "bytes": "Blob",
    "binary": "Blob",
    "embedding": "Vector(n)",
}


def suggest_scalar(name: str) -> str | None:
    """The type that a name from another language, or a misspelt one, was meant to be.

    >>> suggest_scalar("Int"), suggest_scalar("Strng"), suggest_scalar("Widget")
    ('I32', 'String', None)
    """
    return _OTHER_NAMES.get(name.lower()) or closest(name, (*SCALAR_NAMES, "Vector"))


@dataclass(frozen=True, slots=True)
class PropType:
    """A property type: an element type, whether it is nullable, and whether it is a list.

    >>> str(PropType(Scalar.I32, nullable=True)), str(PropType(Scalar.STRING, is_list=True))
    ('I32?', '[String]')
    """

    scalar: Scalar
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[str, ...] | None = None
    dimension: int | None = None

    def __str__(self) -> str:
        if self.enum_values is not None:
            core = f"enum({', '.join(self.enum_values)})"
        elif self.scalar is Scalar.VECTOR:
            core = f"Vector({self.dimension})"
        else:
            core = str(self.scalar)
        if self.is_list:
            core = f"[{core}]"
        return f"{core}?" if self.nullable else core

    @property
    def is_vector(self) -> bool:
        return self.scalar is Scalar.VECTOR

    @property
    def is_blob(self) -> bool:
        return self.scalar is Scalar.BLOB

    @property
    def shape(self) -> str | None:
        """``list``, ``vector`` or ``blob``; ``None`` for a single comparable value."""
        if self.is_list:
            return "list"
        return "vector" if self.is_vector else "blob" if self.is_blob else None

    @property
    def is_plain(self) -> bool:
        """Whether the type is a single comparable value: not a list, vector or blob."""
        return self.shape is None

    @property
    def element(self) -> PropType:
        """The type of one element of a list (itself for a plain type)."""
        if not self.is_list:
            return self
        return PropType(self.scalar, self.nullable, False, self.enum_values, self.dimension)

    def as_nullable(self, nullable: bool = True) -> PropType:
        """The same type with the given nullability."""
        if self.nullable == nullable:
            return self
        # Called often, and ``replace`` takes four times as long.
        return PropType(self.scalar, nullable, self.is_list, self.enum_values, self.dimension)

    def to_json(self) -> dict[str, Any]:
        """The stored form, keys in the order of the schema contract."""
        scalar: Any = {"Vector": self.dimension} if self.is_vector else str(self.scalar)
        return {
            "scalar": scalar,
            "nullable": self.nullable,
            "list": self.is_list,
            "enum_values": None if self.enum_values is None else list(self.enum_values),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> PropType:
        """The inverse of ``to_json``."""
        return reads_json("property type")(decode_prop_type)(value)


def decode_prop_type(value: Mapping[str, Any]) -> PropType:
    """Decode the stored form; malformed data raises a built-in exception."""
    scalar = value["scalar"]
    enum_values = value.get("enum_values")
    dimension = int(scalar["Vector"]) if isinstance(scalar, dict) else None
    if enum_values is not None and not isinstance(enum_values, list):
        raise TypeError("enum_values is not a list")
    return PropType(
        Scalar.VECTOR if dimension is not None else Scalar(scalar),
        nullable=bool(value["nullable"]),
        is_list=bool(value["list"]),
        enum_values=None if enum_values is None else tuple(enum_values),
        dimension=dimension,
    )


def comparable(left: PropType, right: PropType) -> bool:
    """Whether values of two types may be compared: the same element type, or both numeric.

    >>> comparable(PropType(Scalar.I32), PropType(Scalar.F64))
    True
    """
    if left.is_list != right.is_list:
        return False
    if left.scalar is right.scalar:
        return left.scalar is not Scalar.VECTOR or left.dimension == right.dimension
    return left.scalar.is_numeric and right.scalar.is_numeric
