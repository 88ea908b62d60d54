"""Merging a branch into another, and taking one commit back or over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from os import PathLike
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from omnigraph.commit.ancestry import MergeLineage
from omnigraph.commit.branches import Branches, refuse_while_schema_changes
from omnigraph.commit.history import History
from omnigraph.commit.metadata import MERGE
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.receipts import Receipt, TableCounts
from omnigraph.commit.rows import PICKS, REVERTS
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import Conflict, InputError, OmniGraphError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.logs import logger
from omnigraph.merge.ancestry import Ancestry, AncestryGap
from omnigraph.merge.bases import CommitState, MergeState, common_state
from omnigraph.merge.conflicts import Choice, Conflicts, Resolution
from omnigraph.merge.plan import MergePlan, changed_tables, plan_merge
from omnigraph.merge.stage import stage_merge

_LOG = logger(__name__)

Resolve: TypeAlias = str | Mapping[str, Choice] | PathLike[str] | None

_guard = threading.Lock()
_locks: WeakValueDictionary[tuple[str, str | None], threading.Lock] = WeakValueDictionary()


class Outcome(StrEnum):
    """What became of a merge."""

    UP_TO_DATE = "already_up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What a merge did, or would do."""

    outcome: Outcome
    source: str
    target: str
    base: str | None
    """The commit from which the two have parted."""
    commit_id: str | None = None
    """None when nothing was committed."""
    version: int = 0
    tables: Mapping[str, TableCounts] = field(default_factory=dict)
    conflicts: Conflicts = field(default_factory=Conflicts)
    """Only a preview has some: a merge that has conflicts is refused."""
    resolved: Mapping[str, Choice] = field(default_factory=dict)
    branch_deleted: bool | None = None
    """Whether the source was deleted afterwards; none when that was not asked for."""

    @property
    def is_clean(self) -> bool:
        return not len(self.conflicts)


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """What a caller may say about a merge."""

    resolve: Resolve = None
    dry_run: bool = False
    actor: str | None = None
    delete_branch: bool = False


