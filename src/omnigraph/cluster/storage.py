"""The storage of a cluster: its objects, its graphs, and how reports name them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property

from omnigraph.api.handle import parse_location
from omnigraph.cluster.location import graph_uri
from omnigraph.errors import StorageError
from omnigraph.settings import Settings
from omnigraph.storage.objects.paths import Root
from omnigraph.storage.objects.store import ObjectStore

CONTROL = "__cluster"
LOCK = "__cluster/lock.json"
RECOVERIES = "__cluster/recoveries"
APPROVALS = "__cluster/approvals"


class ClusterStorage:
    """One storage root: a directory, or a prefix of a bucket."""

    def __init__(self, root: str, settings: Settings) -> None:
        self._settings = settings
        self.location: Root = parse_location(root, None, settings)

    @property
    def is_missing(self) -> bool:
        """Whether the directory does not exist; opening its objects would create it."""
        return self.location.is_missing()

    @cached_property
    def objects(self) -> ObjectStore:
        return ObjectStore(self.location)

    @property
    def options(self) -> Mapping[str, str] | None:
        """The options with which graphs are opened."""
        return None if self.location.is_local else self._settings.storage_options()

    @property
    def lock_seconds(self) -> float:
        """How long a lock is valid after its last renewal."""
        return float(self._settings.cluster_lock_seconds)

    def path(self, name: str) -> str:
        """An object as reports name it: a plain path on local disk, else its address."""
        return self.location.path(name)

    def graph_uri(self, graph: str) -> str:
        return graph_uri(self.location.uri, graph)

    def has_graph_root(self, graph: str) -> bool:
        """Whether there is anything where a graph is stored.

        Raises ``StorageError`` if the store does not answer: that is not an absent graph.
        """
        return not self.is_missing and self.objects.exists(f"graphs/{graph}.omni")

    def remove_empty_root(self, graph: str) -> None:
        """Remove the directories that an interrupted deletion left behind, without any file."""
        with suppress(StorageError):
            self.objects.remove_empty_folders(f"graphs/{graph}.omni")


def timestamp() -> str:
    """The current time as files of a cluster have it.

    >>> len(timestamp()), timestamp()[-1]
    (27, 'Z')
    """
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
