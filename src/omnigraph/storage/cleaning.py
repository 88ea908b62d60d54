"""Which versions a table has, and what removing some would free. Nothing is removed here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from omnigraph.storage.datasets import Datasets
from omnigraph.storage.lance_failures import lance_call
from omnigraph.storage.objects import ObjectInfo, ObjectStore
from omnigraph.storage.table_types import TableRef, split_file

# More files than any table has: Lance names a thousand unless it is told otherwise.
_ALL = 1 << 40


@dataclass(frozen=True, slots=True)
class VersionStamp:
    """A version that is there, and when it was made."""

    version: int
    made: datetime


@dataclass(frozen=True, slots=True)
class Freed:
    """What removing versions would free."""

    versions: int
    size: int
    unverified: Mapping[str, int]
    """Files that no version names, of which Lance would remove the old ones too: their sizes."""


def versions_of(datasets: Datasets, ref: TableRef) -> list[VersionStamp]:
    """Every version of one copy of a table, oldest first."""
    dataset = datasets.open(ref)
    with lance_call("list the versions of", ref.path):
        found: Any = dataset.versions()
    # Lance gives moments without a zone, in that of this machine.
    stamps = [VersionStamp(int(v["version"]), v["timestamp"].astimezone(UTC)) for v in found]
    return sorted(stamps, key=lambda stamp: stamp.version)


def freed_by(datasets: Datasets, ref: TableRef, versions: Sequence[int]) -> Freed:
    """What Lance would remove with these versions."""
    if not versions:
        return Freed(0, 0, {})
    dataset = datasets.open(ref)
    with lance_call("look at old versions of", ref.path):
        told = dataset.explain_cleanup_old_versions(
            versions=list(versions),
            error_if_tagged_old_versions=False,
            include_files=True,
            max_files=_ALL,
        )
        unverified = {f.path: int(f.size_bytes) for f in told.candidate_files if f.unverified}
        return Freed(int(told.stats.old_versions), int(told.stats.bytes_removed), unverified)


def fork_reference(branch: str) -> str:
    """The file that makes a fork of a table exist, below the table."""
    return f"_refs/branches/{branch.replace('/', '%2F')}.json"


def is_empty(datasets: Datasets, ref: TableRef) -> bool:
    """Whether the newest version has no part."""
    dataset = datasets.open(ref)
    with lance_call("read", ref.path):
        return not dataset.get_fragments()


def fork_files(objects: ObjectStore, location: str) -> Iterator[tuple[str, str, ObjectInfo]]:
    """The files of all forks of a table, whether they have a reference or not, with whose."""
    top = f"{location}/tree"
    for path, info in objects.files_below(top):
        found = split_file(path.removeprefix(f"{top}/"))
        if found is not None and found[0]:
            yield found[0], path, info
