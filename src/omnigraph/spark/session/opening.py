"""Opens a graph in a process that has only its address, mostly a Spark worker.

Storage options, which may be secrets, come from the environment of the process or from pickled
data; never from options of a frame, which Spark shows in plans.
"""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.commit.opening import open_contract
from omnigraph.commit.schema.files import Contract
from omnigraph.commit.schema.history import contract_at, identified_at
from omnigraph.commit.schema.lock import refuse_while_schema_changes
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.identified import IdentifiedSchema
from omnigraph.records import dataclass
from omnigraph.settings import Settings
from omnigraph.storage.objects.paths import parse_root


@dataclass(frozen=True, slots=True)
class Opened:
    """A graph opened in this process."""

    store: GraphStore
    contract: Contract

    @property
    def catalog(self) -> Catalog:
        return self.contract.catalog

    def catalog_at(self, snapshot: Snapshot) -> Catalog:
        """The schema of a state of the graph."""
        return contract_at(self.store, self.contract, snapshot).catalog

    def schema_at(self, snapshot: Snapshot) -> IdentifiedSchema:
        """The schema of a state of the graph, with stable ids."""
        return identified_at(self.store, self.contract, snapshot)


def opened(uri: str, options: Mapping[str, str] | None = None, *, writable: bool = False) -> Opened:
    """Open a graph by its address."""
    defaults = Settings.from_environ().storage_options() if uri.startswith("s3://") else {}
    root = parse_root(uri, {**defaults, **(options or {})} or None)
    store = GraphStore(root)
    contract, _ = open_contract(store, writable=writable)
    if writable:
        refuse_while_schema_changes(store)
    return Opened(store, contract)
