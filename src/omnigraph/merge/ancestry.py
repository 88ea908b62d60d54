"""Where the histories of two branches part."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from omnigraph.commit.branches import Branches
from omnigraph.commit.history import History
from omnigraph.commit.names import normal_branch
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import BranchNotFound, CommitNotFound, Conflict, HistoryGone


class Ancestry:
    """The commits of all branches, by their ids."""

    def __init__(self, store: GraphStore) -> None:
        self._store = store
        self._commits: dict[str, CommitRow] = {}
        for name in Branches(store).list():
            try:
                rows = store.manifest(normal_branch(name)).commits()
            except BranchNotFound:
                continue
            self._commits.update((row.commit_id, row) for row in rows)

    def base(self, source: str, target: str) -> tuple[CommitRow, Snapshot]:
        """The best common ancestor of two commits whose state can still be read.

        The one with the shortest way from both; of several the newest.
        """
        ours, theirs = self._distances(target), self._distances(source)
        common = [self._commits[key] for key in ours.keys() & theirs.keys() & self._commits.keys()]
        common.sort(key=lambda row: (ours[row.commit_id] + theirs[row.commit_id], *_newest(row)))
        for row in common:
            try:
                return row, History(self._store).snapshot_of(row.commit_id)
            except (HistoryGone, CommitNotFound):
                continue
        raise Conflict("branches have no common ancestor", hint="load the data of one instead")

    def is_ancestor(self, commit: str, of: str) -> bool:
        """Whether a commit is another or came before it."""
        return commit in self._distances(of)

    def parents(self, commit: str) -> tuple[str, ...]:
        row = self._commits.get(commit)
        return () if row is None else tuple(filter(None, (row.parent, row.merged_parent)))

    def _distances(self, start: str) -> Mapping[str, int]:
        """How many steps back every ancestor is."""
        found = {start: 0}
        waiting = deque([start])
        while waiting:
            here = waiting.popleft()
            for parent in self.parents(here):
                if parent not in found:
                    found[parent] = found[here] + 1
                    waiting.append(parent)
        return found


def _newest(row: CommitRow) -> tuple[int, str]:
    return -row.manifest_version, row.commit_id
