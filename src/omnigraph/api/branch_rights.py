"""What an actor may know of the history of a graph: that of the branches it may read.

A branch inherits the commits of the one it was created from, and merges name commits of others. To
an actor who may neither read a branch nor list commits, its commits do not exist: they are not
listed, no other commit names them, and the feed goes on with the next commit that the actor may
know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from omnigraph.api.handle import Handle
from omnigraph.commit.commits import Commit
from omnigraph.commit.history import History
from omnigraph.commit.names import branch_label
from omnigraph.errors import CommitNotFound
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.merge.pages import ChangePage
from omnigraph.plan.view import View


class BranchRights:
    """The rights of the actor of a handle, for one call."""

    def __init__(
        self, handle: Handle, may_read: Callable[[str], bool], *, may_list: bool = False
    ) -> None:
        """``may_list`` says whether the actor may list all branches and commits."""
        self._handle = handle
        self._may_read = may_read
        self._may_list = may_list
        self._branches: dict[str, str | None] = {}

    def view_at(self, branch: str | None, catalog: Catalog) -> View:
        """What the actor sees of a branch: nothing of one that it may not read."""
        if self._may_read(branch_label(branch)):
            return self._handle.view(branch, catalog)
        return View.of(catalog, {})

    def knows(self, branch: str | None) -> bool:
        """Whether the actor may know the commits of a branch."""
        return self._may_list or self._may_read(branch_label(branch))

    def knows_commit(self, commit_id: str | None) -> bool:
        """Whether the actor may know a commit; one of a deleted branch is not known."""
        if self._may_list or commit_id is None:
            return True
        if commit_id not in self._branches:
            try:
                commit = History(self._handle.store).commit(commit_id)
            except CommitNotFound:
                self._branches[commit_id] = None
            else:
                self._branches[commit_id] = commit.branch
        branch = self._branches[commit_id]
        return branch is not None and self.knows(branch)

    def visible(self, commits: Iterable[Commit]) -> list[Commit]:
        """The commits that the actor may know, as it may see them."""
        commits = list(commits)
        self._branches |= {commit.commit_id: commit.branch for commit in commits}
        return [self.shown(commit) for commit in commits if self.knows(commit.branch)]

    def shown(self, commit: Commit) -> Commit:
        """A visible commit, without the ids of those that the actor may not know."""
        if self.knows_commit(commit.parent) and self.knows_commit(commit.merged_parent):
            return commit
        parent, merged = (
            one if self.knows_commit(one) else None for one in (commit.parent, commit.merged_parent)
        )
        return replace(commit, parent=parent, merged_parent=merged)

    def of_page(self, page: ChangePage) -> ChangePage:
        """A page of the change feed, without the ids of commits that the actor may not know."""
        blocks = [replace(block, commit=self.shown(block.commit)) for block in page.blocks]
        return replace(page, blocks=tuple(blocks))
