"""Compaction beside the writers of a handle, in one thread of its own.

A writer only counts: no file and no fragment is looked at on its path. The thread starts when a
table has had enough commits and ends when no table is left, so an idle handle has none. A failure
is logged and changes no answer; the next commits cause another run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from omnigraph.commit.names import branch_label
from omnigraph.commit.store import GraphStore
from omnigraph.errors import Conflict, NotFound
from omnigraph.logs import logger
from omnigraph.maintain.small_fragments import TIER, compact_tail

_LOG = logger(__name__)

_BranchTable = tuple[str | None, str]
"""A branch and the key of a table."""


class BackgroundCompaction:
    """Counts the commits of each table, and compacts those with many. Thread-safe."""

    def __init__(self, store: GraphStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._commits: dict[_BranchTable, int] = {}
        """The commits since the last run, plus the fragments that it left."""
        self._waiting: dict[_BranchTable, None] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def note_commit(self, branch: str | None, table_keys: Iterable[str]) -> None:
        """Count a commit; for ``GraphStore.on_commit``.

        A table is looked at after its first commit, too: earlier processes may have left fragments.
        """
        with self._lock:
            for key in table_keys:
                table = (branch, key)
                self._commits[table] = commits = self._commits.get(table, TIER) + 1
                if commits >= TIER:
                    self._waiting[table] = None
            if self._waiting and self._thread is None and not self._is_closed:
                self._start()

    def close(self) -> None:
        """Finish the running compaction, drop those that wait, and start no more."""
        with self._lock:
            self._is_closed = True
            self._waiting.clear()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="omnigraph-compaction")
        try:
            thread.start()
        except RuntimeError as error:
            # The process has too many threads, or is about to end.
            _LOG.warning("no thread for compaction: %s", error)
            return
        self._thread = thread

    def _run(self) -> None:
        try:
            while (table := self._next()) is not None:
                left = self._compact(*table)
                with self._lock:
                    self._commits[table] += left
        except BaseException:
            with self._lock:
                self._thread = None
            raise

    def _next(self) -> _BranchTable | None:
        """The table to compact next; without one the thread ends."""
        with self._lock:
            if not self._waiting:
                self._thread = None
                return None
            table = next(iter(self._waiting))
            del self._waiting[table]
            self._commits[table] = 0
            return table

    def _compact(self, branch: str | None, table_key: str) -> int:
        """Compact a table as far as worthwhile; returns how many small fragments are left."""
        what = f"compaction of '{table_key}' on '{branch_label(branch)}'"
        try:
            while True:
                done = compact_tail(self._store, branch, table_key)
                if done.merged:
                    _LOG.debug("%s: %d fragments became one", what, done.merged)
                if self._is_closed or not (done.merged and done.is_partial):
                    return min(done.left, TIER - 1)
        except (Conflict, NotFound) as error:
            # Other writers are busy, or the branch was deleted.
            _LOG.info("%s: %s", what, error)
        except Exception as error:
            _LOG.warning("%s failed: %s", what, error)
        return 0
