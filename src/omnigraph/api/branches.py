"""``graph.branches``: creating, listing and deleting branches."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.api.arguments import public
from omnigraph.api.handle import Handle
from omnigraph.commit.branches import Branches
from omnigraph.commit.lifecycle import recover
from omnigraph.escaping import escape


class GraphBranches:
    """The branches of a graph, as ``graph.branches``."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __repr__(self) -> str:
        return f"<GraphBranches of {escape(self._handle.uri)}>"

    def list(self) -> Sequence[str]:
        """``main`` first, then the others in alphabetical order.

        Raises:
            Closed: the graph is closed.

        >>> graph.branches.list()
        ['main']
        """
        self._handle.check()
        return Branches(self._handle.store).list()

    @public
    def create(self, name: str, from_branch: str = "main") -> None:
        """Fork a branch from the newest state of another; nothing is copied.

        Raises:
            AlreadyExists: there is such a branch.
            NotFound: there is no branch ``from_branch``.
            InputError: the name is invalid.

        >>> graph.branches.create("review")
        >>> graph.branches.list()
        ['main', 'review']
        """
        self._handle.write()
        Branches(self._handle.store).create(name, from_branch)

    @public
    def delete(self, name: str) -> None:
        """Delete a branch that no other branch depends on.

        Raises:
            NotFound: there is no such branch.
            InputError: the branch is ``main``.
            Conflict: another branch depends on it.

        >>> graph.branches.create("review")
        >>> graph.branches.delete("review")
        >>> graph.branches.list()
        ['main']
        """
        self._handle.write()
        recover(self._handle.store, full=False)
        Branches(self._handle.store).delete(name)
