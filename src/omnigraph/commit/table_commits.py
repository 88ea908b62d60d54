"""Step B of a write: every table moves to its next version.

On S3, where the next versions were built before, they are created at the same time. The sidecar
names all of them, so recovery can classify whatever a writer that dies meanwhile leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, wait

from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.publisher import stale
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import VersionMismatch
from omnigraph.storage.objects.requests import request_pool
from omnigraph.storage.tables.types import CommittedTable, StagedTable

StagedTables = Mapping[str, Sequence[StagedTable]]


class NothingMoved(Exception):
    """Another writer created the next version of a table first, and no table of this write moved.

    Caught by the protocol, never shown.
    """

    def __init__(self, table_key: str, error: VersionMismatch) -> None:
        super().__init__(str(error))
        self.table_key = table_key
        self.error = error


def is_built(steps: Sequence[StagedTable]) -> bool:
    """Whether a table becomes one version that was built before: nothing can be rebased."""
    return len(steps) == 1 and steps[0].built is not None


def commit_tables(
    store: GraphStore, tables: StagedTables, snapshot: Snapshot
) -> dict[str, CommittedTable]:
    """Commit staged tables, each exactly to its next version.

    Raises ``VersionMismatch`` if another writer was first on one of them, and ``NothingMoved`` if
    that is certain for all.
    """
    if all(map(is_built, tables.values())):
        return _commit_built(store, tables, snapshot)
    committed: dict[str, CommittedTable] = {}
    for key in sorted(tables):
        if committed:
            reached(Failpoint.WRITE_BETWEEN_TABLES)
        committed[key] = _commit_steps(store, key, tables[key], snapshot)
    return committed


def _commit_steps(
    store: GraphStore, key: str, steps: Sequence[StagedTable], snapshot: Snapshot
) -> CommittedTable:
    before = steps[0].base
    pin = snapshot.pin(key)
    rows = None if pin is None else pin.row_count
    for number, step in enumerate(steps):
        if number:
            reached(Failpoint.WRITE_BETWEEN_STEPS)
        try:
            done = store.tables.commit_staged(step, before, rows)
        except VersionMismatch as error:
            raise stale(key, before, int(error.details["actual"])) from error
        before, rows = done.version, done.row_count
    return done


def _commit_built(
    store: GraphStore, tables: StagedTables, snapshot: Snapshot
) -> dict[str, CommittedTable]:
    started: dict[str, Future[CommittedTable]] = {}
    try:
        for key in sorted(tables):
            if started:
                reached(Failpoint.WRITE_BETWEEN_TABLES)
            started[key] = request_pool().submit(_commit_steps, store, key, tables[key], snapshot)
    finally:
        # None may arrive after an undo.
        wait(started.values())
    committed: dict[str, CommittedTable] = {}
    lost: list[tuple[str, VersionMismatch]] = []
    for key, done in started.items():
        error = done.exception()
        if error is None:
            committed[key] = done.result()
        elif isinstance(error, VersionMismatch):
            lost.append((key, error))
        else:
            raise error
    if lost and not committed:
        raise NothingMoved(*lost[0])
    if lost:
        raise lost[0][1]
    return committed
