"""A branch gets its own copy of a table when it first writes to it.

The manifest is the authority on which branch owns what: a fork that it does not name was left by
a crash or by a branch that is gone, and is removed before the name is used again.
"""

from __future__ import annotations

from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import branch_label
from omnigraph.commit.publisher import stale
from omnigraph.commit.rows import MAIN
from omnigraph.commit.snapshot import Pin
from omnigraph.commit.store import GraphStore
from omnigraph.errors import Conflict, OmniGraphError, StorageError
from omnigraph.storage.table_types import TableRef


def fork_table(store: GraphStore, pin: Pin, branch: str) -> TableRef:
    """Fork the table of a pin into a branch. The caller holds the lease of both."""
    reached(Failpoint.FORK_BEFORE_CREATE)
    try:
        return store.inline.create_branch(pin.ref, pin.version, branch)
    except OmniGraphError as error:
        _make_sure_it_is_not_owned(store, pin, branch, error)
        reclaim_fork(store, pin.location, branch, live_branches(store))
        return store.inline.create_branch(pin.ref, pin.version, branch)


def reclaim_fork(store: GraphStore, location: str, branch: str, live: set[str]) -> None:
    """Remove a fork that no manifest names, after the forks that were made from it."""
    known = store.inline.branches(location)
    for child in [name for name, info in known.items() if info.parent == branch]:
        if child in live:
            raise Conflict(
                f"branch '{child}' still depends on the fork '{branch}' of '{location}'",
                details={"branch": child},
            )
        reclaim_fork(store, location, child, live)
    reached(Failpoint.FORK_BEFORE_RECLAIM)
    store.inline.delete_branch(location, branch)


def live_branches(store: GraphStore) -> set[str]:
    """Every branch of the graph, internal ones too."""
    return {MAIN, *store.inline.branches(MANIFEST)}


def _make_sure_it_is_not_owned(
    store: GraphStore, pin: Pin, branch: str, cause: OmniGraphError
) -> None:
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
