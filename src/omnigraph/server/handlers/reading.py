"""Reads of a graph: queries, snapshots, the schema, exports."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, UnsetType

from omnigraph.api.point_reads import NewestResult, find_in_memory, query_newest
from omnigraph.api.snapshot import GraphSnapshot
from omnigraph.commit.history import missing_commit
from omnigraph.commit.rows import FORMAT_VERSION
from omnigraph.errors import InputError, OmniGraphError
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query.parser import read_queries, select_query
from omnigraph.policy.actions import Action
from omnigraph.read.limits import Limits
from omnigraph.result.result import JsonForm, Result
from omnigraph.result.wire import ARROW_STREAM, stream_of
from omnigraph.server.calls import NDJSON, Call, Headers, Reply
from omnigraph.server.models.requests import ExportRequest, QueryRequest, ReadRequest
from omnigraph.server.models.responses import (
    ReadOutput,
    ReadTargetOutput,
    SchemaOutput,
    SnapshotOutput,
    SnapshotTableOutput,
)

MAIN = "main"
SNAPSHOT = "omnigraph-snapshot"
"""The header that names the commit whose state is exported."""
_PREFERENCE = "integers=string"
_EXPORT_PIECE = 128 << 10


# -- queries ---------------------------------------------------------------------------------


def authorize_query(call: Call) -> None:
    """Reading a branch needs ``read`` on it; a commit is looked up first, by the handler."""
    request: QueryRequest | ReadRequest = call.body
    if request.branch is not None and request.snapshot is not None:
        raise InputError("request may specify branch or snapshot, not both")
    if request.snapshot is None:
        call.require("read", request.branch or MAIN)


def query(call: Call) -> Reply:
    """Run a query that reads."""
    request: QueryRequest = call.body
    try:
        return run_read(call, request)
    except InputError as error:
        if _is_mutation(request):
            raise InputError(
                "the query contains mutations; use POST /mutate for queries that write"
            ) from error
        raise


def read(call: Call) -> Reply:
    """Run a query that reads; the response is that of 0.8."""
    return run_read(call, call.body.renamed(), is_frozen=True)


def query_in_memory(call: Call) -> Reply | None:
    """Run a query that needs nothing but memory."""
    return run_in_memory(call, call.body)


def read_in_memory(call: Call) -> Reply | None:
    """The same; the response is that of 0.8."""
    return run_in_memory(call, call.body.renamed(), is_frozen=True)


def run_read(
    call: Call, request: QueryRequest, *, is_frozen: bool = False, stored: str | None = None
) -> Reply:
    """The rows of a query, read from one snapshot; ``stored`` is the name of a stored query."""
    limits = _limits(call)
    if request.snapshot is None:
        newest = query_newest(
            call.graph._handle,
            request.branch or MAIN,
            request.query,
            request.name,
            request.params,
            limits,
        )
    else:
        snapshot = snapshot_of(call, None, request.snapshot, query=stored)
        result = snapshot.query(
            request.query,
            request.name,
            request.params,
            engine="local",
            timeout=limits.timeout,
            max_rows=limits.max_rows,
            max_memory=limits.max_memory,
            cancel=call.cancel,
        )
        newest = NewestResult(result, snapshot.commit_id)
    if not is_frozen and accepts_arrow(call):
        pieces = stream_of(newest.result)
        return Reply(next(pieces), content_type=ARROW_STREAM, stream=pieces)
    return _rows_reply(call, newest, is_frozen)


def run_in_memory(call: Call, request: QueryRequest, *, is_frozen: bool = False) -> Reply | None:
    """The rows of a query that needs nothing but memory; ``None`` if it needs more."""
    if request.snapshot is not None or (not is_frozen and accepts_arrow(call)):
        return None
    newest = find_in_memory(
        call.graph._handle,
        request.branch or MAIN,
        request.query,
        request.name,
        request.params,
        _limits(call),
    )
    return None if newest is None else _rows_reply(call, newest, is_frozen)


def _limits(call: Call) -> Limits:
    limits = call.state.config.limits
    return Limits(limits.timeout, limits.max_rows, limits.max_memory, call.cancel)


def _rows_reply(call: Call, newest: NewestResult, is_frozen: bool) -> Reply:
    form, headers = preferred_form(call)
    output = read_output(newest.result, form, UNSET if is_frozen else newest.commit_id)
    return Reply.json(output, headers=headers)


def accepts_arrow(call: Call) -> bool:
    """Whether the client asks for rows as an Arrow stream."""
    given = call.headers.all("accept")
    if not given:
        return False
    accepted = b",".join(given).decode("latin-1").lower()
    return any(part.partition(";")[0].strip() == ARROW_STREAM for part in accepted.split(","))


def snapshot_of(
    call: Call,
    branch: str | None,
    commit: str | None,
    action: Action = "read",
    *,
    query: str | None = None,
) -> GraphSnapshot:
    """The state to read: the newest of a branch that was authorised, or that of a commit."""
    graph = call.graph
    if commit is None:
        return graph.snapshot(branch or MAIN)
    if call.allows("read", query=query) is not None:
        _require_visible(call, commit, action, query)
        return graph.snapshot(commit=commit)
    denied = call.allows(action, graph.commit(commit).branch, query=query)
    if denied is not None:
        raise denied
    return graph.snapshot(commit=commit)


def _require_visible(call: Call, commit: str, action: Action, query: str | None) -> None:
    """Look a commit up for an actor who may not list commits: only on branches of its own.

    A hidden commit takes the same work as an unknown one, so their times do not tell them apart.
    """
    graph, access = call.graph, call.state.access
    allowed = {
        branch
        for branch in graph.branches.list()
        if access.decide(call.graph_id, call.identity, action, branch, query=query).allowed
    }
    for branch in sorted(allowed):
        for row in graph.commits(branch):
            if row.commit_id == commit and row.branch in allowed:
                return
    raise missing_commit(commit)


def read_output(
    result: Result, form: JsonForm, commit_id: str | UnsetType | None = UNSET
) -> ReadOutput:
    """A result in the form of the contract."""
    rows = result.json_rows(form)
    target = ReadTargetOutput(result.target.get("branch"), result.target.get("snapshot"))
    return ReadOutput(
        result.query_name, target, len(rows), rows, result.columns or UNSET, commit_id
    )


def preferred_form(call: Call) -> tuple[JsonForm, Headers]:
    """How to write integers that JavaScript would round."""
    given = call.headers.all("prefer")
    if not given:
        return "native", ()
    wanted = b",".join(given).decode("latin-1").lower()
    if _PREFERENCE in (part.strip() for part in wanted.replace(";", ",").split(",")):
        return "sdk", (("preference-applied", _PREFERENCE),)
    return "native", ()


def _is_mutation(request: QueryRequest) -> bool:
    try:
        return select_query(
            read_queries(Source("<query>", request.query)), request.name
        ).is_mutation
    except OmniGraphError:
        return False


# -- snapshots and the schema ----------------------------------------------------------------


def get_snapshot(call: Call) -> Reply:
    """The tables of a branch, or of the state of a commit."""
    snapshot = snapshot_of(call, call.query.branch, call.query.snapshot)
    tables = [
        SnapshotTableOutput(
            key,
            table["path"],
            table["version"],
            None if table["branch"] == MAIN else table["branch"],
            table["rows"],
        )
        for key, table in sorted(snapshot.tables.items())
    ]
    output = SnapshotOutput(
        snapshot.branch, snapshot.version, FORMAT_VERSION, tables, snapshot.commit_id
    )
    return Reply.json(output)


def get_schema(call: Call) -> Reply:
    """The text of the schema."""
    return Reply.json(SchemaOutput(call.graph.schema.text()))


# -- exports ---------------------------------------------------------------------------------


def authorize_export(call: Call) -> None:
    """Exporting a branch needs ``export`` on it; a commit is looked up first, by the handler."""
    request: ExportRequest = call.body
    if request.branch is not None and request.snapshot is not None:
        raise InputError("request may specify branch or snapshot, not both")
    if request.snapshot is None:
        call.require("export", request.branch or MAIN)


def export(call: Call) -> Reply:
    """All rows as lines of JSON; whatever can fail at the start fails before the first byte."""
    request: ExportRequest = call.body
    snapshot = snapshot_of(call, request.branch, request.snapshot, "export")
    keys = _exported_keys(snapshot, request)
    pieces = _pieces(snapshot.export(types=keys))
    first = next(pieces, b"")
    headers: Headers = () if request.snapshot is None else ((SNAPSHOT, request.snapshot),)
    return Reply(first, content_type=f"{NDJSON}; charset=utf-8", headers=headers, stream=pieces)


def _exported_keys(snapshot: GraphSnapshot, request: ExportRequest) -> list[str] | None:
    """The tables of the requested types and tables; ``None`` for all."""
    catalog = snapshot.catalog
    nodes, edges = catalog.node_types, catalog.edge_types
    keys: list[str] = []
    for name in request.type_names or ():
        matches = [types[name].table_key for types in (nodes, edges) if name in types]
        if not matches:
            raise InputError(f"unknown export type '{name}'", details={"type": name})
        keys += matches
    existing = {row.table_key for types in (nodes, edges) for row in types.values()}
    for key in request.table_keys or ():
        if key not in existing:
            raise InputError(f"unknown export table '{key}'", details={"table_key": key})
        keys.append(key)
    return keys or None


def _pieces(lines: Iterator[str]) -> Iterator[bytes]:
    """Lines joined to pieces that are worth a write to a socket."""
    piece: list[str] = []
    size = 0
    for line in lines:
        piece.append(line)
        size += len(line)
        if size >= _EXPORT_PIECE:
            yield ("\n".join(piece) + "\n").encode()
            piece, size = [], 0
    if piece:
        yield ("\n".join(piece) + "\n").encode()
