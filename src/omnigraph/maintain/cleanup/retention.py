"""Which versions of tables and of the manifest are kept, and which are removed.

A version of a table copy (that of main, or the fork of a branch) is removed when it is beyond every
given limit and is not needed. Needed are:

- all versions from the oldest one that the head of a live branch uses;
- the table versions of states that have to stay readable: that of a tag, the merge base of two live
  branches, the merges that replace a lost one, the start of a live branch of the manifest, a state
  recent enough for a reader elsewhere or for the change feed, or one that this process reads from;
- the versions from which forks of the table were made, and the first version of each fork: its
  changes are found by comparing with that one;
- the base versions of running writes.

Then a state of the graph is kept exactly if all of its table versions are kept. So every remaining
state can be read, and reading a removed one is refused as such.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta

from omnigraph.commit.manifest import LISTS_AFTER, MANIFEST
from omnigraph.commit.rows import CommitRow
from omnigraph.commit.snapshot import ManifestState, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import InputError
from omnigraph.maintain.running_writes import RunningWrite
from omnigraph.records import dataclass
from omnigraph.storage.tables.files import orphaned_files
from omnigraph.storage.tables.ledger import Ledger
from omnigraph.storage.tables.types import TableRef, TableVersion
from omnigraph.storage.tables.versions import VersionStamp, versions_of

VERSION_AGE = timedelta(hours=1)
"""The default age below which nothing is removed: readers in other processes may use it."""
FILE_AGE = timedelta(days=1)
"""The same for orphaned files: a write without a marker has ended by then."""
READERS = timedelta(seconds=2 * LISTS_AFTER)
_EVER = timedelta(days=365_000)
"""Longer than any graph exists, and still a valid time in the past."""


@dataclass(frozen=True, slots=True)
class GraphState:
    """A version of the manifest of a branch."""

    branch: str | None
    version: int
    made: datetime
    commit: CommitRow | None
    table_versions: frozenset[TableVersion]


def pinned_versions(snapshot: Snapshot) -> frozenset[TableVersion]:
    """The table versions of a snapshot."""
    return frozenset(pin.table_version for pin in snapshot.pins.values())


def read_states(store: GraphStore, branch: str | None) -> list[GraphState]:
    """The existing states of a branch, oldest first.

    Of each version of the manifest only the fragments are read that the one before did not have.
    """
    ref = TableRef(MANIFEST, branch)
    states: list[GraphState] = []
    state, done = ManifestState(), frozenset[int]()
    for stamp in versions_of(store.datasets, ref):
        ledger = Ledger.open(store.datasets, ref, stamp.version)
        fragments = ledger.fragments
        if not fragments & done:
            # The first version, or a compacted one.
            state, done = ManifestState(), frozenset()
        state.add_arrow(ledger.read(fragments=fragments - done))
        done = fragments
        snapshot = state.snapshot(stamp.version, branch)
        table_versions = pinned_versions(snapshot)
        if states and states[-1].table_versions == table_versions:
            table_versions = states[-1].table_versions
        states.append(GraphState(branch, stamp.version, stamp.made, snapshot.head, table_versions))
    return states


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """The limits of a cleanup, and the age below which nothing is removed."""

    now: datetime
    keep: int | None
    older_than: timedelta | None
    min_age: timedelta
    file_age: timedelta
    feed: timedelta | None = None


@dataclass(slots=True)
class Needs:
    """The table versions that are needed."""

    exact: set[TableVersion] = field(default_factory=set)
    floors: dict[TableRef, int] = field(default_factory=dict)
    """The oldest version of a copy that a head uses: later ones are all kept."""

    def add_head(self, versions: Iterable[TableVersion]) -> None:
        for version in versions:
            floor = self.floors.get(version.ref, version.version)
            self.floors[version.ref] = min(floor, version.version)

    def has(self, version: TableVersion) -> bool:
        floor = self.floors.get(version.ref)
        return version in self.exact or (floor is not None and version.version >= floor)


def cleanup_policy(
    keep_versions: int | None,
    older_than: timedelta | float | None,
    min_age: timedelta | float | None,
    feed_retention: timedelta | float | None,
) -> CleanupPolicy:
    """The checked arguments of a cleanup."""
    if keep_versions is None and older_than is None:
        raise InputError(
            "cleanup requires at least one of keep_versions or older_than",
            hint="pass keep_versions=10, or older_than=timedelta(days=7)",
        )
    if isinstance(keep_versions, bool) or not isinstance(keep_versions, int | None):
        raise InputError(f"keep_versions must be a number, not {type(keep_versions).__name__}")
    if keep_versions is not None and keep_versions < 0:
        raise InputError(
            "keep_versions cannot be negative", hint="the newest version is always kept"
        )
    age = check_duration("min_age", min_age)
    if age:
        age = max(age, READERS)
    return CleanupPolicy(
        datetime.now(UTC),
        keep_versions,
        check_duration("older_than", older_than),
        VERSION_AGE if age is None else age,
        FILE_AGE if age is None else age,
        check_duration("feed_retention", feed_retention),
    )


def check_duration(name: str, given: timedelta | float | None) -> timedelta | None:
    """A checked duration; a number is seconds."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, timedelta | int | float):
        raise InputError(
            f"{name} must be a duration, not {type(given).__name__}",
            hint="pass a timedelta or seconds",
        )
    try:
        length = given if isinstance(given, timedelta) else timedelta(seconds=given)
    except (OverflowError, ValueError):
        raise InputError(
            f"invalid duration in {name}", hint="pass a timedelta or seconds"
        ) from None
    if length < timedelta(0):
        raise InputError(f"{name} cannot be negative", hint="pass a timedelta or seconds")
    return min(length, _EVER)


