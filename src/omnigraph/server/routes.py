"""The table of routes: everything that a request can be, and what each needs.

Routing, authorisation, admission, body limits, metrics, the OpenAPI document and
``docs/http-api.md`` are all made from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

from omnigraph.errors import PolicyDenied
from omnigraph.policy.actions import Action
from omnigraph.records import dataclass
from omnigraph.result.wire import ARROW_STREAM
from omnigraph.server.admission import BRANCH_OPERATION_BYTES
from omnigraph.server.bodies import DEFAULT_LIMIT, LOAD_LIMIT
from omnigraph.server.calls import JSON, NDJSON, Call, Handler
from omnigraph.server.handlers import branching, reading, serving, stored, writing
from omnigraph.server.metrics import CONTENT_TYPE as METRICS_TYPE
from omnigraph.server.models import requests, responses
from omnigraph.server.state import ServedGraph

Lane: TypeAlias = Literal["inline", "read", "write"]


def _nothing(call: Call) -> None:
    """The authorisation of routes that everybody may call."""


def _ask(call: Call, action: Action) -> None:
    call.require(action)


def _ask_main(call: Call, action: Action) -> None:
    call.require(action, reading.MAIN)


def _ask_branch(call: Call, action: Action) -> None:
    """The branch in the query string or the body, or main."""
    given = call.query if call.body is None else call.body
    call.require(action, given.branch or reading.MAIN)


def _body_bytes(call: Call) -> int:
    return call.body_bytes


def _branch_bytes(call: Call) -> int:
    return BRANCH_OPERATION_BYTES


@dataclass(frozen=True, slots=True)
class Route:
    """One operation."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    operation_id: str
    summary: str
    tag: str
    action: Action | None
    """What the actor must be allowed; none only for health, readiness and the document."""
    scope: Literal["open", "server", "graph"]
    lane: Lane
    """Writes run in the writer process and count in admission."""
    handler: Handler
    authorize: Callable[[Call], None]
    """Raises unless the actor may do this; runs in the event loop, before anything is looked up."""
    body_limit: int = 0
    request: type | None = None
    query: type | None = None
    response: Any = None
    content_type: str = JSON
    """That of the response."""
    other_types: tuple[str, ...] = ()
    """What else a client may ask for by ``Accept``."""
    body_type: str | None = JSON
    """That of the request; ``None`` for any."""
    on_denied: Callable[[Call, PolicyDenied], None] | None = None
    """Replaces the error of a denied actor; runs on a thread."""
    writes: Callable[[ServedGraph, dict[str, str]], bool] | None = None
    """Decides about the lane, if it depends on the path."""
    size: Callable[[Call], int] = _body_bytes
    """The estimated size of a write, for admission."""
    is_quick: bool = False
    """Whether a read asks no engine, so that a thread would cost more than its work."""
    is_conditional: bool = False
    """Whether the header ``Omnigraph-If-Graph-Commit`` is required."""
    is_lenient: bool = False
    """Whether the body may be absent or null, and a malformed one is a plain bad request."""
    free_on_loopback: bool = False  # needs no token if only this machine can connect
    deprecated: bool = False
    successor: str | None = None
    statuses: tuple[int, ...] = ()
    """What it answers besides 200 and the statuses that every route of its kind has."""
    since: Literal["0.8", "1"] = "0.8"

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters in the path."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))

    @property
    def has_body(self) -> bool:
        return self.body_limit > 0

    def is_free(self, on_loopback: bool) -> bool:
        return self.scope == "open" or (self.free_on_loopback and on_loopback)

    def lane_for(self, served: ServedGraph | None, path: dict[str, str]) -> Lane:
        """The lane of one request."""
        if self.writes is None or served is None:
            return self.lane
        return "write" if self.writes(served, path) else "read"


def _of_graph(
    method: Literal["GET", "POST", "PUT", "DELETE"],
    path: str,
    operation: str,
    summary: str,
    tag: str,
    action: Action,
    handler: Handler,
    *,
    authorize: Callable[[Call], None] | None = None,
    lane: Lane = "read",
    **rest: Any,
) -> Route:
    if method == "POST":
        rest.setdefault("body_limit", DEFAULT_LIMIT)
    return Route(
        method,
        f"/graphs/{{graph_id}}{path}",
        f"cluster_{operation}",
        summary,
        tag,
        action,
        "graph",
        lane,
        handler,
        authorize or partial(_ask, action=action),
        **rest,
    )


_change = partial(
    _of_graph,
    "POST",
    tag="mutations",
    action="change",
    lane="write",
    authorize=writing.authorize_change,
    request=requests.ChangeRequest,
    response=responses.ChangeOutput,
)
_load = partial(
    _of_graph,
    "POST",
    tag="mutations",
    action="change",
    lane="write",
    authorize=writing.authorize_load,
    on_denied=writing.explain_denied_load,
    body_limit=LOAD_LIMIT,
)
_invoke = partial(
    _of_graph,
    "POST",
    tag="queries",
    action="invoke_query",
    handler=stored.invoke_query,
    authorize=stored.authorize_invoke,
    writes=stored.invokes_write,
    request=requests.InvokeStoredQueryRequest,
    body_type=None,
    is_lenient=True,
)

