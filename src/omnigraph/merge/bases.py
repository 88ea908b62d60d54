"""The merge base: the newest common state of two branches.

Histories are read from the store only as far as needed. Usually the base is the state of one
commit. After criss-cross merges both sides share several newest commits, of which none is an
ancestor of another; using only one of them would undo the changes of the others. They are merged
first, and both sides are compared with the result.
"""

from __future__ import annotations

from collections.abc import Collection, Set
from dataclasses import field
from typing import TypeAlias

import pyarrow as pa

from omnigraph.commit.ancestry import CommitGraph, MergeLineage, lineage_of, resolved_conflicts
from omnigraph.commit.branches import Branches
from omnigraph.commit.history import History
from omnigraph.commit.names import normal_branch
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import BranchNotFound, CommitNotFound, HistoryGone
from omnigraph.lang.schema.catalog import EntityType
from omnigraph.merge.changes import (
    TableChanges,
    diff_via_base,
    find_changes,
    rows_with,
    rows_without,
    with_unknown_rows,
)
from omnigraph.merge.conflicts import Resolution
from omnigraph.merge.rows import merge_rows
from omnigraph.records import dataclass
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.types import TableVersion


@dataclass(frozen=True, slots=True)
class Inherited:
    """How one side of a merge got the unreadable common commits."""

    states: tuple[Snapshot, ...] | None = None
    """For each of them a state of the side that is the result of merging it.

    ``None`` if the side merged a later commit of a branch, which may have reverted some changes, or
    if such a state is gone.
    """


@dataclass(frozen=True, slots=True)
class AncestryGap:
    """What is unknown of the newest common state of two sides.

    Usually because the branch of their newest common commits was deleted.
    """

    source: Inherited = Inherited()
    target: Inherited = Inherited()
    resolved: frozenset[str] = frozenset()
    """The conflicts that merges of one side resolved: the result may be any value."""


class Ancestry(CommitGraph):
    """The commits of all branches of a graph; those of a branch are read when needed."""

    def __init__(self, store: GraphStore, *first: str | None) -> None:
        """The branches in ``first`` are read before the others."""
        super().__init__(is_readable=lambda commit: self.state(commit) is not None)
        self.is_complete = False
        self._store = store
        self._states: dict[str, Snapshot | None] = {}
        self._unread: list[str | None] = list(first)
        self._orders: dict[str | None, dict[str, int]] = {}
        self._has_listed = False
        self._gaps: list[AncestryGap] = []

    @property
    def gap(self) -> AncestryGap | None:
        """The unreadable commits of all calls of ``common_commits``; ``None`` if there are none."""
        if len(self._gaps) > 1:
            return AncestryGap(resolved=frozenset().union(*(gap.resolved for gap in self._gaps)))
        return self._gaps[0] if self._gaps else None

    def state(self, commit: str) -> Snapshot | None:
        """The state of the graph after a commit; ``None`` if it was removed."""
        if commit not in self._states:
            try:
                self._states[commit] = History(self._store).snapshot_of(commit)
            except (HistoryGone, CommitNotFound):
                self._states[commit] = None
        return self._states[commit]

    def common_commits(
        self, some: Collection[str], others: Collection[str], *, are_sides: bool = True
    ) -> list[str]:
        """The newest readable common ancestors of two groups of commits; records unreadable ones.

        Unless they ``are_sides`` of the merge itself, how they got the unreadable ones says nothing
        about the sides.
        """
        shared = self.common(some, others)
        if shared.commits == sorted(some):
            return shared.commits
        one, other = shared.theirs.keys(), shared.ours.keys()
        if shared.lost:
            gap = AncestryGap(resolved=self._resolved(one ^ other))
            if are_sides:
                source = self._inherited(one - other, shared.lost)
                target = self._inherited(other - one, shared.lost)
                gap = AncestryGap(source, target, gap.resolved)
            self._gaps.append(gap)
            return shared.commits
        # Whether both sides merged unknown commits, of which one has no recorded lineage.
        unknown = [
            {parent for commit in side for parent in self.parents(commit)} - self.commits.keys()
            for side in (one - other, other - one)
        ]
        silent = [commits - self.points.keys() for commits in unknown]
        if (silent[0] and unknown[1]) or (silent[1] and unknown[0]):
            self._gaps.append(AncestryGap(resolved=self._resolved(one ^ other)))
        elif are_sides:
            # Each side has decided: a value that happens to equal that of the base is no default.
            twice = self._resolved(one - other) & self._resolved(other - one)
            if twice:
                self._gaps.append(AncestryGap(Inherited(()), Inherited(()), twice))
        return shared.commits

    def precedes(self, commit: str, other: str, branch: str | None) -> bool:
        """Whether ``commit`` is before ``other`` in the history of a branch; reads only that."""
        order = self._read(branch)
        return commit in order and other in order and order[commit] < order[other]

    def lineage(self, head: str, branch: str | None, onto: str) -> MergeLineage | None:
        """The lineage that merging a branch adds to a commit; ``None`` if not completely known."""
        order = self._read(branch)
        if onto in order:
            brought = {commit for commit in order if order[onto] < order[commit] <= order[head]}
        else:
            brought = self.distances([head]).keys() - self.distances([onto]).keys()
        # The first commit of each branch identifies its line: names are reused.
        firsts: dict[str | None, str] = {}
        for row in sorted(self.commits.values(), key=lambda row: row.order):
            firsts.setdefault(row.branch, row.commit_id)
        lines: dict[str, int] = {}
        for row in (self.commits[commit] for commit in brought if commit in self.commits):
            own = {firsts[row.branch]: row.manifest_version}
            if row.merged_parent is not None and row.branch is not None:
                recorded = lineage_of(row)
                if recorded is None:
                    return None
                own = {**recorded.lines, **own}
            for line, version in own.items():
                lines[line] = max(version, lines.get(line, 0))
        return MergeLineage(firsts[self.commits[head].branch], lines)

    # -- unreadable commits --------------------------------------------------------------

    def _inherited(self, commits: Set[str], lost: Set[str]) -> Inherited:
        """How a side got the lost commits; ``commits`` are those that only this side has."""
        merges = self.merges_of(lost, commits)
        readable = tuple(filter(None, map(self.state, merges.values())))
        return Inherited(readable if len(readable) == len(lost) else None)

    def _resolved(self, commits: Set[str]) -> frozenset[str]:
        """The ids of the conflicts that the merges among some commits resolved."""
        rows = (self.commits[commit] for commit in commits & self.commits.keys())
        return frozenset().union(*(resolved_conflicts(row) for row in rows))

    # -- reading -------------------------------------------------------------------------

    def read_more(self) -> bool:
        if not self._unread and not self._has_listed:
            self._has_listed = True
            names = [normal_branch(name) for name in Branches(self._store).list()]
            self._unread = [name for name in names if name not in self._orders]
        branches, self._unread = self._unread[:1], self._unread[1:]
        self.is_complete = self._has_listed and not self._unread
        for branch in branches:
            self._read(branch)
        return bool(branches)

    def _read(self, branch: str | None) -> dict[str, int]:
        """The commits of a branch, by their position in its history."""
        if branch not in self._orders:
            try:
                rows = self._store.manifest(branch).commits()
            except BranchNotFound:
                rows = []
            self._orders[branch] = {row.commit_id: number for number, row in enumerate(rows)}
            self.add(rows)
        return self._orders[branch]


