"""Disjoint sets of names (union-find), nearly constant time per operation."""

from __future__ import annotations

from collections.abc import Iterable


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
