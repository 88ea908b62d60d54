"""Which commit a caller of a remote graph means: by its id, a tag, or a time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from omnigraph.commit.commits import Commit, Tag
from omnigraph.errors import HistoryGone, InputError, NotFound
from omnigraph.records import dataclass
from omnigraph.remote.unserved import refuse_arguments


@dataclass(frozen=True, slots=True)
class StateRef:
    """A state that a caller names; that of a branch if neither is given."""

    branch: str
    commit: str | None = None
    tag: str | None = None
    name: str | None = None
    """A tag or a commit."""
    moment: datetime | None = None

    @staticmethod
    def of(
        branch: str,
        commit: str | None,
        tag: str | None,
        version: int | None,
        at: datetime | str | None,
    ) -> StateRef:
        """The arguments of ``Graph.snapshot``; the versions of a branch are not served."""
        refuse_arguments("snapshot", version=version)
        if sum(value is not None for value in (commit, tag, at)) > 1:
            raise InputError("pass only one of commit, tag, version and at")
        is_moment = isinstance(at, datetime)
        if branch != "main" and not is_moment and (commit, tag, at) != (None, None, None):
            raise InputError(
                "branch cannot be combined with a commit or tag",
                hint="a commit or tag identifies its state; leave out the branch",
            )
        if isinstance(at, datetime):
            if at.tzinfo is None:
                raise InputError("the time has no time zone", hint="pass an aware datetime")
            return StateRef(branch, moment=at)
        return StateRef(branch, commit, tag, at)

    @property
    def is_newest(self) -> bool:
        """Whether it is the newest state of the branch."""
        return (self.commit, self.tag, self.name, self.moment) == (None, None, None, None)

    @property
    def needs_tags(self) -> bool:
        return self.tag is not None or self.name is not None

    def by_tags(self, tags: Iterable[Tag]) -> str:
        """The commit of a name, which may be that of a tag; see ``needs_tags``."""
        commits = {tag.name: tag.commit_id for tag in tags}
        if self.tag is None:
            return commits.get(self.name or "", self.name or "")
        if self.tag not in commits:
            from omnigraph.lang.closest import suggest

            raise NotFound(
                f"tag '{self.tag}' not found",
                hint=suggest(self.tag, commits),
                details={"tag": self.tag},
            )
        return commits[self.tag]

    def by_time(self, commits: list[Commit]) -> str:
        """The newest commit of the branch up to the time."""
        assert self.moment is not None
        micros = int(self.moment.timestamp() * 1_000_000)
        for commit in commits:
            if commit.created_at <= micros:
                return commit.commit_id
        raise HistoryGone("the branch has no commit from that time or before")

    def missing(self) -> NotFound:
        """The error of a name that is neither a tag nor a commit."""
        return NotFound(f"no tag or commit '{self.name}'", details={"ref": self.name})
