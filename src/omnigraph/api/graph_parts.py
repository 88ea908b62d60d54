"""The named parts of a graph's handle: ``graph.branches``, ``graph.schema`` and the others.

Each is loaded when it is first used: who only asks a query does not wait for merging or upkeep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from omnigraph.api.changes import GraphChanges
    from omnigraph.api.embeddings import GraphEmbeddings
    from omnigraph.api.facets import GraphBranches, GraphIndexes, GraphTags
    from omnigraph.api.graph import Graph
    from omnigraph.api.maintenance import GraphMaintenance
    from omnigraph.api.schema import GraphSchema


class GraphParts:
    """What a ``Graph`` has under a name of its own."""

    @property
    def _whole(self) -> Graph:
        return cast("Graph", self)

    @property
    def branches(self) -> GraphBranches:
        from omnigraph.api.facets import GraphBranches

        return GraphBranches(self._whole)

    @property
    def tags(self) -> GraphTags:
        from omnigraph.api.facets import GraphTags

        return GraphTags(self._whole)

    @property
    def indexes(self) -> GraphIndexes:
        from omnigraph.api.facets import GraphIndexes

        return GraphIndexes(self._whole)

    @property
    def changes(self) -> GraphChanges:
        from omnigraph.api.changes import GraphChanges

        return GraphChanges(self._whole)

    @property
    def schema(self) -> GraphSchema:
        from omnigraph.api.schema import GraphSchema

        return GraphSchema(self._whole)

    @property
    def embeddings(self) -> GraphEmbeddings:
        from omnigraph.api.embeddings import GraphEmbeddings

        return GraphEmbeddings(self._whole)

    @property
    def maintenance(self) -> GraphMaintenance:
        from omnigraph.api.maintenance import GraphMaintenance

        return GraphMaintenance(self._whole)
