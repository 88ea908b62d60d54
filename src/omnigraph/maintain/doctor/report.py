"""The report of the doctor."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from omnigraph.commit.snapshot import Pin
from omnigraph.escaping import escape
from omnigraph.maintain.report import Report, find_table
from omnigraph.records import dataclass
from omnigraph.representation import brief
from omnigraph.storage.tables.types import TableRef


@dataclass(frozen=True, slots=True)
class TableHealth(Report):
    """One table as the branch shows it. Sizes are bytes."""

    table_key: str
    branch: str
    """The branch that owns the table's files."""
    owned: bool
    """Whether that is the examined branch."""
    version: int
    rows: int
    versions: int = 0
    head: int | None = None
    """The newest version, if the table was written outside the graph."""
    fragments: int = 0
    small_fragments: int = 0
    """Fragments that an optimize would merge into others."""
    deleted_rows: int = 0
    size: int = 0
    index_size: int = 0
    uncovered_rows: int = 0
    """Rows missing from the least complete index."""
    missing_indexes: tuple[str, ...] = ()
    pending_indexes: int = 0
    """Indexes that cannot be built from the existing values."""
    reasons: tuple[str, ...] = ()
    """Why the policy calls for an optimize."""
    saved: int = 0
    """Bytes of deleted rows that an optimize would free."""
    error: str | None = None
    """Why the table cannot be read."""

    @property
    def covered(self) -> float:
        """The fraction of the rows that every existing index covers."""
        return 1.0 - self.uncovered_rows / self.rows if self.rows else 1.0

    def to_json(self) -> dict[str, Any]:
        return {**Report.to_json(self), "covered": round(self.covered, 4)}


@dataclass(frozen=True, slots=True)
class ManifestHealth:
    """The manifest of one branch."""

    branch: str
    versions: int
    fragments: int


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A write in progress, or an interrupted one. The age is in seconds."""

    operation: str
    age: int
    kind: str | None = None
    branch: str | None = None
    tables: tuple[str, ...] = ()
    error: str | None = None
    """Why its record cannot be read."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A branch or tag that uses an old version of a table: cleanup keeps it and all later ones."""

    kind: str
    name: str
    table_key: str
    version: int
    behind: int
    """How many versions behind the newest one."""

    @staticmethod
    def of(
        kind: str, name: str, pins: Mapping[str, Pin], newest: Mapping[TableRef, int]
    ) -> Holder | None:
        """By the table whose pinned version is the farthest behind."""
        holders = (
            Holder(kind, name, key, pin.version, newest.get(pin.ref, pin.version) - pin.version)
            for key, pin in pins.items()
        )
        return max(holders, key=lambda holder: holder.behind, default=None)


@dataclass(frozen=True, slots=True)
class CleanupEstimate:
    """What a cleanup would free, or in ``why`` the reason that it is unknown."""

    keep: int
    versions: int = 0
    size: int = 0
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """A command to run, and the reason."""

    command: str
    why: str


@dataclass(frozen=True, slots=True)
class DoctorReport(Report):
    """The health of a graph. ``advice`` lists the commands to run, most urgent first."""

    __repr__ = brief

    uri: str
    branch: str
    at: datetime
    tables: tuple[TableHealth, ...]
    manifests: tuple[ManifestHealth, ...]
    writes: tuple[PendingWrite, ...]
    """Interrupted writes, and writes that are being finished right now."""
    staging: tuple[PendingWrite, ...]
    """Long writes in their staging phase, alive or interrupted."""
    oldest: Holder | None
    branches: tuple[str, ...]
    tags: int
    cleanup: CleanupEstimate
    advice: tuple[Advice, ...] = ()

    @property
    def is_healthy(self) -> bool:
        return not self.advice

    def table(self, table_key: str) -> TableHealth:
        """The part of one table, such as ``node:Person``."""
        return find_table(self.tables, table_key)

    def __str__(self) -> str:
        """The state of the graph, and the advice."""
        state = "healthy" if self.is_healthy else "needs attention"
        lines = [f"{self.uri}, branch {self.branch}: {state}"]
        lines += [f"{advice.command}  # {advice.why}" for advice in self.advice]
        return "\n".join(escape(line) for line in lines)

    def to_json(self) -> dict[str, Any]:
        return {**Report.to_json(self), "healthy": self.is_healthy}
