"""The JSON form of schema objects and reports, in both directions.

A dataclass becomes an object with its fields in order; fields that are not compared (source spans)
are omitted. Metadata of a field: ``json`` renames its key, ``optional`` omits it if it is ``None``
or empty. Annotations and constraints have their own forms, which the reference program defines.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from omnigraph.lang.schema.ast import (
    COLUMN_CONSTRAINTS,
    Annotation,
    CheckConstraint,
    Constraint,
    RangeConstraint,
)
from omnigraph.lang.types import PropType, decode_prop_type

Decode = Callable[[Any], Any]
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)
"""The exceptions of ``from_json`` for malformed data."""


def to_json(value: Any) -> Any:
    """An object as plain data, keys in the stored order."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return str(value)
        case tuple():
            return [to_json(item) for item in value]
        case Mapping():
            return {key: to_json(value[key]) for key in sorted(value)}
        case PropType():
            return value.to_json()
        case Annotation():
            keywords = {"kwargs": dict(sorted(value.kwargs))} if value.kwargs else {}
            return {"name": value.name, "value": value.value, **keywords}
        case Constraint():
            return _constraint_to_json(value)
    shape = {}
    for name, key, is_optional in _keys(value.__class__):
        item = getattr(value, name)
        if not is_optional or item not in (None, ()):
            shape[key] = to_json(item)
    return shape


def from_json(cls: Any, value: dict[str, Any]) -> Any:
    """The inverse of ``to_json`` for a dataclass; raises one of ``MALFORMED``."""
    decoders = _decoders(cls)
    return cls(
        **{
            name: decoders[name](value[key])
            for name, key, is_optional in _keys(cls)
            if not is_optional or key in value
        }
    )


@cache
def _keys(cls: Any) -> tuple[tuple[str, str, bool], ...]:
    return tuple(
        (slot.name, slot.metadata.get("json", slot.name), "optional" in slot.metadata)
        for slot in fields(cls)
        if slot.compare
    )


@cache
def _decoders(cls: Any) -> dict[str, Decode]:
    hints = get_type_hints(cls)
    return {name: _decoder(hints[name]) for name, *_ in _keys(cls)}


def _decoder(hint: Any) -> Decode:
    """The decoder of a type."""
    if hint in _DECODERS:
        return _DECODERS[hint]
    if get_origin(hint) is tuple:
        item = _decoder(get_args(hint)[0])
        return lambda value: tuple(map(item, _list(value)))
    if get_origin(hint) is Mapping:
        entry = _decoder(get_args(hint)[1])
        return lambda value: {str(key): entry(item) for key, item in value.items()}
    if isinstance(hint, types.UnionType) and type(None) in get_args(hint):
        inner = _decoder(get_args(hint)[0])
        return lambda value: None if value is None else inner(value)
    enum: type[StrEnum] = hint
    return enum if issubclass(enum, StrEnum) else lambda value: from_json(hint, value)


def _annotation(value: dict[str, Any]) -> Annotation:
    kwargs = value.get("kwargs") or {}
    return Annotation(
        _text(value["name"]),
        None if value.get("value") is None else _text(value["value"]),
        tuple(sorted((_text(k), _text(v)) for k, v in kwargs.items())),
    )


def _constraint_to_json(constraint: Constraint) -> dict[str, Any]:
    """Externally tagged: ``{"Key": ["name"]}``."""
    if isinstance(constraint, RangeConstraint):
        body = {
            "property": constraint.property,
            "min": _bound_to_json(constraint.min),
            "max": _bound_to_json(constraint.max),
        }
        return {"Range": body}
    if isinstance(constraint, CheckConstraint):
        return {"Check": {"property": constraint.property, "pattern": constraint.pattern}}
    return {constraint.word.capitalize(): list(constraint.columns)}


def _constraint(value: dict[str, Any]) -> Constraint:
    ((tag, body),) = value.items()
    if tag == "Range":
        return RangeConstraint(_text(body["property"]), _bound(body["min"]), _bound(body["max"]))
    if tag == "Check":
        return CheckConstraint(_text(body["property"]), _text(body["pattern"]))
    make = COLUMN_CONSTRAINTS[tag.lower()]
    return make(tuple(_text(column) for column in _list(body)))


def _bound_to_json(bound: int | float | None) -> dict[str, int | float] | None:
    if bound is None:
        return None
    return {"Float": bound} if isinstance(bound, float) else {"Integer": bound}


def _bound(value: dict[str, Any] | None) -> int | float | None:
    if value is None:
        return None
    ((tag, number),) = value.items()
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise TypeError("a bound must be a number")
    return float(number) if tag == "Float" else int(number)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, got {type(value).__name__}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value


_DECODERS: dict[Any, Decode] = {
    str: _text,
    int: int,
    bool: bool,
    PropType: decode_prop_type,
    Annotation: _annotation,
    Constraint: _constraint,
}
