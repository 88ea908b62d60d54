"""Who wrote a commit is only shown to those whose policy allows them to read the history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omnigraph.api.handle import Handle
from omnigraph.commit.commits import Commit, Tag
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.errors import PolicyDenied
from omnigraph.merge.pages import ChangePage

READ_HISTORY = "read_history"


class Authors:
    """What the actor of a handle may know of the authors of commits, for one call."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._allowed: dict[str, bool] = {}

    def of_commit(self, commit: Commit) -> Commit:
        """A commit, without its author unless the actor may know it."""
        return commit if self._shows(commit.branch) else replace(commit, actor=None)

    def of_commits(self, commits: Iterable[Commit]) -> list[Commit]:
        return [self.of_commit(commit) for commit in commits]

    def of_tag(self, tag: Tag) -> Tag:
        return tag if self._shows("main") else replace(tag, actor=None)

    def of_page(self, page: ChangePage) -> ChangePage:
        """A page of the change feed, without the authors that the actor may not know."""
        if self._handle.view_at is None:
            return page
        blocks = [replace(block, commit=self.of_commit(block.commit)) for block in page.blocks]
        return replace(page, blocks=tuple(blocks))

    def require(self, branch: str) -> None:
        """Refuse unless the actor may know the authors on a branch."""
        if not self._shows(branch):
            self._handle.authorize(None, READ_HISTORY, branch)
            raise PolicyDenied.without_actor(READ_HISTORY)

    def _shows(self, branch: str) -> bool:
        if branch not in self._allowed:
            self._allowed[branch] = self._is_allowed(branch)
        return self._allowed[branch]

    def _is_allowed(self, branch: str) -> bool:
        handle = self._handle
        if handle.view_at is None:
            return True
        if handle.identity is None:
            # A policy without rules for rows does not ask who reads.
            return handle.view(normal_branch(branch), handle.accepted().catalog).is_whole
        try:
            handle.authorize(None, READ_HISTORY, branch_label(normal_branch(branch)))
        except PolicyDenied:
            return False
        return True
