"""Which versions of tables and of the manifest have to stay, and which go.

A version of a copy of a table (that of main, or of a branch) goes when it is behind every limit
that was given and nobody needs it. What is needed:

- all from the oldest version on that the head of a live branch shows, its own branch or another;
- what a state shows that has to stay readable: one that a tag names, from which two live branches
  would be merged, at which a live branch of the manifest begins, that is young enough for a reader
  elsewhere or for the change feed, or that this process reads from;
- the versions from which forks of the table were made, and the same as the first of each fork:
  what a fork changed is found by comparing with that one;
- the versions from which writes that run started.

Then a state of the graph stays exactly when all that it shows stays. So no state is left that
could not be read: who asks for one that went is told so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from omnigraph.maintain.cleanup.states import GraphState
from omnigraph.storage.tables.cleaning import VersionStamp
from omnigraph.storage.tables.types import TableRef, TableVersion


@dataclass(frozen=True, slots=True)
class Policy:
    """What the caller wants to keep, and how young nothing goes."""

    now: datetime
    keep: int | None
    older_than: timedelta | None
    min_age: timedelta
    file_age: timedelta
    feed: timedelta | None = None


@dataclass(slots=True)
class Needs:
    """Versions of tables that somebody needs."""

    exact: set[TableVersion] = field(default_factory=set)
    floors: dict[TableRef, int] = field(default_factory=dict)
    """The oldest version of a copy that a head shows: from it on everything stays."""

    def head(self, places: Iterable[TableVersion]) -> None:
        for place in places:
            floor = self.floors.get(place.ref, place.version)
            self.floors[place.ref] = min(floor, place.version)

    def has(self, place: TableVersion) -> bool:
        floor = self.floors.get(place.ref)
        return place in self.exact or (floor is not None and place.version >= floor)


def going_versions(
    policy: Policy, ref: TableRef, stamps: Sequence[VersionStamp], needs: Needs
) -> list[int]:
    """The versions of one copy that go, oldest first; the newest never does."""
    newest = {stamp.version for stamp in stamps[-max(policy.keep or 1, 1) :]}
    going = []
    for stamp in stamps:
        age = policy.now - stamp.made
        behind = stamp.version not in newest and age >= policy.min_age
        if policy.older_than is not None:
            behind = behind and age >= policy.older_than
        if behind and not needs.has(TableVersion(ref.location, ref.branch, stamp.version)):
            going.append(stamp.version)
    return going


def young_states(policy: Policy, states: Sequence[GraphState], age: timedelta) -> list[GraphState]:
    """The states that a branch has shown within some time, also the one it showed at its start."""
    since = policy.now - age
    first = max((n for n, state in enumerate(states) if state.made <= since), default=0)
    return list(states[first:])


def told_commits(policy: Policy, states: Sequence[GraphState]) -> set[str]:
    """The commits that a change feed needs: those within its time, and what each came after."""
    if policy.feed is None:
        return set()
    since = int((policy.now - policy.feed).timestamp() * 1_000_000)
    commits = {s.commit.commit_id: s.commit for s in states if s.commit is not None}
    told = [commit for commit in commits.values() if commit.created_at >= since]
    return {key for commit in told for key in (commit.commit_id, commit.parent) if key}


def staying_states(
    states: Sequence[GraphState], kept: Mapping[TableVersion, bool], forks: Collection[int]
) -> set[int]:
    """The versions of one manifest that stay."""
    staying = {states[-1].version, *forks} if states else set(forks)
    readable = [state for state in states if all(kept[place] for place in state.places)]
    staying |= {state.version for state in readable}
    seen: set[str] = set()
    for state in readable:
        commit = state.commit
        if commit is None or commit.branch != state.branch or commit.commit_id in seen:
            continue
        seen.add(commit.commit_id)
        # A commit is looked for from the version on that it was meant to become.
        first = commit.manifest_version
        if first < state.version:
            staying |= {s.version for s in states if first <= s.version < state.version}
    return staying
