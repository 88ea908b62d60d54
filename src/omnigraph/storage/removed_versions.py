"""The record of versions removed by cleanup, which distinguishes them from lost ones.

Lance numbers the versions of a dataset without gaps. A gap is therefore a removed version or a
lost one, and only this record knows which. It is one small object for the whole graph, made with
the graph and extended before version files are removed. A graph without it was made by another
program: its gaps are not judged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from omnigraph.errors import Conflict, StorageCorrupt, StorageMissing
from omnigraph.records import dataclass
from omnigraph.storage.checksums import digest_of_record
from omnigraph.storage.lance_format.addresses import BranchReference, parse_reference
from omnigraph.storage.objects.paths import branch_file, is_copy
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables.types import TableRef

FOLDER = "__history"
PATH = f"{FOLDER}/removed.json"

_VERSION = 1
_ATTEMPTS = 50
_MOST_VERSIONS = 10_000_000

Ranges = tuple[tuple[int, int], ...]
"""Versions as inclusive ranges, ascending."""


def to_ranges(versions: Iterable[int]) -> Ranges:
    """
    >>> to_ranges([7, 1, 2, 3, 8])
    ((1, 3), (7, 8))
    """
    ranges: list[tuple[int, int]] = []
    for version in sorted(set(versions)):
        if ranges and version == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], version)
        else:
            ranges.append((version, version))
    return tuple(ranges)


def from_ranges(ranges: Iterable[Iterable[int]]) -> Iterator[int]:
    """
    >>> list(from_ranges([[1, 3], [7, 8]]))
    [1, 2, 3, 7, 8]
    """
    for first, last in ranges:
        yield from range(first, last + 1)


def checked_ranges(stored: Any) -> Ranges:
    """Parse stored ranges; ``ValueError`` if they are invalid or implausibly large."""
    ranges = tuple((int(first), int(last)) for first, last in stored)
    total = sum(last - first + 1 for first, last in ranges)
    if any(not 0 <= first <= last for first, last in ranges) or total > _MOST_VERSIONS:
        raise ValueError("invalid ranges of versions")
    return ranges


def read_fork(objects: ObjectStore, ref: TableRef) -> BranchReference | None:
    """The reference of a fork; ``None`` if the fork does not exist."""
    path = f"{ref.location}/{branch_file(ref.branch or '')}"
    try:
        return parse_reference(objects.read(path), path)
    except StorageMissing:
        return None


def life_id(objects: ObjectStore, ref: TableRef) -> str | None:
    """The id of a fork, different from later forks of its name and kept in copies of the graph."""
    if ref.branch is None:
        return None
    fork = read_fork(objects, ref)
    return None if fork is None else fork.life


@dataclass(frozen=True, slots=True)
class CopyRemovals:
    """The removed versions of one copy of a table."""

    life: str | None
    versions: Ranges


@dataclass(frozen=True, slots=True)
class RemovedVersions:
    """The whole record, by the directory of each copy relative to the root."""

    copies: Mapping[str, CopyRemovals] = field(default_factory=dict)

    def of(self, ref: TableRef, life: str | None) -> frozenset[int]:
        """The removed versions of a copy, without those of an earlier fork of the same name."""
        removals = self.copies.get(ref.path)
        if removals is None or removals.life != life:
            return frozenset()
        return frozenset(from_ranges(removals.versions))

    def changed(
        self, ref: TableRef, life: str | None, added: Iterable[int], restored: Iterable[int] = ()
    ) -> RemovedVersions:
        """The record with versions of one copy added, and others that still exist dropped."""
        versions = (self.of(ref, life) | frozenset(added)) - frozenset(restored)
        copies = {**self.copies, ref.path: CopyRemovals(life, to_ranges(versions))}
        return RemovedVersions(copies)

    def to_text(self) -> str:
        removed = {
            path: {"life": copy.life, "versions": [list(span) for span in copy.versions]}
            for path, copy in sorted(self.copies.items())
        }
        return json.dumps(
            {"version": _VERSION, "sum": digest_of_record(removed), "removed": removed}
        )

    @classmethod
    def from_text(cls, text: str) -> RemovedVersions:
        """Parse the record; ``StorageCorrupt`` if it is damaged."""
        try:
            stored = json.loads(text)
            removed = stored["removed"]
            if stored["version"] != _VERSION or stored["sum"] != digest_of_record(removed):
                raise ValueError("the record is damaged")
            if not all(map(is_copy, removed)):
                raise ValueError("the record names a path that is not a table")
            return cls(
                {
                    path: CopyRemovals(
                        None if copy["life"] is None else str(copy["life"]),
                        checked_ranges(copy["versions"]),
                    )
                    for path, copy in removed.items()
                }
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise StorageCorrupt(
                f"the record of removed versions in '{PATH}' is damaged",
                hint="the next cleanup recreates it",
            ) from None


def read_removed(objects: ObjectStore) -> RemovedVersions | None:
    """The record of a graph; ``None`` if it has none."""
    try:
        return RemovedVersions.from_text(objects.read(PATH))
    except StorageMissing:
        return None


def start_record(objects: ObjectStore) -> None:
    objects.write(PATH, RemovedVersions().to_text())


def adopt_record(objects: ObjectStore, removed: RemovedVersions) -> None:
    """Create the record of a graph that has no readable one; the first of several callers wins."""
    try:
        stored = objects.read_versioned(PATH)
    except StorageMissing:
        objects.create(PATH, removed.to_text())
        return
    except StorageCorrupt:
        # Not even text.
        objects.write(PATH, removed.to_text())
        return
    try:
        RemovedVersions.from_text(stored.text)
    except StorageCorrupt:
        objects.replace(PATH, removed.to_text(), stored.version)


def record_removed(
    objects: ObjectStore,
    ref: TableRef,
    life: str | None,
    added: Iterable[int],
    restored: Iterable[int] = (),
) -> None:
    """Extend the record, if the graph has a readable one."""
    more, less = frozenset(added), frozenset(restored)
    _update(objects, lambda removed: removed.changed(ref, life, more, less))


def prune_record(objects: ObjectStore) -> None:
    """Remove the entries of deleted forks."""

    def exists(path: str, copy: CopyRemovals) -> bool:
        location, _, branch = path.partition("/tree/")
        return copy.life is None or life_id(objects, TableRef(location, branch)) == copy.life

    def existing(removed: RemovedVersions) -> RemovedVersions:
        return RemovedVersions({p: c for p, c in removed.copies.items() if exists(p, c)})

    _update(objects, existing)


def _update(objects: ObjectStore, change: Callable[[RemovedVersions], RemovedVersions]) -> None:
    for _ in range(_ATTEMPTS):
        try:
            stored = objects.read_versioned(PATH)
            before = RemovedVersions.from_text(stored.text)
        except (StorageMissing, StorageCorrupt):
            return
        after = change(before)
        if after == before or objects.replace(PATH, after.to_text(), stored.version):
            return
    raise Conflict("other processes keep changing the record of removed versions", hint="repeat")
