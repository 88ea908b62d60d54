"""What a tool is: its name and schema for the model, and the function that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from omnigraph.errors import InputError
from omnigraph.lang.closest import closest
from omnigraph.lang.values.json_schemas import JsonSchema
from omnigraph.mcp.results import ToolResult
from omnigraph.records import dataclass

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AgentTool:
    """One tool."""

    name: str
    title: str
    description: str
    input_schema: JsonSchema
    run: Callable[[Arguments], ToolResult]
    writes: bool = False
    destroys: bool = False
    """Whether it may delete what it did not create."""
    output_schema: JsonSchema | None = None
    is_listed: bool = True
    """Whether the actor is told of it; a broken query only says why when it is called."""


class UnknownTool(LookupError):
    """There is no such tool for this actor: it does not exist, or may not be used."""


def check_arguments(tool: AgentTool, given: Arguments) -> None:
    """Raise for arguments that are missing, unknown or of the wrong JSON type."""
    properties: Mapping[str, JsonSchema] = tool.input_schema["properties"]
    for name in tool.input_schema["required"]:
        if given.get(name) is None:
            raise InputError(
                f"tool `{tool.name}` needs the argument `{name}`",
                hint=properties[name].get("description"),
                details={"argument": name},
            )
    for name, value in given.items():
        if name not in properties:
            close = closest(name, list(properties))
            raise InputError(
                f"tool `{tool.name}` has no argument `{name}`",
                hint=f"did you mean `{close}`?" if close else f"it has {', '.join(properties)}",
                details={"argument": name},
            )
        if value is not None and not _fits(properties[name], value):
            raise InputError(
                f"argument `{name}` must be {_kinds(properties[name])}",
                details={"argument": name},
            )


_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def _fits(schema: JsonSchema, value: Any) -> bool:
    """Whether a value has one of the JSON types; the engine checks the rest."""
    kinds = schema.get("type")
    if kinds is None:
        return True
    names = [kinds] if isinstance(kinds, str) else kinds
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _KINDS[name]) for name in names)


def _kinds(schema: JsonSchema) -> str:
    kinds = schema["type"]
    return kinds if isinstance(kinds, str) else " or ".join(kinds)
