"""``graph.schema``: the text of the schema, and planning and applying changes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from omnigraph.api.arguments import Actor, SchemaSource, public
from omnigraph.api.handle import Namespace
from omnigraph.api.row_access import require_whole_view
from omnigraph.commit.schema.lock import in_progress
from omnigraph.errors import SchemaChanging
from omnigraph.evolve.apply import (
    ApplyOptions,
    SchemaApplied,
    apply_schema,
    plan_schema,
    preview_schema,
)
from omnigraph.lang.schema.migrate import MigrationPlan


class GraphSchema(Namespace):
    """The schema of a graph, as ``graph.schema``."""

    def text(self) -> str:
        """The text of the newest schema.

        >>> "node Person" in graph.schema.text()
        True
        """
        return self._handle.accepted().source

    @public
    def plan(
        self,
        schema: SchemaSource,
        *,
        allow_data_loss: bool = False,
        values: Mapping[str, Any] | None = None,
    ) -> MigrationPlan:
        """The steps to another schema, a ``.pg`` file or its text; the data is not examined.

        Raises:
            SchemaError: the schema is invalid.

        >>> text = graph.schema.text().replace("age: I32?", "age: I32?  city: String?")
        >>> graph.schema.plan(text).describe()
        ["add property 'Person.city' (String?) on node 'Person'"]
        """
        contract = self._handle.accepted()
        options = ApplyOptions(allow_data_loss, values or {})
        return plan_schema(contract.catalog, self._handle.source(schema, "<schema>"), options)

    @public
    def apply(
        self,
        schema: SchemaSource,
        *,
        allow_data_loss: bool = False,
        values: Mapping[str, Any] | None = None,
        allow_broken_queries: bool = False,
        dry_run: bool = False,
        actor: Actor | None = None,
    ) -> SchemaApplied:
        """Change the schema in one commit; a change that the data does not allow is refused.

        ``values`` gives existing rows a value for a property that is added or made required:
        ``{"Person.age": 0}``. With ``allow_data_loss`` dropped data is removed permanently; without
        it, earlier versions keep the data. A change that breaks a stored query of this graph is
        refused; with ``allow_broken_queries`` the query is refused from then on, until it fits
        again. ``dry_run`` reports the steps, and the rows and queries that violate them.

        Raises:
            SchemaError: the schema is invalid, or cannot be reached from the current one.
            IntegrityError: rows violate the new schema.
            SchemaChangeRefused: the data, a stored query or another branch does not allow it.
            SchemaChanging: another process changes the schema.

        >>> text = graph.schema.text().replace("age: I32?", "age: I64?")
        >>> graph.schema.apply(text, dry_run=True).supported
        True
        """
        # A dry run only reads: it is what `plan` shows, and the rows that violate it.
        action, target = ("read", None) if dry_run else ("schema_apply", "main")
        author = self._handle.authorize(actor, action, target=target)
        source = self._handle.source(schema, "<schema>")
        require = partial(require_whole_view, self._handle, author, action, None, target="main")
        queries = self._handle.queries
        options = ApplyOptions(
            allow_data_loss, values or {}, author, require, queries.broken_by, allow_broken_queries
        )
        if dry_run:
            contract = self._handle.accepted()
            return preview_schema(self._handle.store, contract, source, options)
        try:
            self._handle.write()
        except SchemaChanging as error:
            raise in_progress() from error
        return apply_schema(self._handle.store, source, options)
