"""The state of a graph at one manifest version: which version of which table belongs to it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.rows import (
    COMPLETES,
    IDEMPOTENCY_KEY,
    ROLLED_BACK,
    CommitRow,
    Row,
    SchemaRow,
    TableRow,
    TagRow,
    TombstoneRow,
    VersionRow,
    VoidRow,
    completed_ids,
    from_arrow,
)
from omnigraph.errors import StorageCorrupt
from omnigraph.records import dataclass
from omnigraph.storage.tables.types import TableRef, TableVersion

# Only few commits are looked up by other keys than their id; all are kept in memory.
# More than the members of a few groups, whose writers look their commits up.
_RECENT = 256
_REMEMBERED = f'"({IDEMPOTENCY_KEY}|{COMPLETES}|{ROLLED_BACK})"'


@dataclass(frozen=True, slots=True)
class Pin:
    """The version of a table that a snapshot shows, and the branch whose copy holds it."""

    table_key: str
    location: str
    version: int
    branch: str | None
    row_count: int
    metadata: Mapping[str, Any]
    life: tuple[str, str] | None = None
    """The branch of the snapshot, and the tag of its reference."""

    @property
    def ref(self) -> TableRef:
        return TableRef(self.location, self.branch)

    @property
    def table_version(self) -> TableVersion:
        return TableVersion(self.location, self.branch, self.version)

    @property
    def e_tag(self) -> str | None:
        tag = self.metadata.get("e_tag")
        return None if tag is None else str(tag)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An immutable view of the graph; pins are in the order of their table keys.

    ``e_tag`` distinguishes a branch from an earlier one of the same name.
    """

    manifest_version: int
    branch: str | None
    pins: Mapping[str, Pin]
    head: CommitRow | None
    schema: SchemaRow | None = None
    e_tag: str | None = None
    member: CommitRow | None = None
    """The commit that the state was asked for, if it also shows later members of its group."""

    def pin(self, table_key: str) -> Pin | None:
        return self.pins.get(table_key)

    def version(self, table_key: str) -> int:
        """The version of a table; 0 if the snapshot does not have it."""
        pin = self.pins.get(table_key)
        return 0 if pin is None else pin.version

    def table_version(self, table_key: str) -> TableVersion | None:
        """The table version of a table; ``None`` if the snapshot does not have it."""
        pin = self.pins.get(table_key)
        return None if pin is None else pin.table_version


