"""The routes that read a graph."""

from __future__ import annotations

from functools import partial

from omnigraph.result.wire import ARROW_STREAM
from omnigraph.server.calls import NDJSON
from omnigraph.server.handlers import reading, states, stored
from omnigraph.server.models import requests, responses
from omnigraph.server.routes.shape import Route, of_graph

_invoke = partial(
    of_graph,
    "POST",
    tag="queries",
    action="invoke_query",
    handler=stored.invoke_query,
    authorize=stored.authorize_invoke,
    in_memory=stored.invoke_in_memory,
    writes=stored.invokes_write,
    request=requests.InvokeStoredQueryRequest,
    body_type=None,
    is_lenient=True,
)

READ_ROUTES: tuple[Route, ...] = (
    of_graph(
        "GET",
        "/snapshot",
        "getSnapshot",
        "Show the tables of a branch",
        "snapshots",
        "read",
        reading.get_snapshot,
        authorize=states.authorize_read,
        query=requests.StateParameters,
        response=responses.SnapshotOutput,
    ),
    of_graph(
        "POST",
        "/query",
        "query",
        "Run a query that reads",
        "queries",
        "read",
        reading.query,
        authorize=reading.authorize_query,
        in_memory=reading.query_in_memory,
        request=requests.QueryRequest,
        response=responses.ReadOutput,
        other_types=(NDJSON, ARROW_STREAM),
        statuses=(406,),
    ),
    of_graph(
        "POST",
        "/read",
        "read",
        "Run a query that reads (deprecated: use query)",
        "queries",
        "read",
        reading.read,
        authorize=reading.authorize_query,
        in_memory=reading.read_in_memory,
        request=requests.ReadRequest,
        response=responses.ReadOutput,
        deprecated=True,
        successor="query",
    ),
    of_graph(
        "POST",
        "/export",
        "export",
        "Export all rows as lines of JSON",
        "queries",
        "export",
        reading.export,
        authorize=reading.authorize_export,
        request=requests.ExportRequest,
        content_type=NDJSON,
    ),
    of_graph(
        "GET",
        "/queries",
        "list_queries",
        "List the stored queries",
        "queries",
        "read",
        stored.list_queries,
        authorize=stored.authorize_list,
        response=responses.QueriesCatalogOutput,
        in_memory=stored.list_cached_queries,
    ),
    of_graph(
        "GET",
        "/queries/{name}",
        "get_query",
        "Show a stored query",
        "queries",
        "invoke_query",
        stored.get_query,
        authorize=stored.authorize_get,
        response=responses.QueryOutput,
        since="1",
    ),
    _invoke(
        path="/queries/{name}",
        operation="invoke_query",
        summary="Run a stored query",
        response=responses.ReadOutput | responses.ChangeOutput,
        other_types=(NDJSON, ARROW_STREAM),
        statuses=(406, 409),
    ),
    _invoke(
        path="/queries/{name}/if-graph-commit",
        operation="invoke_query_if_graph_commit",
        summary="Run a stored mutation if the branch is at a commit",
        response=responses.ChangeOutput,
        is_conditional=True,
        statuses=(409, 412),
        since="1",
    ),
    of_graph(
        "GET",
        "/schema",
        "getSchema",
        "Get the schema",
        "schema",
        "read",
        reading.get_schema,
        response=responses.SchemaOutput,
    ),
)
