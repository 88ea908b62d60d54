"""Draws a commit graph with ``*``, ``|``, ``\\``, ``/`` and ``_``.

Every column waits for one commit, the next to be drawn in it. A second parent opens a column to the
right; columns that wait for the same commit are joined into the leftmost. This module uses neither
a graph nor a terminal.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

from omnigraph.records import dataclass


@dataclass(frozen=True, slots=True)
class CommitNode:
    """One commit to draw: its parents, and the lines of text beside it."""

    commit_id: str
    parents: tuple[str, ...]
    text: tuple[str, ...]


def draw(nodes: Iterable[CommitNode]) -> Iterator[str]:
    r"""Draw commits given in topological order, children first.

    >>> links = {"m": ("a", "b"), "b": ("a",), "a": ()}
    >>> print("\n".join(draw(CommitNode(name, links[name], (name,)) for name in links)))
    *  m
    |\
    | * b
    |/
    * a
    """
    columns: list[str] = []
    ended: int | None = None
    for node in nodes:
        if len(columns) == ended and node.commit_id not in columns:
            # Keep a column that ended apart from one that begins.
            yield " ".join("|" for _ in columns)
        ended = None if node.parents else _column(columns, node)
        rows = list(_rows(columns, node))
        spare = " ".join("|" for _ in columns)
        rows += [spare] * (len(node.text) - len(rows))
        width = max(map(len, rows))
        for at, prefix in enumerate(rows):
            text = node.text[at] if at < len(node.text) else ""
            yield f"{prefix.ljust(width)} {text}".rstrip()


def _column(columns: list[str], node: CommitNode) -> int:
    """The column that waits for a commit, or the next free one."""
    return columns.index(node.commit_id) if node.commit_id in columns else len(columns)


def _rows(columns: list[str], node: CommitNode) -> Iterator[str]:
    """The row of a commit and the rows that lead to its parents; advances ``columns``."""
    at = _column(columns, node)
    if at == len(columns):
        columns.append(node.commit_id)
    yield _row(len(columns), marks={2 * at: "*"})
    parents = list(dict.fromkeys(node.parents))
    if not parents:
        del columns[at]
        if at < len(columns):
            yield _close(len(columns) + 1, at)
        return
    columns[at] = parents[0]
    for parent in parents[1:]:
        yield from _open(columns, at, parent)
    yield from _join(columns)


def _open(columns: list[str], at: int, parent: str) -> Iterator[str]:
    """Lead from a commit to one more parent."""
    if columns[at + 1 : at + 2] == [parent]:
        yield _row(len(columns), marks={2 * at + 1: "\\"})
    elif parent in columns[:at]:
        yield from _leftwards(len(columns), at, columns.index(parent))
    else:
        moved = {2 * column + 1: "\\" for column in range(at, len(columns))}
        yield _row(at + 1, marks=moved)
        columns.insert(at + 1, parent)


def _join(columns: list[str]) -> Iterator[str]:
    """Join columns that wait for the same commit."""
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
    """A line to a column further left; ``others`` are lines moved at the same time."""
    far = dict.fromkeys(range(2 * end + 3, 2 * start - 1, 2), "_")
    yield _row(count, marks={**far, 2 * start - 1: "/", **(others or {})})
    if start - end > 1:
        yield _row(count + len(others or {}), marks={2 * end + 1: "/"})


def _close(count: int, at: int) -> str:
    """End a column and close the gap."""
    return _row(at, marks={2 * column - 1: "/" for column in range(at + 1, count)})


def _row(count: int, marks: Mapping[int, str]) -> str:
    """A row of continuing columns, with marks at some positions."""
    signs = {2 * column: "|" for column in range(count)} | dict(marks)
    return "".join(signs.get(position, " ") for position in range(max(signs, default=-1) + 1))


# -- choosing and ordering commits ----------------------------------------------------------------


def topological_order(parents: Mapping[str, Sequence[str]], age: Mapping[str, int]) -> list[str]:
    """Commits, newest first, but never a parent before its children.

    >>> topological_order({"a": [], "b": ["a"], "c": ["a"]}, {"a": 9, "b": 1, "c": 2})
    ['c', 'b', 'a']
    """
    children = dict.fromkeys(parents, 0)
    for links in parents.values():
        for parent in links:
            if parent in children:
                children[parent] += 1
    oldest_first = sorted(parents, key=lambda commit: (age[commit], commit))
    ranks = {commit: rank for rank, commit in enumerate(oldest_first)}
    ready = [(-ranks[commit], commit) for commit, count in children.items() if not count]
    heapq.heapify(ready)
    order: list[str] = []
    while ready:
        commit = heapq.heappop(ready)[1]
        order.append(commit)
        for parent in parents[commit]:
            if parent not in children:
                continue
            children[parent] -= 1
            if not children[parent]:
                heapq.heappush(ready, (-ranks[parent], parent))
    return order


def reachable(parents: Mapping[str, Sequence[str]], heads: Iterable[str]) -> set[str]:
    """Some commits and all of their ancestors that are in ``parents``."""
    reached: set[str] = set()
    waiting = [head for head in heads if head in parents]
    while waiting:
        commit = waiting.pop()
        if commit not in reached:
            reached.add(commit)
            waiting += [parent for parent in parents[commit] if parent in parents]
    return reached


def bridge_hidden(
    parents: Mapping[str, Sequence[str]], order: Sequence[str], shown: set[str]
) -> dict[str, tuple[str, ...]]:
    """The nearest shown ancestors of each shown commit.

    >>> bridge_hidden({"c": ["b"], "b": ["a"], "a": []}, ["c", "b", "a"], {"a", "c"})
    {'c': ('a',), 'a': ()}
    """
    rank = {commit: at for at, commit in enumerate(order)}
    near: dict[str, tuple[str, ...]] = {}
    for commit in reversed(order):
        paths = [
            (parent,) if parent in shown else near.get(parent, ()) for parent in parents[commit]
        ]
        ancestors = tuple(dict.fromkeys(ancestor for path in paths for ancestor in path))
        is_exact = all(parent in shown for parent in parents[commit])
        near[commit] = ancestors if is_exact else _nearest(ancestors, near, rank)
    return {commit: near[commit] for commit in order if commit in shown}


def _nearest(
    commits: tuple[str, ...], parents: Mapping[str, tuple[str, ...]], rank: Mapping[str, int]
) -> tuple[str, ...]:
    """The commits that are not ancestors of another one, so that no path is drawn twice."""
    kept = []
    for commit in commits:
        waiting = [other for other in commits if other != commit]
        seen = set(waiting)
        while waiting and commit not in seen:
            # An older commit cannot lead to it.
            older = parents[waiting.pop()]
            links = [parent for parent in older if rank[parent] <= rank[commit]]
            waiting += [parent for parent in links if parent not in seen]
            seen.update(links)
        if commit not in seen:
            kept.append(commit)
    return tuple(kept)
