"""A graph as of one time: exactly the files that a copy of it needs.

The manifest version of every branch is captured under the publish leases; everything else follows
from it. A table may have versions newer than the manifests show, when a writer is about to publish;
they do not belong to the capture, nor do the files that only they reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime

import pyarrow.compute as pc

from omnigraph.commit.audit import AUDIT_TABLE
from omnigraph.commit.branches import Branches
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import BRANCHES_LEASE, branch_label, normal_branch, publish_lease
from omnigraph.commit.rows import TableRow, VersionRow, checked_branch, checked_location
from omnigraph.commit.schema.files import IR, SOURCE, STATE
from omnigraph.commit.schema.lock import refuse_while_schema_changes
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.staging import delete_staging_marker, write_staging_marker
from omnigraph.commit.store import GraphStore
from omnigraph.errors import BranchNotFound, HistoryGone, StorageCorrupt, StorageMissing
from omnigraph.records import dataclass
from omnigraph.storage.lance_format.addresses import parse_reference
from omnigraph.storage.objects.paths import (
    branch_file,
    is_copied_file,
    is_location,
    refused,
    version_number,
)
from omnigraph.storage.removed_versions import PATH as REMOVED
from omnigraph.storage.tables.files import referenced_files
from omnigraph.storage.tables.ledger import Ledger
from omnigraph.storage.tables.types import TableRef

_FOLDERS = ("nodes", "edges")


@dataclass(frozen=True, slots=True)
class Capture:
    """A graph as of one time, before its files are listed."""

    taken_at: datetime
    graph: str
    """The id of its first commit: the same for a graph and its copies."""
    versions: Mapping[str | None, int]
    texts: Mapping[str, str]
    """The files that change in place, with their content."""
    locations: tuple[str, ...]

    @property
    def branches(self) -> dict[str, int]:
        return {branch_label(branch): version for branch, version in self.versions.items()}


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to copy: its path in the graph, and where the source stores it."""

    path: str
    stored: str
    size: int
    sha256: str | None = None
    data: bytes | None = None
    """The content, if it was read already."""


def capture_graph(store: GraphStore, stack: ExitStack) -> Capture:
    """Capture a graph; until the stack is closed, markers keep cleanup away from its versions."""
    with store.leases.acquire([BRANCHES_LEASE], store.timeouts.lease):
        # A schema apply starts under this lease, so none starts now.
        refuse_while_schema_changes(store, "backup")
        branches = [normal_branch(name) for name in Branches(store).list()]
        leases = [publish_lease(branch) for branch in branches]
        snapshots: dict[str | None, Snapshot] = {}
        with store.leases.acquire(leases, store.timeouts.lease):
            for branch in branches:
                # A crash may have left only the reference.
                with suppress(BranchNotFound):
                    snapshots[branch] = store.manifest(branch).current()
        for branch, snapshot in snapshots.items():
            stack.callback(
                delete_staging_marker, store, write_staging_marker(store, branch, snapshot)
            )
        texts = {path: store.objects.read(path) for path in (SOURCE, IR, STATE)}
        texts |= _references(store, MANIFEST, (b for b in snapshots if b is not None))
        folders = [f"{top}/{name}" for top in _FOLDERS for name in store.objects.folders(top)]
        locations = [path for path in folders if is_location(path)]
    first = store.manifest(None).commits()[0].commit_id
    versions = {branch: snapshot.manifest_version for branch, snapshot in snapshots.items()}
    return Capture(datetime.now(UTC), first, versions, texts, tuple(locations))


