"""The plan of a cleanup: what of a graph goes, decided before anything does.

Everything is looked at once: the heads of all branches, every state that their manifests still
have, every version of every copy of a table. What cannot be looked at counts as needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from omnigraph.commit.ancestry import CommitGraph
from omnigraph.commit.branches import Branches
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.snapshot_leases import leased_snapshots
from omnigraph.commit.staging import ENDING, FOLDER, markers
from omnigraph.commit.store import GraphStore
from omnigraph.errors import BranchNotFound, OmniGraphError, StorageMissing
from omnigraph.maintain.cleanup.retention import (
    Needs,
    Policy,
    going_versions,
    staying_states,
    told_commits,
    young_states,
)
from omnigraph.maintain.cleanup.states import GraphState, places_of, states_of
from omnigraph.storage.executor import Executor
from omnigraph.storage.lance_format.names import branch_file
from omnigraph.storage.tables.cleaning import VersionStamp, fork_files, versions_of
from omnigraph.storage.tables.inline import BranchInfo
from omnigraph.storage.tables.types import TableRef, TableVersion

LOOKING = "looking"
MARKER_AGE = timedelta(days=7)
"""A write that stages for longer than this is dead; Lance has its files for garbage by then."""


@dataclass(slots=True)
class Plan:
    """What goes, and what is left alone because it could not be looked at."""

    policy: Policy
    keys: dict[str, str] = field(default_factory=dict)
    """The table of each place where one lies; of a dropped one, its last name."""
    shown: set[str] = field(default_factory=set)
    """The places whose tables some branch shows."""
    going: dict[TableRef, list[int]] = field(default_factory=dict)
    forks: list[TableRef] = field(default_factory=list)
    """Copies that nobody shows, those that were made from others first."""
    strays: list[TableRef] = field(default_factory=list)
    """Files of copies that have no reference."""
    dropped: dict[TableRef, list[int]] = field(default_factory=dict)
    """Tables that were dropped and that no state shows, with their versions."""
    copies: set[TableRef] = field(default_factory=set)
    """Those that stay."""
    manifests: dict[str | None, list[int]] = field(default_factory=dict)
    versions: dict[TableRef, list[int]] = field(default_factory=dict)
    """Those that each copy has now, of the manifest too, oldest first."""
    floor: int = 1
    dead_markers: list[str] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    """What could not be looked at, by the place of the table."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Branches that could not be read: what they need is not known."""
    lives: dict[TableRef, str | None] = field(default_factory=dict)
    """What tells each copy of a branch from a later one of the same name."""
    seen: object = None
    """What nobody may have changed since: the branches and the tags."""


@dataclass(slots=True)
class _Table:
    """What was found where a table lies."""

    location: str
    branches: Mapping[str, BranchInfo] = field(default_factory=dict)
    stamps: dict[TableRef, list[VersionStamp]] = field(default_factory=dict)
    lives: dict[TableRef, str | None] = field(default_factory=dict)
    strays: set[str] = field(default_factory=set)
    error: str | None = None


def make_plan(store: GraphStore, policy: Policy, executor: Executor) -> Plan:
    """Look at a graph and decide."""
    return _Planning(store, policy, executor).plan()


def watched(store: GraphStore) -> object:
    """The branches and tags of a graph, to be compared with what they were."""
    names = store.inline.branches(MANIFEST)
    lives = {name: life_of(store, TableRef(MANIFEST, name)) for name in names}
    tags = store.manifest(None).tags()
    return lives, {name: row.commit_id for name, row in tags.items()}


def life_of(store: GraphStore, ref: TableRef) -> str | None:
    """What tells a copy from a later one of the same name."""
    if ref.branch is None:
        return None
    return store.objects.identity(f"{ref.location}/{branch_file(ref.branch)}")


