"""Orphaned files of a table, which no version of any branch references: left by dead writers.

They are only listed here. An uncommitted write has such files too, so they may be removed only
when no writer needs them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from lance import LanceDataset

from omnigraph.errors import StorageMissing
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.types import TableRef, split_file

_FOLDERS = ("data", "_deletions", "_indices")
# How Lance and the object store call a local file while they write it.
_UNFINISHED = re.compile(r"^\.tmp|#\d+$")


@dataclass(frozen=True, slots=True)
class OrphanedFile:
    """A file that no version references."""

    path: str
    """Relative to the root of the graph."""
    size: int
    modified: datetime


def orphaned_files(datasets: Datasets, location: str) -> list[OrphanedFile]:
    """The files of rows, deletions and indexes beside a table and its branches, by their paths."""
    table = datasets.open(TableRef(location))
    with lance_call("list the files of", location):
        # Existing files first: those of a write that is committed meanwhile are then referenced.
        there = list(_there(table))
    named = referenced_names(datasets, location)
    orphaned = [
        OrphanedFile(f"{location}/{path}", size, modified)
        for path, name, size, modified in there
        if name not in named
    ]
    return sorted([*orphaned, *_unfinished(datasets, location)], key=lambda file: file.path)


def _unfinished(datasets: Datasets, location: str) -> Iterator[OrphanedFile]:
    """Temporary files of dead writers; listings leave them out."""
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
    """Every file: its path, the name that versions have for it, its size and its time."""
    for batch in table.all_files():
        columns = [batch.column(n).to_pylist() for n in ("path", "size_bytes", "last_modified")]
        for path, size, modified in zip(*columns, strict=True):
            split = split_file(path)
            segments = [] if split is None else split[1].split("/")
            if segments and segments[0] in _FOLDERS:
                yield path, name_in_versions(segments), size, modified


def referenced_names(datasets: Datasets, location: str) -> set[str]:
    """The files that all versions of a table reference, on all branches; relative to a copy."""
    table = datasets.open(TableRef(location))
    with lance_call("list the files of", location):
        copies = [table, *(datasets.open(TableRef(location, b)) for b in table.branches.list())]
        return {name for copy in copies for name in _named(copy)}


def _named(table: LanceDataset) -> Iterable[str]:
    """What the versions of one copy name, wherever it lies: names are given only once."""
    for batch in table.tracked_files():
        yield from batch.column("path").to_pylist()


def name_in_versions(segments: list[str]) -> str:
    """What versions call a file: a blob lies in a directory named after the file of its row."""
    if segments[0] == "data" and len(segments) > 2:
        return f"data/{segments[1]}.lance"
    return "/".join(segments)
