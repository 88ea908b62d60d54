"""What a verify tells: problems with their places and what to do, and how much was looked at."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

LISTED = 100
"""So many files or rows of one kind are named; the others are counted."""


class Weight(StrEnum):
    """Whether something is wrong with the graph, or only left lying about."""

    ERROR = "error"
    WARNING = "warning"


class ProblemCode(StrEnum):
    """What can be found. The values are stable."""

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
class Problem:
    """One thing that was found, where, and what to do about it."""

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
        found = (self.weight, self.code, self.branch, self.table, self.file, self.message)
        return tuple(each or "" for each in found)

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        return {
            "code": self.code.value,
            "weight": self.weight.value,
            "table": self.table,
            "branch": self.branch,
            "file": self.file,
            "message": self.message,
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was found in a graph, and how much of it was looked at."""

    branches: tuple[str, ...]
    problems: tuple[Problem, ...]
    tables: int
    """Versions of tables that some branch shows."""
    rows: int
    indexes: int
    files: int
    """Files of tables and of the manifest that some version names."""
    bytes: int
    checked: int
    """Of the files, those that were compared with what was recorded when they were written."""
    unverified: int
    """Those of which nothing is recorded: written by other programs, or by a release before."""
    unnamed: int
    """Files that no version names: of writes under way, or left by writers that died."""
    unverified_files: tuple[str, ...] = ()
    """The first of them."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong; what only lies about does not count."""
        return not any(each.weight is Weight.ERROR for each in self.problems)

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        return {
            "is_sound": self.is_sound,
            "branches": list(self.branches),
            "tables": self.tables,
            "rows": self.rows,
            "indexes": self.indexes,
            "files": self.files,
            "bytes": self.bytes,
            "checked": self.checked,
            "unverified": self.unverified,
            "unnamed": self.unnamed,
            "unverified_files": list(self.unverified_files),
            "problems": [problem.to_json() for problem in self.problems],
        }


class Findings:
    """Collects what checks find, from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._problems: dict[Problem, None] = {}
        self._counts: Counter[str] = Counter()

    def add(self, *problems: Problem) -> None:
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
