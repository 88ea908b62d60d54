"""A typed client generated from the contract of 0.8.0, as generators of other languages do it.

Every operation is a method, every schema a class. A request can hold only the members that the
contract lists; a response is decoded strictly, and members that the contract does not list are
ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, asdict, field, fields, make_dataclass
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from tests.server.contract import contract, operations, schema_of, violations
from tests.server.serving import Client


class ApiError(Exception):
    """A response that is not a success, with the error as the contract describes it."""

    def __init__(self, status: int, output: Any) -> None:
        super().__init__(f"{status}: {output.error}")
        self.status, self.output = status, output


@cache
def model(name: str) -> type[Any]:
    """The class of a schema; a member whose name is a keyword of Python has a ``_`` behind it."""
    schema = contract()["schemas"][name]
    required = schema.get("required", ())
    members = sorted(schema.get("properties", {}), key=lambda member: member not in required)
    return make_dataclass(
        name,
        [
            (_attribute(member), Any, field(default=MISSING if member in required else None))
            for member in members
        ],
        kw_only=True,
        frozen=True,
    )


def _attribute(member: str) -> str:
    return f"{member}_" if member in ("from", "type") else member


def encode(request: Any) -> dict[str, Any]:
    """The body of a request; optional members without a value are omitted."""
    values = asdict(request)
    given = {member.name for member in fields(request) if values[member.name] is not None}
    return {name.removesuffix("_"): value for name, value in values.items() if name in given}


def decode(schema: dict[str, Any], value: Any) -> Any:
    """A value as an instance of the class of its schema; raises ``ValueError`` if it differs."""
    if "oneOf" in schema:
        decoded = []
        for alternative in schema["oneOf"]:
            if not list(violations(value, _resolved(alternative))):
                decoded.append(decode(alternative, value))
        if len(decoded) != 1:
            raise ValueError(f"{len(decoded)} alternatives fit {value!r}")
        return decoded[0]
    problems = list(violations(value, schema))
    if problems:
        raise ValueError("; ".join(problems))
    target = _resolved(schema)
    if isinstance(value, dict) and "ref" in schema and "properties" in target:
        members = {
            _attribute(name): decode(inner, value[name])
            for name, inner in target["properties"].items()
            if name in value
        }
        return model(schema["ref"])(**members)
    if "ref" in schema:
        return decode(target, value)
    if isinstance(value, list):
        return [decode(schema["items"], item) for item in value] if "items" in schema else value
    return value


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    return contract()["schemas"][schema["ref"]] if "ref" in schema else schema


def generate() -> type[Any]:
    """The class of the client: one method for each operation of the contract."""
    methods = {row["operation_id"]: _method(row) for row in operations()}
    return type("GeneratedClient", (_Connection,), methods)


class _Connection:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.called: set[str] = set()


def _method(row: dict[str, Any]) -> Callable[..., Any]:
    in_path = {p["name"] for p in row["parameters"] if p["in"] == "path"}
    in_query = {p["name"] for p in row["parameters"] if p["in"] == "query"}

    def call(self: _Connection, body: Any = None, **parameters: str) -> Any:
        unknown = parameters.keys() - in_path - in_query
        if unknown or in_path - parameters.keys():
            raise TypeError(f"{row['operation_id']} takes {in_path | in_query}, not {parameters}")
        path = row["path"]
        for name in in_path:
            path = path.replace(f"{{{name}}}", quote(parameters[name], safe=""))
        query = {name: parameters[name] for name in in_query & parameters.keys()}
        if query:
            path += f"?{urlencode(query)}"
        payload = None if body is None else encode(body)
        response = self.client.request(row["method"], path, payload)
        if response.status != 200:
            error = decode(schema_of(row["operation_id"], response.status), response.json)
            raise ApiError(response.status, error)
        self.called.add(row["operation_id"])
        listed = row["responses"]["200"]
        if listed["content_type"] != "application/json":
            return [json.loads(line) for line in response.body.splitlines()]
        return decode(listed["schema"], response.json)

    return call
