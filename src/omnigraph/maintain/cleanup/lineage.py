"""The commits that merges of live branches start from, now or later.

The same rule as that of merges, for all pairs of branches at once: the newest commits that two
heads have in common; where there are several, also those that these have in common, and so on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import combinations

from omnigraph.commit.rows import CommitRow


class Lineage:
    """The commits of a graph; of some the state is still there."""

    def __init__(self, commits: Mapping[str, CommitRow], there: Collection[str]) -> None:
        self._commits = commits
        self._there = there
        self._before: dict[str, frozenset[str]] = {}
        self._found: dict[tuple[frozenset[str], frozenset[str]], tuple[str, ...]] = {}

    def bases(self, heads: Iterable[str]) -> set[str]:
        """What merges of any two of these need."""
        found: set[str] = set()
        for one, other in combinations(sorted(set(heads)), 2):
            self._take(found, self._common(frozenset({one}), frozenset({other})))
        return found

    def _take(self, found: set[str], bases: tuple[str, ...]) -> None:
        """Several bases are merged first, one after the other, from what they have in common."""
        found.update(bases)
        for number in range(1, len(bases)):
            before = self._common(frozenset(bases[:number]), frozenset({bases[number]}))
            self._take(found, before)

    def _common(self, some: frozenset[str], others: frozenset[str]) -> tuple[str, ...]:
        known = self._found.get((some, others))
        if known is None:
            known = self._found[some, others] = self._newest(some, others)
        return known

    def _newest(self, some: frozenset[str], others: frozenset[str]) -> tuple[str, ...]:
        shared = set(self._history(some) & self._history(others))
        while shared:
            before = {parent for commit in shared for parent in self._parents(commit)}
            newest = shared - before
            gone = {commit for commit in newest if commit not in self._there}
            if not gone:
                return tuple(sorted(newest))
            # What cannot be read any more is passed over, as merges do.
            shared -= gone
        return ()

    def _history(self, starts: frozenset[str]) -> frozenset[str]:
        found: frozenset[str] = frozenset()
        for start in starts:
            known = self._before.get(start)
            if known is None:
                known = self._before[start] = self._walk(start)
            found |= known
        return found

    def _walk(self, start: str) -> frozenset[str]:
        """A commit and all that came before it."""
        found: set[str] = set()
        waiting = [start]
        while waiting:
            here = waiting.pop()
            if here in self._commits and here not in found:
                found.add(here)
                waiting.extend(self._parents(here))
        return frozenset(found)

    def _parents(self, commit: str) -> tuple[str, ...]:
        row = self._commits[commit]
        return tuple(filter(None, (row.parent, row.merged_parent)))
