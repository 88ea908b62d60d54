"""The plan of a cleanup, made before anything is removed.

Everything is read once: the heads of all branches, every state in their manifests, every version of
every table copy. What cannot be read counts as needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from typing import Any

from omnigraph.commit.ancestry import CommitGraph
from omnigraph.commit.branches import Branches
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.sidecar import FOLDER
from omnigraph.commit.snapshot import Snapshot, leased_snapshots
from omnigraph.commit.staging import ENDING, markers
from omnigraph.commit.store import GraphStore
from omnigraph.errors import BranchNotFound, OmniGraphError, StorageMissing
from omnigraph.maintain.cleanup.retention import (
    CleanupPolicy,
    GraphState,
    Needs,
    expired_versions,
    feed_commits,
    kept_states,
    pinned_versions,
    read_states,
    recent_states,
    shown_by,
)
from omnigraph.records import dataclass
from omnigraph.storage.executor import Executor
from omnigraph.storage.objects.paths import branch_file
from omnigraph.storage.tables.branch_list import BranchInfo
from omnigraph.storage.tables.types import TableRef, TableVersion
from omnigraph.storage.tables.versions import VersionStamp, fork_files, versions_of

READING = "looking"
MARKER_AGE = timedelta(days=7)
"""A write that stages for longer counts as dead; Lance treats its files as garbage by then."""


@dataclass(slots=True)
class CleanupPlan:
    """What to remove, and what to skip because it could not be read."""

    policy: CleanupPolicy
    keys: dict[str, str] = field(default_factory=dict)
    """The table key of each location; of a dropped table, its last one."""
    shown: set[str] = field(default_factory=set)
    """The locations of tables that some branch uses."""
    expired: dict[TableRef, list[int]] = field(default_factory=dict)
    forks: list[TableRef] = field(default_factory=list)
    """Unused forks, children first."""
    strays: list[TableRef] = field(default_factory=list)
    """Files of forks without a reference."""
    dropped: dict[TableRef, list[int]] = field(default_factory=dict)
    """Dropped tables that no state uses, with their versions."""
    copies: set[TableRef] = field(default_factory=set)
    """The copies to keep."""
    manifests: dict[str | None, list[int]] = field(default_factory=dict)
    versions: dict[TableRef, list[int]] = field(default_factory=dict)
    """The existing versions of each copy and of the manifest, oldest first."""
    floor: int = 1
    dead_markers: list[str] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    """Unreadable tables, by location."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Unreadable branches: what they need is unknown."""
    identities: dict[TableRef, str | None] = field(default_factory=dict)
    """The identity of each copy, different from that of a later one of the same name."""
    refs: object = None
    """The fingerprint of the branches and tags, which must not change."""


@dataclass(slots=True)
class _TableFacts:
    """The copies of one table."""

    location: str
    branches: Mapping[str, BranchInfo] = field(default_factory=dict)
    stamps: dict[TableRef, list[VersionStamp]] = field(default_factory=dict)
    identities: dict[TableRef, str | None] = field(default_factory=dict)
    strays: set[str] = field(default_factory=set)
    error: str | None = None


def make_plan(store: GraphStore, policy: CleanupPolicy, executor: Executor) -> CleanupPlan:
    """Read a graph, and decide what to remove."""
    return _CleanupPlanner(store, policy, executor).plan()


def fingerprint_refs(store: GraphStore) -> object:
    """The branches and tags of a graph, to detect a change."""
    names = store.inline.branches(MANIFEST)
    identities = {name: copy_identity(store, TableRef(MANIFEST, name)) for name in names}
    tags = store.manifest(None).tags()
    return identities, {name: row.commit_id for name, row in tags.items()}


def copy_identity(store: GraphStore, ref: TableRef) -> str | None:
    """The identity of a copy, different from that of a later one of the same name."""
    if ref.branch is None:
        return None
    return store.objects.identity(f"{ref.location}/{branch_file(ref.branch)}")


