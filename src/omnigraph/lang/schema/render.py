"""Parts of a schema as text that parses back to the same part."""

from __future__ import annotations

from omnigraph.lang.lexer import quote_string
from omnigraph.lang.schema.ast import (
    WORDS,
    Annotation,
    ArgKind,
    Cardinality,
    CheckConstraint,
    Constraint,
    RangeConstraint,
)
from omnigraph.lang.schema.ir_json import plain_float
from omnigraph.lang.types import PropType


def render_annotation(annotation: Annotation) -> str:
    """An annotation as it is written; without ``kinds`` every value is quoted.

    >>> render_annotation(Annotation("embed", "bio", (("model", "m1"),)))
    '@embed("bio", model="m1")'
    """
    if annotation.value is None:
        return f"@{annotation.name}"
    values = (annotation.value, *(value for _, value in annotation.kwargs))
    kinds = annotation.kinds or (ArgKind.STRING,) * len(values)
    first, *others = (
        quote_string(value) if kind is ArgKind.STRING else value
        for value, kind in zip(values, kinds, strict=True)
    )
    keywords = [f"{key}={text}" for (key, _), text in zip(annotation.kwargs, others, strict=True)]
    return f"@{annotation.name}({', '.join([first, *keywords])})"


def render_constraint(constraint: Constraint) -> str:
    """A body constraint.

    >>> render_constraint(RangeConstraint("age", 0, None))
    '@range(age, 0..)'
    """
    word = WORDS[type(constraint)]
    if isinstance(constraint, RangeConstraint):
        low, high = _bound(constraint.min), _bound(constraint.max)
        return f"@{word}({constraint.property}, {low}..{high})"
    if isinstance(constraint, CheckConstraint):
        return f"@{word}({constraint.property}, {quote_string(constraint.pattern)})"
    return f"@{word}({', '.join(constraint.columns)})"


def render_cardinality(cardinality: Cardinality) -> str:
    """``@card(0..1)``"""
    return f"@card({cardinality})"


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


def _bound(bound: int | float | None) -> str:
    if bound is None:
        return ""
    return plain_float(bound) if isinstance(bound, float) else str(bound)
