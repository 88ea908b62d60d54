"""``graph.tags``: names for commits."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.api.arguments import Actor, public
from omnigraph.api.handle import Handle
from omnigraph.commit.history import Tag, Tags
from omnigraph.commit.names import normal_branch
from omnigraph.escaping import escape


class GraphTags:
    """The tags of a graph, as ``graph.tags``."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __repr__(self) -> str:
        return f"<GraphTags of {escape(self._handle.uri)}>"

    def list(self) -> Sequence[Tag]:
        """All tags in alphabetical order.

        Raises:
            Closed: the graph is closed.

        >>> [tag.name for tag in graph.tags.list()]
        ['v1']
        """
        self._handle.check()
        return Tags(self._handle.store).list()

    @public
    def create(
        self,
        name: str,
        commit: str | None = None,
        *,
        branch: str = "main",
        move: bool = False,
        actor: Actor | None = None,
    ) -> Tag:
        """Name a commit, by default the newest of a branch. Cleanup keeps tagged states.

        Raises:
            AlreadyExists: there is such a tag and ``move`` is not set.
            NotFound: there is no such commit or branch.
            InputError: the name is invalid.

        >>> graph.tags.create("release/2").commit_id == graph.snapshot().commit_id
        True
        """
        self._handle.write()
        store = self._handle.store
        if commit is None:
            head = store.manifest(normal_branch(branch)).current().head
            commit = head.commit_id if head else ""
        return Tags(store).create(name, commit, self._handle.writer(actor), move=move)

    @public
    def delete(self, name: str) -> None:
        """Delete a tag; its commit stays.

        Raises:
            NotFound: there is no such tag.

        >>> graph.tags.delete("v1")
        >>> graph.tags.list()
        []
        """
        self._handle.write()
        Tags(self._handle.store).delete(name)
