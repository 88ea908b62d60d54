"""The manifests of all branches of a graph, as one handle keeps them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from omnigraph.commit.manifest import Manifest
from omnigraph.commit.names import missing_branch
from omnigraph.storage.objects.paths import is_branch
from omnigraph.storage.tables.datasets import Datasets

if TYPE_CHECKING:
    from omnigraph.commit.announcements import Announced, Announcer

_ALL: weakref.WeakSet[Manifests] = weakref.WeakSet()
_ALL_LOCK = threading.Lock()


def versions_were_removed(uri: str) -> None:
    """Notify every handle of a graph in this process."""
    with _ALL_LOCK:
        handles = [manifests for manifests in _ALL if manifests.uri == uri]
    for manifests in handles:
        manifests.forget_versions()


class Manifests:
    """The manifests of all branches of a graph, each created on first use."""

    def __init__(
        self, datasets: Datasets, await_publisher: Callable[[str | None], None] = lambda _: None
    ) -> None:
        self._datasets = datasets
        self._await_publisher = await_publisher
        self._lock = threading.Lock()
        self._cached: dict[str | None, Manifest] = {}
        self.changes = 0
        """How often a version of another writer was found, or the schema changed."""
        self.uri = datasets.root.uri
        self._announcer: Announcer | None = None
        self._announced: Announced | None = None
        with _ALL_LOCK:
            _ALL.add(self)

    def announce(self, announcer: Announcer) -> None:
        """Announce from now on what is published with this handle."""
        self._connect(announcer, None)

    def follow(self, announced: Announced) -> None:
        """Follow from now on what the writer beside this process announces."""
        self._connect(None, announced)

    def _connect(self, announcer: Announcer | None, announced: Announced | None) -> None:
        with self._lock:
            self._announcer, self._announced = announcer, announced
            for manifest in self._cached.values():
                manifest.announcer, manifest.announced = announcer, announced

    def forget_versions(self) -> None:
        with self._lock:
            manifests = list(self._cached.values())
        for manifest in manifests:
            manifest.forget_versions()

    def note_change(self) -> None:
        with _ALL_LOCK:
            self.changes += 1

    def of(self, branch: str | None) -> Manifest:
        if branch is not None and not is_branch(branch):
            # Never build a path from an invalid name.
            raise missing_branch(branch)
        with self._lock:
            manifest = self._cached.get(branch)
            if manifest is None:
                manifest = Manifest(self._datasets, branch, self._await_publisher, self.note_change)
                manifest.announcer, manifest.announced = self._announcer, self._announced
                self._cached[branch] = manifest
            return manifest

    def loaded(self, branch: str | None) -> Manifest | None:
        """The manifest of a branch, if it was read before."""
        with self._lock:
            manifest = self._cached.get(branch)
        return manifest if manifest is not None and manifest._reader is not None else None

    def with_recent(self, commit_id: str) -> Manifest | None:
        """The manifest of a branch that has one of the newest commits in memory."""
        with self._lock:
            manifests = list(self._cached.values())
        return next((m for m in manifests if m.remembers(commit_id)), None)

    def forget(self, branch: str | None = None) -> None:
        """Drop the cache of a branch, or of all."""
        with self._lock:
            if branch is None:
                self._cached.clear()
            else:
                self._cached.pop(branch, None)