class _CleanupPlanner:
    def __init__(self, store: GraphStore, policy: CleanupPolicy, executor: Executor) -> None:
        self._store = store
        self._policy = policy
        self._executor = executor
        self._plan = CleanupPlan(policy)
        self._needs = Needs()
        self._heads: dict[str | None, Snapshot] = {}
        self._states: dict[str | None, list[GraphState]] = {}
        self._commits: dict[str, CommitRow] = {}
        self._tables: dict[str, _TableFacts] = {}
        self._kept: dict[TableRef, set[int]] = {}

    def plan(self) -> CleanupPlan:
        out = self._plan
        out.refs = fingerprint_refs(self._store)
        out.dead_markers = list(_dead_markers(self._store, self._policy))
        self._read_branches()
        self._find_tables()
        self._need_heads()
        self._need_states()
        self._need_writers()
        self._decide_versions()
        self._decide_states()
        return out

    # -- reading -------------------------------------------------------------------------

    def _read_branches(self) -> None:
        names = [normal_branch(name) for name in Branches(self._store).list()]
        results = self._executor.run(self._read_branch, names, READING)
        for branch, result in zip(names, results, strict=True):
            if isinstance(result, str):
                self._plan.unreadable[branch_label(branch)] = result
            elif result is not None:
                self._heads[branch], states, rows, locations = result
                self._states[branch] = states
                self._plan.versions[TableRef(MANIFEST, branch)] = [s.version for s in states]
                self._commits |= {row.commit_id: row for row in rows}
                self._plan.keys |= {location: key for key, location in sorted(locations.items())}

    def _read_branch(self, branch: str | None) -> Any:
        """Everything about a branch at once: it may be deleted at any time."""
        try:
            # The head after the states, its commits after it: a newer head needs no less.
            states = read_states(self._store, branch)
            manifest = self._store.manifest(branch)
            head, rows = manifest.current(), manifest.commits()
            return head, states, rows, manifest.with_state(lambda state, _: dict(state.locations))
        except BranchNotFound:
            return None
        except OmniGraphError as error:
            if branch is None:
                raise
            return str(error)

    def _find_tables(self) -> None:
        out = self._plan
        for snapshot in self._heads.values():
            out.keys |= {pin.location: key for key, pin in snapshot.pins.items()}
            out.shown |= {pin.location for pin in snapshot.pins.values()}
        locations = [*sorted(out.keys), MANIFEST]
        for facts in self._executor.run(self._read_table, locations, READING):
            self._tables[facts.location] = facts
            out.identities |= facts.identities
            for ref, stamps in facts.stamps.items():
                out.versions[ref] = [stamp.version for stamp in stamps]
            if facts.error is not None:
                out.errors[facts.location] = facts.error

    def _read_table(self, location: str) -> _TableFacts:
        facts = _TableFacts(location)
        try:
            facts.branches = self._store.inline.branches(location)
            refs = [TableRef(location, name) for name in (None, *facts.branches)]
            if location != MANIFEST:
                for ref in refs:
                    facts.identities[ref] = copy_identity(self._store, ref)
                    self._stamp(facts, ref)
            trees = {name for name, _, _ in fork_files(self._store.objects, location)}
            facts.strays = trees - set(facts.branches)
        except StorageMissing as error:
            if location in self._plan.shown:
                facts.error = str(error)
        except OmniGraphError as error:
            facts.error = str(error)
        return facts

    def _stamp(self, facts: _TableFacts, ref: TableRef) -> None:
        try:
            facts.stamps[ref] = versions_of(self._store.datasets, ref)
        except StorageMissing:
            # Only the reference of a fork exists.
            if ref.branch is None:
                raise

    # -- needed versions -----------------------------------------------------------------

    def _need_heads(self) -> None:
        for snapshot in self._heads.values():
            self._needs.add_head(pinned_versions(snapshot))
        for snapshot in leased_snapshots(self._store.root.uri):
            self._needs.exact |= pinned_versions(snapshot)
        for table in self._tables.values():
            for name, info in table.branches.items():
                # The changes of a fork are found by comparing with its first version.
                for branch in (info.parent, name):
                    self._needs.exact.add(TableVersion(table.location, branch, info.parent_version))

    def _need_states(self) -> None:
        """Keep the table versions of states that must stay readable."""
        states = [state for branch in self._states.values() for state in branch]
        commits = {s.commit.commit_id: s.commit for s in states if s.commit is not None}
        commits |= self._commits
        existing = {state.commit.commit_id for state in states if state.commit is not None}
        heads = [head.head.commit_id for head in self._heads.values() if head.head is not None]
        wanted = CommitGraph(commits.values(), existing.__contains__).merge_bases(heads)
        for tag in self._store.manifest(None).tags().values():
            wanted.add(tag.commit_id or "")
            commit = commits.get(tag.commit_id or "")
            if commit is not None and commit.commit_id not in existing:
                # A member of a group is shown by the state of the last one.
                wanted.add(shown_by(self._states.get(commit.branch, ()), commit) or "")
        for branch_states in self._states.values():
            wanted |= feed_commits(self._policy, branch_states)
            self._keep(recent_states(self._policy, branch_states, self._policy.min_age))
        forks = {(i.parent, i.parent_version) for i in self._tables[MANIFEST].branches.values()}
        self._keep(
            state
            for state in states
            if (state.branch, state.version) in forks
            or (state.commit is not None and state.commit.commit_id in wanted)
        )

    def _keep(self, states: Iterable[GraphState]) -> None:
        for state in states:
            self._needs.exact |= state.table_versions

    def _need_writers(self) -> None:
        """Keep the base versions of running writes; their copy is not recorded."""
        bases = [marker.bases for marker in markers(self._store, self._plan.dead_markers)]
        bases += [
            {entry.table_key: entry.expected_version for entry in sidecar.tables}
            for sidecar in self._store.sidecars.load_all()
        ]
        for versions in bases:
            for location, key in self._plan.keys.items():
                if key in versions:
                    for ref in self._tables[location].stamps:
                        self._needs.exact.add(TableVersion(location, ref.branch, versions[key]))

    # -- decisions -----------------------------------------------------------------------

    def _decide_versions(self) -> None:
        if self._plan.unreadable:
            return
        for table in self._tables.values():
            if table.error is None:
                for ref, stamps in table.stamps.items():
                    expired = expired_versions(self._policy, ref, stamps, self._needs)
                    self._plan.expired[ref] = expired
                    self._kept[ref] = {stamp.version for stamp in stamps}.difference(expired)

    def _decide_states(self) -> None:
        out = self._plan
        states = [state for branch in self._states.values() for state in branch]
        is_kept = {v: self._is_kept(v) for state in states for v in state.table_versions}
        infos = self._tables[MANIFEST].branches.values()
        snapshots = leased_snapshots(self._store.root.uri)
        used = {version.ref for snapshot in snapshots for version in pinned_versions(snapshot)}
        for branch, states in self._states.items():
            forks = {info.parent_version for info in infos if info.parent == branch}
            kept = kept_states(states, is_kept, forks)
            removed = [state.version for state in states if state.version not in kept]
            if not out.unreadable:
                out.manifests[branch] = removed
            used |= {v.ref for s in states if s.version in kept for v in s.table_versions}
            if branch is None:
                out.floor = _floor([state.version for state in states], removed)
        self._decide_forks(used)
        if not out.unreadable:
            self._decide_dropped(used)
        gone = {*out.forks, *out.dropped}
        out.expired = {ref: versions for ref, versions in out.expired.items() if ref not in gone}
        out.copies = {ref for table in self._tables.values() for ref in table.stamps} - gone

    def _is_kept(self, version: TableVersion) -> bool:
        table = self._tables.get(version.location)
        if table is None or table.error is not None or self._plan.unreadable:
            return table is not None
        return version.version in self._kept.get(version.ref, ())

    def _decide_forks(self, used: set[TableRef]) -> None:
        """Find unused forks: of deleted branches, or of branches that use another copy."""
        live = {branch_label(branch) for branch in self._heads}
        for location, table in sorted(self._tables.items()):
            self._plan.strays += [TableRef(location, name) for name in sorted(table.strays)]
            if location == MANIFEST or table.error is not None:
                continue
            for name in _children_first(table.branches):
                ref = TableRef(location, name)
                is_used = ref in used or ref in self._needs.floors
                # What an unreadable branch needs is unknown.
                is_open = bool(self._plan.unreadable) and (
                    name in live or name in self._plan.unreadable
                )
                if not is_used and not is_open:
                    self._plan.forks.append(ref)

    def _decide_dropped(self, used: set[TableRef]) -> None:
        for location, table in sorted(self._tables.items()):
            ref = TableRef(location)
            stamps = table.stamps.get(ref)
            if table.error is not None or not stamps or location in self._plan.shown:
                continue
            needed = used | {version.ref for version in self._needs.exact}
            others = set(table.stamps) - set(self._plan.forks) - {ref}
            is_recent = self._policy.now - stamps[-1].made < self._policy.min_age
            if ref not in needed and not others and not is_recent:
                self._plan.dropped[ref] = [stamp.version for stamp in stamps]


def _dead_markers(store: GraphStore, policy: CleanupPolicy) -> Iterator[str]:
    for name in store.objects.list(FOLDER):
        if name.endswith(ENDING):
            info = store.objects.head(f"{FOLDER}/{name}")
            if info is not None and policy.now - info.modified >= MARKER_AGE:
                yield name


def _floor(versions: Sequence[int], removed: Sequence[int]) -> int:
    """The version from which on none is missing after a removal."""
    kept = sorted(set(versions) - set(removed))
    floor = kept[-1]
    for version in reversed(kept[:-1]):
        if version != floor - 1:
            break
        floor = version
    return floor


def _children_first(branches: Mapping[str, BranchInfo]) -> list[str]:
    """Forks before those they were made from."""
    ordered: list[str] = []

    def add(name: str) -> None:
        if name in ordered:
            return
        for child, info in branches.items():
            if info.parent == name:
                add(child)
        ordered.append(name)

    for name in branches:
        add(name)
    return ordered
