"""The state of a graph at one manifest version: which version of which table belongs to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.commit.rows import CommitRow, Row, TableRow, TombstoneRow, VersionRow
from omnigraph.errors import StorageCorrupt


@dataclass(frozen=True, slots=True)
class Pin:
    """The version of a table that a snapshot shows, and the branch whose copy holds it."""

    table_key: str
    location: str
    version: int
    branch: str | None
    row_count: int
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An immutable view of the graph; pins are in the order of their table keys."""

    manifest_version: int
    branch: str | None
    pins: Mapping[str, Pin]
    head: CommitRow | None

    def pin(self, table_key: str) -> Pin | None:
        return self.pins.get(table_key)


class ManifestState:
    """The rows of a manifest folded into what a snapshot needs; grows row by row.

    A newer manifest is reached by adding only the rows that changed since, since no kind of row
    that counts is ever taken back.
    """

    def __init__(self) -> None:
        self._locations: dict[str, str] = {}
        self._versions: dict[str, VersionRow] = {}
        self._tombstones: dict[str, int] = {}
        self._head: CommitRow | None = None

    def add(self, rows: Iterable[Row]) -> None:
        """Take rows in, in any order."""
        for row in rows:
            match row:
                case TableRow():
                    self._locations[row.table_key] = row.location
                case VersionRow():
                    known = self._versions.get(row.table_key)
                    if known is None or row.version >= known.version:
                        self._versions[row.table_key] = row
                case TombstoneRow():
                    hidden = self._tombstones.get(row.table_key, 0)
                    self._tombstones[row.table_key] = max(hidden, row.version)
                case CommitRow():
                    if self._head is None or row.order > self._head.order:
                        self._head = row

    def snapshot(self, manifest_version: int, branch: str | None) -> Snapshot:
        """The view at the version whose rows were added."""
        pins: dict[str, Pin] = {}
        for key in sorted(self._versions):
            row = self._versions[key]
            if self._tombstones.get(key, 0) >= row.version:
                continue
            location = self._locations.get(key)
            if not location:
                raise StorageCorrupt(f"the manifest pins '{key}' but does not say where it lies")
            pins[key] = Pin(key, location, row.version, row.branch, row.row_count, row.metadata)
        return Snapshot(manifest_version, branch, pins, self._head)

    def visible_version(self, table_key: str) -> int:
        """What a publish compares expectations with: 0 for a table that never was."""
        row = self._versions.get(table_key)
        hidden = self._tombstones.get(table_key, 0)
        return max(row.version if row else 0, hidden)