def expired_versions(
    policy: CleanupPolicy, ref: TableRef, stamps: Sequence[VersionStamp], needs: Needs
) -> list[int]:
    """The versions of one copy to remove, oldest first; never the newest."""
    newest = {stamp.version for stamp in stamps[-max(policy.keep or 1, 1) :]}
    expired = []
    for stamp in stamps:
        age = policy.now - stamp.made
        is_beyond = stamp.version not in newest and age >= policy.min_age
        if policy.older_than is not None:
            is_beyond = is_beyond and age >= policy.older_than
        if is_beyond and not needs.has(TableVersion(ref.location, ref.branch, stamp.version)):
            expired.append(stamp.version)
    return expired


def recent_states(
    policy: CleanupPolicy, states: Sequence[GraphState], age: timedelta
) -> list[GraphState]:
    """The states of a branch within some time, including the one at its start."""
    since = policy.now - age
    first = max((n for n, state in enumerate(states) if state.made <= since), default=0)
    return list(states[first:])


def feed_commits(policy: CleanupPolicy, states: Sequence[GraphState]) -> set[str]:
    """The commits that a change feed needs: those within its time, and what came before them.

    The state before a group is that of the commit before its first member.
    """
    if policy.feed is None:
        return set()
    since = int((policy.now - policy.feed).timestamp() * 1_000_000)
    needed: set[str | None] = set()
    before: CommitRow | None = None
    for commit in (state.commit for state in states if state.commit is not None):
        if commit.created_at >= since:
            needed |= {commit.commit_id, commit.parent}
            if before is not None and before.commit_id != commit.commit_id:
                needed.add(before.commit_id)
        before = commit
    return {key for key in needed if key}


def shown_by(states: Sequence[GraphState], commit: CommitRow) -> str | None:
    """The newest commit of the state that shows a commit; none if the state was removed."""
    heads = [state.commit for state in states if state.commit is not None]
    return next((head.commit_id for head in heads if head.order >= commit.order), None)


def kept_states(
    states: Sequence[GraphState], is_kept: Mapping[TableVersion, bool], forks: Collection[int]
) -> set[int]:
    """The versions of one manifest to keep."""
    kept = {states[-1].version, *forks} if states else set(forks)
    readable = [s for s in states if all(is_kept[version] for version in s.table_versions)]
    kept |= {state.version for state in readable}
    seen: set[str] = set()
    for state in readable:
        commit = state.commit
        if commit is None or commit.branch != state.branch or commit.commit_id in seen:
            continue
        seen.add(commit.commit_id)
        # The search for a commit starts at the version it was meant to become.
        first = commit.manifest_version
        if first < state.version:
            kept |= {s.version for s in states if first <= s.version < state.version}
    return kept


# -- orphaned files -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that no version of any table references, on any branch.

    Such files are left by repeated tasks, by processes that died, and by refused writes. A running
    write has them too; if it has neither marker nor sidecar nor lease, only the age of a file shows
    that it is not needed.
    """

    path: str
    """Relative to the root of the graph."""
    size: int
    age: timedelta
    needed_by: tuple[str, ...] = ()
    """The ids of running writes that may need it."""


def orphans_of(
    store: GraphStore, table_key: str, location: str, writes: Sequence[RunningWrite]
) -> list[Orphan]:
    """The orphans of one table.

    ``writes`` were listed before: a write that has ended since has committed its files or given
    them up.
    """
    now = datetime.now(UTC)
    orphans = []
    for file in orphaned_files(store.datasets, location):
        by = {
            operation
            for operation, tables, since in writes
            if table_key in tables and file.modified >= since
        }
        age = max(now - file.modified, timedelta(0))
        orphans.append(Orphan(file.path, file.size, age, tuple(sorted(by))))
    return orphans
