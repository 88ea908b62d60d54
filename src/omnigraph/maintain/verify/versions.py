"""Versions: none between the oldest and the newest is missing, unless a cleanup removed it.

Lance numbers versions without gaps, and the graph records what its cleanups remove. Another
program's cleanup records nothing; it removes the oldest versions, except those that forks were
made from. So a gap counts as a loss if a version exists before it that such a cleanup would have
removed first, or if the transaction of the missing version still exists, which every cleanup
removes with it.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import SCHEMA_LOCK, branch_label
from omnigraph.errors import OmniGraphError, StorageCorrupt
from omnigraph.maintain.verify.context import FROM_BACKUP, VerifyContext
from omnigraph.maintain.verify.report import LISTED, ProblemCode, Weight
from omnigraph.records import dataclass
from omnigraph.storage.checksums import ChecksumRecords
from omnigraph.storage.lance_format.addresses import BranchReference
from omnigraph.storage.objects.paths import branch_of_reference, version_number
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
from omnigraph.storage.tables.files import referenced_files
from omnigraph.storage.tables.types import TableRef, split_file

_MAX_LOST = 10_000
"""A hint of Lance that is farther ahead of the newest version is damaged itself."""
_REFS = "_refs/branches/"
_VERSIONS = "_versions/"
_TRANSACTIONS = "_transactions/"


@dataclass(slots=True)
class _Copy:
    """The directory of one table copy."""

    ref: TableRef
    life: str | None = None
    versions: set[int] = field(default_factory=set)
    transactions: dict[str, int] = field(default_factory=dict)
    """Those with a recorded checksum, by name: their writers saw them committed. The version that
    each was written on."""
    fork_points: set[int] = field(default_factory=set)
    """The versions from which forks were made."""
    pinned: set[int] = field(default_factory=set)
    """The pinned versions."""
    hinted: int = 0
    """The newest version by the hint file of Lance, which may be missing or outdated."""


def check_versions(context: VerifyContext, records: ChecksumRecords) -> None:
    """Report missing versions."""
    removed = None
    with context.guarded("the record of removed versions", file=PATH):
        try:
            removed = read_removed(context.store.objects)
        except StorageCorrupt as error:
            context.add(
                ProblemCode.HISTORY_RECORD_DAMAGED,
                f"{error.message}; gaps between versions are not judged",
                "run graph.maintenance.cleanup(): it writes a new record",
                Weight.WARNING,
                file=PATH,
            )
    for copy in _copies(context, records):
        table = context.table_at(f"{copy.ref.location}/")
        with context.guarded(
            f"the versions of '{table or copy.ref.path}'",
            table=table,
            branch=branch_label(copy.ref.branch),
        ):
            missing = _missing(context, copy, removed)
            if missing:
                _report(context, copy, _confirmed(context, copy, missing), table)


# -- existing versions ----------------------------------------------------------------------------


def _copies(context: VerifyContext, records: ChecksumRecords) -> Iterator[_Copy]:
    """The copies that the selected branches use, and their manifests."""
    used: dict[TableRef, set[int]] = {}
    for branch in context.selected:
        used[TableRef(MANIFEST, branch)] = set()
    for _, pin in context.pins():
        used.setdefault(pin.ref, set()).add(pin.version)
    forks = _forks(context, {ref.location for ref in used})
    copies = {ref.path: _Copy(ref, pinned=versions) for ref, versions in used.items()}
    for path in context.files:
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
            # Its reference is damaged or missing, which is reported separately.
            continue
        copy.life = None if fork is None else fork.life
        copy.fork_points = {
            other.parent_version
            for ref, other in forks.items()
            if ref.location == copy.ref.location and other.parent == copy.ref.branch
        }
        copy.hinted = _hinted(context, copy.ref)
        yield copy


def _forks(context: VerifyContext, locations: Iterable[str]) -> Mapping[TableRef, BranchReference]:
    """The forks of some tables with a readable reference."""
    wanted = set(locations)
    forks: dict[TableRef, BranchReference] = {}
    for path in context.files:
        location, middle, name = path.partition(f"/{_REFS}")
        if middle and location in wanted and name.endswith(".json"):
            try:
                ref = TableRef(location, branch_of_reference(name))
                if ref.branch == SCHEMA_LOCK:
                    continue
                fork = read_fork(context.store.objects, ref)
            except OmniGraphError:
                continue
            if fork is not None:
                forks[ref] = fork
    return forks


def _hinted(context: VerifyContext, ref: TableRef) -> int:
    path = f"{ref.path}/{_VERSIONS}{HINT}"
    if path not in context.files:
        return 0
    try:
        return int(json.loads(context.store.objects.read(path))["version"])
    except (OmniGraphError, ValueError, KeyError, TypeError):
        return 0


# -- missing versions -----------------------------------------------------------------------------


def _missing(context: VerifyContext, copy: _Copy, removed: RemovedVersions | None) -> set[int]:
    """The versions that were missing when the files were listed."""
    if not copy.versions:
        return set()
    gone = frozenset() if removed is None else removed.of(copy.ref, copy.life)
    newest = max(copy.versions)
    missing = copy.pinned - copy.versions
    missing |= {copy.hinted} if newest < copy.hinted <= newest + _MAX_LOST else set()
    last = max(newest, *missing) if missing else newest
    if removed is not None:
        floor = min(gone | (copy.versions - copy.fork_points), default=newest)
        missing |= set(range(floor, last)) - copy.versions - gone
    return missing | _proven(context, copy, gone, newest)


def _proven(context: VerifyContext, copy: _Copy, gone: frozenset[int], newest: int) -> set[int]:
    """Missing versions whose committed transaction still exists."""
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
    if not lost or any(p.startswith(folder) and _VERSIONS in p for p in context.damaged):
        return set()
    try:
        files = referenced_files(context.store.datasets, copy.ref)
        referenced = {file.path for file in files if file.is_transaction}
    except OmniGraphError:
        # Unreadable versions are reported separately.
        return set()
    return {lost[name] for name in lost if f"{copy.ref.path}/{name}" not in referenced}


def _confirmed(context: VerifyContext, copy: _Copy, missing: Iterable[int]) -> list[int]:
    """Check again: a write or a cleanup may have happened since the files were listed.

    A version that its writer set aside as unreadable was never visible.
    """
    store = context.store
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


def _report(context: VerifyContext, copy: _Copy, missing: list[int], table: str | None) -> None:
    ref, label = copy.ref, branch_label(copy.ref.branch)
    name = table or ref.path
    newest = max(copy.versions)
    if ref.location == MANIFEST and any(version > newest for version in missing):
        context.reverted.add(ref.branch)
    for first, last in to_ranges(missing)[:LISTED]:
        which = f"version {first}" if first == last else f"versions {first} to {last}"
        newer = "newer than any that exists, " if last > newest else ""
        by = "a cleanup did not remove " + ("it" if first == last else "them")
        message = f"missing: {which} of '{name}' on branch '{label}', {newer}and {by}"
        file = ref.version_path(last)
        code = ProblemCode.VERSION_MISSING
        context.add(code, message, FROM_BACKUP, table=table, branch=label, file=file)