# -- the state ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CrissCrossState:
    """The merge of two states; it is the state of no commit."""

    one: MergeState
    other: Snapshot
    common: MergeState | None
    """The merge base of the two states."""
    _changes: dict[str, TableChanges] = field(default_factory=dict)


MergeState: TypeAlias = Snapshot | CrissCrossState


def common_state(ancestry: Ancestry, commits: list[str]) -> MergeState | None:
    """The merge base of two sides with these common commits; ``None`` without any."""
    state: MergeState | None = None
    for number, commit in enumerate(commits):
        snapshot = ancestry.state(commit)
        assert snapshot is not None
        if state is None:
            state = snapshot
        else:
            before = ancestry.common_commits(sorted(commits[:number]), [commit], are_sides=False)
            state = CrissCrossState(state, snapshot, common_state(ancestry, before))
    return state


def table_versions(state: MergeState, table_key: str) -> set[TableVersion | None]:
    """Every version of a table in a state."""
    if isinstance(state, Snapshot):
        return {state.table_version(table_key)}
    return table_versions(state.one, table_key) | table_versions(state.other, table_key)


def changes_between(
    store: GraphStore, entity_type: EntityType, before: MergeState | None, after: MergeState
) -> TableChanges:
    """The difference in the table of a type; ``None`` is a state without rows."""
    schema = entity_type.arrow_schema()
    if isinstance(before, CrissCrossState):
        since = changes_between(store, entity_type, before.one, after)
        return diff_via_base(schema, _merge_changes(store, entity_type, before), since)
    if isinstance(after, CrissCrossState):
        back = changes_between(store, entity_type, before, after.one).reversed()
        return diff_via_base(schema, back, _merge_changes(store, entity_type, after))
    key = entity_type.table_key
    return find_changes(
        store, entity_type, None if before is None else before.pin(key), after.pin(key)
    )


def _merge_changes(
    store: GraphStore, entity_type: EntityType, state: CrissCrossState
) -> TableChanges:
    """The changes from the first of the two states to the merged one."""
    if entity_type.table_key not in state._changes:
        theirs = changes_between(store, entity_type, state.common, state.other)
        ours = changes_between(store, entity_type, state.common, state.one)
        made = merge_rows(entity_type, theirs, ours, Resolution(None))
        after = pa.concat_tables([made.new, made.changed])
        # Each side resolved these conflicts differently: the merged values are unknown.
        unknown = pa.array([conflict.row_id for conflict in made.conflicts], pa.string())
        written = pa.array(after[KEY].to_pylist(), pa.string())
        before = pa.concat_tables([ours.after, rows_without(theirs.before, ours.ids)])
        before = rows_with(before, pa.concat_arrays([written, made.deleted, unknown]))
        state._changes[entity_type.table_key] = with_unknown_rows(
            entity_type, before, after, unknown
        )
    return state._changes[entity_type.table_key]
