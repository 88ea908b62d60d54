"""The files that versions of a table reference, and its orphaned files.

No version of any branch references an orphaned file. Orphans are left by dead writers, and are only
listed here. The files of an uncommitted write look the same, so orphans may be removed only when no
writer needs them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from lance import LanceDataset

from omnigraph.errors import StorageMissing
from omnigraph.records import dataclass
from omnigraph.storage.lance_format.addresses import parse_table_address
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.paths import refuse_unsafe
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.types import TableRef, split_file

_FOLDERS = ("data", "_deletions", "_indices")
# The names of local files while Lance and the object store write them.
_UNFINISHED = re.compile(r"^\.tmp|#\d+$|\.json\.tmp\.[0-9a-f]+$")


@dataclass(frozen=True, slots=True)
class ReferencedFile:
    """A file that some version references."""

    path: str
    """Relative to the root of the graph."""
    is_transaction: bool


def referenced_files(
    datasets: Datasets, ref: TableRef, until: int | None = None
) -> Iterator[ReferencedFile]:
    """The files that versions reference, all versions or up to one, anywhere in the graph."""
    dataset = datasets.open(ref, until)
    seen: set[tuple[str, str]] = set()
    with lance_call("list the files of", ref.path):
        for batch in dataset.tracked_files():
            columns = [batch.column(n).to_pylist() for n in ("version", "base_uri", "path", "type")]
            for version, base, name, kind in zip(*columns, strict=True):
                if (base, name) not in seen and (until is None or version <= until):
                    seen.add((base, name))
                    # An address may be under the root that the graph was moved from.
                    path = f"{parse_table_address(base, ref.location)[1]}/{name}"
                    refuse_unsafe(path)
                    yield ReferencedFile(path, kind == "transaction file")


@dataclass(frozen=True, slots=True)
class OrphanedFile:
    """A file that no version references."""

    path: str
    """Relative to the root of the graph."""
    size: int
    modified: datetime


def orphaned_files(datasets: Datasets, location: str) -> list[OrphanedFile]:
    """The orphaned data, deletion and index files of a table and its branches, sorted by path."""
    table = datasets.open(TableRef(location))
    with lance_call("list the files of", location):
        # Files are listed before references: the files of a concurrent commit are then referenced.
        there = list(_there(table))
    named = referenced_names(datasets, location)
    orphaned = [
        OrphanedFile(f"{location}/{path}", size, modified)
        for path, name, size, modified in there
        if name not in named
    ]
    return sorted([*orphaned, *_unfinished(datasets, location)], key=lambda file: file.path)


def _unfinished(datasets: Datasets, location: str) -> Iterator[OrphanedFile]:
    """Temporary files of dead writers, which listings leave out."""
    if not datasets.root.is_local:
        return
    top = datasets.root.path(location)
    for folder, _, names in os.walk(top):
        for name in names:
            if _UNFINISHED.search(name):
                with suppress(StorageMissing), storage_call("look at", location):
                    stats = os.lstat(f"{folder}/{name}")
                    path = f"{location}{folder.removeprefix(top)}/{name}"
                    modified = datetime.fromtimestamp(stats.st_mtime, UTC)
                    yield OrphanedFile(path, stats.st_size, modified)


def _there(table: LanceDataset) -> Iterator[tuple[str, str, int, datetime]]:
    """Every existing file: its path, its name in versions, its size and its time."""
    for batch in table.all_files():
        columns = [batch.column(n).to_pylist() for n in ("path", "size_bytes", "last_modified")]
        for path, size, modified in zip(*columns, strict=True):
            split = split_file(path)
            segments = [] if split is None else split[1].split("/")
            if segments and segments[0] in _FOLDERS:
                yield path, name_in_versions(segments), size, modified


def referenced_names(datasets: Datasets, location: str) -> set[str]:
    """The files that the versions of a table reference, on all branches, relative to their copy."""
    table = datasets.open(TableRef(location))
    with lance_call("list the files of", location):
        copies = [table, *(datasets.open(TableRef(location, b)) for b in table.branches.list())]
        # The copy does not matter: file names are unique.
        return {
            name
            for copy in copies
            for batch in copy.tracked_files()
            for name in batch.column("path").to_pylist()
        }


def name_in_versions(segments: list[str]) -> str:
    """The name of a file in versions; a blob's directory is named after its data file."""
    if segments[0] == "data" and len(segments) > 2:
        return f"data/{segments[1]}.lance"
    return "/".join(segments)
