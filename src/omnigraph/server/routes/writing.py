"""The routes that write rows, or the schema."""

from __future__ import annotations

from functools import partial

from omnigraph.server.bodies import JOB_LIMIT, LOAD_LIMIT
from omnigraph.server.calls import NDJSON
from omnigraph.server.handlers import writing
from omnigraph.server.models import requests, responses
from omnigraph.server.models.jobs import JobOutput
from omnigraph.server.routes.shape import Route, of_graph

_change = partial(
    of_graph,
    "POST",
    tag="mutations",
    action="change",
    lane="write",
    authorize=writing.authorize_change,
    request=requests.ChangeRequest,
    response=responses.ChangeOutput,
)
_load = partial(
    of_graph,
    "POST",
    tag="mutations",
    action="change",
    lane="write",
    authorize=writing.authorize_load,
    on_denied=writing.explain_denied_load,
    body_limit=LOAD_LIMIT,
)

WRITE_ROUTES: tuple[Route, ...] = (
    _change(
        path="/mutate",
        operation="mutate",
        summary="Run a query that writes",
        handler=writing.mutate,
    ),
    _change(
        path="/mutate/if-graph-commit",
        operation="mutate_if_graph_commit",
        summary="Run a query that writes if the branch is at a commit",
        handler=writing.mutate,
        is_conditional=True,
        statuses=(412,),
        since="1",
    ),
    _change(
        path="/change",
        operation="change",
        summary="Run a query that writes (deprecated: use mutate)",
        handler=writing.change,
        deprecated=True,
        successor="mutate",
    ),
    _load(
        path="/load",
        operation="load",
        summary="Load rows",
        handler=writing.load,
        request=requests.IngestRequest,
        response=responses.IngestOutput,
    ),
    _load(
        path="/load/ndjson",
        operation="load_ndjson",
        summary="Load the lines of the body",
        handler=writing.load_ndjson,
        query=requests.LoadParameters,
        body_type=NDJSON,
        spool_limit=JOB_LIMIT,
        response=responses.LoadOutput | JobOutput,
        statuses=(202,),
        since="1",
    ),
    _load(
        path="/ingest",
        operation="ingest",
        summary="Load rows (deprecated: use load)",
        handler=writing.ingest,
        request=requests.IngestRequest,
        response=responses.IngestOutput,
        deprecated=True,
        successor="load",
    ),
    of_graph(
        "POST",
        "/schema/apply",
        "applySchema",
        "Change the schema of a graph that belongs to no cluster",
        "mutations",
        "schema_apply",
        writing.apply_schema,
        authorize=writing.authorize_schema_apply,
        lane="write",
        request=requests.SchemaApplyRequest,
        response=responses.SchemaApplyOutput,
    ),
)