class _Changes:
    """The changes between two states, to be brought onto the newest of a branch."""

    def __init__(
        self,
        store: GraphStore,
        catalog: Catalog,
        common: _Common,
        source: Snapshot,
        names: tuple[str, str],
        options: MergeOptions,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._common = common
        self._source = source
        self._names = names
        self._options = options
        self.resolution = Resolution(options.resolve)
        self._extra = dict(extra or {})
        self.plan: MergePlan | None = None
        self.look_again: Callable[[Snapshot], _Common] | None = None
        """What to compare with when the target is another than it was."""
        self.touches = frozenset(changed_tables(catalog, common.state, source, common.gap))

    def planned(self, target: Snapshot) -> MergePlan:
        self.resolution = Resolution(self._options.resolve)
        if self.look_again is not None:
            self._common = self.look_again(target)
        base, gap = self._common.state, self._common.gap
        found = plan_merge(
            self._store, self._catalog, base, self._source, target, self.resolution, gap
        )
        self.resolution.check_used()
        self.plan = found
        return found

    def prepare(self, view: WriteView) -> PreparedWrite:
        plan = self.planned(view.snapshot)
        if len(plan.conflicts):
            raise plan.conflicts.error(*self._names)
        self._refuse_other_tables(plan)
        merge: dict[str, Any] = {}
        if self.resolution.used:
            merge["resolved"] = dict(self.resolution.used)
        if self._common.lineage is not None:
            merge |= self._common.lineage.to_json()
        extra = {**self._extra, MERGE: merge} if merge else self._extra
        staged = stage_merge(view, plan.deltas, plan.places)
        return PreparedWrite(staged, plan.consulted, plan.validator.check, always=True, extra=extra)

    def _refuse_other_tables(self, plan: MergePlan) -> None:
        """Without its lease no table is written; a new common state may ask for another one."""
        for key in sorted(plan.deltas.keys() - self.touches):
            raise Conflict(
                f"what the branches have in common changed meanwhile, and with it '{key}'",
                hint="repeat the merge",
                details={"table_key": key},
            )


def merge_branches(
    store: GraphStore, catalog: Catalog, source: str, target: str, options: MergeOptions
) -> MergeReport:
    """Merge one branch into another; conflicts refuse everything."""
    from_branch, into = normal_branch(source), normal_branch(target)
    if from_branch == into:
        raise InputError("branch_merge requires distinct source and target branches")
    refuse_while_schema_changes(store)
    with _one_at_a_time(store, into):
        report, head = _merged(store, catalog, from_branch, into, options)
    if options.delete_branch and not options.dry_run and from_branch is not None:
        report = replace(report, branch_deleted=_deleted(store, from_branch, head))
    return report


def _deleted(store: GraphStore, branch: str, head: str) -> bool:
    """Delete a branch that was merged up to a commit, unless somebody committed to it since.

    The merge is done, whatever becomes of its source.
    """
    try:
        Branches(store).delete(branch, head=head)
    except OmniGraphError as error:
        _LOG.warning("branch '%s' is merged, but was not deleted: %s", branch, error)
        return False
    return True


def _one_at_a_time(store: GraphStore, branch: str | None) -> threading.Lock:
    """The lock of the merges of this process into one branch of one graph."""
    with _guard:
        return _locks.setdefault((store.root.uri, branch), threading.Lock())


def _merged(
    store: GraphStore,
    catalog: Catalog,
    source: str | None,
    target: str | None,
    options: MergeOptions,
) -> tuple[MergeReport, str]:
    """What became of a merge, and the head of the source that it saw."""
    theirs, ours = store.manifest(source).current(), store.manifest(target).current()
    head = _head(theirs)
    names = (branch_label(source), branch_label(target))
    meeting = _meeting(store, source, target, theirs, ours)
    if meeting.base == head:
        return MergeReport(Outcome.UP_TO_DATE, *names, head, version=ours.manifest_version), head
    changes = _Changes(store, catalog, meeting.common, theirs, names, options)

    def look_again(now: Snapshot) -> _Common:
        # Somebody may have merged the source meanwhile, and changed again what it brought.
        nonlocal meeting
        if _head(now) != meeting.onto:
            meeting = _meeting(store, source, target, theirs, now)
        return meeting.common

    def prepare(view: WriteView) -> PreparedWrite:
        # What somebody else has merged meanwhile is not merged again.
        prepared = changes.prepare(view)
        return replace(prepared, always=meeting.base != head)

    changes.look_again = look_again
    report = MergeReport(Outcome.MERGED, *names, None)
    if options.dry_run:
        plan = changes.planned(ours)
        report = replace(report, conflicts=plan.conflicts, version=ours.manifest_version)
    else:
        request = WriteRequest(
            WriterKind.BRANCH_MERGE,
            target,
            changes.touches,
            prepare,
            actor=options.actor,
            merged_parent=head,
            schema_hash=catalog.schema_hash,
        )
        receipt = commit_write(store, request)
        if receipt.commit_id is None:
            return MergeReport(Outcome.UP_TO_DATE, *names, head, version=receipt.version), head
        report = replace(report, commit_id=receipt.commit_id, version=receipt.version)
    assert changes.plan is not None
    is_ahead = meeting.base == meeting.onto
    report = replace(
        report,
        outcome=Outcome.FAST_FORWARD if is_ahead else Outcome.MERGED,
        base=meeting.base,
        tables=changes.plan.counts,
        resolved=dict(changes.resolution.used),
    )
    return report, head


@dataclass(frozen=True, slots=True)
class _Common:
    """What two sides have in common."""

    state: MergeState
    gap: AncestryGap | None = None
    """That there is more of it than the state says."""
    lineage: MergeLineage | None = None
    """What the source has beyond it, to be recorded."""


@dataclass(frozen=True, slots=True)
class _Meeting:
    """Where a source and a target parted: the nearest commit."""

    base: str
    common: _Common
    onto: str
    """The newest commit of the target that was looked at."""


def _meeting(
    store: GraphStore, source: str | None, target: str | None, theirs: Snapshot, ours: Snapshot
) -> _Meeting:
    head, onto = _head(theirs), _head(ours)
    ancestry = Ancestry(store, source, target)
    if ancestry.precedes(onto, head, source):
        lineage = ancestry.lineage(head, source, onto)
        return _Meeting(onto, _Common(CommitState(ours), None, lineage), onto)
    commits = ancestry.common_commits([head], [onto])
    if commits == [head]:
        return _Meeting(head, _Common(CommitState(theirs)), onto)
    state = common_state(ancestry, commits)
    lineage = ancestry.lineage(head, source, onto)
    return _Meeting(commits[0], _Common(state, ancestry.gap, lineage), onto)


def _head(snapshot: Snapshot) -> str:
    return "" if snapshot.head is None else snapshot.head.commit_id


# -- one commit -----------------------------------------------------------------------------------


def revert_commit(
    store: GraphStore, catalog: Catalog, commit_id: str, branch: str, options: MergeOptions
) -> MergeReport:
    """Take back what a commit changed, by a new commit; what came after it stays."""
    history = History(store)
    commit = history.commit(commit_id)
    before = _before(history, commit.parent, commit_id)
    state = history.snapshot_of(commit_id)
    return _replayed(store, catalog, state, before, branch, options, {REVERTS: commit_id})


def pick_commit(
    store: GraphStore, catalog: Catalog, commit_id: str, branch: str, options: MergeOptions
) -> MergeReport:
    """Make what a commit of any branch changed part of a branch, by a new commit."""
    history = History(store)
    commit = history.commit(commit_id)
    before = _before(history, commit.parent, commit_id)
    state = history.snapshot_of(commit_id)
    return _replayed(store, catalog, before, state, branch, options, {PICKS: commit_id})


def _before(history: History, parent: str | None, commit_id: str) -> Snapshot:
    if parent is None:
        raise InputError(
            f"commit '{commit_id}' is the first of the graph",
            hint="there is nothing before it to compare with",
            details={"commit_id": commit_id},
        )
    return history.snapshot_of(parent)


def _refuse_another_schema(
    store: GraphStore, branch: str | None, states: Sequence[Snapshot]
) -> None:
    """Rows of another schema would come back without what has another name today."""
    now = store.manifest(branch).current().schema
    for state in states:
        if (state.schema and state.schema.schema_hash) != (now and now.schema_hash):
            raise InputError(
                "the schema has changed since that commit",
                hint="change the rows by a mutation or a load instead",
            )


def _replayed(
    store: GraphStore,
    catalog: Catalog,
    base: Snapshot,
    source: Snapshot,
    branch: str,
    options: MergeOptions,
    extra: Mapping[str, Any],
) -> MergeReport:
    into = normal_branch(branch)
    refuse_while_schema_changes(store)
    _refuse_another_schema(store, into, (base, source))
    names = (str(next(iter(extra.values()))), branch_label(into))
    changes = _Changes(store, catalog, _Common(CommitState(base)), source, names, options, extra)
    report = MergeReport(Outcome.MERGED, *names, _head(base))
    if options.dry_run:
        now = store.manifest(into).current()
        plan = changes.planned(now)
        return replace(
            report,
            conflicts=plan.conflicts,
            tables=plan.counts,
            version=now.manifest_version,
            outcome=Outcome.MERGED if plan.deltas or len(plan.conflicts) else Outcome.UP_TO_DATE,
        )

    def prepare(view: WriteView) -> PreparedWrite:
        # Unlike a merge, a commit that changes nothing here is none.
        return replace(changes.prepare(view), always=False)

    request = WriteRequest(
        WriterKind.MUTATION,
        into,
        changes.touches,
        prepare,
        actor=options.actor,
        schema_hash=catalog.schema_hash,
    )
    receipt: Receipt = commit_write(store, request)
    assert changes.plan is not None
    return replace(
        report,
        outcome=Outcome.MERGED if receipt.commit_id else Outcome.UP_TO_DATE,
        commit_id=receipt.commit_id,
        version=receipt.version,
        tables=changes.plan.counts,
        resolved=dict(changes.resolution.used),
    )
