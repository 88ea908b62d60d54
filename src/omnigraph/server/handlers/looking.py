"""Looking at single things: a node or an edge, the neighbours of a node, the plan of a query."""

from __future__ import annotations

from functools import partial

from omnigraph.api.neighbours import find_entity, find_neighbours
from omnigraph.api.query import explain_query, profile_query
from omnigraph.lang.schema.catalog import Catalog, EdgeType, EntityType
from omnigraph.lang.values.columns import json_values
from omnigraph.read.limits import Limits
from omnigraph.server.calls import Call, Reply
from omnigraph.server.handlers.states import state_of
from omnigraph.server.models.history import (
    EntityOutput,
    EntityParameters,
    ExplainOutput,
    ExplainRequest,
    NeighbourOutput,
    NeighbourParameters,
    NeighboursOutput,
)
from omnigraph.server.row_replies import preferred_form

_FEW = 100


def get_entity(call: Call) -> Reply:
    """One node or edge."""
    given: EntityParameters = call.query
    snapshot = state_of(call)
    form, headers = preferred_form(call)
    values = partial(json_values, form=form)
    entity_type, row = find_entity(snapshot, snapshot.catalog, given.type, given.id, values)
    output = EntityOutput(
        entity_type.name,
        "edge" if isinstance(entity_type, EdgeType) else "node",
        given.id,
        row,
        _types(entity_type),
        snapshot.commit_id,
    )
    return Reply.json(output, headers=headers)


def get_neighbours(call: Call) -> Reply:
    """The edges of a node and the nodes at their other ends."""
    given: NeighbourParameters = call.query
    snapshot, limit = state_of(call), given.limit or _FEW
    form, headers = preferred_form(call)
    reached = find_neighbours(
        snapshot,
        snapshot.catalog,
        given.type,
        given.id,
        given.edge,
        given.direction or "both",
        limit + 1,
        partial(json_values, form=form),
    )
    shown = [
        NeighbourOutput(row.edge_type, row.direction, dict(row.edge), row.node_type, dict(row.node))
        for row in reached[:limit]
    ]
    names = {name for row in shown for name in (row.edge_type, row.node_type)}
    types = {name: _types(_type(snapshot.catalog, name)) for name in sorted(names)}
    output = NeighboursOutput(shown, types, len(reached) > limit, snapshot.commit_id)
    return Reply.json(output, headers=headers)


def _type(catalog: Catalog, name: str) -> EntityType:
    return catalog.node_types.get(name) or catalog.edge_types[name]


def _types(entity_type: EntityType) -> dict[str, str]:
    return {name: str(prop.type) for name, prop in entity_type.properties.items()}


# -- plans -----------------------------------------------------------------------------------


def explain(call: Call) -> Reply:
    """The plan of a query; with ``profile`` it is run, and each step measured.

    Numbers that count hidden rows are for those who may administer the graph.
    """
    request: ExplainRequest = call.body
    snapshot = state_of(call)
    handle, context = snapshot._handle, snapshot._context
    sees_counts = not context.view.is_whole and call.allows("admin") is None
    if request.profile:
        limits = call.state.config.limits
        explained = profile_query(
            handle,
            context,
            request.query,
            request.name,
            request.params,
            Limits(limits.timeout, limits.max_rows, limits.max_memory, call.cancel),
            counts=sees_counts,
        )
    else:
        explained = explain_query(handle, context, request.query, request.name, counts=sees_counts)
    return Reply.json(ExplainOutput(explained.text, explained.to_json()))
