"""Creates, moves and deletes tags: names for commits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from omnigraph.commit.commits import Tag
from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.history import History, find_tag, tag_of
from omnigraph.commit.metadata import key_reused
from omnigraph.commit.names import BRANCHES_LEASE, check_tag
from omnigraph.commit.publisher import Publication
from omnigraph.commit.rows import TagRow
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import now_micros
from omnigraph.errors import AlreadyExists
from omnigraph.records import dataclass
from omnigraph.storage.leases.local import LeaseGuard


@dataclass(frozen=True, slots=True)
class TagKey:
    """An idempotency key, and the digest of the call under it."""

    key: str
    fingerprint: str

    @classmethod
    def of(cls, key: str | None, *call: object) -> TagKey | None:
        """The key of a call."""
        if key is None:
            return None
        digest = hashlib.sha256(repr(call).encode("utf-8", "surrogatepass")).hexdigest()
        return cls(key, f"tag:{digest[:32]}")


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

    def create(
        self,
        name: str,
        commit_id: Callable[[], str],
        actor: str | None,
        *,
        move: bool = False,
        key: TagKey | None = None,
    ) -> Tag:
        """Tag a commit; an existing tag is moved only with ``move``.

        Under a key it is done once, and repeated calls return the tag, as long as nobody moves or
        deletes it.
        """
        tag = check_tag(name)
        with self._lock():
            first = None if key is None else self._first(key)
            if first is not None:
                return first
            commit = History(self._store).commit(commit_id())
            if not move and tag in self._main.tags():
                raise AlreadyExists(
                    f"tag '{tag}' exists already", hint="pass move=True", details={"tag": tag}
                )
            group = commit.group
            is_last = group is None or group.id == commit.commit_id
            shows = None if group is None or is_last else group.id
            row = TagRow(tag, commit.commit_id, now_micros(), actor, shows)
            if key is not None:
                row = replace(row, key=key.key, fingerprint=key.fingerprint)
            self._write(row)
        return tag_of(row)

    def _first(self, key: TagKey) -> Tag | None:
        """The tag that a call under the same key has made."""
        for row in self._main.tags().values():
            if row.key == key.key:
                if row.fingerprint == key.fingerprint:
                    return tag_of(row)
                raise key_reused(key.key, {"tag": row.name})
        return None

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
