"""Where the histories of two branches part."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass

from omnigraph.commit.branches import Branches
from omnigraph.commit.history import History
from omnigraph.commit.names import normal_branch
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import BranchNotFound, CommitNotFound, HistoryGone
from omnigraph.merge.lineage import Lineage, lineage_of


@dataclass(frozen=True, slots=True)
class Inherited:
    """How one side of a merge came to what both have and nobody can read any more."""

    is_exact: bool = False
    """Whether it merged just that: then what that changed, this side has written too."""
    until: Snapshot | None = None
    """The side when it had all of it; none when that is not known."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Two sides have something newer in common than can be read, as its branch was deleted."""

    source: Inherited = Inherited()
    target: Inherited = Inherited()


class Ancestry:
    """The commits of all branches, by their ids. Those of a branch are read when they count.

    A merged commit of a branch that was deleted is unknown. What it came from is recorded in the
    merge, as points on the lines of commits of the branches; two such points of one line have the
    earlier one in common.
    """

    def __init__(self, store: GraphStore, *first: str | None) -> None:
        """Some branches are looked at before the others."""
        self._store = store
        self._commits: dict[str, CommitRow] = {}
        self._states: dict[str, Snapshot | None] = {}
        self._unread: list[str | None] = list(first)
        self._read: dict[str | None, dict[str, int]] = {}
        self._has_listed = False
        self._points: dict[str, tuple[str, int]] = {}
        self._lines: dict[str, set[int]] = {}
        self._gaps: list[Gap] = []

    @property
    def gap(self) -> Gap | None:
        """What all calls of ``common`` together could not read."""
        if len(self._gaps) > 1:
            return Gap()
        return self._gaps[0] if self._gaps else None

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
        lost = self._newest(ours.keys() & theirs.keys()) - self._commits.keys()
        newest: set[str] = set()
        while shared:
            newest = self._newest(shared)
            if len(newest) > 1 and self._has_more():
                # One may have come before another by way of a branch that was not read.
                while self._has_more():
                    self._take(self._unread.pop(0))
                return self.common(some, others)
            gone = {commit for commit in newest if self.state(commit) is None}
            if not gone:
                break
            lost |= gone
            shared -= gone
            newest = set()
        if lost:
            self._gaps.append(
                Gap(
                    self._inherited(some, theirs, ours, lost),
                    self._inherited(others, ours, theirs, lost),
                )
            )
        elif self._may_have_met(theirs.keys(), ours.keys()):
            self._gaps.append(Gap())
        return sorted(newest, key=lambda key: (ours[key] + theirs[key], self._newest_first(key)))

    def precedes(self, commit: str, other: str, branch: str | None) -> bool:
        """Whether a branch has both, or inherited them, and one came before the other.

        Nothing else has to be read to know that.
        """
        self._take(branch)
        order = self._read[branch]
        return commit in order and other in order and order[commit] < order[other]

    def lineage(self, head: str, branch: str | None, onto: str) -> Lineage | None:
        """What merging a branch brings to a commit; none when that is not known completely."""
        self._take(branch)
        order = self._read[branch]
        if onto in order:
            brought = {commit for commit in order if order[onto] < order[commit] <= order[head]}
        else:
            brought = self._distances([head]).keys() - self._distances([onto]).keys()
        firsts = self._firsts()
        lines: dict[str, int] = {}
        for row in (self._commits[commit] for commit in brought if commit in self._commits):
            found = {firsts[row.branch]: row.manifest_version}
            if row.merged_parent is not None and row.branch is not None:
                known = lineage_of(row)
                if known is None:
                    return None
                found = {**known.lines, **found}
            for line, version in found.items():
                lines[line] = max(version, lines.get(line, 0))
        return Lineage(firsts[self._commits[head].branch], lines)

    # -- histories -----------------------------------------------------------------------

    def _histories(
        self, some: Collection[str], others: Collection[str]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Every ancestor of both sides that counts, and how many steps back it is.

        Other branches are read only where one side alone leads to a commit that is not known: what
        came before a commit that both have cannot be the newest that they have.
        """
        while True:
            was_complete = self._is_complete
            one, other = self._distances(some), self._distances(others)
            alone = one.keys() ^ other.keys()
            found = {parent for commit in alone for parent in self._parents(commit)}
            unknown = (found | {*some, *others}) - self._commits.keys()
            if not unknown:
                return one, other
            if self._has_more():
                self._take(self._unread.pop(0))
            elif was_complete:
                return one, other

    def _parents(self, commit: str) -> tuple[str, ...]:
        row = self._commits.get(commit)
        if row is None:
            return self._before_point(commit)
        merged: Iterable[str | None] = (row.merged_parent,)
        if row.merged_parent not in self._commits and self._is_complete:
            lineage = lineage_of(row)
            if lineage is not None:
                merged = (self._at(line, version) for line, version in lineage.lines.items())
        return tuple(filter(None, (row.parent, *merged)))

    def _at(self, line: str, version: int) -> str:
        """The newest commit of a line up to a version; a point where its branch is gone."""
        first = self._commits.get(line)
        if first is None:
            return _point(line, version)
        rows = (row for row in self._commits.values() if row.branch == first.branch)
        return max(
            (row for row in rows if row.manifest_version <= version), key=lambda row: row.order
        ).commit_id

    def _before_point(self, point: str) -> tuple[str, ...]:
        if point not in self._points:
            return ()
        line, version = self._points[point]
        earlier = [each for each in self._lines[line] if each < version]
        return (_point(line, max(earlier)),) if earlier else ()

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

    def _newest(self, commits: Set[str]) -> set[str]:
        before = {parent for commit in commits for parent in self._parents(commit)}
        return {*commits} - before

    def _newest_first(self, commit: str) -> tuple[int, str]:
        row = self._commits[commit]
        return -row.manifest_version, row.commit_id

    def _firsts(self) -> dict[str | None, str]:
        """The first commit of each branch stands for its line: names are used again."""
        found: dict[str | None, CommitRow] = {}
        for row in self._commits.values():
            first = found.setdefault(row.branch, row)
            if row.order < first.order:
                found[row.branch] = row
        return {branch: row.commit_id for branch, row in found.items()}

    # -- what cannot be read -------------------------------------------------------------

    def _inherited(
        self, heads: Collection[str], side: dict[str, int], other: dict[str, int], lost: set[str]
    ) -> Inherited:
        """How a side came to commits that are lost."""
        if len(heads) != 1:
            return Inherited()
        (head,) = heads
        own = self._own_line(head)
        carriers = [
            commit
            for commit in side.keys() - other.keys()
            if lost & self._distances(self._parents(commit)[1:]).keys()
        ]
        merged = {self._merged_point(commit) for commit in carriers}
        until = None
        if carriers and own.issuperset(carriers) and not lost & own:
            until = self.state(min(carriers, key=side.__getitem__))
        return Inherited(lost <= merged | own, until)

    def _own_line(self, head: str) -> set[str]:
        """A commit and its first parents."""
        found: set[str] = set()
        here: str | None = head
        while here is not None and here not in found:
            found.add(here)
            row = self._commits.get(here)
            here = None if row is None else row.parent
        return found

    def _merged_point(self, commit: str) -> str | None:
        row = self._commits.get(commit)
        if row is None or row.merged_parent is None or row.merged_parent in self._commits:
            return None if row is None else row.merged_parent
        lineage = lineage_of(row)
        if lineage is None:
            return row.merged_parent
        return self._at(lineage.line, lineage.lines[lineage.line])

    def _may_have_met(self, one: Set[str], other: Set[str]) -> bool:
        """Whether both sides merged unknown commits, of which one does not say what it has."""
        unknown = [
            {parent for commit in side for parent in self._parents(commit)} - self._commits.keys()
            for side in (one - other, other - one)
        ]
        silent = [each - self._points.keys() for each in unknown]
        return bool(silent[0] and unknown[1]) or bool(silent[1] and unknown[0])

    # -- reading -------------------------------------------------------------------------

    @property
    def _is_complete(self) -> bool:
        return self._has_listed and not self._unread

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
        for row in rows:
            lineage = lineage_of(row)
            for line, version in (lineage.lines if lineage else {}).items():
                self._lines.setdefault(line, set()).add(version)
                self._points[_point(line, version)] = (line, version)


def _point(line: str, version: int) -> str:
    return f"{line}@{version}"
