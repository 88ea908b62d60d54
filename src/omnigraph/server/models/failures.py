"""The body of an error."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from omnigraph.merge.conflicts import ConflictKind

Count = Annotated[int, msgspec.Meta(ge=0)]


class ErrorCode(StrEnum):
    """The coarse kind of an error."""

    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    BAD_REQUEST = "bad_request"
    MISSING = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    CONFLICT = "conflict"
    TOO_MANY_REQUESTS = "too_many_requests"
    INTERNAL = "internal"


class MergeConflictOutput(msgspec.Struct, frozen=True):
    """A row that could not be merged."""

    table_key: str
    row_id: str | None
    kind: ConflictKind
    message: str
    conflict_id: str | UnsetType = UNSET
    """The id that a resolution uses."""


class ManifestConflictOutput(msgspec.Struct, frozen=True):
    """The table that another writer changed first."""

    table_key: str
    expected: Count
    actual: Count


class PreconditionFailureOutput(msgspec.Struct, frozen=True):
    """The commit that was expected, and that of the branch."""

    expected: str
    actual: str | None


class ChangeFeedGapOutput(msgspec.Struct, frozen=True):
    """Where a change feed has a gap, and the oldest cursor after it, if there is one."""

    commit_id: str | None
    oldest_cursor: str | None


class ByteSpanOutput(msgspec.Struct, frozen=True):
    """A range of bytes."""

    start: Count
    end: Count


class DiagnosticOutput(msgspec.Struct, frozen=True):
    """The first error in a text, and its position."""

    severity: str
    phase: str
    code: str
    message: str
    hint: str | None
    file: str
    line: Count
    column: Count
    end_line: Count
    end_column: Count
    span: ByteSpanOutput


class ErrorOutput(msgspec.Struct, frozen=True):
    """An error: its text, its coarse code, and its fine one in ``reason``."""

    error: str
    code: ErrorCode
    reason: str
    retryable: bool
    request_id: str
    hint: str | UnsetType = UNSET
    details: dict[str, Any] | UnsetType = UNSET
    merge_conflicts: list[MergeConflictOutput] | UnsetType = UNSET
    manifest_conflict: ManifestConflictOutput | UnsetType = UNSET
    precondition_failure: PreconditionFailureOutput | UnsetType = UNSET
    diagnostic: DiagnosticOutput | UnsetType = UNSET
    commit_id: str | UnsetType = UNSET
    change_feed_gap: ChangeFeedGapOutput | UnsetType = UNSET
