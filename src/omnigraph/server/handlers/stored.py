"""Stored queries: the catalogue, and invocations."""

from __future__ import annotations

from omnigraph.errors import InputError
from omnigraph.server.calls import Call, Reply
from omnigraph.server.errors import RequestRefused
from omnigraph.server.handlers.reading import MAIN, run_read
from omnigraph.server.handlers.writing import run_change
from omnigraph.server.models.requests import InvokeStoredQueryRequest, QueryRequest
from omnigraph.server.models.responses import QueriesCatalogOutput
from omnigraph.server.state import ServedGraph
from omnigraph.server.stored_queries import RegisteredQuery


def list_queries(call: Call) -> Reply:
    """Every stored query, also those that the caller may not invoke."""
    return Reply.json(QueriesCatalogOutput([q.entry for q in call.serving.queries.values()]))


def authorize_invoke(call: Call) -> None:
    """``invoke_query``, then that of the query; a denied name looks like an unknown one."""
    stored = call.serving.queries.get(call.path["name"])
    denied = call.allows("invoke_query")
    if denied is not None or stored is None:
        raise _unknown_query()
    request = _request(call)
    if request.expect_mutation is not None and request.expect_mutation != stored.is_mutation:
        raise _other_kind(stored)
    if call.route.is_conditional and not stored.is_mutation:
        raise _other_kind(stored)
    if not stored.is_mutation:
        if request.branch is not None and request.snapshot is not None:
            raise InputError("request may specify branch or snapshot, not both")
        if request.snapshot is None:
            call.require("read", request.branch or MAIN)
        return
    if request.snapshot is not None:
        raise InputError("stored mutation cannot target a snapshot")
    call.require("change", request.branch or MAIN)


def invoke_query(call: Call) -> Reply:
    """Run a stored query."""
    stored, request = call.serving.queries[call.path["name"]], _request(call)
    call.process.log.event(
        "stored query invoked",
        request_id=call.request_id,
        graph=call.graph_id,
        actor_id=call.actor,
        query=stored.name,
        kind="mutation" if stored.is_mutation else "read",
    )
    if stored.is_mutation:
        return run_change(call, stored.text, stored.name, request.params, request.branch)
    wanted = QueryRequest(
        stored.text, stored.name, request.params, request.branch, request.snapshot
    )
    return run_read(call, wanted)


def invokes_write(served: ServedGraph, path: dict[str, str]) -> bool:
    """Whether the stored query of a path writes."""
    stored = served.queries.get(path["name"])
    return stored is not None and stored.is_mutation


def _request(call: Call) -> InvokeStoredQueryRequest:
    return call.body or InvokeStoredQueryRequest()


def _unknown_query() -> RequestRefused:
    return RequestRefused(404, "query_not_found", "stored query not found")


def _other_kind(stored: RegisteredQuery) -> InputError:
    kind, verb = ("mutation", "mutate") if stored.is_mutation else ("read", "query")
    return InputError(f"'{stored.name}' is a {kind} — use omnigraph {verb} {stored.name}")
