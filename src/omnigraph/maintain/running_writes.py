"""Writes in progress and interrupted ones: recovery, and what they do or may need.

A long write has a marker while it stages, a commit has a sidecar, and a writer about to commit
holds the lease of the table. A short write has none of these while it stages.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from omnigraph.commit.branches import Branches
from omnigraph.commit.names import normal_branch, table_lease
from omnigraph.commit.recovery import Recovery
from omnigraph.commit.snapshot import Pin
from omnigraph.commit.staging import markers
from omnigraph.commit.store import GraphStore
from omnigraph.errors import OmniGraphError, RecoveryRequired
from omnigraph.storage.leases.local import LEASE_FOLDER, lease_path

_PAUSE_SECONDS = 0.05
# The clocks of a store and of its writers may differ.
_CLOCKS = timedelta(minutes=15)
_EVER = datetime.min.replace(tzinfo=UTC)

RunningWrite = tuple[str, frozenset[str], datetime]
"""The id of a write, its tables, and the time of its first file."""


def recover_writes(store: GraphStore) -> None:
    """Recover interrupted writes; refuse if one cannot be recovered.

    Waits for a live writer as long as for any lease. Later writers are not waited for: leases
    separate them from this process, and with many writers there is always one.
    """
    recovery = Recovery(store)
    deadline = time.monotonic() + store.timeouts.lease
    pending = set(store.sidecars.list())
    while True:
        recovery.heal()
        left = [operation for operation in store.sidecars.list() if operation in pending]
        if not left:
            return
        if not recovery.waits or time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE_SECONDS)
    what = "is being finished by its writer" if recovery.waits else "could not be recovered"
    raise RecoveryRequired(
        f"the write {left[0]} {what}",
        hint="repeat later" if recovery.waits else "reopen the graph read-write",
        details={"operations": left},
    )


def committing_tables(store: GraphStore) -> set[tuple[str, str | None]]:
    """The tables and branches of writes that commit, or were interrupted; they fork first."""
    tables: set[tuple[str, str | None]] = set()
    for operation in store.sidecars.list():
        with suppress(OmniGraphError):
            sidecar = store.sidecars.read(operation)
            entries = () if sidecar is None else sidecar.tables
            tables |= {(entry.table_key, entry.table_branch) for entry in entries}
    return tables


def drifted_head(store: GraphStore, pin: Pin) -> int | None:
    """The newest version of a table that was written outside the graph; None if it was not.

    A table is ahead for a moment during a commit, too.
    """
    head = store.tables.head(pin.ref, pin.version)
    if head <= pin.version or (pin.table_key, pin.branch) in committing_tables(store):
        return None
    # Its writer may have published it by now.
    current = store.manifest(pin.branch).current().pin(pin.table_key)
    return None if current is not None and current.version >= head else head


def running_writes(store: GraphStore, dead_markers: Collection[str] = ()) -> Iterator[RunningWrite]:
    """Writes in progress."""
    for marker in markers(store, dead_markers):
        yield marker.operation, marker.tables, marker.started - _CLOCKS
    for sidecar in store.sidecars.load_all():
        tables = frozenset(pin.table_key for pin in sidecar.tables)
        # Its files are older than the sidecar itself.
        yield sidecar.operation_id, tables, _EVER
    yield from _lease_holders(store)


def _lease_holders(store: GraphStore) -> Iterator[RunningWrite]:
    """Writers with the lease of a table; they staged files before they took it."""
    present = {f"{LEASE_FOLDER}/{name}" for name in store.objects.list(LEASE_FOLDER)}
    for branch in map(normal_branch, Branches(store).list()):
        try:
            keys = list(store.manifest(branch).current().pins)
        except OmniGraphError:
            # An unreadable branch has no writers.
            continue
        for key in keys:
            name = table_lease(key, branch)
            if lease_path(name) in present and not store.leases.is_free(name):
                yield name, frozenset({key}), _EVER
