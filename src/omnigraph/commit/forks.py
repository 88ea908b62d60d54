"""A branch gets its own copy of a table when it first writes to it.

The manifest is the authority on which branch owns what: a fork that it does not name was left by
a crash or by a deleted branch, and is removed before the name is used again.
"""

from __future__ import annotations

from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.names import branch_label, table_lease
from omnigraph.commit.publisher import stale
from omnigraph.commit.snapshot import Pin
from omnigraph.commit.store import GraphStore
from omnigraph.errors import BranchNotFound, Conflict, OmniGraphError, StorageError
from omnigraph.storage.tables.types import TableRef


def fork_table(store: GraphStore, pin: Pin, branch: str) -> TableRef:
    """Fork the table of a pin into a branch. The caller holds the lease of both."""
    reached(Failpoint.FORK_BEFORE_CREATE)
    try:
        return store.inline.create_branch(pin.ref, pin.version, branch)
    except OmniGraphError as error:
        _check_not_owned(store, pin, branch, error)
        reclaim_fork(store, pin.table_key, pin.location, branch)
        return store.inline.create_branch(pin.ref, pin.version, branch)


def clear_orphan(store: GraphStore, pin: Pin, branch: str | None) -> None:
    """Remove the fork of a dead writer before new files are written into it.

    The next writer that forks the table would remove those files with it.
    """
    if branch is None or pin.branch == branch or branch not in store.inline.branches(pin.location):
        return
    with store.leases.acquire([table_lease(pin.table_key, branch)], store.timeouts.lease):
        if not _shows_its_fork(store, pin.table_key, branch):
            reclaim_fork(store, pin.table_key, pin.location, branch)


def reclaim_fork(store: GraphStore, table_key: str, location: str, branch: str) -> None:
    """Remove a fork that no manifest names, after the forks that were made from it.

    A fork of it that its branch still uses keeps it; a leftover one does not, even if a branch of
    that name exists again. The caller holds the fork's lease.
    """
    branches = store.inline.branches(location)
    for child in [name for name, info in branches.items() if info.parent == branch]:
        with store.leases.acquire([table_lease(table_key, child)], store.timeouts.lease):
            if _shows_its_fork(store, table_key, child):
                raise Conflict(
                    f"branch '{child}' still depends on the fork '{branch}' of '{table_key}'",
                    hint=f"delete branch '{child}' first",
                    details={"branch": child},
                )
            reclaim_fork(store, table_key, location, child)
    reached(Failpoint.FORK_BEFORE_RECLAIM)
    store.inline.delete_branch(location, branch)


def _shows_its_fork(store: GraphStore, table_key: str, branch: str) -> bool:
    try:
        pin = store.manifest(branch).current().pin(table_key)
    except BranchNotFound:
        return False
    return pin is not None and pin.branch == branch


def _check_not_owned(store: GraphStore, pin: Pin, branch: str, cause: OmniGraphError) -> None:
    """Read the manifest anew before anything is removed."""
    try:
        now = store.manifest(branch).current().pin(pin.table_key)
    except StorageError as error:
        raise Conflict(
            f"could not verify who owns '{pin.table_key}' on branch '{branch_label(branch)}' — "
            "refresh and retry",
            hint="refresh and retry",
        ) from error
    if now is None or now.branch == branch or now.version != pin.version:
        raise stale(pin.table_key, pin.version, now.version if now else 0) from cause
