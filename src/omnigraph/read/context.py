"""The graph state and settings that a query runs against."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.plan.view import View
from omnigraph.read.traversal_cost import TraversalSettings
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.commit.snapshot import Snapshot
    from omnigraph.commit.store import GraphStore
    from omnigraph.embed import Embedders
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.topology.store import Topology


@dataclass(frozen=True, slots=True)
class QueryContext:
    """The graph state and settings that a query runs against."""

    store: GraphStore
    catalog: Catalog
    snapshot: Snapshot
    topology: Topology
    view: View
    """What the actor of the query sees."""
    traversal: TraversalSettings = TraversalSettings()
    embedders: Embedders | None = None
