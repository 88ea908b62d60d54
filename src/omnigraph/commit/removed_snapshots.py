"""Snapshots and branches that were removed while they were read.

Cleanup keeps what its own process reads and everything younger than an age floor. A reader in
another process that takes longer than that finds files missing. That is not damage, so it is
reported as ``HistoryGone``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.commit.manifest import MANIFEST, branch_reference
from omnigraph.commit.names import branch_label
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import (
    BranchNotFound,
    CommitNotFound,
    Conflict,
    HistoryGone,
    StorageMissing,
)
from omnigraph.storage.tables.types import TableRef


@contextmanager
def detect_removal(store: GraphStore, snapshot: Snapshot) -> Iterator[None]:
    """Report a missing file as ``HistoryGone`` where its snapshot was removed."""
    try:
        yield
    except StorageMissing:
        check_not_removed(store, snapshot)
        raise


@contextmanager
def detect_branch_deletion(store: GraphStore, *branches: str | None) -> Iterator[None]:
    """Report a failure as ``BranchNotFound`` where a branch was deleted during the call."""
    try:
        yield
    except (StorageMissing, HistoryGone, CommitNotFound, Conflict) as error:
        for branch in branches:
            if branch is not None and store.objects.head(branch_reference(branch)) is None:
                raise BranchNotFound(
                    f"branch '{branch}' not found", details={"branch": branch}
                ) from error
        raise


def check_not_removed(store: GraphStore, snapshot: Snapshot) -> None:
    """Raise if a snapshot was removed, by cleanup or with its branch.

    Cleanup removes a state before its tables. An earlier state without its tables was lost for
    good by a schema apply. Nothing is ever removed from the newest, so what it lacks is damage.
    """
    for pin in snapshot.pins.values():
        store.check_life(pin)
    version = snapshot.manifest_version
    if store.datasets.info(TableRef(MANIFEST, snapshot.branch), version) is not None:
        newest = store.manifest(snapshot.branch).current().manifest_version
        if version >= newest or all(
            store.datasets.info(pin.ref, pin.version) for pin in snapshot.pins.values()
        ):
            return
    # A handle that was idle for a while may still take the removed state for the newest.
    store.manifests.forget_versions()
    raise HistoryGone(
        f"version {version} of branch '{branch_label(snapshot.branch)}' was removed",
        hint="take a new snapshot; a tag, or cleanup with a larger min_age, keeps one for longer",
        details={"branch": branch_label(snapshot.branch), "version": version},
    )
