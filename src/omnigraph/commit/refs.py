"""Naming a state of the graph: the newest of a branch, or an earlier one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from omnigraph.commit.history import History, Tags
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import CommitNotFound, InputError, NotFound


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """The newest state of a branch, unless a commit, a tag, a version or a time is given.

    ``at`` is a time, or the name of a tag or a commit.
    """

    branch: str = "main"
    commit: str | None = None
    tag: str | None = None
    version: int | None = None
    at: datetime | str | None = None

    def __post_init__(self) -> None:
        choices = (self.commit, self.tag, self.version, self.at)
        if sum(choice is not None for choice in choices) > 1:
            raise InputError("pass only one of commit, tag, version and at")

    def resolve(self, store: GraphStore) -> Snapshot:
        """The state as the store has it."""
        if isinstance(self.at, datetime):
            return History(store).snapshot_at(normal_branch(self.branch), self.at)
        if self.at is not None:
            return _tag_or_commit(store, self.at)
        if self.tag is not None:
            return History(store).snapshot_of(Tags(store).get(self.tag).commit_id)
        if self.commit is not None:
            return History(store).snapshot_of(self.commit)
        manifest = store.manifest(normal_branch(self.branch))
        return manifest.current() if self.version is None else manifest.at_version(self.version)

    def target(self, snapshot: Snapshot) -> dict[str, str]:
        """The state that was read, as a result reports it."""
        name = self.at if isinstance(self.at, str) else self.commit or self.tag
        return {"branch": branch_label(snapshot.branch)} if name is None else {"snapshot": name}


def _tag_or_commit(store: GraphStore, name: str) -> Snapshot:
    try:
        commit = Tags(store).get(name).commit_id
    except NotFound:
        commit = name
    try:
        return History(store).snapshot_of(commit)
    except CommitNotFound:
        raise NotFound(f"no tag or commit '{name}'", details={"ref": name}) from None
