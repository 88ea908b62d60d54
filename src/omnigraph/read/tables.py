"""The tables of one snapshot, each opened once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from omnigraph.read.sources import EdgeSource, NodeSource

if TYPE_CHECKING:
    from omnigraph.lang.query import typed
    from omnigraph.read.context import QueryContext
    from omnigraph.read.visibility import Visibility, VisibleNodes


class SnapshotTables:
    """The tables of the snapshot that a query reads."""

    def __init__(self, context: QueryContext) -> None:
        self.context = context
        self._nodes: dict[str, NodeSource | None] = {}
        self._edges: dict[str, EdgeSource | None] = {}

    @cached_property
    def visibility(self) -> Visibility:
        """What the view of the context shows of the tables."""
        from omnigraph.read.visibility import Visibility

        return Visibility(self)

    def nodes(self, type_name: str) -> NodeSource | None:
        """The nodes of a type; ``None`` if the snapshot is older than the type."""
        if type_name not in self._nodes:
            context = self.context
            node_type = context.catalog.node_types.get(type_name)
            pin = None if node_type is None else context.snapshot.pin(node_type.table_key)
            source = None
            if node_type is not None and pin is not None:
                source = NodeSource(node_type, pin, context.store, context.topology)
            return self._nodes.setdefault(type_name, source)
        return self._nodes[type_name]

    def edges(self, type_name: str) -> EdgeSource | None:
        """The edges of a type."""
        if type_name not in self._edges:
            context = self.context
            edge_type = context.catalog.edge_types[type_name]
            pin = context.snapshot.pin(edge_type.table_key)
            src, dst = self.nodes(edge_type.from_type), self.nodes(edge_type.to_type)
            source = None
            if pin is not None and src is not None and dst is not None:
                ends = (src, dst)
                source = EdgeSource(edge_type, pin, ends, context.store, context.topology)
            return self._edges.setdefault(type_name, source)
        return self._edges[type_name]

    def visible_nodes(self, mark: typed.Visible) -> VisibleNodes | None:
        """The visible nodes of a marked table."""
        return self.visibility.nodes(mark.table_key.removeprefix("node:"))

    def visible_edges(self, type_name: str, mark: typed.Visible | None) -> EdgeSource | None:
        """The edges of a type; only visible ones if the table is marked."""
        return self.edges(type_name) if mark is None else self.visibility.edges(type_name)

    def reads(self) -> int:
        """How often tables were read."""
        sources = [*self._nodes.values(), *self._edges.values()]
        return sum(source.reads for source in sources if source is not None)
