"""Errors as HTTP responses: the status of every error class, and the body of an error.

No body contains a local path, a text of a library or a secret: the texts of faults of the server
are fixed, and addresses of graphs are replaced in all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from omnigraph import errors
from omnigraph.errors import OmniGraphError
from omnigraph.server.hints import hint_for_clients
from omnigraph.server.models.failures import (
    ChangeFeedGapOutput,
    DiagnosticOutput,
    ErrorCode,
    ErrorOutput,
    ManifestConflictOutput,
    MergeConflictOutput,
    PreconditionFailureOutput,
)

RETRY_SECONDS = 1
"""The pause after a transient fault, if the error does not name one."""
INTERNAL_TEXT = "internal error"

STATUS: dict[type[OmniGraphError], int] = {
    errors.LanguageError: 400,
    errors.InputError: 400,
    errors.IdempotencyKeyReused: 409,
    errors.IntegrityError: 400,
    errors.NotFound: 404,
    # The request names a query of the text that it carries.
    errors.QueryNotFound: 400,
    errors.AlreadyExists: 409,
    errors.Conflict: 409,
    errors.PreconditionFailed: 412,
    errors.SchemaChangeRefused: 400,
    errors.QueryBroken: 409,
    errors.FormatRefused: 500,
    errors.HistoryGone: 410,
    errors.OutcomePending: 503,
    errors.ReadOnly: 500,
    errors.Closed: 503,
    errors.LimitExceeded: 413,
    errors.QueryTimeout: 504,
    errors.Cancelled: 499,
    errors.StorageError: 500,
    errors.StorageFull: 507,
    errors.StorageUnavailable: 503,
    errors.EmbeddingError: 502,
    errors.SparkError: 500,
    errors.SparkUnavailable: 501,
    errors.ServerError: 500,
    errors.ServerUnavailable: 503,
    errors.PackageMissing: 501,
    errors.Unauthorized: 401,
    errors.PolicyDenied: 403,
    errors.InternalError: 500,
    OmniGraphError: 500,
}
"""The status of each class; the nearest base class counts."""

_CODES: dict[int, ErrorCode] = {
    401: ErrorCode.UNAUTHORIZED,
    403: ErrorCode.FORBIDDEN,
    404: ErrorCode.MISSING,
    405: ErrorCode.METHOD_NOT_ALLOWED,
    409: ErrorCode.CONFLICT,
    410: ErrorCode.MISSING,
    412: ErrorCode.CONFLICT,
    429: ErrorCode.TOO_MANY_REQUESTS,
}

_STORAGE_TEXTS: dict[type[OmniGraphError], str] = {
    errors.StorageMissing: "storage: a file of the graph is missing",
    errors.StorageCorrupt: "storage: a file of the graph is damaged",
    errors.StorageDenied: "storage: access was refused",
    errors.StorageFull: "storage: the storage is full",
    errors.StorageUnavailable: "storage: the storage does not answer",
    errors.StorageError: "storage: the storage failed",
}


REASONS: dict[str, tuple[str, str]] = {
    "bad_http": ("400", "the request is not valid HTTP"),
    "bad_path": ("400", "the path is not UTF-8"),
    "bad_query_string": ("400", "a parameter in the query string is invalid or repeated"),
    "bad_header": ("400", "a header is not ASCII, or malformed"),
    "repeated_header": ("400", "a header is given twice"),
    "api_contract_mismatch": ("400", "the client expects another version of the interface"),
    "bad_graph_id": ("400", "the id of the graph cannot be one"),
    "missing_precondition": ("400", "a conditional write does not name a commit"),
    "condition_not_supported": ("400", "the operation takes no condition in a header"),
    "partial_put": ("400", "a Blob is set as a whole, not in part"),
    "bad_idempotency_key": ("400", "the idempotency key is empty or too long"),
    "body_not_json": ("400", "the body is not JSON, not UTF-8, or nested too deeply"),
    "content_encoding": ("400, 415", "the body cannot be decoded, or its encoding is unknown"),
    "host_not_allowed": ("421", "an agent addresses the server by another name"),
    "origin_not_allowed": ("403", "a web page of another origin uses the server as an agent"),
    "missing_token": ("401", "there is no bearer token"),
    "invalid_token": ("401", "nobody has this token"),
    "route_not_found": ("404", "there is no such operation"),
    "graph_not_found": ("404", "no such graph is served"),
    "blob_is_null": ("404", "the property of the node or edge is null"),
    "query_not_found": ("404", "there is no such stored query"),
    "deployment_not_found": ("404", "there is no such deployment"),
    "not_acceptable": ("406", "the client accepts no content type of the response, see `Accept`"),
    "method_not_allowed": ("405", "the path has operations of other methods, see `Allow`"),
    "head_timeout": ("408", "the request line and headers did not arrive in time"),
    "body_timeout": ("408", "the body did not arrive in time"),
    "not_a_cluster": ("409", "the server serves a single graph, so that nothing can be applied"),
    "reload_refused": ("409", "what would be reloaded is invalid; the old state stays in force"),
    "schema_managed_by_cluster": ("409", "the schema is changed by `omnigraph cluster apply`"),
    "body_too_large": ("413", "the body is larger than the limit of the operation"),
    "target_too_long": ("414", "the path and query string are too long"),
    "content_type": ("415", "the body has another content type"),
    "range_not_satisfiable": ("416", "the range of bytes is beyond the end"),
    "body_shape": ("422", "the body lacks a member, or one has the wrong type"),
    "repeated_key": ("422", "an object in the body has a key twice"),
    "external_blob_source": ("424", "the Blob is stored at an address that is not served"),
    "headers_too_large": ("431", "there are too many headers, or they are too large"),
    "too_many_requests": ("429", "the actor has too many requests in flight"),
    "process_died": ("503", "of a job: the process that ran it ended"),
    "reload_unavailable": ("501", "this server cannot reload"),
    "graph_unavailable": ("503", "the graph cannot be opened at the moment; it is tried again"),
    "no_cursor_key": ("503", "pages cannot be signed: this server may not write the first key"),
    "overloaded": ("503", "the process has too many requests in flight"),
    "draining": ("503", "the server ends"),
}
"""The reasons of errors that only a server has: their status, and their meaning."""


class RequestRefused(OmniGraphError, code="request_refused"):
    """A request that no handler sees: its status, and a reason for programs."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        hint: str | None = None,
        headers: Sequence[tuple[str, str]] = (),
        closes: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.reason = reason
        self.headers = tuple(headers)
        self.closes = closes
        """Whether the connection cannot be used any more, since the body was not read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.reason, self.message)


class ErrorResponse(msgspec.Struct, frozen=True):
    """An error response."""

    status: int
    body: ErrorOutput
    headers: tuple[tuple[str, str], ...] = ()
    closes: bool = False


def status_of(error: OmniGraphError) -> int:
    """The status of an error.

    >>> status_of(errors.BranchNotFound("branch 'b' not found"))
    404
    """
    if isinstance(error, RequestRefused):
        return error.status
    if error.code == "too_many_requests":
        return 429
    if isinstance(error, errors.SchemaChangeRefused) and "branches" in error.details:
        # Other branches are in the way, not the schema.
        return 409
    return next(STATUS[base] for base in type(error).__mro__ if base in STATUS)


def failure_of(
    error: BaseException, request_id: str, *, private: Mapping[str, str] | None = None
) -> ErrorResponse:
    """The response for an error; ``private`` are texts to replace, such as the address of a graph.

    >>> failure_of(ZeroDivisionError(), "r").body.error
    'internal error'
    """
    if not isinstance(error, OmniGraphError):
        return ErrorResponse(
            500, ErrorOutput(INTERNAL_TEXT, ErrorCode.INTERNAL, "internal", False, request_id)
        )
    status = status_of(error)
    default = ErrorCode.INTERNAL if status >= 500 else ErrorCode.BAD_REQUEST
    text, hint, details = _public_texts(error, status, private or {})
    body = ErrorOutput(
        text,
        _CODES.get(status, default),
        error.reason if isinstance(error, RequestRefused) else error.code,
        error.retryable,
        request_id,
        hint=hint or UNSET,
        details=details or UNSET,
        **_typed_members(error),
    )
    headers, closes = [], False
    if isinstance(error, RequestRefused):
        headers, closes = list(error.headers), error.closes
    pause = _pause(error, status)
    if pause is not None:
        headers.append(("retry-after", str(pause)))
    return ErrorResponse(status, body, tuple(headers), closes)


def late_body(failure: ErrorResponse) -> bytes:
    """The body of an error with its status, which came too late for the head of the response."""
    return b'{"status":%d,%b' % (failure.status, msgspec.json.encode(failure.body)[1:])


def _pause(error: OmniGraphError, status: int) -> int | None:
    """The seconds for ``Retry-After``; none if the outcome must be looked up instead."""
    if status not in (429, 503) or isinstance(error, errors.OutcomePending):
        return None
    given = error.details.get("retry_after")
    return RETRY_SECONDS if given is None else max(int(given), 1)


def _public_texts(
    error: OmniGraphError, status: int, private: Mapping[str, str]
) -> tuple[str, str | None, dict[str, Any]]:
    """The message, hint and details without anything that only operators may see."""
    if isinstance(error, errors.StorageError):
        text = next(_STORAGE_TEXTS[base] for base in type(error).__mro__ if base in _STORAGE_TEXTS)
        return text, None, {}
    if status == 500:
        return INTERNAL_TEXT, None, {}
    details: dict[str, Any] = {} if isinstance(error, RequestRefused) else _plain(error.details)
    # Typed members of the body have them; further findings of a text are only here.
    if isinstance(error, errors.MergeConflicts):
        details.pop("conflicts", None)
    if isinstance(error, errors.LanguageError) and len(error.diagnostics) == 1:
        details.pop("diagnostics", None)
    return (
        _replaced(error.message, private),
        None if error.hint is None else _replaced(hint_for_clients(error.hint), private),
        _replaced(details, private),
    )


def _typed_members(error: OmniGraphError) -> dict[str, Any]:
    details = error.details
    match error:
        case errors.LanguageError():
            first = error.diagnostics[0].to_json()
            return {"diagnostic": msgspec.convert(first, DiagnosticOutput)}
        case errors.MergeConflicts():
            conflicts = [
                MergeConflictOutput(
                    c["table_key"],
                    c["row_id"],
                    c["kind"],
                    c["message"],
                    c.get("conflict_id", UNSET),
                )
                for c in details.get("conflicts", ())
            ]
            return {"merge_conflicts": conflicts}
        case errors.VersionMismatch() if {"table_key", "expected", "actual"} <= details.keys():
            conflict = ManifestConflictOutput(
                details["table_key"], details["expected"], details["actual"]
            )
            return {"manifest_conflict": conflict}
        case errors.PreconditionFailed() if "expected" in details:
            failure = PreconditionFailureOutput(details["expected"], details.get("actual"))
            return {"precondition_failure": failure}
        case errors.ViewChanged() if details.get("cursor") != "page":
            return {"change_feed_gap": ChangeFeedGapOutput(None, None)}
        case errors.HistoryGone() if "oldest_cursor" in details:
            gap = ChangeFeedGapOutput(details.get("commit_id"), details["oldest_cursor"])
            return {"change_feed_gap": gap}
        case errors.OutcomePending() if details.get("commit_id") is not None:
            return {"commit_id": details["commit_id"]}
    return {}


def _plain(details: Mapping[str, Any]) -> dict[str, Any]:
    """The details as JSON values; anything else becomes its text."""
    plain: dict[str, Any] = msgspec.to_builtins(dict(details), enc_hook=str, str_keys=True)
    return plain


def _replaced(value: Any, private: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for text, shown in private.items():
            value = value.replace(text, shown)
        # A lone surrogate of a client's text cannot be written as UTF-8.
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_replaced(item, private) for item in value]
    if isinstance(value, dict):
        return {_replaced(key, private): _replaced(item, private) for key, item in value.items()}
    return value
