"""Stored queries: the catalogue, and invocations."""

from __future__ import annotations

from omnigraph.api.stored_queries import RegisteredQuery, invoking
from omnigraph.errors import InputError
from omnigraph.identity import Identity
from omnigraph.server.calls import Call, Reply
from omnigraph.server.errors import RequestRefused
from omnigraph.server.handlers.reading import MAIN, run_in_memory, run_read
from omnigraph.server.handlers.writing import run_change
from omnigraph.server.models.requests import InvokeStoredQueryRequest, QueryRequest
from omnigraph.server.state import Decisions, ServedGraph


def authorize_list(call: Call) -> None:
    """Whoever may read main may list; others if there is a query that they may invoke."""
    denied = call.allows("read", MAIN)
    if denied is not None and not _invocable(call):
        raise denied


def list_queries(call: Call) -> Reply:
    """The stored queries that the actor may invoke."""
    return Reply(call.serving.queries.listing(_invocable(call)))


def list_cached_queries(call: Call) -> Reply | None:
    """The same, once the list has been written."""
    listing = call.serving.queries.cached_listing(_invocable(call))
    return None if listing is None else Reply(listing)


def _invocable(call: Call) -> tuple[str, ...]:
    access, identity, graph_id = call.state.access, call.identity, call.graph_id
    return tuple(
        name for name in call.serving.queries if _may_invoke(access, identity, graph_id, name)
    )


def _may_invoke(access: Decisions, identity: Identity | None, graph_id: str, name: str) -> bool:
    return access.decide(graph_id, identity, "invoke_query", query=name).allowed


def authorize_invoke(call: Call) -> None:
    """``invoke_query``, then that of the query; a denied name looks like an unknown one."""
    name = call.path["name"]
    stored = call.serving.queries.get(name)
    denied = call.allows("invoke_query", query=name)
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
            call.require("read", request.branch or MAIN, query=name)
        return
    if request.snapshot is not None:
        raise InputError("stored mutation cannot target a snapshot")
    call.require("change", request.branch or MAIN, query=name)


def invoke_query(call: Call) -> Reply:
    """Run a stored query."""
    stored = call.serving.queries[call.path["name"]]
    _log(call, stored)
    if not stored.is_mutation:
        return run_read(call, _read_request(call, stored), stored=stored.name)
    request = _request(call)
    with invoking(stored.name):
        return run_change(call, stored.text, stored.name, request.params, request.branch)


def invoke_in_memory(call: Call) -> Reply | None:
    """Run a stored read if it needs nothing but memory."""
    stored = call.serving.queries[call.path["name"]]
    reply = run_in_memory(call, _read_request(call, stored))
    if reply is not None:
        _log(call, stored)
    return reply


def _log(call: Call, stored: RegisteredQuery) -> None:
    call.process.log.event(
        "stored query invoked",
        request_id=call.request_id,
        graph=call.graph_id,
        actor_id=call.actor,
        query=stored.name,
        kind="mutation" if stored.is_mutation else "read",
    )


def _read_request(call: Call, stored: RegisteredQuery) -> QueryRequest:
    given = _request(call)
    return QueryRequest(stored.text, stored.name, given.params, given.branch, given.snapshot)


def invokes_write(
    access: Decisions, identity: Identity | None, served: ServedGraph, path: dict[str, str]
) -> bool:
    """Whether the stored query of a path writes, and the actor may invoke it.

    One that is denied is answered where an unknown one is, in the same way, for the same work.
    """
    may_invoke = _may_invoke(access, identity, served.graph_id, path["name"])
    stored = served.queries.get(path["name"])
    return may_invoke and stored is not None and stored.is_mutation


def _request(call: Call) -> InvokeStoredQueryRequest:
    return call.body or InvokeStoredQueryRequest()


def _unknown_query() -> RequestRefused:
    return RequestRefused(404, "query_not_found", "stored query not found")


def _other_kind(stored: RegisteredQuery) -> InputError:
    kind, verb = ("mutation", "mutate") if stored.is_mutation else ("read", "query")
    return InputError(f"'{stored.name}' is a {kind} — use omnigraph {verb} {stored.name}")