class _Planning:
    def __init__(self, store: GraphStore, policy: Policy, executor: Executor) -> None:
        self._store = store
        self._policy = policy
        self._executor = executor
        self._out = Plan(policy)
        self._needs = Needs()
        self._heads: dict[str | None, Snapshot] = {}
        self._states: dict[str | None, list[GraphState]] = {}
        self._commits: dict[str, CommitRow] = {}
        self._tables: dict[str, _Table] = {}
        self._staying: dict[TableRef, set[int]] = {}

    def plan(self) -> Plan:
        out = self._out
        out.seen = watched(self._store)
        out.dead_markers = list(_dead_markers(self._store, self._policy))
        self._read_branches()
        self._find_tables()
        self._need_heads()
        self._need_states()
        self._need_writers()
        self._decide_versions()
        self._decide_states()
        self._list_versions()
        return out

    def _list_versions(self) -> None:
        for branch, states in self._states.items():
            self._out.versions[TableRef(MANIFEST, branch)] = [state.version for state in states]
        for table in self._tables.values():
            for ref, stamps in table.stamps.items():
                self._out.versions[ref] = [stamp.version for stamp in stamps]

    # -- looking -------------------------------------------------------------------------

    def _read_branches(self) -> None:
        names = [normal_branch(name) for name in Branches(self._store).list()]
        for branch, found in zip(
            names, self._executor.run(self._read_branch, names, LOOKING), strict=True
        ):
            if isinstance(found, str):
                self._out.unreadable[branch_label(branch)] = found
            elif found is not None:
                self._heads[branch], self._states[branch], rows, locations = found
                self._commits |= {row.commit_id: row for row in rows}
                self._out.keys |= {location: key for key, location in sorted(locations.items())}

    def _read_branch(self, branch: str | None) -> Any:
        """All that is asked of a branch, at once: it may go at any time."""
        try:
            # The head after the states, its commits after it: newer ones need no less.
            states = states_of(self._store, branch)
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
        out = self._out
        for snapshot in self._heads.values():
            out.keys |= {pin.location: key for key, pin in snapshot.pins.items()}
            out.shown |= {pin.location for pin in snapshot.pins.values()}
        locations = [*sorted(out.keys), MANIFEST]
        for found in self._executor.run(self._look, locations, LOOKING):
            self._tables[found.location] = found
            if found.error is not None:
                out.errors[found.location] = found.error

    def _look(self, location: str) -> _Table:
        found = _Table(location)
        try:
            found.branches = self._store.inline.branches(location)
            refs = [TableRef(location, name) for name in (None, *found.branches)]
            if location != MANIFEST:
                for ref in refs:
                    found.lives[ref] = life_of(self._store, ref)
                    self._stamp(found, ref)
            trees = {name for name, _, _ in fork_files(self._store.objects, location)}
            found.strays = trees - set(found.branches)
        except StorageMissing as error:
            if location in self._out.shown:
                found.error = str(error)
        except OmniGraphError as error:
            found.error = str(error)
        return found

    def _stamp(self, found: _Table, ref: TableRef) -> None:
        try:
            found.stamps[ref] = versions_of(self._store.datasets, ref)
        except StorageMissing:
            # A fork of which no more than its reference is there.
            if ref.branch is None:
                raise

    # -- what is needed ------------------------------------------------------------------

    def _need_heads(self) -> None:
        for snapshot in self._heads.values():
            self._needs.head(places_of(snapshot))
        for snapshot in leased_snapshots(self._store.root.uri):
            self._needs.exact |= places_of(snapshot)
        for table in self._tables.values():
            for name, info in table.branches.items():
                # Changes of a fork are found by comparing with its first version.
                for branch in (info.parent, name):
                    self._needs.exact.add(TableVersion(table.location, branch, info.parent_version))

    def _need_states(self) -> None:
        """States that have to stay readable."""
        states = [state for found in self._states.values() for state in found]
        commits = {s.commit.commit_id: s.commit for s in states if s.commit is not None}
        commits |= self._commits
        there = {state.commit.commit_id for state in states if state.commit is not None}
        heads = [head.head.commit_id for head in self._heads.values() if head.head is not None]
        wanted = CommitGraph(commits.values(), there.__contains__).merge_bases(heads)
        wanted |= {row.commit_id or "" for row in self._store.manifest(None).tags().values()}
        for found in self._states.values():
            wanted |= told_commits(self._policy, found)
            self._keep(young_states(self._policy, found, self._policy.min_age))
        forks = {(i.parent, i.parent_version) for i in self._tables[MANIFEST].branches.values()}
        self._keep(
            state
            for state in states
            if (state.branch, state.version) in forks
            or (state.commit is not None and state.commit.commit_id in wanted)
        )

    def _keep(self, states: Iterable[GraphState]) -> None:
        for state in states:
            self._needs.exact |= state.places

    def _need_writers(self) -> None:
        """Where writes that run started; on which copy is not written down."""
        bases = [marker.bases for marker in markers(self._store, self._out.dead_markers)]
        bases += [
            {entry.table_key: entry.expected_version for entry in sidecar.tables}
            for sidecar in self._store.sidecars.load_all()
        ]
        for versions in bases:
            for location, key in self._out.keys.items():
                if key in versions:
                    for ref in self._tables[location].stamps:
                        self._needs.exact.add(TableVersion(location, ref.branch, versions[key]))

    # -- deciding ------------------------------------------------------------------------

    def _decide_versions(self) -> None:
        if self._out.unreadable:
            return
        for table in self._tables.values():
            if table.error is None:
                for ref, stamps in table.stamps.items():
                    going = going_versions(self._policy, ref, stamps, self._needs)
                    self._out.going[ref] = going
                    self._staying[ref] = {stamp.version for stamp in stamps}.difference(going)

    def _decide_states(self) -> None:
        out = self._out
        states = [state for found in self._states.values() for state in found]
        kept = {place: self._is_kept(place) for state in states for place in state.places}
        infos = self._tables[MANIFEST].branches.values()
        snapshots = leased_snapshots(self._store.root.uri)
        used = {place.ref for snapshot in snapshots for place in places_of(snapshot)}
        for branch, states in self._states.items():
            forks = {info.parent_version for info in infos if info.parent == branch}
            staying = staying_states(states, kept, forks)
            going = [state.version for state in states if state.version not in staying]
            if not out.unreadable:
                out.manifests[branch] = going
            used |= {place.ref for s in states if s.version in staying for place in s.places}
            if branch is None:
                out.floor = _floor([state.version for state in states], going)
        self._decide_forks(used)
        if not out.unreadable:
            self._decide_dropped(used)
        out.lives = {ref: life for t in self._tables.values() for ref, life in t.lives.items()}
        gone = {*out.forks, *out.dropped}
        out.going = {ref: versions for ref, versions in out.going.items() if ref not in gone}
        out.copies = {ref for table in self._tables.values() for ref in table.stamps} - gone

    def _is_kept(self, place: TableVersion) -> bool:
        table = self._tables.get(place.location)
        if table is None or table.error is not None or self._out.unreadable:
            return table is not None
        return place.version in self._staying.get(place.ref, ())

    def _decide_forks(self, used: set[TableRef]) -> None:
        """Copies of branches that are gone, or that show another copy of the table."""
        live = {branch_label(branch) for branch in self._heads}
        for location, table in sorted(self._tables.items()):
            if location == MANIFEST or table.error is not None:
                self._out.strays += [TableRef(location, name) for name in sorted(table.strays)]
                continue
            for name in _children_first(table.branches):
                ref = TableRef(location, name)
                is_shown = ref in used or ref in self._needs.floors
                # What a branch needs that cannot be read is not known.
                is_open = bool(self._out.unreadable) and (
                    name in live or name in self._out.unreadable
                )
                if not is_shown and not is_open:
                    self._out.forks.append(ref)
            self._out.strays += [TableRef(location, name) for name in sorted(table.strays)]

    def _decide_dropped(self, used: set[TableRef]) -> None:
        for location, table in sorted(self._tables.items()):
            ref = TableRef(location)
            stamps = table.stamps.get(ref)
            if table.error is not None or not stamps or location in self._out.shown:
                continue
            needed = used | {place.ref for place in self._needs.exact}
            others = set(table.stamps) - set(self._out.forks) - {ref}
            is_young = self._policy.now - stamps[-1].made < self._policy.min_age
            if ref not in needed and not others and not is_young:
                self._out.dropped[ref] = [stamp.version for stamp in stamps]


def _dead_markers(store: GraphStore, policy: Policy) -> Iterator[str]:
    for name in store.objects.list(FOLDER):
        if name.endswith(ENDING):
            found = store.objects.head(f"{FOLDER}/{name}")
            if found is not None and policy.now - found.modified >= MARKER_AGE:
                yield name


def _floor(versions: Sequence[int], going: Sequence[int]) -> int:
    """From where on nothing is missing once some have gone."""
    staying = sorted(set(versions) - set(going))
    floor = staying[-1]
    for version in reversed(staying[:-1]):
        if version != floor - 1:
            break
        floor = version
    return floor


def _children_first(branches: Mapping[str, BranchInfo]) -> list[str]:
    """So that no fork goes before those that were made from it."""
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
