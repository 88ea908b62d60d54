"""The typed error for a response that is not a success.

The ``reason`` of the body names the class. A body without one, as other servers send it, is judged
by its status. Texts of a server are shown without control characters and without the token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from omnigraph import errors
from omnigraph.errors import (
    Cancelled,
    Conflict,
    HistoryGone,
    InputError,
    LanguageError,
    LimitExceeded,
    NotFound,
    OmniGraphError,
    OutcomePending,
    PolicyDenied,
    PreconditionFailed,
    QueryTimeout,
    ServerError,
    ServerUnavailable,
    SparkUnavailable,
    StorageFull,
    Unauthorized,
)
from omnigraph.escaping import escape
from omnigraph.lang.diagnostics import Diagnostic, Phase, Severity, Source, Span

_BY_STATUS: Mapping[int, type[OmniGraphError]] = {
    400: InputError,
    401: Unauthorized,
    403: PolicyDenied,
    404: NotFound,
    408: ServerUnavailable,
    409: Conflict,
    410: HistoryGone,
    412: PreconditionFailed,
    413: LimitExceeded,
    429: ServerUnavailable,
    499: Cancelled,
    501: SparkUnavailable,
    503: ServerUnavailable,
    504: QueryTimeout,
    507: StorageFull,
}
_OF_THE_SERVER = frozenset({"error", "internal", "closed", "read_only", "server"})
"""Reasons that say something about the process of the server, not about the call."""
_OWN_KEYS = frozenset({"error", "hint", "retryable", "details", "diagnostic", "diagnostics"})
_MAX_SHOWN = 4000


def refusal(
    status: int,
    headers: Mapping[str, str],
    content: bytes,
    *,
    token: str = "",
    source: Source | None = None,
) -> OmniGraphError:
    """The error of a response; ``source`` is the text that its diagnostics are about."""
    text = content.decode("utf-8", "replace").strip()
    body = _error_object(text)
    shown = _Shown(token)
    diagnostics = _diagnostics(body, source, shown)
    error_class = _class_of(status, body)
    if diagnostics and issubclass(error_class, LanguageError):
        error: OmniGraphError = error_class(diagnostics)
    else:
        if issubclass(error_class, LanguageError):
            error_class = InputError
        message = body["error"] if body else f"server returned {status}: {text}"
        error = error_class(shown(message), hint=_hint(status, body, error_class, shown))
    error.details |= _details(status, body, headers)
    if body and isinstance(body.get("retryable"), bool):
        error.retryable = body["retryable"]
    return error


def late_refusal(
    content: bytes, *, token: str = "", source: Source | None = None
) -> OmniGraphError:
    """The error at the end of a response that began as a success: it has its status with it.

    >>> late_refusal(b'{"status": 504, "error": "too slow", "reason": "query_timeout"}')
    QueryTimeout('too slow')
    """
    try:
        status = json.loads(content)["status"]
    except (ValueError, TypeError, KeyError, RecursionError):
        status = None
    if type(status) is not int or not 400 <= status < 600:
        status = 500
    return refusal(status, {}, content, token=token, source=source)


class _Shown:
    """Makes a text of a server fit to be shown."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, text: str) -> str:
        if self._token:
            text = text.replace(self._token, "***")
        plain = escape(text, keep="\n\t")
        return plain if len(plain) <= _MAX_SHOWN else f"{plain[:_MAX_SHOWN]}…"


def _error_object(text: str) -> dict[str, Any] | None:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) and isinstance(body.get("error"), str) else None


def _class_of(status: int, body: Mapping[str, Any] | None) -> type[OmniGraphError]:
    by_status = _BY_STATUS.get(status, ServerError)
    reason = (body or {}).get("reason")
    if status == 503 and "commit_id" in (body or {}):
        # The write may be done: nothing invites to repeat it.
        return OutcomePending
    if not isinstance(reason, str) or reason in _OF_THE_SERVER:
        return by_status
    return _classes().get(reason, by_status)


def error_class(code: str) -> type[OmniGraphError]:
    """The class of the error tree that has a code; the root for an unknown one."""
    return _classes().get(code, OmniGraphError)


@cache
def _classes() -> dict[str, type[OmniGraphError]]:
    """The classes of the error tree by code."""
    every = vars(errors).values()
    kinds = [kind for kind in every if isinstance(kind, type) and issubclass(kind, OmniGraphError)]
    return {kind.code: kind for kind in kinds}


def _details(
    status: int, body: Mapping[str, Any] | None, headers: Mapping[str, str]
) -> dict[str, Any]:
    details: dict[str, Any] = {"status": status}
    if body is not None:
        own = body.get("details")
        details |= own if isinstance(own, dict) else {}
        details |= {key: value for key, value in body.items() if key not in _OWN_KEYS}
        conflict = body.get("manifest_conflict")
        details |= conflict if isinstance(conflict, dict) else {}
        if isinstance(body.get("merge_conflicts"), list):
            details.setdefault("conflicts", body["merge_conflicts"])
    seconds = _retry_after(headers)
    if seconds is not None or _BY_STATUS.get(status) is ServerUnavailable:
        details["retry_after"] = seconds
    return details


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks to wait; a date and anything else is ignored."""
    text = next((v for k, v in headers.items() if k.lower() == "retry-after"), "")
    return float(text) if text.isascii() and text.isdecimal() else None


def _hint(
    status: int, body: Mapping[str, Any] | None, error_class: type[OmniGraphError], shown: _Shown
) -> str | None:
    given = (body or {}).get("hint")
    if isinstance(given, str):
        return shown(given)
    if error_class is OutcomePending:
        return None
    if status == 401:
        return "store a token for this server with `omnigraph login NAME`"
    if status in (408, 429, 503):
        return "repeat the request later"
    if 300 <= status < 400:
        return "the server has another address: use that one; redirects are not followed"
    return None


# -- diagnostics ----------------------------------------------------------------------------------


def _diagnostics(
    body: Mapping[str, Any] | None, source: Source | None, shown: _Shown
) -> list[Diagnostic]:
    """The findings of a server about a text that this process has, with their carets."""
    if body is None or source is None:
        return []
    details = body.get("details")
    given = details.get("diagnostics") if isinstance(details, dict) else None
    for items in (given, body.get("diagnostics"), body.get("diagnostic")):
        items = [items] if isinstance(items, dict) else items
        if isinstance(items, list) and items:
            try:
                return [_diagnostic(item, source, shown) for item in items]
            except (KeyError, TypeError, ValueError):
                return []
    return []


def _diagnostic(item: Mapping[str, Any], source: Source, shown: _Shown) -> Diagnostic:
    start = _offset(source, int(item["line"]), int(item["column"]))
    end = start
    if "end_line" in item:
        end = _offset(source, int(item["end_line"]), int(item["end_column"]))
    hint = item.get("hint")
    return Diagnostic(
        Phase(item["phase"]),
        str(item["code"]),
        shown(str(item["message"])),
        source,
        Span(start, max(start, end)),
        None if hint is None else shown(str(hint)),
        Severity(item.get("severity", Severity.ERROR)),
    )


def _offset(source: Source, line: int, column: int) -> int:
    """The offset of a position; a position outside of the text raises ``ValueError``."""
    starts = source.line_starts()
    if not 1 <= line <= len(starts) or not 1 <= column <= len(source.text) + 1:
        raise ValueError("a position outside of the text")
    return min(starts[line - 1] + column - 1, len(source.text))
