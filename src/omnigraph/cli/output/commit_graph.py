"""Commits as lines that branch and meet, drawn with ``*``, ``|``, ``\\``, ``/`` and ``_``.

Every column waits for one commit: the next that is drawn in it. A second parent opens a column to
the right; two columns that wait for the same commit become one, always towards the left. Nothing
here knows a graph or a terminal.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dot:
    """One commit to be drawn: its parents that are known, and the lines of text beside it."""

    commit_id: str
    parents: tuple[str, ...]
    text: tuple[str, ...]


def draw(dots: Iterable[Dot]) -> Iterator[str]:
    r"""The lines of commits that come with every child before its parents.

    >>> merged = [Dot("m", ("a", "b"), ("m",)), Dot("b", ("a",), ("b",)), Dot("a", (), ("a",))]
    >>> print("\n".join(draw(merged)))
    *  m
    |\
    | * b
    |/
    * a
    """
    columns: list[str] = []
    ended: int | None = None
    for dot in dots:
        if len(columns) == ended and dot.commit_id not in columns:
            # One that ended and one that begins are not to look like child and parent.
            yield " ".join("|" for _ in columns)
        ended = None if dot.parents else _place(columns, dot)
        rows = list(_rows(columns, dot))
        spare = " ".join("|" for _ in columns)
        rows += [spare] * (len(dot.text) - len(rows))
        width = max(map(len, rows))
        for at, prefix in enumerate(rows):
            text = dot.text[at] if at < len(dot.text) else ""
            yield f"{prefix.ljust(width)} {text}".rstrip()


def _place(columns: list[str], dot: Dot) -> int:
    """The column that waits for a commit, or the next that is free."""
    return columns.index(dot.commit_id) if dot.commit_id in columns else len(columns)


def _rows(columns: list[str], dot: Dot) -> Iterator[str]:
    """The commit's own row and those that lead to its parents; ``columns`` moves on."""
    at = _place(columns, dot)
    if at == len(columns):
        columns.append(dot.commit_id)
    yield _row(len(columns), marks={2 * at: "*"})
    parents = list(dict.fromkeys(dot.parents))
    if not parents:
        del columns[at]
        if at < len(columns):
            yield _closed(len(columns) + 1, at)
        return
    columns[at] = parents[0]
    for parent in parents[1:]:
        yield from _opened(columns, at, parent)
    yield from _joined(columns)


def _opened(columns: list[str], at: int, parent: str) -> Iterator[str]:
    """From a commit to one more parent."""
    if columns[at + 1 : at + 2] == [parent]:
        yield _row(len(columns), marks={2 * at + 1: "\\"})
    elif parent in columns[:at]:
        yield from _leftwards(len(columns), at, columns.index(parent))
    else:
        moved = {2 * column + 1: "\\" for column in range(at, len(columns))}
        yield _row(at + 1, marks=moved)
        columns.insert(at + 1, parent)


def _joined(columns: list[str]) -> Iterator[str]:
    """Columns that wait for the same commit become one."""
    at = 0
    while at < len(columns):
        first = columns.index(columns[at])
        if first == at:
            at += 1
            continue
        count = len(columns)
        del columns[at]
        shifted = {2 * column - 1: "/" for column in range(at + 1, count)}
        yield from _leftwards(at, at, first, shifted)


def _leftwards(
    count: int, start: int, end: int, others: Mapping[int, str] | None = None
) -> Iterator[str]:
    """A line to a column further left; ``others`` are lines that move at the same time."""
    far = dict.fromkeys(range(2 * end + 3, 2 * start - 1, 2), "_")
    yield _row(count, marks={**far, 2 * start - 1: "/", **(others or {})})
    if start - end > 1:
        yield _row(count + len(others or {}), marks={2 * end + 1: "/"})


def _closed(count: int, at: int) -> str:
    """A column ends, and those to its right close up."""
    return _row(at, marks={2 * column - 1: "/" for column in range(at + 1, count)})


def _row(count: int, marks: Mapping[int, str]) -> str:
    """So many columns that go on, and marks at some places."""
    signs = {2 * column: "|" for column in range(count)} | dict(marks)
    return "".join(signs.get(place, " ") for place in range(max(signs, default=-1) + 1))


# -- which commits, in which order ----------------------------------------------------------------


def in_order(parents: Mapping[str, Sequence[str]], age: Mapping[str, int]) -> list[str]:
    """Commits with the newest first, but never one before its children.

    >>> in_order({"a": [], "b": ["a"], "c": ["a"]}, {"a": 9, "b": 1, "c": 2})
    ['c', 'b', 'a']
    """
    children = dict.fromkeys(parents, 0)
    for each in parents.values():
        for parent in each:
            if parent in children:
                children[parent] += 1
    oldest_first = sorted(parents, key=lambda commit: (age[commit], commit))
    ranks = {commit: rank for rank, commit in enumerate(oldest_first)}
    ready = [(-ranks[commit], commit) for commit, count in children.items() if not count]
    heapq.heapify(ready)
    found: list[str] = []
    while ready:
        commit = heapq.heappop(ready)[1]
        found.append(commit)
        for parent in parents[commit]:
            if parent not in children:
                continue
            children[parent] -= 1
            if not children[parent]:
                heapq.heappush(ready, (-ranks[parent], parent))
    return found


def reachable(parents: Mapping[str, Sequence[str]], heads: Iterable[str]) -> set[str]:
    """Some commits and all that they come from, as far as they are known."""
    found: set[str] = set()
    waiting = [head for head in heads if head in parents]
    while waiting:
        commit = waiting.pop()
        if commit not in found:
            found.add(commit)
            waiting += [parent for parent in parents[commit] if parent in parents]
    return found


def bridged(
    parents: Mapping[str, Sequence[str]], order: Sequence[str], shown: set[str]
) -> dict[str, tuple[str, ...]]:
    """The parents of the commits that are shown, with a way around those that are not.

    >>> bridged({"c": ["b"], "b": ["a"], "a": []}, ["c", "b", "a"], {"a", "c"})
    {'c': ('a',), 'a': ()}
    """
    rank = {commit: at for at, commit in enumerate(order)}
    near: dict[str, tuple[str, ...]] = {}
    for commit in reversed(order):
        ways = [
            (parent,) if parent in shown else near.get(parent, ()) for parent in parents[commit]
        ]
        found = tuple(dict.fromkeys(each for way in ways for each in way))
        is_true = all(parent in shown for parent in parents[commit])
        near[commit] = found if is_true else _nearest(found, near, rank)
    return {commit: near[commit] for commit in order if commit in shown}


def _nearest(
    commits: tuple[str, ...], parents: Mapping[str, tuple[str, ...]], rank: Mapping[str, int]
) -> tuple[str, ...]:
    """Those that none of the others comes from: the way around must not be drawn twice."""
    kept = []
    for commit in commits:
        waiting = [other for other in commits if other != commit]
        seen = set(waiting)
        while waiting and commit not in seen:
            # Nothing older than a commit comes from it.
            further = [each for each in parents[waiting.pop()] if rank[each] <= rank[commit]]
            waiting += [each for each in further if each not in seen]
            seen.update(further)
        if commit not in seen:
            kept.append(commit)
    return tuple(kept)
