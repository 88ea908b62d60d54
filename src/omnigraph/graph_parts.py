"""The named parts of a graph's handle: ``graph.branches``, ``graph.schema`` and the others.

Each is loaded when it is first used: who only asks a query does not wait for merging or upkeep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from omnigraph.changing import GraphChanges
    from omnigraph.embedding import GraphEmbeddings
    from omnigraph.evolving import GraphSchema
    from omnigraph.facets import GraphBranches, GraphIndexes, GraphTags
    from omnigraph.graph import Graph
    from omnigraph.maintaining import GraphMaintenance


class GraphParts:
    """What a ``Graph`` has under a name of its own."""

    @property
    def _whole(self) -> Graph:
        return cast("Graph", self)

    @property
    def branches(self) -> GraphBranches:
        from omnigraph.facets import GraphBranches

        return GraphBranches(self._whole)

    @property
    def tags(self) -> GraphTags:
        from omnigraph.facets import GraphTags

        return GraphTags(self._whole)

    @property
    def indexes(self) -> GraphIndexes:
        from omnigraph.facets import GraphIndexes

        return GraphIndexes(self._whole)

    @property
    def changes(self) -> GraphChanges:
        from omnigraph.changing import GraphChanges

        return GraphChanges(self._whole)

    @property
    def schema(self) -> GraphSchema:
        from omnigraph.evolving import GraphSchema

        return GraphSchema(self._whole)

    @property
    def embeddings(self) -> GraphEmbeddings:
        from omnigraph.embedding import GraphEmbeddings

        return GraphEmbeddings(self._whole)

    @property
    def maintenance(self) -> GraphMaintenance:
        from omnigraph.maintaining import GraphMaintenance

        return GraphMaintenance(self._whole)
