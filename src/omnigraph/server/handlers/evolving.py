"""Plans of schema changes."""

from __future__ import annotations

from omnigraph.server.calls import Call, Reply
from omnigraph.server.models.evolving import SchemaPlanOutput, SchemaPlanRequest


def plan_schema(call: Call) -> Reply:
    """The steps to another schema; no data is read, and nothing is changed."""
    request: SchemaPlanRequest = call.body
    plan = call.graph.schema.plan(
        request.schema_source,
        allow_data_loss=request.allow_data_loss or False,
        values=request.values,
    )
    steps = [step.to_json() for step in plan.steps]
    return Reply.json(SchemaPlanOutput(call.uri, plan.supported, len(steps), steps))
