"""What belongs to a graph at one moment: the files that a copy of it needs, and no others.

First the moment is fixed, while nobody may publish: the version of the manifest of every branch.
From there on everything follows. A table has versions that are newer than what the manifests show
when somebody is about to publish; they are no part of the moment, nor are the files that only they
name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow.compute as pc

from omnigraph.commit.audit import AUDIT_TABLE
from omnigraph.commit.branches import Branches
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import (
    BRANCHES_LEASE,
    branch_label,
    normal_branch,
    publish_lease,
)
from omnigraph.commit.rows import TableRow, VersionRow, checked_branch, checked_location
from omnigraph.commit.schema.files import IR, SOURCE, STATE
from omnigraph.commit.schema.lock import refuse_while_schema_changes
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.staging import mark, unmark
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import now_micros
from omnigraph.errors import BranchNotFound, HistoryGone, StorageCorrupt, StorageMissing
from omnigraph.storage.objects.graph_paths import is_branch, is_copied_file, is_location, refused
from omnigraph.storage.removed_versions import PATH as REMOVED
from omnigraph.storage.tables.ledger import Ledger
from omnigraph.storage.tables.referenced_files import ReferencedFile, referenced_files
from omnigraph.storage.tables.types import TableRef

_FOLDERS = ("nodes", "edges")
_VERSIONS = "/_versions/"


@dataclass(frozen=True, slots=True)
class Moment:
    """A graph at one moment, before its files are looked at."""

    taken_at: int
    graph: str
    """The id of its first commit: the same for a graph and its copies."""
    versions: Mapping[str | None, int]
    texts: Mapping[str, str]
    """Files that change under their names, as they were."""
    locations: tuple[str, ...]

    @property
    def branches(self) -> dict[str, int]:
        return {branch_label(branch): version for branch, version in self.versions.items()}


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a moment."""

    sizes: Mapping[str, int]
    texts: Mapping[str, str]
    """Some files with what they hold: those that change under their names."""


def fix(store: GraphStore, stack: ExitStack) -> Moment:
    """Fix the moment; until the stack is left, markers keep cleanup away from its versions."""
    with store.leases.acquire([BRANCHES_LEASE], store.timeouts.lease):
        # An apply takes this lease to begin, so none begins now.
        refuse_while_schema_changes(store, "backup")
        branches = [normal_branch(name) for name in Branches(store).list()]
        leases = [publish_lease(branch) for branch in branches]
        with store.leases.acquire(leases, store.timeouts.lease):
            snapshots = dict(_snapshots(store, branches))
        for branch, snapshot in snapshots.items():
            stack.callback(unmark, store, mark(store, branch, snapshot))
        texts = {path: store.objects.read(path) for path in (SOURCE, IR, STATE)}
        texts |= _references(store, MANIFEST, (b for b in snapshots if b is not None))
        folders = [f"{top}/{name}" for top in _FOLDERS for name in store.objects.folders(top)]
        locations = [path for path in folders if is_location(path)]
    first = store.manifest(None).commits()[0].commit_id
    versions = {branch: each.manifest_version for branch, each in snapshots.items()}
    return Moment(now_micros(), first, versions, texts, tuple(locations))


def _snapshots(
    store: GraphStore, branches: Iterable[str | None]
) -> Iterator[tuple[str | None, Snapshot]]:
    for branch in branches:
        try:
            yield branch, store.manifest(branch).current()
        except BranchNotFound:
            # No more than a reference, left by a crash.
            continue


def files_of(store: GraphStore, moment: Moment) -> Files:
    """Every file of a moment. ``StorageMissing`` names one that is gone."""
    there: dict[str, int] = {}
    for top in (*_FOLDERS, MANIFEST, AUDIT_TABLE):
        there |= store.objects.sizes_below(top)
    # After the listing: a version that is not in it is recorded by now, if a cleanup removed it.
    texts = {**moment.texts, **_removed(store)}
    limits = _limits(store, moment)
    for location in sorted({ref.location for ref in limits}):
        if location != MANIFEST:
            own = (ref.branch for ref in limits if ref.location == location)
            texts |= _references(store, location, (b for b in own if b is not None))
    versions = _versions(there)
    companions = _companions(there)
    wanted: dict[str, int] = {}
    for ref in sorted({*limits, TableRef(AUDIT_TABLE)}, key=lambda ref: ref.path):
        shown = versions.get(ref.path, [])
        # Of a type that was dropped with its rows, only what came after them is left.
        kept = [v for v in shown if v <= limits.get(ref, 0)] or shown
        if not kept:
            if ref in limits and ref.location not in moment.locations:
                raise _gone(f"{ref.path}/_versions")
            continue
        for file in referenced_files(store.datasets, ref, max(kept)):
            for path in (file.path, *companions.get(file.path, ())):
                if path in there:
                    wanted[path] = there[path]
                elif _must_be_there(file):
                    raise _gone(path)
    for path in (*wanted, *texts):
        if not is_copied_file(path):
            raise refused(path, "the graph")
    return Files(dict(sorted(wanted.items())), texts)


