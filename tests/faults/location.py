"""A graph on S3 that can be put back to what it was, and handles on it that lose timeouts early."""

from __future__ import annotations

from typing import TypeAlias

from obstore.store import S3Store

from omnigraph.api.graph import Graph
from omnigraph.api.handle import Handle
from omnigraph.commit.lifecycle import init_graph
from omnigraph.commit.opening import open_contract
from omnigraph.commit.store import GraphStore, Timeouts
from omnigraph.settings import Settings
from omnigraph.storage.leases import TTL_SECONDS
from omnigraph.storage.leases.s3 import S3Leases
from omnigraph.storage.objects.paths import Root
from tests.crash.operations import SCHEMA
from tests.crash.steps import shape_of

IMPATIENT = Timeouts(lease=15.0, publish=3.0, lease_ttl=0.6)
"""For handles that meet faults: a lease that one of them leaves behind soon expires.

On a busy machine such a handle may lose its own leases. An operation that has to succeed needs
another one.
"""
PATIENT = Timeouts()

Changes: TypeAlias = tuple[tuple[str, int], ...]
"""What differs from the objects that were remembered, by the shape of names and by size."""
AUDITED = 32
"""One of so many that are like another is checked all the same."""
_GONE = -1
_ROUNDED = 64


def open_graph(root: Root, timeouts: Timeouts | None = None) -> Graph:
    """As ``Graph.open`` does, with another timeouts."""
    store = GraphStore(root, timeouts=timeouts)
    contract, recovered = open_contract(store, writable=True)
    graph = Graph(Handle(store, contract, Settings(), "rw", "ana"))
    graph.recovered = tuple(recovered)
    return graph


def new_graph(root: Root, timeouts: Timeouts | None = None, *, force: bool = False) -> Graph:
    """As ``Graph.init`` does, with another timeouts."""
    store = GraphStore(root, timeouts=timeouts, create=True)
    return Graph(Handle(store, init_graph(store, SCHEMA, force=force), Settings(), "rw", "ana"))


def be_patient(graph: Graph) -> None:
    """Let a handle that has met its fault keep its leases from now on."""
    leases = graph._handle.store.leases
    if isinstance(leases, S3Leases):
        leases._ttl = TTL_SECONDS


class Prefix:
    """A prefix on the server, remembered object by object.

    It comes back under the same name: branches of Lance remember where they were made.
    """

    def __init__(self, root: Root) -> None:
        self.root = root
        self._store = S3Store(root.bucket, prefix=root.prefix, config=dict(root.options))  # type: ignore[arg-type]
        self._tags: dict[str, str] = {}
        self._objects: dict[str, bytes] = {}
        self._met: dict[tuple[object, ...], int] = {}

    def through(self, endpoint: str) -> Root:
        """The same place by way of another endpoint."""
        return Root(self.root.uri, {**self.root.options, "aws_endpoint": endpoint})

    def remember(self) -> None:
        self._tags = {path: tag for path, (tag, _) in self._listed().items()}
        self._objects = {path: bytes(self._store.get(path).bytes()) for path in self._tags}

    def put_back(self) -> None:
        """Make the place what it was when it was remembered."""
        actual = self._listed()
        gone = [path for path in actual if path not in self._tags]
        if gone:
            self._store.delete(gone)
        for path, tag in self._tags.items():
            if path not in actual or actual[path][0] != tag:
                self._store.put(path, self._objects[path])

    def is_checked(self, *ending: object) -> bool:
        """Whether the same objects were met after the same ending, so that they need no check.

        Thousands of faults leave a few hundred different sets of objects. Of those that are alike
        one is checked, and others from time to time.
        """
        key = (*ending, self._changes())
        self._met[key] = count = self._met.get(key, -1) + 1
        return count % AUDITED > 0

    def _changes(self) -> Changes:
        """How the place differs from what was remembered.

        Objects are written as a whole or not at all. Ids and times in them differ from run to run,
        and so do a few bytes of their size, but for those that have rows.
        """
        actual = self._listed()
        gone = [(shape_of(path), _GONE) for path in self._tags.keys() - actual.keys()]
        changed = [
            (shape_of(path), size if "/data/" in path else size // _ROUNDED)
            for path, (tag, size) in actual.items()
            if self._tags.get(path) != tag
        ]
        return tuple(sorted([*gone, *changed]))

    def _listed(self) -> dict[str, tuple[str, int]]:
        return {
            entry["path"]: (entry["e_tag"] or "", entry["size"])
            for batch in self._store.list()
            for entry in batch
            if entry["size"] or not entry["path"].endswith("/")
        }
