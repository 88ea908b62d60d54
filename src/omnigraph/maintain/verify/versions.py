"""Versions: every one between the oldest and the newest is there, unless a cleanup removed it.

Lance numbers versions without gaps, and the graph records what its cleanups remove. Another
program's cleanup records nothing; it removes the oldest versions, except those that forks were
made from. So a gap counts as a loss when a version before it is there that such a cleanup would
have removed first, or when the transaction of the missing version is still there, which every
cleanup removes with it.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import SCHEMA_LOCK, branch_label
from omnigraph.errors import OmniGraphError, StorageCorrupt
from omnigraph.maintain.verify.ground import FROM_BACKUP, Ground
from omnigraph.maintain.verify.report import LISTED, ProblemCode, VerifyProblem, Weight
from omnigraph.storage.checksums import ChecksumRecords
from omnigraph.storage.lance_format.names import version_number
from omnigraph.storage.lance_format.references import BranchReference
from omnigraph.storage.objects.graph_paths import branch_of_reference
from omnigraph.storage.read_back import versions_aside
from omnigraph.storage.removed_versions import (
    PATH,
    RemovedVersions,
    life_id,
    read_fork,
    read_removed,
    to_ranges,
)
from omnigraph.storage.tables.datasets import HINT
from omnigraph.storage.tables.types import TableRef, split_file
from omnigraph.storage.tables.verification import transactions_of_versions

_MOST_LOST = 10_000
"""A hint of Lance that is farther ahead of the newest version is damaged itself."""
_REFS = "_refs/branches/"
_VERSIONS = "_versions/"
_TRANSACTIONS = "_transactions/"


@dataclass(slots=True)
class _Copy:
    """What lies in the directory of one copy of a table."""

    ref: TableRef
    life: str | None = None
    versions: set[int] = field(default_factory=set)
    transactions: dict[str, int] = field(default_factory=dict)
    """Those with a recorded checksum, by name: their writers saw them committed. The version that
    each was written on."""
    fork_points: set[int] = field(default_factory=set)
    """The versions from which forks were made."""
    pinned: set[int] = field(default_factory=set)
    """The versions that branches show."""
    hinted: int = 0
    """The newest version as Lance last wrote it down; it may know none, or an older one."""


def look_at_versions(ground: Ground, records: ChecksumRecords) -> None:
    """Every version that has to be there is."""
    removed = None
    with ground.guarded("the record of removed versions", file=PATH):
        removed = _record(ground)
    for copy in _copies(ground, records):
        table = ground.table_at(f"{copy.ref.location}/")
        with ground.guarded(
            f"the versions of '{table or copy.ref.path}'",
            table=table,
            branch=branch_label(copy.ref.branch),
        ):
            missing = _missing(ground, copy, removed)
            if missing:
                _report(ground, copy, _confirmed(ground, copy, missing), table)


def _record(ground: Ground) -> RemovedVersions | None:
    try:
        return read_removed(ground.store.objects)
    except StorageCorrupt as error:
        ground.problems.add(
            VerifyProblem(
                ProblemCode.HISTORY_RECORD_DAMAGED,
                f"{error.message}; gaps between versions are not judged",
                "run graph.maintenance.cleanup(): it writes the record anew",
                Weight.WARNING,
                file=PATH,
            )
        )
    return None


# -- what is there --------------------------------------------------------------------------------


def _copies(ground: Ground, records: ChecksumRecords) -> Iterator[_Copy]:
    """The copies that the branches that are asked for show, and their manifests."""
    shown: dict[TableRef, set[int]] = {}
    for branch in ground.selected:
        shown[TableRef(MANIFEST, branch)] = set()
    for _, pin in ground.pins():
        shown.setdefault(pin.ref, set()).add(pin.version)
    forks = _forks(ground, {ref.location for ref in shown})
    copies = {ref.path: _Copy(ref, pinned=versions) for ref, versions in shown.items()}
    for path in ground.files:
        folder, name = split_file(path) or ("", "")
        copy = copies.get(folder)
        if copy is None:
            continue
        if name.startswith(_VERSIONS):
            version = version_number(name.removeprefix(_VERSIONS))
            copy.versions |= set() if version is None else {version}
        elif name.startswith(_TRANSACTIONS) and path in records.sums:
            start = name.removeprefix(_TRANSACTIONS).partition("-")[0]
            if start.isdecimal():
                copy.transactions[name] = int(start)
    for copy in copies.values():
        fork = forks.get(copy.ref)
        if copy.ref.branch is not None and fork is None:
            # Its reference is damaged or gone, which is reported by itself.
            continue
        copy.life = None if fork is None else fork.life
        copy.fork_points = {
            other.parent_version
            for ref, other in forks.items()
            if ref.location == copy.ref.location and other.parent == copy.ref.branch
        }
        copy.hinted = _hinted(ground, copy.ref)
        yield copy


def _forks(ground: Ground, locations: Iterable[str]) -> Mapping[TableRef, BranchReference]:
    """Every fork of some tables whose reference can be read."""
    wanted = set(locations)
    found: dict[TableRef, BranchReference] = {}
    for path in ground.files:
        location, middle, name = path.partition(f"/{_REFS}")
        if middle and location in wanted and name.endswith(".json"):
            try:
                ref = TableRef(location, branch_of_reference(name))
                if ref.branch == SCHEMA_LOCK:
                    continue
                fork = read_fork(ground.store.objects, ref)
            except OmniGraphError:
                continue
            if fork is not None:
                found[ref] = fork
    return found


def _hinted(ground: Ground, ref: TableRef) -> int:
    path = f"{ref.path}/{_VERSIONS}{HINT}"
    if path not in ground.files:
        return 0
    try:
        return int(json.loads(ground.store.objects.read(path))["version"])
    except (OmniGraphError, ValueError, KeyError, TypeError):
        return 0


# -- what is missing ------------------------------------------------------------------------------


def _missing(ground: Ground, copy: _Copy, removed: RemovedVersions | None) -> set[int]:
    """The versions that should be there and were not when the files were listed."""
    if not copy.versions:
        return set()
    gone = frozenset() if removed is None else removed.of(copy.ref, copy.life)
    newest = max(copy.versions)
    missing = copy.pinned - copy.versions
    missing |= {copy.hinted} if newest < copy.hinted <= newest + _MOST_LOST else set()
    last = max(newest, *missing) if missing else newest
    if removed is not None:
        floor = min(gone | (copy.versions - copy.fork_points), default=newest)
        missing |= set(range(floor, last)) - copy.versions - gone
    return missing | _proven(ground, copy, gone, newest)


def _proven(ground: Ground, copy: _Copy, gone: frozenset[int], newest: int) -> set[int]:
    """Versions whose transaction was committed and is still there, without them."""
    lost: dict[str, int] = {}
    oldest = min(copy.transactions.values(), default=newest)
    absent = sorted(set(range(oldest, newest + 1)) - copy.versions - gone)
    for name, start in copy.transactions.items():
        # A fork begins with a version of the same number as the one that it was made from.
        after = bisect_left(absent, start + (copy.ref.branch is None))
        if after < len(absent):
            lost[name] = absent[after]
        elif start >= newest:
            lost[name] = start + 1
    folder = f"{copy.ref.location}/"
    if not lost or any(p.startswith(folder) and _VERSIONS in p for p in ground.damaged):
        return set()
    try:
        named = transactions_of_versions(ground.store.datasets, copy.ref)
    except OmniGraphError:
        # What versions name cannot be read, which is reported by itself.
        return set()
    return {version for name, version in lost.items() if name not in named}


def _confirmed(ground: Ground, copy: _Copy, missing: Iterable[int]) -> list[int]:
    """Look again: somebody may have written or cleaned up since the files were listed.

    A version that its writer set aside, because nobody could read it, was never shown.
    """
    store = ground.store
    if life_id(store.objects, copy.ref) != copy.life:
        return []
    try:
        removed = read_removed(store.objects)
    except StorageCorrupt:
        removed = None
    gone = frozenset() if removed is None else removed.of(copy.ref, copy.life)
    gone |= versions_aside(store.datasets, copy.ref)
    return [
        version
        for version in sorted(missing)
        if version not in gone and store.datasets.info(copy.ref, version) is None
    ]


def _report(ground: Ground, copy: _Copy, missing: list[int], table: str | None) -> None:
    ref, label = copy.ref, branch_label(copy.ref.branch)
    name = table or ref.path
    newest = max(copy.versions)
    if ref.location == MANIFEST and any(version > newest for version in missing):
        ground.reverted.add(ref.branch)
    for first, last in to_ranges(missing)[:LISTED]:
        which = f"version {first}" if first == last else f"versions {first} to {last}"
        newer = "newer than any that exists, " if last > newest else ""
        by = "a cleanup did not remove " + ("it" if first == last else "them")
        ground.problems.add(
            VerifyProblem(
                ProblemCode.VERSION_MISSING,
                f"missing: {which} of '{name}' on branch '{label}', {newer}and {by}",
                FROM_BACKUP,
                table=table,
                branch=label,
                file=ground.store.datasets.version_path(ref, last),
            )
        )