def captured_files(store: GraphStore, capture: Capture) -> list[SourceFile]:
    """Every file of a capture; ``StorageMissing`` if one does not exist."""
    existing: dict[str, int] = {}
    for top in (*_FOLDERS, MANIFEST, AUDIT_TABLE):
        existing |= store.objects.sizes_below(top)
    # After the listing: a version removed by a cleanup before it is recorded by now.
    texts = dict(capture.texts)
    with suppress(StorageMissing, StorageCorrupt):
        texts[REMOVED] = store.objects.read(REMOVED)
    limits = _limits(store, capture)
    for location in sorted({ref.location for ref in limits}):
        if location != MANIFEST:
            own = (ref.branch for ref in limits if ref.location == location)
            texts |= _references(store, location, (b for b in own if b is not None))
    versions = _versions(existing)
    companions = _companions(existing)
    wanted: dict[str, int] = {}
    for ref in sorted({*limits, TableRef(AUDIT_TABLE)}, key=lambda ref: ref.path):
        listed = versions.get(ref.path, [])
        # A type dropped with its rows has only the versions after the drop.
        kept = [v for v in listed if v <= limits.get(ref, 0)] or listed
        if not kept:
            if ref in limits and ref.location not in capture.locations:
                raise _gone(f"{ref.path}/_versions")
            continue
        for file in referenced_files(store.datasets, ref, max(kept)):
            for path in (file.path, *companions.get(file.path, ())):
                if path in existing:
                    wanted[path] = existing[path]
                # No reader needs transaction files; the first version of a branch may have none.
                elif not file.is_transaction:
                    raise _gone(path)
    for path in (*wanted, *texts):
        if not is_copied_file(path):
            raise refused(path, "the graph")
    contents = {path: text.encode() for path, text in texts.items()}
    return [
        *(SourceFile(path, path, size) for path, size in sorted(wanted.items())),
        *(SourceFile(path, path, len(data), data=data) for path, data in contents.items()),
    ]


def refuse_changed(store: GraphStore, files: Iterable[SourceFile]) -> None:
    """Make sure that no branch was replaced: the name of a deleted one may be reused."""
    for file in files:
        if "/_refs/" in file.path and store.objects.read_bytes(file.path) != file.data:
            raise HistoryGone("a branch was deleted and recreated", hint="repeat the copy")


def _limits(store: GraphStore, capture: Capture) -> dict[TableRef, int]:
    """The newest version of every table on every branch that some manifest shows."""
    limits: dict[TableRef, int] = {TableRef(location): 0 for location in capture.locations}
    columns = ["object_type", "table_key", "location", "table_version", "table_branch"]
    condition = pc.field("object_type").isin([TableRow.kind, VersionRow.kind])
    for branch, version in capture.versions.items():
        ref = TableRef(MANIFEST, branch)
        limits[ref] = version
        rows = Ledger.open(store.datasets, ref, version).read(columns, condition).to_pylist()
        locations = {
            row["table_key"]: checked_location(row)
            for row in rows
            if row["object_type"] == TableRow.kind
        }
        for row in rows:
            if row["object_type"] == VersionRow.kind and row["table_key"] in locations:
                table = TableRef(locations[row["table_key"]], normal_branch(checked_branch(row)))
                limits[table] = max(limits.get(table, 0), int(row["table_version"]))
    return limits


def _references(store: GraphStore, location: str, branches: Iterable[str]) -> dict[str, str]:
    """The references of branches and of their ancestors."""
    texts: dict[str, str] = {}
    waiting = list(branches)
    while waiting:
        path = f"{location}/{branch_file(waiting.pop())}"
        if path not in texts:
            texts[path] = store.objects.read(path)
            parent = parse_reference(texts[path], path).parent
            waiting += [] if parent is None else [parent]
    return texts


def _versions(paths: Iterable[str]) -> dict[str, list[int]]:
    """The versions with a manifest file, by the directory of their table or branch."""
    versions: dict[str, list[int]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/_versions/")
        number = version_number(name)
        if folder and number is not None:
            versions.setdefault(folder, []).append(number)
    return versions


def _companions(paths: Iterable[str]) -> dict[str, list[str]]:
    """Blob files by the data file of their rows, after which their directory is named."""
    companions: dict[str, list[str]] = {}
    for path in paths:
        folder, middle, rest = path.rpartition("/data/")
        name, below, _ = rest.partition("/")
        if middle and below:
            companions.setdefault(f"{folder}/data/{name}.lance", []).append(path)
    return companions


def _gone(path: str) -> StorageMissing:
    return StorageMissing(
        f"'{path}' is referenced by the graph but missing",
        hint="run verify to see what is damaged",
        details={"path": path},
    )
