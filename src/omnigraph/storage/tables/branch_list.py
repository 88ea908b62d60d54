"""Lists the branches of a dataset."""

from __future__ import annotations

from collections.abc import Sized
from contextlib import suppress
from typing import Any

from omnigraph.errors import StorageMissing, StorageUnavailable
from omnigraph.records import dataclass
from omnigraph.storage.objects.paths import BRANCHES, is_branch, refused
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.types import TableRef

_LISTINGS = 8


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A branch of one dataset: where it was forked, and when, in seconds."""

    name: str
    parent: str | None
    parent_version: int
    created_at: int


def read_branches(
    datasets: Datasets, location: str, version: int | None = None
) -> dict[str, BranchInfo]:
    """The branches of a dataset by name, in alphabetical order."""
    references = _list_references(datasets, location, version)
    for name, info in references.items():
        for branch in (name, info.get("parent_branch")):
            if branch is not None and not is_branch(branch):
                raise refused(branch, f"a branch reference of '{location}'")
    return {
        name: BranchInfo(
            name,
            references[name].get("parent_branch"),
            int(references[name].get("parent_version") or 0),
            int(references[name].get("create_at") or 0),
        )
        for name in sorted(references)
    }


def _list_references(datasets: Datasets, location: str, version: int | None) -> Any:
    """List references; retried, because a concurrent deletion fails the call.

    Lance leaves out a local file that cannot be looked at.
    """
    dataset = datasets.open(TableRef(location), version)
    for _ in range(_LISTINGS):
        with suppress(StorageMissing), lance_call("list the branches of", location):
            references = dataset.branches.list()
            if not datasets.root.is_local or _has_all(datasets, location, references):
                return references
    with lance_call("list the branches of", location):
        references = dataset.branches.list()
    if datasets.root.is_local and not _has_all(datasets, location, references):
        raise StorageUnavailable(
            f"cannot list the branches of '{location}': a reference cannot be read",
            hint="check the disk and the permissions of the graph",
        )
    return references


def _has_all(datasets: Datasets, location: str, references: Sized) -> bool:
    names = datasets.objects.list(f"{location}/{BRANCHES}")
    return len(references) >= sum(name.endswith(".json") for name in names)
