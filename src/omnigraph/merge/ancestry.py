"""Where the histories of two branches part."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from omnigraph.commit.branches import Branches
from omnigraph.commit.history import History
from omnigraph.commit.names import normal_branch
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import BranchNotFound, CommitNotFound, HistoryGone


class Ancestry:
    """The commits of all branches, by their ids. Those of one are read when somebody asks."""

    def __init__(self, store: GraphStore, *first: str | None) -> None:
        """Some branches are looked at before the others."""
        self._store = store
        self._commits: dict[str, CommitRow] = {}
        self._states: dict[str, Snapshot | None] = {}
        self._unread: list[str | None] | None = None
        self._read: set[str | None] = set()
        for branch in first:
            self._take(branch)

    def state(self, commit: str) -> Snapshot | None:
        """The graph as a commit left it; none when that is not there any more."""
        if commit not in self._states:
            try:
                self._states[commit] = History(self._store).snapshot_of(commit)
            except (HistoryGone, CommitNotFound):
                self._states[commit] = None
        return self._states[commit]

    def known(self, commit: str, state: Snapshot) -> None:
        """Somebody has the state of a commit already."""
        self._states[commit] = state

    def common(self, some: Iterable[str], others: Iterable[str]) -> list[str]:
        """The newest commits that both came from: none of them came before another of them.

        There are several after merges that crossed. One whose state is gone is left out, and what
        came before it counts instead. The nearest stands first; of several as near, the newest.
        """
        ours, theirs = self._distances(others), self._distances(some)
        shared = {key for key in ours.keys() & theirs.keys() if self._row(key) is not None}
        while shared:
            before = {parent for commit in shared for parent in self.parents(commit)}
            newest = shared - before
            gone = {commit for commit in newest if self.state(commit) is None}
            if not gone:
                return sorted(
                    newest, key=lambda key: (ours[key] + theirs[key], self._newest_first(key))
                )
            shared -= gone
        return []

    def is_ancestor(self, commit: str, of: str) -> bool:
        """Whether a commit is another or came before it."""
        return commit in self._distances([of])

    def parents(self, commit: str) -> tuple[str, ...]:
        row = self._row(commit)
        return () if row is None else tuple(filter(None, (row.parent, row.merged_parent)))

    def _distances(self, starts: Iterable[str]) -> Mapping[str, int]:
        """How many steps back every ancestor is."""
        found = dict.fromkeys(starts, 0)
        waiting = deque(found)
        while waiting:
            here = waiting.popleft()
            for parent in self.parents(here):
                if parent not in found:
                    found[parent] = found[here] + 1
                    waiting.append(parent)
        return found

    def _newest_first(self, commit: str) -> tuple[int, str]:
        row = self._commits[commit]
        return -row.manifest_version, row.commit_id

    # -- reading -------------------------------------------------------------------------

    def _row(self, commit: str) -> CommitRow | None:
        """A commit of whatever branch; none when it went with its branch."""
        if commit not in self._commits and self._unread is None:
            names = [normal_branch(name) for name in Branches(self._store).list()]
            self._unread = [name for name in names if name not in self._read]
        while commit not in self._commits and self._unread:
            self._take(self._unread.pop(0))
        return self._commits.get(commit)

    def _take(self, branch: str | None) -> None:
        self._read.add(branch)
        try:
            rows = self._store.manifest(branch).commits()
        except BranchNotFound:
            return
        self._commits.update((row.commit_id, row) for row in rows)
