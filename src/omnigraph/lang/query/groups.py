"""Names that belong together, found in nearly constant time each."""

from __future__ import annotations

from collections.abc import Iterable


class Groups:
    """Disjoint groups of names; a name nobody joined is a group of its own.

    >>> groups = Groups()
    >>> groups.join(["a", "b"])
    >>> groups.join(["b", "c"])
    >>> groups.leader("a") == groups.leader("c"), groups.leader("d")
    (True, 'd')
    """

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def leader(self, name: str) -> str:
        """The name that stands for the group of this one."""
        root = name
        while (above := self._parent.get(root, root)) != root:
            root = above
        while name != root:
            self._parent[name], name = root, self._parent.get(name, root)
        return root

    def join(self, names: Iterable[str]) -> None:
        """Make one group of the groups of these names."""
        first: str | None = None
        for name in names:
            leader = self.leader(name)
            if first is None:
                first = leader
            else:
                self._parent[leader] = first
