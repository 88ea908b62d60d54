"""The graph of commits: ancestors, and the merge bases of two sides.

The commits of a branch are deleted with it, while commits that merged it stay. So a merge commit
records the lines of commits that it merged, each by its first commit and the version up to which it
was merged. This is enough to see, after a branch is deleted, that two other branches have merged
the same or an earlier commit of it. Lines of main are not recorded: its commits are never deleted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from itertools import combinations
from typing import Any

from omnigraph.commit.metadata import MERGE
from omnigraph.commit.rows import CommitRow
from omnigraph.records import dataclass


@dataclass(frozen=True, slots=True)
class MergeLineage:
    """The lines of commits that a merge includes."""

    line: str
    """The first commit of the merged branch."""
    lines: Mapping[str, int]
    """By the first commit of a branch, the manifest version of its newest commit."""

    def to_json(self) -> dict[str, Any]:
        return {"line": self.line, "lines": dict(sorted(self.lines.items()))}


def lineage_of(row: CommitRow) -> MergeLineage | None:
    """The recorded lineage of a merge commit; ``None`` if another program made it."""
    if row.merged_parent is None:
        return None
    recorded = row.extra.get(MERGE)
    try:
        lines = {str(line): int(version) for line, version in recorded["lines"].items()}  # type: ignore[index]
        line = str(recorded["line"])  # type: ignore[index]
    except (TypeError, KeyError, AttributeError, ValueError):
        return None
    return MergeLineage(line, lines) if line in lines else None


def resolved_conflicts(row: CommitRow) -> frozenset[str]:
    """The ids of the conflicts that a merge resolved."""
    recorded = row.extra.get(MERGE)
    resolved = recorded.get("resolved") if isinstance(recorded, Mapping) else None
    return frozenset(resolved) if isinstance(resolved, Mapping) else frozenset()


@dataclass(frozen=True, slots=True)
class CommonAncestors:
    """The common ancestors of two sides."""

    commits: list[str]
    """The newest readable ones: none is an ancestor of another. The nearest first."""
    lost: set[str]
    """Newer ones that are not readable."""
    theirs: dict[str, int]
    ours: dict[str, int]
    """The ancestors of each side, with their distance."""


class CommitGraph:
    """Commits by their ids.

    A merged commit of a deleted branch is unknown. Its lineage replaces it: points on the
    lines of commits of the branches. The common ancestor of two points of one line is the earlier
    one.
    """

    def __init__(
        self, commits: Iterable[CommitRow] = (), is_readable: Callable[[str], bool] = lambda _: True
    ) -> None:
        """``is_readable`` returns whether the state of a commit still exists."""
        self.commits: dict[str, CommitRow] = {}
        self.points: dict[str, tuple[str, int]] = {}
        self._lines: dict[str, set[int]] = {}
        self._parents: dict[str, tuple[str, ...]] = {}
        self.is_complete = True
        """Whether every branch was read."""
        self._is_readable = is_readable
        self.add(commits)

    def add(self, rows: Iterable[CommitRow]) -> None:
        self._parents.clear()
        for row in rows:
            self.commits[row.commit_id] = row
            lineage = lineage_of(row)
            for line, version in (lineage.lines if lineage else {}).items():
                self._lines.setdefault(line, set()).add(version)
                self.points[_point(line, version)] = (line, version)

    def read_more(self) -> bool:
        """Read the commits of another branch; returns whether there was one."""
        return False

    # -- ancestors -----------------------------------------------------------------------

    def parents(self, commit: str) -> tuple[str, ...]:
        if commit in self._parents:
            return self._parents[commit]
        row, is_complete = self.commits.get(commit), self.is_complete
        merged: Iterable[str | None]
        if row is None:
            line, version = self.points.get(commit, ("", 0))
            earlier = [other for other in self._lines.get(line, ()) if other < version]
            merged = [_point(line, max(earlier))] if earlier else []
        else:
            merged = [row.merged_parent]
            if row.merged_parent not in self.commits and is_complete:
                lineage = lineage_of(row)
                if lineage is not None:
                    merged = [self.at(line, version) for line, version in lineage.lines.items()]
            merged = [row.parent, *merged]
        parents = tuple(filter(None, merged))
        if is_complete:
            # A branch that was not read yet may have the merged commit.
            self._parents[commit] = parents
        return parents

    def at(self, line: str, version: int) -> str:
        """The newest commit of a line up to a version; a point if its branch was deleted."""
        first = self.commits.get(line)
        if first is None:
            return _point(line, version)
        rows = (row for row in self.commits.values() if row.branch == first.branch)
        return max(
            (row for row in rows if row.manifest_version <= version), key=lambda row: row.order
        ).commit_id

    def distances(self, starts: Collection[str]) -> dict[str, int]:
        """All ancestors of some commits, including themselves, with their distance."""
        steps = dict.fromkeys(starts, 0)
        waiting = deque(steps)
        while waiting:
            here = waiting.popleft()
            for parent in self.parents(here):
                if parent not in steps:
                    steps[parent] = steps[here] + 1
                    waiting.append(parent)
        return steps

    # -- merge bases ---------------------------------------------------------------------

    def common(self, some: Collection[str], others: Collection[str]) -> CommonAncestors:
        """The newest common ancestors of both sides.

        There are several after criss-cross merges. A commit whose state was removed is replaced by
        its ancestors. Among equally near ones the newest is first.
        """
        theirs, ours = self._histories(some, others)
        shared = ours.keys() & theirs.keys() & self.commits.keys()
        if shared.issuperset(some):
            # One side contains the other.
            return CommonAncestors(sorted(some), set(), theirs, ours)
        lost = self._newest(ours.keys() & theirs.keys()) - self.commits.keys()
        newest: set[str] = set()
        while shared:
            newest = self._newest(shared)
            if len(newest) > 1 and self.read_more():
                # One may be an ancestor of another through a branch that was not read.
                while self.read_more():
                    pass
                return self.common(some, others)
            gone = {commit for commit in newest if not self._is_readable(commit)}
            if not gone:
                break
            lost |= gone
            shared -= gone
            newest = set()

        def rank(commit: str) -> tuple[int, int, str]:
            version = self.commits[commit].manifest_version
            return ours[commit] + theirs[commit], -version, commit

        return CommonAncestors(sorted(newest, key=rank), lost, theirs, ours)

    def merge_bases(self, heads: Iterable[str]) -> set[str]:
        """Every commit that a merge of any two of these heads needs.

        A lost base is replaced by the commits that merged it: their states have its changes.
        """
        needed: set[str] = set()
        for one, other in combinations(sorted(set(heads)), 2):
            shared = self.common([one], [other])
            self._add_bases(needed, shared.commits)
            theirs, ours = shared.theirs.keys(), shared.ours.keys()
            for side in (theirs - ours, ours - theirs):
                needed.update(self.merges_of(shared.lost, side).values())
        return needed

    def merges_of(self, lost: Set[str], commits: Set[str]) -> dict[str, str]:
        """The commits, among some, that merged lost commits; each by the lost one.

        Of several merges of a commit the first counts.
        """
        own = sorted(commits & self.commits.keys(), reverse=True)
        merges = {self._merged_point(commit): commit for commit in own}
        return {commit: merges[commit] for commit in sorted(lost & merges.keys())}

    def _merged_point(self, commit: str) -> str | None:
        row = self.commits[commit]
        lineage = None if row.merged_parent in self.commits else lineage_of(row)
        if lineage is None:
            return row.merged_parent
        return self.at(lineage.line, lineage.lines[lineage.line])

    def _add_bases(self, needed: set[str], bases: list[str]) -> None:
        """Several bases are merged first, one after the other, each with their own merge bases."""
        needed.update(bases)
        for number in range(1, len(bases)):
            before = self.common(sorted(bases[:number]), [bases[number]])
            self._add_bases(needed, before.commits)

    def _histories(
        self, some: Collection[str], others: Collection[str]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """The relevant ancestors of both sides, with their distance.

        Other branches are read only where just one side leads to an unknown commit: ancestors of a
        common commit cannot be newest common ancestors.
        """
        while True:
            was_complete = self.is_complete
            one, other = self.distances(some), self.distances(others)
            alone = one.keys() ^ other.keys()
            reached = {parent for commit in alone for parent in self.parents(commit)}
            unknown = (reached | {*some, *others}) - self.commits.keys()
            if not unknown or (not self.read_more() and was_complete):
                return one, other

    def _newest(self, commits: Set[str]) -> set[str]:
        before = {parent for commit in commits for parent in self.parents(commit)}
        return {*commits} - before


def _point(line: str, version: int) -> str:
    return f"{line}@{version}"
