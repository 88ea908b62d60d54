"""Tells requests that wait for a commit when there is one, whoever made it.

One task looks at each branch that is waited for. On a local disk that is a look at two files, made
in the event loop; elsewhere a thread asks the storage. Nothing is held by those who wait.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from omnigraph.api.changes import Head, head_of
from omnigraph.commit.names import normal_branch

if TYPE_CHECKING:
    from omnigraph.api.handle import Handle
    from omnigraph.server.lanes import Lanes

LOCAL_SECONDS: Final = 0.03
"""How often a branch on a local disk is looked at."""
REMOTE_SECONDS: Final = 1.0
"""How often one in an object store is looked at."""

_Key = tuple[str, str]


class _Branch:
    """Those who wait for one branch, and the task that looks at it."""

    def __init__(self) -> None:
        self.waiting: dict[asyncio.Future[None], Head] = {}
        self.task: asyncio.Task[None] | None = None


class CommitNews:
    """The branches of all graphs that a process waits for. Call it in the event loop's thread."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._branches: dict[_Key, _Branch] = {}

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return sum(len(waiters.waiting) for waiters in self._branches.values())

    async def wait(self, handle: Handle, branch: str, head: Head, seconds: float) -> None:
        """Return when the branch has another head, or cannot be read, or the time is up."""
        key = handle.uri, branch
        waiters = self._branches.setdefault(key, _Branch())
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.waiting[future] = head
        if waiters.task is None:
            waiters.task = asyncio.create_task(self._look(key, waiters, handle))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await future
        finally:
            del waiters.waiting[future]
            if not waiters.waiting and self._branches.get(key) is waiters:
                waiters.task.cancel()
                del self._branches[key]

    def wake(self) -> None:
        """Wake everybody: the process ends, or serves another state."""
        for waiters in self._branches.values():
            _wake(waiters, None)

    async def _look(self, key: _Key, waiters: _Branch, handle: Handle) -> None:
        branch = key[1]
        is_local = handle.store.root.is_local
        while True:
            await asyncio.sleep(LOCAL_SECONDS if is_local else REMOTE_SECONDS)
            try:
                head = _head_in_memory(handle, branch)
                if head is None:
                    head = await self._lanes.read(lambda: head_of(handle, branch))
            except Exception:
                # Whoever waits meets the same error, and reports it.
                head = None
            _wake(waiters, head)


def _wake(waiters: _Branch, head: Head | None) -> None:
    for future, seen in waiters.waiting.items():
        if seen != head and not future.done():
            future.set_result(None)


def _head_in_memory(handle: Handle, branch: str) -> Head | None:
    """The head of a branch that has not moved; ``None`` if anything would have to be read."""
    if handle.is_closed or not handle.store.root.is_local:
        return None
    manifest = handle.store.manifests.loaded(normal_branch(branch))
    snapshot = None if manifest is None else manifest.current_in_memory()
    if snapshot is None:
        return None
    return snapshot.manifest_version, None if snapshot.head is None else snapshot.head.commit_id
