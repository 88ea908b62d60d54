"""What the doctor tells, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from omnigraph.commit.snapshot import Pin
from omnigraph.storage.tables.types import TableRef


@dataclass(frozen=True, slots=True)
class TableHealth:
    """One table as the branch shows it. Sizes are bytes."""

    table_key: str
    branch: str
    """Whose copy it is."""
    owned: bool
    """Whether that is the branch which was looked at."""
    version: int
    rows: int
    versions: int = 0
    head: int | None = None
    """The newest version, where it was written past the graph."""
    fragments: int = 0
    small_fragments: int = 0
    """Those that an optimize would put into others."""
    deleted_rows: int = 0
    size: int = 0
    index_size: int = 0
    uncovered_rows: int = 0
    """Of the index that knows least, the rows that it does not know."""
    missing_indexes: tuple[str, ...] = ()
    pending_indexes: int = 0
    """Indexes that cannot be built from what is there."""
    reasons: tuple[str, ...] = ()
    """Why an optimize is worth it, by the policy."""
    saved: int = 0
    """Bytes of rows that are deleted, and that an optimize would leave behind."""
    error: str | None = None
    """Why it cannot be read."""

    @property
    def covered(self) -> float:
        """The share of the rows that every index knows which is built."""
        return 1.0 - self.uncovered_rows / self.rows if self.rows else 1.0

    def broken(self, error: str) -> TableHealth:
        return replace(self, error=error)

    def filled(self, **facts: Any) -> TableHealth:
        return replace(self, **facts)


@dataclass(frozen=True, slots=True)
class ManifestHealth:
    """The manifest of one branch."""

    branch: str
    versions: int
    fragments: int


@dataclass(frozen=True, slots=True)
class Busy:
    """A write that is not over, or that died. The age is in seconds."""

    operation: str
    age: int
    kind: str | None = None
    branch: str | None = None
    tables: tuple[str, ...] = ()
    error: str | None = None
    """Why it cannot be told what it is."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A branch or tag that shows an old version of a table, and so keeps it and all later ones."""

    kind: str
    name: str
    table_key: str
    version: int
    behind: int
    """How many versions the newest is ahead."""

    @staticmethod
    def of(
        kind: str, name: str, pins: Mapping[str, Pin], newest: Mapping[TableRef, int]
    ) -> Holder | None:
        """By the table of which the oldest version is held."""
        held = [
            Holder(kind, name, key, pin.version, newest.get(pin.ref, pin.version) - pin.version)
            for key, pin in pins.items()
        ]
        return max(held, key=lambda each: each.behind, default=None)


@dataclass(frozen=True, slots=True)
class CleanupEstimate:
    """What a cleanup would free; ``why`` says why that is not known."""

    keep: int
    versions: int = 0
    size: int = 0
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """Something to run, and what for."""

    command: str
    why: str


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """How a graph is. ``advice`` is what to run, most urgent first."""

    uri: str
    branch: str
    at: datetime
    tables: tuple[TableHealth, ...]
    manifests: tuple[ManifestHealth, ...]
    writes: tuple[Busy, ...]
    """Writes that were interrupted, or that are just being finished."""
    staging: tuple[Busy, ...]
    """Long writes that stage, or that died while they did."""
    oldest: Holder | None
    branches: tuple[str, ...]
    tags: int
    cleanup: CleanupEstimate
    advice: tuple[Advice, ...] = ()

    @property
    def is_healthy(self) -> bool:
        return not self.advice

    def table(self, table_key: str) -> TableHealth:
        return next(found for found in self.tables if found.table_key == table_key)

    def advised(self, advice: Sequence[Advice]) -> DoctorReport:
        return replace(self, advice=tuple(advice))

    def text(self) -> str:
        """The page, in plain text of at most 100 columns."""
        from omnigraph.maintain.doctor.text import drawn

        return drawn(self)

    def __str__(self) -> str:
        return self.text()

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        told = asdict(self)
        told["at"] = self.at.isoformat(timespec="seconds")
        for plain, table in zip(told["tables"], self.tables, strict=True):
            plain["covered"] = round(table.covered, 4)
        told["healthy"] = self.is_healthy
        return told
