"""Files beside a table that none of its versions names, on no branch: what dead writers left.

Only looked at here. A write that has not been committed yet has such files too, so nobody may
remove them without knowing that no writer needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from lance import LanceDataset

from omnigraph.storage.datasets import Datasets
from omnigraph.storage.lance_failures import lance_call
from omnigraph.storage.table_types import TableRef

_FOLDERS = ("data", "_deletions", "_indices")


@dataclass(frozen=True, slots=True)
class UnnamedFile:
    """A file that no version names."""

    path: str
    """Relative to the root of the graph."""
    size: int
    modified: datetime


def unnamed_files(datasets: Datasets, location: str) -> list[UnnamedFile]:
    """The files of rows, deletions and indexes beside a table and its branches, by their paths."""
    table = datasets.open(TableRef(location))
    with lance_call("list the files of", location):
        # What is there before what is named: a write that is committed meanwhile has no such file.
        there = list(_there(table))
        copies = [table, *(datasets.open(TableRef(location, b)) for b in table.branches.list())]
        named = {name for copy in copies for name in _named(copy)}
    return sorted(
        (
            UnnamedFile(f"{location}/{path}", size, modified)
            for path, name, size, modified in there
            if name not in named
        ),
        key=lambda file: file.path,
    )


def _there(table: LanceDataset) -> Iterator[tuple[str, str, int, datetime]]:
    """Every file: its path, the name that versions have for it, its size and its time."""
    for batch in table.all_files():
        columns = [batch.column(n).to_pylist() for n in ("path", "size_bytes", "last_modified")]
        for path, size, modified in zip(*columns, strict=True):
            parts = path.split("/")
            at = next((n for n, part in enumerate(parts[:-1]) if part in _FOLDERS), None)
            if at is not None:
                yield path, _name(parts[at:]), size, modified


def _named(table: LanceDataset) -> Iterable[str]:
    """What the versions of one copy name, wherever it lies: names are given only once."""
    for batch in table.tracked_files():
        yield from batch.column("path").to_pylist()


def _name(parts: list[str]) -> str:
    """A blob lies in a directory that is named after the file of its row."""
    if parts[0] == "data" and len(parts) > 2:
        return f"data/{parts[1]}.lance"
    return "/".join(parts)
