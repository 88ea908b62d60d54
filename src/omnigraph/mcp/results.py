"""The results of tools: JSON, bounded in rows and bytes, and errors that a model can act on."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.errors import InputError, LanguageError, OmniGraphError
from omnigraph.records import dataclass
from omnigraph.result.result import Result

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


@dataclass(frozen=True, slots=True)
class PageCursor:
    """A place in the rows of one query on one state."""

    commit: str
    offset: int
    digest: str
    """Of the text and the parameters, so that a cursor is not used for another query."""

    def text(self) -> str:
        packed = json.dumps([1, self.commit, self.offset, self.digest], separators=(",", ":"))
        return base64.urlsafe_b64encode(packed.encode()).decode().rstrip("=")

    @staticmethod
    def parse(text: str, digest: str) -> PageCursor:
        """The cursor of an earlier page of the same query; raises ``InputError``."""
        try:
            packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            version, commit, offset, own = json.loads(packed)
        except (ValueError, TypeError, binascii.Error):
            raise _invalid_cursor("invalid cursor") from None
        is_valid = version == 1 and isinstance(commit, str) and isinstance(offset, int)
        if not is_valid or offset < 0:
            raise _invalid_cursor("invalid cursor")
        if own != digest:
            raise _invalid_cursor("the cursor belongs to another query or other parameters")
        return PageCursor(commit, offset, own)


def _invalid_cursor(message: str) -> InputError:
    return InputError(message, hint="start again without a cursor")


def query_digest(*parts: Any) -> str:
    """Changes if the text, the name or the parameters of a query do."""
    text = json.dumps(parts, sort_keys=True, default=str, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def page_of(
    result: Result, limits: tuple[int, int], commit: str | None, digest: str, offset: int = 0
) -> dict[str, Any]:
    """The rows of a result from an offset on, as many as the limits of rows and bytes allow."""
    most_rows, most_bytes = limits
    rows: list[Mapping[str, Any]] = []
    size, is_cut = 0, False
    pages = result.json_batches("sdk")
    for position, row in enumerate(row for page in pages for row in page):
        if position < offset:
            continue
        size += len(json.dumps(row, ensure_ascii=False, separators=(",", ":"))) + 1
        if len(rows) == most_rows or size > most_bytes:
            is_cut = True
            break
        rows.append(row)
    page: dict[str, Any] = {
        "columns": result.columns,
        "rows": rows,
        "row_count": len(rows),
        "truncated": is_cut,
        "commit": commit,
    }
    if is_cut and rows and commit is not None:
        page["cursor"] = PageCursor(commit, offset + len(rows), digest).text()
        page["note"] = _PAGING
    elif is_cut:
        page["note"] = _TOO_LONG
    return page


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
