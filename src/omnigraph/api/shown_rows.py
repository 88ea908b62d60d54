"""Whether views show one row of a snapshot: for explanations of a policy."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.api.snapshot import GraphSnapshot
from omnigraph.errors import InputError
from omnigraph.plan.view import View
from omnigraph.read.visible_rows import VisibleRows


def shown_by(
    snapshot: GraphSnapshot, views: Sequence[View], type_name: str, entity_id: str
) -> list[bool]:
    """Whether each of some views shows a node or an edge of a snapshot."""
    catalog = snapshot.catalog
    entity = catalog.node_types.get(type_name) or catalog.edge_types.get(type_name)
    if entity is None:
        raise InputError(f"unknown node or edge type '{type_name}'")
    handle, state = snapshot._handle, snapshot._context.snapshot
    with snapshot._reading():
        return [
            bool(VisibleRows(handle.store, catalog, state, view).find(entity, entity_id, ["id"]))
            for view in views
        ]
