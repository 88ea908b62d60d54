"""The common base state of two sides of a merge.

Usually that is the state of one commit. After criss-cross merges both sides share several commits
of which none came before another; using one of them would undo what only the others have. Then they
are merged first, and both sides are compared with the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import Conflict
from omnigraph.merge.ancestry import Ancestry
from omnigraph.merge.changes import TableChanges, diff_via_base, find_changes, with_unknown_rows
from omnigraph.merge.conflicts import Resolution
from omnigraph.merge.rows import merge_rows
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.types import TableVersion
from omnigraph.write.delta import Kind


@dataclass(frozen=True, slots=True)
class CrissCrossState:
    """The merge of two states, which no commit has."""

    one: MergeState
    other: MergeState
    common: MergeState | None
    """The base of these two."""
    commits: frozenset[str]
    _changes: dict[str, TableChanges] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitState:
    """The state of a commit, or the newest of a branch."""

    snapshot: Snapshot
    commits: frozenset[str] = frozenset()


MergeState: TypeAlias = CommitState | CrissCrossState


def common_state(ancestry: Ancestry, commits: list[str]) -> MergeState:
    """The base state of two sides that have these commits in common."""
    state = _state(ancestry, commits)
    if state is None:
        raise Conflict("branches have no common ancestor", hint="load the data of one instead")
    return state


def _state(ancestry: Ancestry, commits: list[str]) -> MergeState | None:
    states: list[MergeState] = []
    for commit in commits:
        snapshot = ancestry.state(commit)
        assert snapshot is not None
        states.append(CommitState(snapshot, frozenset({commit})))

    def merged(one: MergeState, other: MergeState) -> MergeState:
        before = ancestry.common_commits(sorted(one.commits), sorted(other.commits))
        return CrissCrossState(one, other, _state(ancestry, before), one.commits | other.commits)

    return reduce(merged, states) if states else None


def table_versions(state: MergeState, table_key: str) -> set[TableVersion | None]:
    """Every version of a table in a state."""
    return {snapshot.table_version(table_key) for snapshot in _snapshots(state)}


def _snapshots(state: MergeState) -> Iterator[Snapshot]:
    if isinstance(state, CommitState):
        yield state.snapshot
    else:
        yield from _snapshots(state.one)
        yield from _snapshots(state.other)


# -- changes between states -----------------------------------------------------------------------


def changes_between(
    store: GraphStore, kind: Kind, before: MergeState | None, after: MergeState
) -> TableChanges:
    """The difference in the table of a type; a state of none has no rows."""
    if isinstance(before, CrissCrossState):
        since = changes_between(store, kind, before.one, after)
        return diff_via_base(kind, _merge_changes(store, kind, before), since)
    if isinstance(after, CrissCrossState):
        back = changes_between(store, kind, before, after.one).reversed()
        return diff_via_base(kind, back, _merge_changes(store, kind, after))
    key = kind.table_key
    start = None if before is None else before.snapshot.pin(key)
    return find_changes(store, kind, start, after.snapshot.pin(key))


def _merge_changes(store: GraphStore, kind: Kind, state: CrissCrossState) -> TableChanges:
    """The changes from the first of the two states to the merged one."""
    changes = state._changes.get(kind.table_key)
    if changes is None:
        theirs = changes_between(store, kind, state.common, state.other)
        ours = changes_between(store, kind, state.common, state.one)
        changes = _merged(kind, theirs, ours)
        state._changes[kind.table_key] = changes
    return changes


def _merged(kind: Kind, theirs: TableChanges, ours: TableChanges) -> TableChanges:
    made = merge_rows(kind, theirs, ours, Resolution(None))
    after = pa.concat_tables([made.new, made.changed])
    # Each side has resolved these in its own way: the merged values are unknown.
    unknown = pa.array([conflict.row_id for conflict in made.conflicts], pa.string())
    ids = pa.concat_arrays([pa.array(after[KEY].to_pylist(), pa.string()), made.deleted, unknown])
    only = theirs.before.filter(pc.invert(pc.is_in(theirs.before[KEY], value_set=ours.ids)))
    before = pa.concat_tables([ours.after, only])
    before = before.filter(pc.is_in(before[KEY], value_set=ids))
    return with_unknown_rows(kind, before, after, unknown)
