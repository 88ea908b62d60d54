"""Whether views show one row of a snapshot: for explanations of a policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omnigraph.api.snapshot import GraphSnapshot
from omnigraph.errors import InputError
from omnigraph.plan.view import View
from omnigraph.read.visibility import visible_ids


def shown_by(
    snapshot: GraphSnapshot, views: Sequence[View], type_name: str, entity_id: str
) -> list[bool]:
    """Whether each of some views shows a node or an edge of a snapshot."""
    catalog = snapshot.catalog
    entity = catalog.node_types.get(type_name) or catalog.edge_types.get(type_name)
    if entity is None:
        raise InputError(f"unknown node or edge type '{type_name}'")
    context = snapshot._handle.query_context(snapshot._context)
    with snapshot._reading():
        return [
            bool(visible_ids(replace(context, view=view), entity.table_key, [entity_id]))
            for view in views
        ]
