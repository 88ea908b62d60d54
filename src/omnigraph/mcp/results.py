"""The results of tools: JSON, bounded in rows and bytes, and errors that a model can act on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.api.paging import PageRead
from omnigraph.errors import LanguageError, OmniGraphError
from omnigraph.lang.values.json_schemas import JsonSchema
from omnigraph.records import dataclass

_PAGING = (
    "the result was cut; call the tool again with the same arguments and this cursor for the rest, "
    "or ask for less: fewer columns, a condition, an aggregate"
)
_TOO_LONG = "a single row is longer than a result may be; return fewer columns"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool returns; ``is_error`` if it failed."""

    data: Mapping[str, Any]
    is_error: bool = False

    @property
    def text(self) -> str:
        return json.dumps(self.data, ensure_ascii=False, separators=(",", ":"))


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
    return ToolResult(data, is_error=True)


def page_of(page: PageRead, most_bytes: int) -> dict[str, Any]:
    """The rows of a page, as many as the limit of bytes allows, and the cursor of the next ones."""
    rows: list[Mapping[str, Any]] = []
    size, is_cut = 0, page.has_more
    for row in (row for rows in page.result.json_batches("sdk") for row in rows):
        size += len(json.dumps(row, ensure_ascii=False, separators=(",", ":"))) + 1
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
        data["note"] = _PAGING
    elif is_cut:
        data["note"] = _TOO_LONG
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
        size += len(json.dumps(item, ensure_ascii=False, default=str)) + 1
        if len(kept) == most or size > most_bytes:
            return kept, True
        kept.append(item)
    return kept, False
