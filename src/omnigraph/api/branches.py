"""``graph.branches`` and ``graph.tags``: creating, listing and deleting branches and tags."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from omnigraph.api.arguments import Actor, Label, public
from omnigraph.api.handle import Namespace
from omnigraph.api.row_access import refuse_wider_branch, require_whole_view
from omnigraph.commit.branches import Branches
from omnigraph.commit.commits import Tag
from omnigraph.commit.lifecycle import recover
from omnigraph.commit.names import normal_branch
from omnigraph.commit.tags import TagKey, Tags


class GraphBranches(Namespace):
    """The branches of a graph, as ``graph.branches``."""

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
    def create(self, name: str, from_branch: str = "main", *, actor: Actor | None = None) -> None:
        """Create a branch from the newest state of another; nothing is copied.

        ``actor`` is for the policy of the graph.

        Raises:
            AlreadyExists: the branch exists.
            NotFound: there is no branch ``from_branch``.
            InputError: the name is invalid.

        >>> graph.branches.create("review")
        >>> graph.branches.list()
        ['main', 'review']
        """
        handle = self._handle
        author = handle.authorize(actor, "branch_create", from_branch, name)
        handle.write()
        check = partial(refuse_wider_branch, handle, author, from_branch, name)
        Branches(handle.store).create(name, from_branch, check)

    @public
    def delete(self, name: str, *, actor: Actor | None = None) -> None:
        """Delete a branch that no other branch depends on.

        ``actor`` is for the policy of the graph.

        Raises:
            NotFound: the branch does not exist.
            InputError: the branch is ``main``.
            Conflict: another branch depends on it.

        >>> graph.branches.create("review")
        >>> graph.branches.delete("review")
        >>> graph.branches.list()
        ['main']
        """
        author = self._handle.authorize(actor, "branch_delete", target=name)
        catalog = self._handle.write().catalog
        require_whole_view(self._handle, author, "branch_delete", None, catalog, target=name)
        recover(self._handle.store, full=False)
        Branches(self._handle.store).delete(name)


class GraphTags(Namespace):
    """The tags of a graph, as ``graph.tags``."""

    def list(self) -> Sequence[Tag]:
        """All tags in alphabetical order.

        Without leave of the policy for ``read_history`` they have no ``actor``.

        Raises:
            Closed: the graph is closed.

        >>> [tag.name for tag in graph.tags.list()]
        ['v1']
        """
        self._handle.check()
        tags = Tags(self._handle.store).list()
        if self._handle.view_at is None:
            return tags
        from omnigraph.api.authors import Authors

        return list(map(Authors(self._handle).of_tag, tags))

    @public
    def create(
        self,
        name: str,
        commit: str | None = None,
        *,
        branch: str = "main",
        move: bool = False,
        idempotency_key: Label | None = None,
        actor: Actor | None = None,
    ) -> Tag:
        """Tag a commit, by default the newest of a branch. Cleanup keeps tagged states.

        With an ``idempotency_key`` a repeated call returns the tag of the first one, until somebody
        moves or deletes the tag.

        Raises:
            AlreadyExists: the tag exists and ``move`` is not set.
            NotFound: the commit or branch does not exist.
            InputError: the name is invalid.

        >>> graph.tags.create("release/2").commit_id == graph.snapshot().commit_id
        True
        """
        source = branch if commit is None else None
        author = self._handle.authorize(actor, "branch_create", source, name)
        self._handle.write()
        store = self._handle.store

        def tagged() -> str:
            if commit is not None:
                return commit
            head = store.manifest(normal_branch(branch)).current().head
            return head.commit_id if head else ""

        key = TagKey.of(idempotency_key, name, commit, source, move)
        return Tags(store).create(name, tagged, author, move=move, key=key)

    @public
    def delete(self, name: str, *, actor: Actor | None = None) -> None:
        """Delete a tag; its commit is kept.

        ``actor`` is for the policy of the graph.

        Raises:
            NotFound: the tag does not exist.

        >>> graph.tags.delete("v1")
        >>> graph.tags.list()
        []
        """
        self._handle.authorize(actor, "branch_create", target=name)
        self._handle.write()
        Tags(self._handle.store).delete(name)
