"""The schema of a graph's handle: looking at it, planning another, changing to it."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from omnigraph.api.arguments import public
from omnigraph.commit.schema.lock import in_progress
from omnigraph.errors import SchemaChanging
from omnigraph.evolve.apply import (
    ApplyOptions,
    SchemaApplied,
    apply_schema,
    plan_schema,
    preview_schema,
)
from omnigraph.lang.schema import MigrationPlan
from omnigraph.lang.texts import source_of

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph


class GraphSchema:
    """``graph.schema``"""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def text(self) -> str:
        """The schema as it was given."""
        return self._graph._accepted().source

    @public
    def plan(
        self,
        schema: str | PathLike[str],
        *,
        allow_data_loss: bool = False,
        values: Mapping[str, Any] | None = None,
    ) -> MigrationPlan:
        """The steps to another schema, a ``.pg`` file or its text; no data is looked at.

        >>> import tempfile
        >>> from omnigraph import Graph
        >>> place = tempfile.TemporaryDirectory()
        >>> graph = Graph.init(place.name + "/g.omni", "node A { name: String @key }")
        >>> graph.schema.plan("node A { name: String @key  age: I32? }").describe()
        ["add property 'A.age' (I32?) on node 'A'"]
        >>> graph.close(); place.cleanup()
        """
        contract = self._graph._accepted()
        options = ApplyOptions(allow_data_loss, values or {})
        return plan_schema(contract.catalog, source_of(schema, "<schema>"), options)

    @public
    def apply(
        self,
        schema: str | PathLike[str],
        *,
        allow_data_loss: bool = False,
        values: Mapping[str, Any] | None = None,
        actor: str | None = None,
        dry_run: bool = False,
    ) -> SchemaApplied:
        """Change the schema, in one commit; refused, with nothing changed, where it cannot be.

        ``values`` gives the rows that are there a value for a property that is added or made
        required: ``{"Person.age": 0}``. With ``allow_data_loss`` what is dropped is removed for
        good; without it earlier versions keep it. ``dry_run`` says what would happen, and what of
        the data stands against it.
        """
        source = source_of(schema, "<schema>")
        options = ApplyOptions(allow_data_loss, values or {}, actor or self._graph._actor)
        if dry_run:
            contract = self._graph._accepted()
            return preview_schema(self._graph._store, contract, source, options)
        try:
            self._graph._writable()
        except SchemaChanging as error:
            raise in_progress() from error
        return apply_schema(self._graph._store, source, options)