ROUTES: tuple[Route, ...] = (
    # -- the server --------------------------------------------------------------------------
    Route(
        "GET",
        "/healthz",
        "health",
        "Check that the process runs",
        "health",
        None,
        "open",
        "inline",
        serving.health,
        _nothing,
        response=responses.HealthOutput,
    ),
    Route(
        "GET",
        "/readyz",
        "ready",
        "Show what is served",
        "health",
        None,
        "open",
        "inline",
        serving.ready,
        _nothing,
        response=responses.ReadinessOutput,
        statuses=(503,),
        since="1",
    ),
    Route(
        "GET",
        "/openapi.json",
        "openapi",
        "Get this document",
        "health",
        None,
        "open",
        "inline",
        serving.openapi,
        _nothing,
        since="1",
    ),
    Route(
        "GET",
        "/metrics",
        "metrics",
        "Get the metrics of all processes",
        "management",
        "admin",
        "server",
        "inline",
        serving.metrics,
        partial(_ask, action="admin"),
        content_type=METRICS_TYPE,
        free_on_loopback=True,
        since="1",
    ),
    Route(
        "POST",
        "/reload",
        "reload",
        "Read tokens, policies and the list of graphs again",
        "management",
        "config_manage",
        "server",
        "inline",
        serving.reload,
        partial(_ask, action="config_manage"),
        body_limit=DEFAULT_LIMIT,
        body_type=None,
        response=responses.ReloadOutput,
        statuses=(409, 501, 503),
        since="1",
    ),
    Route(
        "GET",
        "/graphs",
        "listGraphs",
        "List the served graphs",
        "management",
        "graph_list",
        "server",
        "inline",
        serving.list_graphs,
        partial(_ask, action="graph_list"),
        response=responses.GraphListResponse,
    ),
    # -- reading -----------------------------------------------------------------------------
    _of_graph(
        "GET",
        "/snapshot",
        "getSnapshot",
        "Show the tables of a branch",
        "snapshots",
        "read",
        reading.get_snapshot,
        authorize=partial(_ask_branch, action="read"),
        query=requests.BranchParameter,
        response=responses.SnapshotOutput,
    ),
    _of_graph(
        "POST",
        "/query",
        "query",
        "Run a query that reads",
        "queries",
        "read",
        reading.query,
        authorize=reading.authorize_query,
        request=requests.QueryRequest,
        response=responses.ReadOutput,
        other_types=(ARROW_STREAM,),
    ),
    _of_graph(
        "POST",
        "/read",
        "read",
        "Run a query that reads (deprecated: use query)",
        "queries",
        "read",
        reading.read,
        authorize=reading.authorize_query,
        request=requests.ReadRequest,
        response=responses.ReadOutput,
        deprecated=True,
        successor="query",
    ),
    _of_graph(
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
    _of_graph(
        "GET",
        "/queries",
        "list_queries",
        "List the stored queries",
        "queries",
        "read",
        stored.list_queries,
        authorize=partial(_ask_main, action="read"),
        response=responses.QueriesCatalogOutput,
        is_quick=True,
    ),
    _invoke(
        path="/queries/{name}",
        operation="invoke_query",
        summary="Run a stored query",
        response=responses.ReadOutput | responses.ChangeOutput,
        other_types=(ARROW_STREAM,),
        statuses=(409,),
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
    _of_graph(
        "GET",
        "/schema",
        "getSchema",
        "Get the schema",
        "schema",
        "read",
        reading.get_schema,
        response=responses.SchemaOutput,
    ),
    # -- writing -----------------------------------------------------------------------------
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
        response=responses.LoadOutput,
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
    _of_graph(
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
    # -- branches and commits ----------------------------------------------------------------
    _of_graph(
        "GET",
        "/branches",
        "listBranches",
        "List the branches",
        "branches",
        "read",
        branching.list_branches,
        response=responses.BranchListOutput,
    ),
    _of_graph(
        "POST",
        "/branches",
        "createBranch",
        "Create a branch",
        "branches",
        "branch_create",
        branching.create_branch,
        authorize=branching.authorize_create,
        lane="write",
        request=requests.BranchCreateRequest,
        response=responses.BranchCreateOutput,
        size=_branch_bytes,
    ),
    _of_graph(
        "DELETE",
        "/branches/{branch}",
        "deleteBranch",
        "Delete a branch",
        "branches",
        "branch_delete",
        branching.delete_branch,
        authorize=branching.authorize_delete,
        lane="write",
        response=responses.BranchDeleteOutput,
        size=_branch_bytes,
    ),
    _of_graph(
        "POST",
        "/branches/merge",
        "mergeBranches",
        "Merge a branch into another",
        "branches",
        "branch_merge",
        branching.merge_branches,
        authorize=branching.authorize_merge,
        lane="write",
        request=requests.BranchMergeRequest,
        response=responses.BranchMergeOutput,
        size=_branch_bytes,
    ),
    _of_graph(
        "GET",
        "/commits",
        "listCommits",
        "List the commits of a branch, newest first",
        "commits",
        "read",
        branching.list_commits,
        authorize=branching.authorize_commits,
        query=requests.CommitFilter,
        response=responses.CommitListOutput,
    ),
    _of_graph(
        "GET",
        "/commits/{commit_id}",
        "getCommit",
        "Show a commit",
        "commits",
        "read",
        branching.get_commit,
        response=responses.CommitOutput,
    ),
)
