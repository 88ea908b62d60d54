"""Creates, moves and deletes tags: names for commits."""

from __future__ import annotations

from contextlib import AbstractContextManager

from omnigraph.commit.commits import Tag
from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.history import History, find_tag, tag_of
from omnigraph.commit.names import BRANCHES_LEASE, check_tag
from omnigraph.commit.publisher import Publication
from omnigraph.commit.rows import TagRow
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import now_micros
from omnigraph.errors import AlreadyExists
from omnigraph.storage.leases.local import LeaseGuard


class Tags:
    """Names for commits, kept in the manifest of main. Cleanup keeps the tagged states."""

    def __init__(self, store: GraphStore) -> None:
        self._store = store
        self._main = store.manifest(None)

    def list(self) -> list[Tag]:
        """All tags in alphabetical order."""
        return [tag_of(row) for row in self._main.tags().values()]

    def get(self, name: str) -> Tag:
        return find_tag(self._store, name)

    def create(self, name: str, commit_id: str, actor: str | None, *, move: bool = False) -> Tag:
        """Tag a commit; an existing tag is moved only with ``move``."""
        tag = check_tag(name)
        with self._lock():
            commit = History(self._store).commit(commit_id)
            if not move and tag in self._main.tags():
                raise AlreadyExists(
                    f"tag '{tag}' exists already", hint="pass move=True", details={"tag": tag}
                )
            group = commit.group
            is_last = group is None or group.id == commit.commit_id
            shows = None if group is None or is_last else group.id
            row = TagRow(tag, commit.commit_id, now_micros(), actor, shows)
            self._write(row)
        return tag_of(row)

    def delete(self, name: str) -> None:
        """Delete a tag; the commit stays."""
        with self._lock():
            tag = self.get(name)
            self._write(TagRow(tag.name, None, now_micros()))

    def _lock(self) -> AbstractContextManager[LeaseGuard]:
        """Serialise changes of tags and branches: a tag keeps the branch of its commit."""
        return self._store.leases.acquire([BRANCHES_LEASE], self._store.timeouts.lease)

    def _write(self, row: TagRow) -> None:
        reached(Failpoint.TAG_BEFORE_WRITE)
        self._store.publisher.publish(self._main, Publication({}, others=[row]))
