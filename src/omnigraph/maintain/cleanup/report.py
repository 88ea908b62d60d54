"""What a cleanup removed, or what a dry run would remove."""

from __future__ import annotations

from typing import ClassVar

from omnigraph.maintain.report import Report, find_table
from omnigraph.records import dataclass
from omnigraph.representation import brief


@dataclass(frozen=True, slots=True)
class TableCleanup(Report):
    """Old versions removed from one table, on all branches. ``error`` is why some remain."""

    table_key: str
    bytes_removed: int = 0
    old_versions_removed: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ManifestCleanup(Report):
    """Old versions removed from the manifest, on all branches.

    From version ``floor`` of main on the history is complete; before it, only needed versions
    remain.
    """

    floor: int
    bytes_removed: int = 0
    old_versions_removed: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Reclaimed(Report):
    """A number of removed objects and their size."""

    count: int = 0
    bytes: int = 0

    def plus(self, other: Reclaimed) -> Reclaimed:
        return Reclaimed(self.count + other.count, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class Skipped(Report):
    """Something left alone, and why."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class CleanupReport(Report):
    """What a cleanup removed; for a dry run, what the next cleanup would remove."""

    __repr__ = brief

    json_keys: ClassVar[tuple[str, ...]] = (
        *("tables", "manifest", "forks", "files", "dropped", "topologies", "markers", "skipped"),
        *("bytes_removed", "dry_run"),
    )
    tables: tuple[TableCleanup, ...]
    manifest: ManifestCleanup
    forks: Reclaimed = Reclaimed()
    """Table forks that no branch uses."""
    files: Reclaimed = Reclaimed()
    """Orphaned files."""
    dropped: Reclaimed = Reclaimed()
    """Tables of dropped types that no version needs; the size is that of their rows."""
    topologies: Reclaimed = Reclaimed()
    markers: Reclaimed = Reclaimed()
    skipped: tuple[Skipped, ...] = ()
    dry_run: bool = False

    def table(self, table_key: str) -> TableCleanup:
        """The part of one table, such as ``node:Person``."""
        return find_table(self.tables, table_key)

    @property
    def bytes_removed(self) -> int:
        """The total over everything."""
        rest = (self.forks, self.files, self.dropped, self.topologies, self.markers)
        tables = sum(table.bytes_removed for table in self.tables)
        return tables + self.manifest.bytes_removed + sum(group.bytes for group in rest)
