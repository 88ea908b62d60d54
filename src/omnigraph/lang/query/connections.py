"""Connected components of traversals, and the order in which traversals can be resolved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import Pattern


class DisjointSets:
    """Disjoint sets of names; a name that was never joined is a set of its own.

    >>> sets = DisjointSets()
    >>> sets.union(["a", "b"])
    >>> sets.union(["b", "c"])
    >>> sets.find("a") == sets.find("c"), sets.find("d")
    (True, 'd')
    """

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def find(self, name: str) -> str:
        """The representative of the set that contains this name."""
        root = name
        while (above := self._parent.get(root, root)) != root:
            root = above
        while name != root:
            self._parent[name], name = root, self._parent.get(name, root)
        return root

    def union(self, names: Iterable[str]) -> None:
        """Merge the sets of these names."""
        first: str | None = None
        for name in names:
            root = self.find(name)
            if first is None:
                first = root
            else:
                self._parent[root] = first


def sweep_order(ends: Sequence[tuple[str, str]], bound: Iterable[str]) -> list[int]:
    """The positions of traversals in an order in which each has a known end, if possible.

    It is the order of repeated sweeps over the list: a sweep selects every traversal with a known
    end, and makes its other end known. If there is none, the first remaining one is selected.

    >>> sweep_order([("b", "c"), ("a", "b")], ["a"])
    [1, 0]
    """
    waiting: dict[str, list[int]] = {}
    for position, pair in enumerate(ends):
        for name in dict.fromkeys(pair):
            waiting.setdefault(name, []).append(position)
    ready: list[tuple[int, int]] = []

    def learn(name: str, sweep: int, at: int) -> None:
        # Later entries of the list belong to this sweep, the rest to the next one.
        for position in waiting.pop(name, ()):
            heappush(ready, (sweep if position > at else sweep + 1, position))

    for name in bound:
        learn(name, 0, -1)
    order: list[int] = []
    taken = [False] * len(ends)
    sweep, first_left = 0, 0
    while len(order) < len(ends):
        if ready:
            sweep, position = heappop(ready)
        else:
            while taken[first_left]:
                first_left += 1
            position = first_left
        if taken[position]:
            continue
        taken[position] = True
        order.append(position)
        for name in ends[position]:
            learn(name, sweep, position)
    return order


def is_connected(pattern: Pattern) -> bool:
    """Whether every variable can be reached from every other by traversals and conditions.

    Disconnected patterns yield the product of their rows, which is rarely intended.
    """
    groups = DisjointSets()
    names = {node.variable for node in pattern.nodes}
    for hop in pattern.hops:
        ends = [hop.src, hop.dst, hop.edge_variable or hop.src]
        groups.union(ends)
        names.update(ends)
    for condition in pattern.conditions:
        groups.union(sorted(typed.variables(condition)))
    return len({groups.find(name) for name in names}) <= 1
