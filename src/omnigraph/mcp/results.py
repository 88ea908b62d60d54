"""The results of tools: JSON, bounded in rows and bytes, and errors that a model can act on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.api.paging import PageRead
from omnigraph.errors import LanguageError, OmniGraphError
from omnigraph.lang.values.json_schemas import JsonSchema
from omnigraph.records import dataclass

PAGING = (
    "the result was cut; call the tool again with the same arguments and this cursor for the rest, "
    "or ask for less: fewer columns, a condition, an aggregate"
)
TOO_LONG = "a single row is longer than a result may be; return fewer columns"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool returns; ``is_error`` if it failed."""

    data: Mapping[str, Any]
    is_error: bool = False

    @property
    def text(self) -> str:
        return json.dumps(self.data, ensure_ascii=False, separators=(",", ":"))


def size_of(item: Any) -> int:
    """The bytes of a value as JSON."""
    text = json.dumps(item, ensure_ascii=False, separators=(",", ":"), default=str)
    return len(text.encode("utf-8", "replace"))


def failure(error: OmniGraphError) -> ToolResult:
    """An error with its code and its hint; those in texts have their places."""
    data: dict[str, Any] = {
        "error": error.message,
        "code": error.code,
        "hint": error.hint,
        "retryable": error.retryable,
    }
    if isinstance(error, LanguageError):
        data["diagnostics"] = [problem.to_json() for problem in error.diagnostics]
        data["shown"] = error.render()
    commit = error.details.get("commit_id")
    if isinstance(commit, str):
        data["commit_id"] = commit
    return ToolResult(writable(data), is_error=True)


def writable(value: Any) -> Any:
    """A value whose texts can be written as UTF-8: a caller may have sent half a character."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {writable(name): writable(item) for name, item in value.items()}
    return [writable(item) for item in value] if isinstance(value, list | tuple) else value


def page_of(page: PageRead, most_bytes: int) -> dict[str, Any]:
    """The rows of a page, as many as the limit of bytes allows, and the cursor of the next ones."""
    rows: list[Mapping[str, Any]] = []
    size, is_cut = 0, page.has_more
    for row in (row for rows in page.result.json_batches("sdk") for row in rows):
        size += size_of(row) + 1
        if size > most_bytes:
            is_cut = True
            break
        rows.append(row)
    data: dict[str, Any] = {
        "columns": page.result.columns,
        "rows": rows,
        "row_count": len(rows),
        "truncated": is_cut,
        "commit": page.position.commit,
    }
    if is_cut and rows:
        data["cursor"] = page.cursor(len(rows))
        data["note"] = PAGING
    elif is_cut:
        data["note"] = TOO_LONG
    return data


def page_schema(row: JsonSchema | None = None) -> JsonSchema:
    """The result of a query, as the tools return it."""
    return {
        "type": "object",
        "properties": {
            "columns": {"type": "array", "items": {"type": "string"}},
            "rows": {"type": "array", "items": row or {"type": "object"}},
            "row_count": {"type": "integer"},
            "truncated": {"type": "boolean"},
            "cursor": {"type": ["string", "null"]},
            "note": {"type": "string"},
            "commit": {"type": ["string", "null"]},
        },
        "required": ["columns", "rows", "row_count", "truncated"],
    }


def bounded(items: Sequence[Any], limits: tuple[int, int]) -> tuple[list[Any], bool]:
    """The first items within the limits, and whether there are more."""
    most, most_bytes = limits
    kept: list[Any] = []
    size = 0
    for item in items:
        size += size_of(item) + 1
        if len(kept) == most or size > most_bytes:
            return kept, True
        kept.append(item)
    return kept, False
