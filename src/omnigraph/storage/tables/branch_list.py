"""Lists the branches of a dataset."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from omnigraph.errors import StorageMissing
from omnigraph.records import dataclass
from omnigraph.storage.objects.paths import is_branch, refused
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.types import TableRef

if TYPE_CHECKING:
    from lance import LanceDataset

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
    references = _list_references(datasets.open(TableRef(location), version), location)
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


def _list_references(dataset: LanceDataset, location: str) -> Any:
    """List references; retried, because a concurrent deletion fails the call."""
    for _ in range(_LISTINGS):
        with suppress(StorageMissing), lance_call("list the branches of", location):
            return dataset.branches.list()
    with lance_call("list the branches of", location):
        return dataset.branches.list()
