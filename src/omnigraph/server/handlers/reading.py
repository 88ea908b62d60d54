"""Reads of a graph: queries, snapshots, the schema, exports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from msgspec import UNSET

from omnigraph.api.handle import SnapshotContext
from omnigraph.api.paging import PagedRead, Resolve, branch_state, fixed_state, read_page
from omnigraph.api.point_reads import NewestResult, find_in_memory, query_newest
from omnigraph.api.query import run_query
from omnigraph.api.snapshot import GraphSnapshot
from omnigraph.commit.history import SnapshotRef, missing_commit
from omnigraph.commit.rows import FORMAT_VERSION
from omnigraph.errors import CommitNotFound, InputError, OmniGraphError
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query.parser import read_queries, select_query
from omnigraph.policy.actions import Action
from omnigraph.read.limits import Limits, Waited
from omnigraph.server.calls import JSON, NDJSON, Call, Headers, Reply
from omnigraph.server.models.requests import ExportRequest, QueryRequest, ReadRequest
from omnigraph.server.models.responses import (
    SchemaOutput,
    SnapshotOutput,
    SnapshotTableOutput,
)
from omnigraph.server.row_replies import (
    SNAPSHOT,
    Rows,
    preferred_form,
    read_output,
    row_type,
    rows_reply,
)
from omnigraph.server.switching import readable_state

MAIN = "main"
PAGE_ROWS = 1_000
"""The rows of a page if a cursor comes without a size."""
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
    content_type = JSON if is_frozen else row_type(call)
    if request.page_size is not None or request.cursor is not None:
        return _page(call, request, content_type, stored)
    handle, branch, waited = call.graph._handle, request.branch or MAIN, Waited()
    snapshot = None
    if request.snapshot is not None:
        snapshot = snapshot_of(call, None, request.snapshot, query=stored)
        branch = snapshot.branch
    limits, on_row_cap = _limits(call, waited), None
    if content_type != JSON and call.may("export", branch, query=stored):
        limits = replace(limits, max_rows=None)
        on_row_cap = partial(call.require, "export", branch, query=stored)
    query = request.query, request.name, request.params
    if snapshot is None:
        newest = query_newest(handle, partial(_newest, call, branch, stored), *query, limits)
    else:
        resolve = partial(fixed_state(snapshot._context), None)
        result = run_query(handle, resolve, *query, limits, "local", None)
        newest = NewestResult(result, snapshot.commit_id)
    rows = Rows(newest.result, newest.commit_id, None, waited, on_row_cap)
    return rows_reply(call, rows, content_type, is_frozen=is_frozen)


def _newest(call: Call, branch: str, stored: str | None) -> SnapshotContext:
    """The state of a branch that is to be read."""
    if stored is not None:
        return readable_state(call, stored, branch)
    return call.graph._handle.read(SnapshotRef(branch))


def _page(call: Call, request: QueryRequest, content_type: str, stored: str | None) -> Reply:
    """One page of the rows, from the state of the first page.

    As of a stream, there are more rows than the cap for those who may export the branch.
    """
    handle, branch = call.graph._handle, request.branch or MAIN
    if request.snapshot is None:
        resolve = _following(call, branch, stored)
    else:
        snapshot = snapshot_of(call, None, request.snapshot, query=stored)
        resolve, branch = fixed_state(snapshot._context), snapshot.branch
    # A stored query is its text: a changed one has no old cursors.
    state = request.branch or MAIN, request.snapshot, stored
    source = Source("<query>", request.query)
    read = PagedRead(source, request.name, request.params, resolve, state)
    limits, cap = _limits(call), call.state.config.limits.max_rows
    size = min(request.page_size or PAGE_ROWS, cap)
    if call.may("export", branch, query=stored):
        limits = replace(limits, max_rows=None)
    page = read_page(handle, read, size, request.cursor, call.serving.cursor_keys, limits)
    if page.position.offset + page.size > cap:
        call.require("export", branch, query=stored)
    rows = Rows(page.result, page.position.commit, page.cursor())
    return rows_reply(call, rows, content_type)


def _following(call: Call, branch: str, stored: str | None) -> Resolve:
    """Finds a commit that another process has made, though the storage lists it late."""
    resolve = branch_state(call.graph._handle, branch)

    def find(commit: str | None) -> SnapshotContext:
        if commit is None:
            return _newest(call, branch, stored)
        try:
            return resolve(commit)
        except CommitNotFound:
            call.serving.see(commit)
            return resolve(commit)

    return find


def run_in_memory(call: Call, request: QueryRequest, *, is_frozen: bool = False) -> Reply | None:
    """The rows of a query that needs nothing but memory; ``None`` if it needs more."""
    if (request.snapshot, request.page_size, request.cursor) != (None, None, None):
        return None
    if not is_frozen and row_type(call) != JSON:
        return None
    newest = find_in_memory(
        call.graph._handle,
        request.branch or MAIN,
        request.query,
        request.name,
        request.params,
        _limits(call),
    )
    if newest is None:
        return None
    form, headers = preferred_form(call)
    output = read_output(newest.result, form, UNSET if is_frozen else newest.commit_id)
    return Reply.json(output, headers=headers)


def _limits(call: Call, waited: Waited | None = None) -> Limits:
    limits = call.state.config.limits
    return Limits(limits.timeout, limits.max_rows, limits.max_memory, call.cancel, waited=waited)


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
    graph = call.graph
    allowed = {branch for branch in graph.branches.list() if call.may(action, branch, query=query)}
    for branch in sorted(allowed):
        for row in graph.commits(branch):
            if row.commit_id == commit and row.branch in allowed:
                return
    raise missing_commit(commit)


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
    hides = partial(call.state.access.hides_branch, call.graph_id, call.identity)
    tables = [
        SnapshotTableOutput(
            key,
            table["path"],
            table["version"],
            None if table["branch"] == MAIN or hides(table["branch"]) else table["branch"],
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
