"""Histories as plain dicts: what merging should do, without any of the program under test.

Two descriptions that know nothing of each other. ``three_way`` is the rule for rows, applied to the
state that two commits came from. ``Trace`` follows every single write: which writes of a value
are still in force in a commit, because nobody who knew of them has written it again. Whatever a
clean merge makes of a value must be one of those.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from itertools import count

UNKNOWN = object()
"""A row of which two states that both sides have say different things."""

ENDS = {"K": ("P", "P"), "L": ("P", "U")}
KEYS = {"P": "node:P", "U": "node:U", "K": "edge:K", "L": "edge:L"}


# -- the rule for rows ----------------------------------------------------------------------------


def three_way(base, ours, theirs, side=None):
    """The merged state, and the kinds of conflicts by table and id; a side settles them."""
    merged, conflicts = {}, {}
    for kind in KEYS:
        merged[kind] = {}
        for row_id in sorted({*base[kind], *ours[kind], *theirs[kind]}):
            states = [state[kind].get(row_id) for state in (base, ours, theirs)]
            row, conflict = merged_row(*states, side)
            if conflict:
                conflicts[kind, row_id] = conflict
            if row is not None:
                merged[kind][row_id] = row
    return merged, conflicts


def merged_row(base, ours, theirs, side):
    if ours == theirs or theirs == base:
        return ours, None
    if ours == base:
        return theirs, None
    chosen = ours if side == "ours" else theirs
    if ours is None or theirs is None:
        return chosen, "delete_vs_update"
    if base is None:
        return chosen, "divergent_insert"
    if UNKNOWN in (base, ours, theirs):
        return chosen, "divergent_update"
    row, clashes = {}, False
    for name in base:
        if ours[name] == theirs[name] or theirs[name] == base[name]:
            row[name] = ours[name]
        elif ours[name] == base[name]:
            row[name] = theirs[name]
        else:
            row[name], clashes = chosen[name], True
    return row, "divergent_update" if clashes else None


def orphans(state):
    """Edges that lead from or to nowhere."""
    return {
        (kind, row_id)
        for kind, ends in ENDS.items()
        for row_id, row in state[kind].items()
        if row["src"] not in state[ends[0]] or row["dst"] not in state[ends[1]]
    }


# -- single writes --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One value in one commit: the writes that are in force, and all that were ever seen."""

    writes: frozenset = frozenset()
    seen: frozenset = frozenset()

    def merged(self, other):
        kept = (
            (self.writes & other.writes) | (self.writes - other.seen) | (other.writes - self.seen)
        )
        return Cell(kept, self.seen | other.seen)


class Trace:
    """The cells of a commit: by table, row and column; that a row is there is one of them."""

    numbers = count()

    def __init__(self, cells=None):
        self.cells = dict(cells or {})

    def written(self, before, after):
        """After a write that made one state of another."""
        actual = Trace(self.cells)
        for key, value in differing(before, after):
            event = (next(self.numbers), value)
            existing = self.cells.get(key, Cell())
            actual.cells[key] = Cell(frozenset({event}), existing.seen | {event})
        return actual

    def merged(self, other, result, recovered):
        """After a merge, of which somebody settled some rows; says what is wrong with it."""
        actual, wrong = Trace(), []
        for key in {*self.cells, *other.cells}:
            cell = self.cells.get(key, Cell()).merged(other.cells.get(key, Cell()))
            value = cell_value(result, key)
            in_force = frozenset(event for event in cell.writes if event[1] == value)
            is_gone = key[2] is not None and cell_value(result, (*key[:2], None)) is None
            if key[:2] in recovered:
                in_force = frozenset({(next(self.numbers), value)})
                cell = Cell(in_force, cell.seen | in_force)
            elif not in_force and not is_gone:
                wrong.append((key, value, sorted(map(repr, cell.writes))))
            actual.cells[key] = Cell(in_force, cell.seen)
        return actual, wrong


def cell_value(state, key):
    kind, row_id, column = key
    row = state[kind].get(row_id)
    return row if row is None else True if column is None else row[column]


def differing(before, after):
    for kind in KEYS:
        for row_id in {*before[kind], *after[kind]}:
            old, new = before[kind].get(row_id), after[kind].get(row_id)
            if (old is None) != (new is None):
                yield (kind, row_id, None), None if new is None else True
            for column, value in (new or {}).items():
                if old is None or old[column] != value:
                    yield (kind, row_id, column), value


# -- commits --------------------------------------------------------------------------------------


@dataclass
class Commits:
    """The commit graph: parents and states by numbers."""

    parents: list = field(default_factory=list)
    states: list = field(default_factory=list)
    traces: list = field(default_factory=list)

    def add(self, parents, state, trace):
        self.parents.append(parents)
        self.states.append(state)
        self.traces.append(trace)
        return len(self.parents) - 1

    def ancestors(self, commits):
        actual, waiting = set(), list(commits)
        while waiting:
            here = waiting.pop()
            if here not in actual:
                actual.add(here)
                waiting += self.parents[here]
        return actual

    def common(self, some, others):
        """The commits that both came from, but for those that another of them came from."""
        shared = self.ancestors(some) & self.ancestors(others)
        behind = {parent for commit in shared for parent in self.parents[commit]}
        return sorted(shared - behind)

    def state(self, commits):
        """The state of a commit, or what merging several makes."""

        def joined(one, other):
            base = self.state(self.common(one[0], other[0]))
            merged, conflicts = three_way(base, one[1], other[1])
            for kind, row_id in conflicts:
                merged[kind][row_id] = UNKNOWN
            return one[0] | other[0], merged

        actual = [({commit}, self.states[commit]) for commit in commits]
        return reduce(joined, actual)[1]
