"""Where the histories of two branches part."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from omnigraph.commit.branches import Branches
from omnigraph.commit.history import History
from omnigraph.commit.names import normal_branch
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import BranchNotFound, CommitNotFound, HistoryGone


class Ancestry:
    """The commits of all branches, by their ids. Those of a branch are read when they count."""

    def __init__(self, store: GraphStore, *first: str | None) -> None:
        """Some branches are looked at before the others."""
        self._store = store
        self._commits: dict[str, CommitRow] = {}
        self._states: dict[str, Snapshot | None] = {}
        self._unread: list[str | None] = list(first)
        self._read: dict[str | None, dict[str, int]] = {}
        self._has_listed = False
        self.has_gaps = False
        """Whether something that two sides have in common could not be read."""

    def state(self, commit: str) -> Snapshot | None:
        """The graph as a commit left it; none when that is not there any more."""
        if commit not in self._states:
            try:
                self._states[commit] = History(self._store).snapshot_of(commit)
            except (HistoryGone, CommitNotFound):
                self._states[commit] = None
        return self._states[commit]

    def common(self, some: Collection[str], others: Collection[str]) -> list[str]:
        """The newest commits that both came from: none of them came before another of them.

        There are several after merges that crossed. One whose state is gone is left out, and what
        came before it counts instead. The nearest stands first; of several as near, the newest.
        """
        theirs, ours = self._histories(some, others)
        shared = ours.keys() & theirs.keys() & self._commits.keys()
        if shared.issuperset(some):
            # One side has all of the other.
            return sorted(some)
        while shared:
            before = {parent for commit in shared for parent in self._parents(commit)}
            newest = shared - before
            if len(newest) > 1 and self._has_more():
                # One may have come before another by way of a branch that was not read.
                while self._has_more():
                    self._take(self._unread.pop(0))
                return self.common(some, others)
            gone = {commit for commit in newest if self.state(commit) is None}
            self.has_gaps = self.has_gaps or bool(gone)
            if not gone:
                return sorted(
                    newest, key=lambda key: (ours[key] + theirs[key], self._newest_first(key))
                )
            shared -= gone
        return []

    def precedes(self, commit: str, other: str, branch: str | None) -> bool:
        """Whether a branch has both, or inherited them, and one came before the other.

        Nothing else has to be read to know that.
        """
        self._take(branch)
        order = self._read[branch]
        return commit in order and other in order and order[commit] < order[other]

    def _histories(
        self, some: Collection[str], others: Collection[str]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Every ancestor of both sides that counts, and how many steps back it is.

        Other branches are read only where one side alone leads to a commit that is not known: what
        came before a commit that both have cannot be the newest that they have.
        """
        while True:
            one, other = self._distances(some), self._distances(others)
            alone = one.keys() ^ other.keys()
            found = {parent for commit in alone for parent in self._parents(commit)}
            unknown = (found | {*some, *others}) - self._commits.keys()
            if not unknown or not self._has_more():
                self.has_gaps = self.has_gaps or bool(unknown & one.keys() & other.keys())
                return one, other
            self._take(self._unread.pop(0))

    def _parents(self, commit: str) -> tuple[str, ...]:
        row = self._commits.get(commit)
        return () if row is None else tuple(filter(None, (row.parent, row.merged_parent)))

    def _distances(self, starts: Collection[str]) -> dict[str, int]:
        found = dict.fromkeys(starts, 0)
        waiting = deque(found)
        while waiting:
            here = waiting.popleft()
            for parent in self._parents(here):
                if parent not in found:
                    found[parent] = found[here] + 1
                    waiting.append(parent)
        return found

    def _newest_first(self, commit: str) -> tuple[int, str]:
        row = self._commits[commit]
        return -row.manifest_version, row.commit_id

    # -- reading -------------------------------------------------------------------------

    def _has_more(self) -> bool:
        if not self._unread and not self._has_listed:
            self._has_listed = True
            names = [normal_branch(name) for name in Branches(self._store).list()]
            self._unread = [name for name in names if name not in self._read]
        return bool(self._unread)

    def _take(self, branch: str | None) -> None:
        if branch in self._read:
            return
        try:
            rows = self._store.manifest(branch).commits()
        except BranchNotFound:
            rows = []
        self._read[branch] = {row.commit_id: number for number, row in enumerate(rows)}
        self._commits.update((row.commit_id, row) for row in rows)
