"""Merging a branch into another, and reverting or cherry-picking one commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from enum import StrEnum
from functools import partial
from os import PathLike
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from omnigraph.commit.ancestry import MergeLineage
from omnigraph.commit.branches import Branches
from omnigraph.commit.group_members import WrittenIds, commit_before, written_ids
from omnigraph.commit.history import History, first_parents
from omnigraph.commit.metadata import MERGE
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.receipts import TableCounts
from omnigraph.commit.rows import PICKS, REVERTS, WriterKind
from omnigraph.commit.schema.lock import refuse_while_schema_changes
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore, detect_branch_deletion
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import BranchNotFound, Conflict, InputError, OmniGraphError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.logs import logger
from omnigraph.merge.bases import Ancestry, AncestryGap, MergeState, common_state
from omnigraph.merge.conflicts import Choice, Conflicts, Resolution
from omnigraph.merge.plan import MergePlan, changed_tables, plan_merge, stage_merge
from omnigraph.merge.repeats import MergeKey, RecordedMerge, find_merge, recorded_report
from omnigraph.records import dataclass
from omnigraph.representation import brief, counts_html
from omnigraph.write.row_security import with_incident_edges

_LOG = logger(__name__)

Resolve: TypeAlias = str | Mapping[str, Choice] | PathLike[str] | None

_guard = threading.Lock()
_locks: WeakValueDictionary[tuple[str, str | None], threading.Lock] = WeakValueDictionary()


class Outcome(StrEnum):
    """The outcome of a merge."""

    UP_TO_DATE = "already_up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class MergeReport:
    """The result of a merge or of its preview."""

    __repr__ = brief

    outcome: Outcome
    source: str
    target: str
    base: str | None
    """The nearest common commit; ``None`` if there is none."""
    commit_id: str | None = None
    """``None`` if nothing was committed."""
    version: int = 0
    tables: Mapping[str, TableCounts] = field(default_factory=dict)
    conflicts: Conflicts = field(default_factory=Conflicts)
    """Only in a preview: a merge with conflicts is refused."""
    resolved: Mapping[str, Choice] = field(default_factory=dict)
    branch_deleted: bool | None = None
    """Whether the source was deleted afterwards; ``None`` if that was not requested."""
    branch_delete_error: str | None = None
    """Why it was not."""

    @property
    def is_clean(self) -> bool:
        return not len(self.conflicts)

    def _repr_html_(self) -> str:
        conflicts = f", {len(self.conflicts)} conflicts" if self.conflicts else ""
        title = f"{self.source} into {self.target}: {self.outcome.value}{conflicts}"
        return counts_html(title, self.tables)


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """The options of a merge."""

    resolve: Resolve = None
    dry_run: bool = False
    actor: str | None = None
    delete_branch: bool = False
    require_view: Callable[[str | None, Iterable[str]], None] | None = None
    """Raises unless the actor sees all rows of some tables on a branch."""
    key: MergeKey | None = None
    """Under which it is committed once."""


@dataclass(frozen=True, slots=True)
class _MergeBase:
    """The merge base of a source and a target."""

    commit: str
    """The nearest common commit."""
    state: MergeState
    gap: AncestryGap | None = None
    """Set if newer common commits are unreadable."""
    lineage: MergeLineage | None = None
    """The lineage of the source beyond the base, to be recorded in the merge commit."""
    onto: str = ""
    """The newest commit of the target that was considered."""


class _Merge:
    """The changes of a source since a base, to be applied to the newest state of a branch."""

    def __init__(
        self,
        store: GraphStore,
        catalog: Catalog,
        base: _MergeBase,
        source: Snapshot,
        names: tuple[str, str],
        options: MergeOptions,
        *,
        find_base: Callable[[Snapshot], _MergeBase] | None = None,
        extra: Mapping[str, Any] | None = None,
        ids: WrittenIds | None = None,
    ) -> None:
        """``find_base`` finds the base again after the target has moved.

        ``ids`` restrict the changes to some rows of some tables.
        """
        self.base = base
        self._counts: Mapping[str, TableCounts] = {}
        self._resolution = Resolution(options.resolve)
        self._store = store
        self._catalog = catalog
        self._source = source
        self._names = names
        self._options = options
        self._find_base = find_base
        self._extra = dict(extra or {})
        self._ids = ids
        self._branches: set[str | None] = set()
        """The branches whose rows the merge reads."""
        self._touches = frozenset(changed_tables(catalog, base.state, source, base.gap, ids))

    def run(self, kind: WriterKind, into: str | None, head: str | None = None) -> MergeReport:
        """Commit the merge, with the head of a merged branch, or preview it on the newest state."""
        report = MergeReport(Outcome.MERGED, *self._names, None)
        self._branches = {self._source.branch, into}
        if isinstance(self.base.state, Snapshot) and self._find_base is None:
            self._branches.add(self.base.state.branch)
        if self._options.dry_run:
            target = self._store.manifest(into).current()
            plan = self._make_plan(target)
            version, does_something = target.manifest_version, bool(plan.deltas or plan.conflicts)
            report = replace(report, version=version, conflicts=plan.conflicts)
        else:
            key = self._options.key
            request = WriteRequest(
                kind,
                into,
                self._touches,
                self._prepare,
                actor=self._options.actor,
                merged_parent=head,
                idempotency_key=None if key is None else key.key,
                fingerprint=None if key is None else key.fingerprint,
                schema_hash=self._catalog.schema_hash,
            )
            receipt = commit_write(self._store, request)
            if key is not None and receipt.commit_id is not None:
                # Maybe that of a call at the same time, which was faster.
                first = find_merge(self._store, into, key)
                return report if first is None else _first_report(first, *self._names)
            does_something = receipt.commit_id is not None
            report = replace(report, version=receipt.version, commit_id=receipt.commit_id)
        return replace(
            report,
            outcome=self.outcome if does_something else Outcome.UP_TO_DATE,
            base=self.base.commit,
            tables=self._counts,
            resolved=dict(self._resolution.used),
        )

    @property
    def outcome(self) -> Outcome:
        """That of a merge that makes a commit."""
        is_ahead = self._find_base is not None and self.base.commit == self.base.onto
        return Outcome.FAST_FORWARD if is_ahead else Outcome.MERGED

    def _make_plan(self, target: Snapshot) -> MergePlan:
        self._resolution = Resolution(self._options.resolve)
        if self._find_base is not None and _head(target) != self.base.onto:
            # Another process may have merged the source, and later commits changed its rows again.
            self.base = self._find_base(target)
        self._require_view()
        base, gap = self.base.state, self.base.gap
        plan = plan_merge(
            self._store, self._catalog, base, self._source, target, self._resolution, gap, self._ids
        )
        self._resolution.check_used()
        self._counts = plan.counts
        return plan

    def _require_view(self) -> None:
        """Refuse an actor that does not see all rows which the merge may change or report."""
        require = self._options.require_view
        if require is None:
            return
        state, gap = self.base.state, self.base.gap
        tables = changed_tables(self._catalog, state, self._source, gap, self._ids)
        for branch in self._branches:
            require(branch, with_incident_edges(self._catalog, tables))

    def _prepare(self, view: WriteView) -> PreparedWrite:
        plan = self._make_plan(view.snapshot)
        if len(plan.conflicts):
            raise plan.conflicts.error(*self._names)
        for key in sorted(plan.deltas.keys() - self._touches):
            # No table is written without its lease, and a new base may need another lease.
            raise Conflict(
                f"the merge base changed during the merge, and with it '{key}'",
                hint="repeat the merge",
                details={"table_key": key},
            )
        merge: dict[str, Any] = {}
        if self._resolution.used:
            merge["resolved"] = dict(self._resolution.used)
        if self.base.lineage is not None:
            merge |= self.base.lineage.to_json()
        if self._options.key is not None:
            merge |= recorded_report(self.outcome.value, self.base.commit, plan.counts)
        extra = {**self._extra, MERGE: merge} if merge else self._extra
        staged = stage_merge(view, plan.deltas, plan.located)
        # A merge is recorded even if it changes no row, unless another process did it meanwhile.
        always = self._find_base is not None and self.base.commit != _head(self._source)
        return PreparedWrite(
            staged, plan.consulted, plan.validator.check, always=always, extra=extra
        )


def merge_branches(
    store: GraphStore, catalog: Catalog, source: str, target: str, options: MergeOptions
) -> MergeReport:
    """Merge one branch into another; raises on conflicts and changes nothing then."""
    from_branch, into = normal_branch(source), normal_branch(target)
    if from_branch == into:
        raise InputError("branch_merge requires distinct source and target branches")
    refuse_while_schema_changes(store)
    with _guard:
        # This process runs one merge at a time into a branch.
        lock = _locks.setdefault((store.root.uri, into), threading.Lock())
    with lock, detect_branch_deletion(store, into):
        # Before the source is looked for: the first call may have deleted it.
        first = _first(store, catalog, {from_branch, into}, into, options)
    if first is not None:
        report = _first_report(first, branch_label(from_branch), branch_label(into))
        head = first.head or ""
    else:
        with lock, detect_branch_deletion(store, from_branch, into):
            report, head = _merge(store, catalog, from_branch, into, options)
    if options.delete_branch and not options.dry_run and from_branch is not None:
        error = _delete_branch(store, from_branch, head, may_be_gone=first is not None)
        report = replace(report, branch_deleted=error is None, branch_delete_error=error)
    return report


def _first(
    store: GraphStore,
    catalog: Catalog,
    branches: Iterable[str | None],
    into: str | None,
    options: MergeOptions,
) -> RecordedMerge | None:
    """What a call under the same key has done before, as far as the actor may know it."""
    if options.key is None or options.dry_run:
        return None
    first = find_merge(store, into, options.key)
    if first is not None and options.require_view is not None:
        for branch in branches:
            options.require_view(branch, with_incident_edges(catalog, first.tables))
    return first


def _first_report(first: RecordedMerge, source: str, target: str) -> MergeReport:
    return MergeReport(
        Outcome(first.outcome),
        source,
        target,
        first.base,
        first.commit_id,
        first.version,
        first.tables,
        resolved=first.resolved,
    )


def _delete_branch(
    store: GraphStore, branch: str, head: str, *, may_be_gone: bool = False
) -> str | None:
    """Delete a merged branch, unless it has commits after ``head``; never fails the merge.

    Returns the reason if it was not deleted.
    """
    try:
        Branches(store).delete(branch, head=head)
    except BranchNotFound as error:
        return None if may_be_gone else error.message
    except OmniGraphError as error:
        _LOG.warning("branch '%s' is merged, but was not deleted: %s", branch, error)
        return error.message
    return None


def _merge(
    store: GraphStore,
    catalog: Catalog,
    source: str | None,
    target: str | None,
    options: MergeOptions,
) -> tuple[MergeReport, str]:
    """The report of a merge, and the head of the source that was merged."""
    theirs, ours = store.manifest(source).current(), store.manifest(target).current()
    head = _head(theirs)
    names = (branch_label(source), branch_label(target))
    find_base = partial(_find_base, store, source, target, theirs)
    base = find_base(ours)
    up_to_date = MergeReport(Outcome.UP_TO_DATE, *names, head, version=ours.manifest_version)
    if base.commit == head:
        return up_to_date, head
    merge = _Merge(store, catalog, base, theirs, names, options, find_base=find_base)
    report = merge.run(WriterKind.BRANCH_MERGE, target, head)
    if report.commit_id is None and not options.dry_run:
        return replace(up_to_date, version=report.version), head
    if options.dry_run:
        report = replace(report, outcome=merge.outcome)
    return report, head


def _find_base(
    store: GraphStore, source: str | None, target: str | None, theirs: Snapshot, ours: Snapshot
) -> _MergeBase:
    head, onto = _head(theirs), _head(ours)
    ancestry = Ancestry(store, source, target)
    if ancestry.precedes(onto, head, source):
        lineage = ancestry.lineage(head, source, onto)
        return _MergeBase(onto, ours, None, lineage, onto)
    commits = ancestry.common_commits([head], [onto])
    if commits == [head]:
        return _MergeBase(head, theirs, onto=onto)
    state = common_state(ancestry, commits)
    if state is None:
        raise Conflict("branches have no common ancestor", hint="load the data of one instead")
    lineage = ancestry.lineage(head, source, onto)
    return _MergeBase(commits[0], state, ancestry.gap, lineage, onto)


def _head(snapshot: Snapshot) -> str:
    return "" if snapshot.head is None else snapshot.head.commit_id


# -- one commit -----------------------------------------------------------------------------------


def revert_commit(
    store: GraphStore, catalog: Catalog, commit_id: str, branch: str, options: MergeOptions
) -> MergeReport:
    """Undo the changes of a commit by a new commit; later changes are kept."""
    first = _first_replay(store, catalog, commit_id, branch, options)
    if first is not None:
        return first
    before, after, ids = _change_of(store, commit_id)
    return _replay(store, catalog, (after, before, ids), branch, options, {REVERTS: commit_id})


def pick_commit(
    store: GraphStore, catalog: Catalog, commit_id: str, branch: str, options: MergeOptions
) -> MergeReport:
    """Apply the changes of a commit of any branch to a branch, by a new commit."""
    first = _first_replay(store, catalog, commit_id, branch, options)
    if first is not None:
        return first
    change = _change_of(store, commit_id)
    return _replay(store, catalog, change, branch, options, {PICKS: commit_id})


def _first_replay(
    store: GraphStore, catalog: Catalog, commit_id: str, branch: str, options: MergeOptions
) -> MergeReport | None:
    """The report of a call under the same key; its commit may be gone from the history by now."""
    into = normal_branch(branch)
    with detect_branch_deletion(store, into):
        first = _first(store, catalog, {into}, into, options)
    return None if first is None else _first_report(first, commit_id, branch_label(into))


_CommitChange: TypeAlias = tuple[Snapshot, Snapshot, WrittenIds | None]
"""Two states, and the rows to compare; ``None`` compares all."""


def _change_of(store: GraphStore, commit_id: str) -> _CommitChange:
    """The states before and after a commit; for a member of a group, those of the group."""
    history, ids = History(store), None
    commit = history.commit(commit_id)
    parent = commit.parent
    if commit.group is not None:
        chain = first_parents(store, normal_branch(commit.branch), commit.commit_id)
        before, ids = commit_before(chain, len(chain) - 1), written_ids(chain[-1])
        parent = None if before is None else before.commit_id
    if parent is None:
        raise InputError(
            f"commit '{commit_id}' is the first of the graph",
            hint="there is nothing before it to compare with",
            details={"commit_id": commit_id},
        )
    return history.snapshot_of(parent), history.snapshot_of(commit_id), ids


def _replay(
    store: GraphStore,
    catalog: Catalog,
    change: _CommitChange,
    branch: str,
    options: MergeOptions,
    extra: Mapping[str, str],
) -> MergeReport:
    base, source, ids = change
    into = normal_branch(branch)
    refuse_while_schema_changes(store)
    now = store.manifest(into).current().schema
    for state in (base, source):
        # Rows of another schema would lose properties that were renamed since.
        if (state.schema and state.schema.schema_hash) != (now and now.schema_hash):
            raise InputError(
                "the schema has changed since that commit",
                hint="change the rows by a mutation or a load instead",
            )
    (commit_id,) = extra.values()
    names = (commit_id, branch_label(into))
    merge_base = _MergeBase(_head(base), base)
    merge = _Merge(store, catalog, merge_base, source, names, options, extra=extra, ids=ids)
    with detect_branch_deletion(store, into):
        return merge.run(WriterKind.MUTATION, into)
