"""The contract of 0.8.0 as a file, and a walk of a value along a schema of it.

``endpoints_080.json`` lists every operation of that release with the schemas of its responses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

_TYPES = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "object": dict,
    "array": list,
    "null": type(None),
}


@cache
def contract() -> dict[str, Any]:
    text = (Path(__file__).parent / "endpoints_080.json").read_text()
    document: dict[str, Any] = json.loads(text)
    return document


def operations() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = contract()["operations"]
    return rows


def operation(operation_id: str) -> dict[str, Any]:
    return next(row for row in operations() if row["operation_id"] == operation_id)


def schema_of(operation_id: str, status: int) -> dict[str, Any]:
    """The schema of a response; that of errors for every status that is not listed."""
    responses = operation(operation_id)["responses"]
    listed = responses.get(str(status)) or responses.get("401") or _error_response()
    schema: dict[str, Any] = listed["schema"]
    return schema


def _error_response() -> dict[str, Any]:
    response: dict[str, Any] = operation("listGraphs")["responses"]["401"]
    return response


def violations(value: Any, schema: dict[str, Any], where: str = "$") -> Iterator[str]:
    """Where a value differs from a schema; members that a schema does not list are allowed."""
    if "ref" in schema:
        yield from violations(value, contract()["schemas"][schema["ref"]], where)
        return
    if "oneOf" in schema:
        matching = [s for s in schema["oneOf"] if not list(violations(value, s, where))]
        if len(matching) != 1:
            yield f"{where}: matches {len(matching)} of {len(schema['oneOf'])} schemas: {value!r}"
        return
    kinds = schema.get("type")
    if kinds is not None:
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if not any(_is(value, kind) for kind in kinds):
            yield f"{where}: {value!r} is not {' or '.join(kinds)}"
            return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is not one of {schema['enum']}"
    if isinstance(value, int) and value < schema.get("minimum", value):
        yield f"{where}: {value} is too small"
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{where}: {name} is missing"
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                yield from violations(value[name], inner, f"{where}.{name}")
    if isinstance(value, list) and "items" in schema:
        for position, item in enumerate(value):
            yield from violations(item, schema["items"], f"{where}[{position}]")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])  # type: ignore[arg-type]