def _removed(store: GraphStore) -> dict[str, str]:
    """The record of removed versions, if the graph has one that can be read."""
    try:
        return {REMOVED: store.objects.read(REMOVED)}
    except (StorageMissing, StorageCorrupt):
        return {}


def refuse_changed(store: GraphStore, files: Files) -> None:
    """Make sure that every branch still is the one it was: names come back after a delete."""
    for path, text in files.texts.items():
        if "/_refs/" in path and store.objects.read(path) != text:
            raise HistoryGone("a branch was deleted and made again", hint="repeat the copy")


def _limits(store: GraphStore, moment: Moment) -> dict[TableRef, int]:
    """The newest version of every table on every branch that some manifest shows."""
    found: dict[TableRef, int] = {TableRef(location): 0 for location in moment.locations}
    for branch, version in moment.versions.items():
        ref = TableRef(MANIFEST, branch)
        found[ref] = version
        kinds = [TableRow.kind, VersionRow.kind]
        rows = (
            Ledger.open(store.datasets, ref, version)
            .read(
                ["object_type", "table_key", "location", "table_version", "table_branch"],
                pc.field("object_type").isin(kinds),
            )
            .to_pylist()
        )
        places = {
            row["table_key"]: checked_location(row)
            for row in rows
            if row["object_type"] == TableRow.kind
        }
        for row in rows:
            if row["object_type"] == VersionRow.kind and row["table_key"] in places:
                table = TableRef(places[row["table_key"]], normal_branch(checked_branch(row)))
                found[table] = max(found.get(table, 0), int(row["table_version"]))
    return found


def _references(store: GraphStore, location: str, branches: Iterable[str]) -> dict[str, str]:
    """The references of branches, and of those that they were made from."""
    found: dict[str, str] = {}
    waiting = list(branches)
    while waiting:
        path = f"{location}/_refs/branches/{waiting.pop().replace('/', '%2F')}.json"
        if path not in found:
            found[path] = store.objects.read(path)
            parent = _parent(found[path], path)
            waiting += [parent] if parent else []
    return found


def _parent(text: str, path: str) -> str | None:
    """The branch that another was made from, as its reference says."""
    try:
        parent = json.loads(text).get("parentBranch")
    except (ValueError, AttributeError, RecursionError):
        raise StorageCorrupt(f"'{path}' does not describe a branch") from None
    if parent and not is_branch(parent):
        raise refused(parent, f"'{path}'")
    return str(parent) if parent else None


def _versions(there: Iterable[str]) -> dict[str, list[int]]:
    """The versions that have files, by the directory of their table or branch."""
    found: dict[str, list[int]] = {}
    for path in there:
        folder, middle, name = path.rpartition(_VERSIONS)
        number = name.removesuffix(".manifest")
        if middle and number != name and number.isdecimal():
            found.setdefault(folder, []).append(2**64 - 1 - int(number))
    return found


def _companions(there: Iterable[str]) -> dict[str, list[str]]:
    """Blobs lie in a directory that is named after the file of their rows."""
    found: dict[str, list[str]] = {}
    for path in there:
        folder, middle, rest = path.rpartition("/data/")
        name, below, _ = rest.partition("/")
        if middle and below:
            found.setdefault(f"{folder}/data/{name}.lance", []).append(path)
    return found


def _must_be_there(file: ReferencedFile) -> bool:
    # Nobody needs a transaction to read; the first version of a branch may have none.
    return not file.is_transaction


def _gone(path: str) -> StorageMissing:
    return StorageMissing(
        f"'{path}' is named by the graph and is not there",
        hint="run verify to see what is damaged",
        details={"path": path},
    )
