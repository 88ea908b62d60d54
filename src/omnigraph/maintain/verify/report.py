"""The result of a verify: problems with their location and remedy, and how much was checked."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar

from omnigraph.maintain.report import Report
from omnigraph.records import dataclass
from omnigraph.representation import brief

LISTED = 100
"""How many files or rows of one problem are listed; the others are counted."""


class Weight(StrEnum):
    """Errors are damage; warnings are leftovers."""

    ERROR = "error"
    WARNING = "warning"


class ProblemCode(StrEnum):
    """The kinds of problems. The values are stable."""

    CHECKSUM_MISMATCH = "checksum_mismatch"
    FILE_MISSING = "file_missing"
    LINK_REFUSED = "link_refused"
    CHECKSUM_RECORD_DAMAGED = "checksum_record_damaged"
    MANIFEST_UNREADABLE = "manifest_unreadable"
    TABLE_UNREADABLE = "table_unreadable"
    HISTORY_UNREADABLE = "history_unreadable"
    VERSION_MISSING = "version_missing"
    HISTORY_RECORD_DAMAGED = "history_record_damaged"
    CLEANUP_UNFINISHED = "cleanup_unfinished"
    COLUMNS_DIFFER = "columns_differ"
    ROW_COUNT_DIFFERS = "row_count_differs"
    TABLE_DRIFTED = "table_drifted"
    DUPLICATE_VALUE = "duplicate_value"
    VALUE_BROKEN = "value_broken"
    DANGLING_EDGE = "dangling_edge"
    CARDINALITY_BROKEN = "cardinality_broken"
    INDEX_UNREADABLE = "index_unreadable"
    INDEX_DISAGREES = "index_disagrees"
    PARENT_MISSING = "parent_missing"
    HEAD_UNKNOWN = "head_unknown"
    TAG_UNREADABLE = "tag_unreadable"
    SCHEMA_DISAGREES = "schema_disagrees"
    SIDECAR_DAMAGED = "sidecar_damaged"
    WRITE_INTERRUPTED = "write_interrupted"
    MARKER_DAMAGED = "marker_damaged"
    STAGING_ABANDONED = "staging_abandoned"
    BRANCH_REFERENCE_DAMAGED = "branch_reference_damaged"
    ORPHAN_BRANCH = "orphan_branch"
    ORPHAN_FORK = "orphan_fork"
    CHECK_FAILED = "check_failed"


@dataclass(frozen=True, slots=True)
class VerifyProblem(Report):
    """One problem, its location, and its remedy."""

    json_keys: ClassVar[tuple[str, ...]] = (
        *("code", "weight", "table", "branch", "file", "message", "hint"),
    )
    code: ProblemCode
    message: str
    hint: str | None = None
    weight: Weight = Weight.ERROR
    table: str | None = None
    """The key of the table."""
    branch: str | None = None
    file: str | None = None
    """Relative to the root of the graph."""

    @property
    def order(self) -> tuple[str, ...]:
        fields = (self.weight, self.code, self.branch, self.table, self.file, self.message)
        return tuple(field or "" for field in fields)


@dataclass(frozen=True, slots=True)
class VerifyReport(Report):
    """The problems of a graph, and how much of it was checked."""

    __repr__ = brief

    json_keys: ClassVar[tuple[str, ...]] = (
        *("is_sound", "branches", "tables", "rows", "indexes", "files", "bytes", "checked"),
        *("unverified", "unnamed", "unverified_files", "problems"),
    )
    branches: tuple[str, ...]
    problems: tuple[VerifyProblem, ...]
    tables: int
    """Table versions that some branch uses."""
    rows: int
    indexes: int
    files: int
    """Files that some version of a table or of the manifest references."""
    bytes: int
    checked: int
    """Of the files, those compared with the checksum recorded when they were written."""
    unverified: int
    """Files without a recorded checksum: written by other programs or by an earlier release."""
    unnamed: int
    """Orphaned files: of writes in progress, or left by interrupted writers."""
    unverified_files: tuple[str, ...] = ()
    """The first of them."""

    @property
    def is_sound(self) -> bool:
        """Whether there is no error; warnings do not count."""
        return not any(problem.weight is Weight.ERROR for problem in self.problems)


class ProblemCollector:
    """Collects problems and counts from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._problems: dict[VerifyProblem, None] = {}
        self._counts: Counter[str] = Counter()

    def add(self, *problems: VerifyProblem) -> None:
        with self._lock:
            self._problems.update(dict.fromkeys(problems))

    def count(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)

    def report(self, branches: Iterable[str], unverified_files: Iterable[str]) -> VerifyReport:
        names = ("tables", "rows", "indexes", "files", "bytes", "checked", "unverified", "unnamed")
        return VerifyReport(
            tuple(branches),
            tuple(sorted(self._problems, key=lambda problem: problem.order)),
            **{name: self._counts[name] for name in names},
            unverified_files=tuple(unverified_files),
        )
