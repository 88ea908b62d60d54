"""A graph on S3 that can be put back to what it was, and handles on it that lose timeouts early."""

from __future__ import annotations

from obstore.store import S3Store

from omnigraph.api.graph import Graph
from omnigraph.api.handle import Handle
from omnigraph.commit.lifecycle import init_graph
from omnigraph.commit.opening import open_contract
from omnigraph.commit.store import GraphStore, Timeouts
from omnigraph.settings import Settings
from omnigraph.storage.objects.paths import Root
from tests.crash.operations import SCHEMA

IMPATIENT = Timeouts(lease=15.0, publish=3.0, lease_ttl=0.6)
"""For handles that meet faults: a lease that one of them leaves behind soon expires."""


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


class Prefix:
    """A prefix on the server, remembered object by object.

    It comes back under the same name: branches of Lance remember where they were made.
    """

    def __init__(self, root: Root) -> None:
        self.root = root
        self._store = S3Store(root.bucket, prefix=root.prefix, config=dict(root.options))  # type: ignore[arg-type]
        self._tags: dict[str, str] = {}
        self._objects: dict[str, bytes] = {}

    def through(self, endpoint: str) -> Root:
        """The same place by way of another endpoint."""
        return Root(self.root.uri, {**self.root.options, "aws_endpoint": endpoint})

    def remember(self) -> None:
        self._tags = self._listed()
        self._objects = {path: bytes(self._store.get(path).bytes()) for path in self._tags}

    def put_back(self) -> None:
        """Make the place what it was when it was remembered."""
        actual = self._listed()
        gone = [path for path in actual if path not in self._tags]
        if gone:
            self._store.delete(gone)
        for path, tag in self._tags.items():
            if actual.get(path) != tag:
                self._store.put(path, self._objects[path])

    def _listed(self) -> dict[str, str]:
        return {
            entry["path"]: entry["e_tag"] or ""
            for batch in self._store.list()
            for entry in batch
            if entry["size"] or not entry["path"].endswith("/")
        }
