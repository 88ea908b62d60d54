"""JSON Schemas of the parameters and the rows of queries.

A schema of a result accepts every form in which a value is written: integers that JavaScript would
round may be texts, and numbers that are not finite always are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from omnigraph.lang.types import INTEGER_RANGES, SAFE_INTEGER, PropType, Scalar

JsonSchema = dict[str, Any]
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")

_TEXTS: Mapping[Scalar, JsonSchema] = {
    Scalar.STRING: {"type": "string"},
    Scalar.BOOL: {"type": "boolean"},
    Scalar.F32: {"type": "number"},
    Scalar.F64: {"type": "number"},
    Scalar.DATE: {"type": "string", "format": "date"},
    Scalar.DATETIME: {"type": "string", "format": "date-time"},
    Scalar.BLOB: {"type": "string", "description": "bytes as 'base64:' and their base64 text"},
}


def type_schema(type_: PropType) -> JsonSchema:
    """The values of a type. Integers of 64 bits may be decimal texts.

    >>> type_schema(PropType(Scalar.STRING, nullable=True))
    {'type': ['string', 'null']}
    """
    schema = _scalar_schema(type_)
    if type_.is_list:
        schema = {"type": "array", "items": schema}
    if type_.nullable:
        kinds = schema["type"]
        schema = {**schema, "type": [*([kinds] if isinstance(kinds, str) else kinds), "null"]}
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
    return schema


def _scalar_schema(type_: PropType) -> JsonSchema:
    if type_.enum_values is not None:
        return {"type": "string", "enum": list(type_.enum_values)}
    if type_.is_vector:
        size = type_.dimension
        items = {"type": "number"}
        return {"type": "array", "items": items, "minItems": size, "maxItems": size}
    if type_.scalar.is_integer:
        low, high = INTEGER_RANGES[type_.scalar]
        if high <= SAFE_INTEGER:
            return {"type": "integer", "minimum": low, "maximum": high}
        return {"type": ["integer", "string"], "pattern": "^-?[0-9]{1,20}$"}
    return dict(_TEXTS[type_.scalar])


def object_schema(
    properties: Mapping[str, JsonSchema], required: Iterable[str] = (), **more: Any
) -> JsonSchema:
    """An object with these properties and no others.

    >>> object_schema({"name": {"type": "string"}}, ["name"])["required"]
    ['name']
    """
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


def row_schema(columns: Mapping[str, PropType]) -> JsonSchema:
    """One row of a result.

    >>> row_schema({"p.age": PropType(Scalar.I32)})["properties"]["p.age"]["type"]
    'integer'
    """
    return {
        "type": "object",
        "properties": {name: result_schema(type_) for name, type_ in columns.items()},
        "required": list(columns),
        "additionalProperties": False,
    }


def result_schema(type_: PropType) -> JsonSchema:
    """The values of a type in a result.

    >>> result_schema(PropType(Scalar.F64))["anyOf"][1]["enum"]
    ['NaN', 'Infinity', '-Infinity']
    """
    if not (type_.scalar.is_float or type_.is_vector):
        return type_schema(type_)
    number: JsonSchema = {"anyOf": [{"type": "number"}, {"enum": list(_NOT_FINITE)}]}
    if not type_.is_list and not type_.is_vector:
        choices = [*number["anyOf"], {"type": "null"}] if type_.nullable else number["anyOf"]
        return {"anyOf": choices}
    return {**type_schema(type_), "items": number}