class ManifestState:
    """The rows of a manifest folded into the state that a snapshot needs; grows row by row.

    A newer manifest is reached by adding the changed rows: rows are never removed.
    """

    def __init__(self) -> None:
        self.locations: dict[str, str] = {}
        self.versions: dict[str, VersionRow] = {}
        self.tombstones: dict[str, int] = {}
        self.tags: dict[str, TagRow] = {}
        self.head: CommitRow | None = None
        self.schema: SchemaRow | None = None
        self.schemas: dict[int, SchemaRow] = {}
        self.repeats: dict[tuple[str | None, str], CommitRow] = {}
        self.endings: dict[str, CommitRow] = {}
        self.recent: dict[str, CommitRow] = {}
        self.voids: dict[tuple[str | None, int], VoidRow] = {}
        self.rows = 0

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows, in any order."""
        for row in rows:
            self.rows += 1
            match row:
                case TableRow():
                    self.locations[row.table_key] = row.location
                case VersionRow():
                    newest_version = self.versions.get(row.table_key)
                    if newest_version is None or row.version >= newest_version.version:
                        self.versions[row.table_key] = row
                case TombstoneRow():
                    hidden = self.tombstones.get(row.table_key, 0)
                    self.tombstones[row.table_key] = max(hidden, row.version)
                case CommitRow():
                    if self.head is None or row.order > self.head.order:
                        self.head = row
                    self._remember(row)
                    key = row.extra.get(IDEMPOTENCY_KEY)
                    if isinstance(key, str):
                        self.repeats.setdefault((row.branch, key), row)
                    for commit_id in completed_ids(row.extra.get(COMPLETES, [])):
                        self._end(commit_id, row)
                    if ROLLED_BACK in row.extra:
                        self._end(str(row.extra[ROLLED_BACK]), row)
                case TagRow():
                    self.tags[row.name] = row
                case SchemaRow():
                    self.schemas[row.manifest_version] = row
                    newest = self.schema
                    if newest is None or row.manifest_version > newest.manifest_version:
                        self.schema = row
                case VoidRow():
                    self.voids[row.branch, row.manifest_version] = row

    def _remember(self, row: CommitRow) -> None:
        """Cache one of the newest commits: whoever has just written one looks it up."""
        self.recent[row.commit_id] = row
        if len(self.recent) > _RECENT:
            del self.recent[next(iter(self.recent))]

    def remember_newest(self, rows: Iterable[CommitRow]) -> None:
        """Cache the newest of some commits too, however old those in memory are."""
        commits = {row.commit_id: row for row in rows} | self.recent
        newest = sorted(commits.values(), key=attrgetter("order"))[-_RECENT:]
        self.recent = {row.commit_id: row for row in newest}

    def remembered_in(self, table: pa.Table) -> list[CommitRow]:
        """The commits in memory that are among the rows of a manifest."""
        rows = list(self.recent.values())
        ids = pa.array([row.commit_id for row in rows], pa.string())
        exists = pc.is_in(ids, value_set=table["object_id"].combine_chunks().cast(pa.string()))
        return [row for row, is_there in zip(rows, exists.to_pylist(), strict=True) if is_there]

    def _end(self, commit_id: str, row: CommitRow) -> None:
        ending = self.endings.get(commit_id)
        if ending is None or row.order > ending.order:
            self.endings[commit_id] = row

    def add_arrow(self, table: pa.Table) -> None:
        """Add many rows; only those that can matter are read one by one."""
        kinds = table["object_type"]
        is_version = pc.equal(kinds, pa.scalar(VersionRow.kind, kinds.type))
        is_commit = pc.equal(kinds, pa.scalar(CommitRow.kind, kinds.type))
        self.rows += table.num_rows
        before = self.rows
        self.add(from_arrow(table.filter(pc.invert(pc.or_(is_version, is_commit)))))
        self.add(from_arrow(_newest(table.filter(is_version), "table_key")))
        commits = table.filter(is_commit)
        self.add(from_arrow(_newest(commits, None)))
        keyed = pc.match_substring_regex(commits["metadata"], _REMEMBERED)
        self.add(from_arrow(commits.filter(keyed)))
        self.rows = before

    def snapshot(
        self, manifest_version: int, branch: str | None, e_tag: str | None = None
    ) -> Snapshot:
        """The view at the version whose rows were added."""
        pins: dict[str, Pin] = {}
        life = (branch, e_tag) if branch and e_tag else None
        for key in sorted(self.versions):
            row = self.versions[key]
            if self.tombstones.get(key, 0) >= row.version:
                continue
            location = self.locations.get(key)
            if not location:
                raise StorageCorrupt(f"the manifest pins '{key}' but has no location for it")
            pins[key] = Pin(
                key, location, row.version, row.branch, row.row_count, row.metadata, life
            )
        return Snapshot(
            manifest_version, branch, MappingProxyType(pins), self.head, self.schema, e_tag
        )

    def is_gone(self, table_key: str) -> bool:
        """Whether a table existed once and is hidden now."""
        row = self.versions.get(table_key)
        return row is not None and self.tombstones.get(table_key, 0) >= row.version

    def visible_version(self, table_key: str) -> int:
        """The version that a publish compares with: 0 for a table that never existed."""
        row = self.versions.get(table_key)
        hidden = self.tombstones.get(table_key, 0)
        return max(row.version if row else 0, hidden)


def _newest(table: pa.Table, group: str | None) -> pa.Table:
    """The rows of the greatest ``table_version`` of each group, or of all."""
    if not table.num_rows:
        return table
    versions = [version or 0 for version in table["table_version"].to_pylist()]
    groups = table[group].to_pylist() if group else [None] * len(versions)
    best: dict[Any, int] = {}
    for name, version in zip(groups, versions, strict=True):
        if version >= best.get(name, 0):
            best[name] = version
    keep = [
        position
        for position, (name, version) in enumerate(zip(groups, versions, strict=True))
        if version == best[name]
    ]
    return table.take(pa.array(keep, pa.int64()))


_LOCK = threading.Lock()
_LEASES: dict[str, weakref.WeakSet[SnapshotLease]] = {}


class SnapshotLease:
    """A reader in this process, until it is garbage collected; cleanup keeps its snapshot."""

    __slots__ = ("__weakref__", "snapshot")

    def __init__(self, uri: str, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        with _LOCK:
            leases = _LEASES.get(uri)
            if leases is None:
                leases = _LEASES[uri] = weakref.WeakSet()
            leases.add(self)


def leased_snapshots(uri: str) -> list[Snapshot]:
    """The snapshots of a graph that this process reads."""
    with _LOCK:
        return [lease.snapshot for lease in _LEASES.get(uri, ())]
