"""What a cleanup tells of what it did, or would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TableCleanup:
    """What went of one table, on all branches. ``error`` says why not all of it did."""

    table_key: str
    bytes_removed: int = 0
    old_versions_removed: int = 0
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        return {
            "table_key": self.table_key,
            "bytes_removed": self.bytes_removed,
            "old_versions_removed": self.old_versions_removed,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class ManifestCleanup:
    """What went of the history of the graph, on all branches.

    From version ``floor`` of main on everything is there; of what is older, only what is needed.
    """

    floor: int
    bytes_removed: int = 0
    old_versions_removed: int = 0
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        return {
            "floor": self.floor,
            "bytes_removed": self.bytes_removed,
            "old_versions_removed": self.old_versions_removed,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """How many things of a kind went, and how many bytes they took."""

    count: int = 0
    bytes: int = 0

    def plus(self, other: Reclaimed) -> Reclaimed:
        return Reclaimed(self.count + other.count, self.bytes + other.bytes)

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        return {"count": self.count, "bytes": self.bytes}


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that was left alone, and why."""

    what: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        return {"what": self.what, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """What a cleanup removed; of a dry run, what the next one would."""

    tables: tuple[TableCleanup, ...]
    manifest: ManifestCleanup
    forks: Reclaimed = Reclaimed()
    """Copies of tables that no branch shows."""
    files: Reclaimed = Reclaimed()
    """Files that no version names."""
    dropped: Reclaimed = Reclaimed()
    """Tables whose types were dropped and that no state shows any more; the bytes of their rows."""
    topologies: Reclaimed = Reclaimed()
    markers: Reclaimed = Reclaimed()
    skipped: tuple[Skipped, ...] = ()
    dry_run: bool = False

    def table(self, table_key: str) -> TableCleanup:
        return next(found for found in self.tables if found.table_key == table_key)

    @property
    def bytes_removed(self) -> int:
        """Over everything."""
        rest = (self.forks, self.files, self.dropped, self.topologies, self.markers)
        tables = sum(table.bytes_removed for table in self.tables)
        return tables + self.manifest.bytes_removed + sum(each.bytes for each in rest)

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        return {
            "tables": [table.to_json() for table in self.tables],
            "manifest": self.manifest.to_json(),
            "forks": self.forks.to_json(),
            "files": self.files.to_json(),
            "dropped": self.dropped.to_json(),
            "topologies": self.topologies.to_json(),
            "markers": self.markers.to_json(),
            "skipped": [each.to_json() for each in self.skipped],
            "bytes_removed": self.bytes_removed,
            "dry_run": self.dry_run,
        }
