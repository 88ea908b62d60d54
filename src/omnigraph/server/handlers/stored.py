"""Stored queries: the catalogue, and invocations."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.api.stored_queries import RegisteredQuery
from omnigraph.errors import InputError, QueryBroken
from omnigraph.identity import Identity
from omnigraph.server.calls import Call, Headers, Reply
from omnigraph.server.errors import RequestRefused
from omnigraph.server.handlers.reading import MAIN, run_in_memory, run_read
from omnigraph.server.handlers.writing import change_reply, conditions_of
from omnigraph.server.models.requests import InvokeStoredQueryRequest, QueryRequest
from omnigraph.server.state import Decisions, ServedGraph
from omnigraph.server.stored_queries import show_query
from omnigraph.server.switching import check_generation

_DEPRECATED: Headers = (("deprecation", "true"),)


def authorize_list(call: Call) -> None:
    """Whoever may read main may list; others if there is a query that they may invoke."""
    denied = call.allows("read", MAIN)
    if denied is not None and not _invocable(call):
        raise denied


def list_queries(call: Call) -> Reply:
    """The stored queries that the actor may invoke."""
    return Reply(call.serving.queries.listing(_invocable(call), call.graph.catalog))


def list_cached_queries(call: Call) -> Reply | None:
    """The same, once the list has been written."""
    schema_hash = call.serving.graph._handle.schema_hash_in_memory()
    if schema_hash is None:
        return None
    listing = call.serving.queries.cached_listing(_invocable(call), schema_hash)
    return None if listing is None else Reply(listing)


def authorize_get(call: Call) -> None:
    """A query that the actor may not invoke looks like an unknown one."""
    name = call.path["name"]
    if call.allows("invoke_query", query=name) is not None or name not in call.serving.queries:
        raise _unknown_query()


def get_query(call: Call) -> Reply:
    """One stored query with its text."""
    checked = call.serving.queries.checked(call.graph.catalog)[call.path["name"]]
    return Reply.json(show_query(checked), headers=_headers(checked.stored))


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
    if request.page_size is not None or request.cursor is not None:
        raise InputError("a stored mutation has no pages")
    call.require("change", request.branch or MAIN, query=name)


def invoke_query(call: Call) -> Reply:
    """Run a stored query."""
    stored = call.serving.queries[call.path["name"]]
    _log(call, stored)
    with stored.refused_if_broken():
        reply = _invoke_mutation(call, stored) if stored.is_mutation else _invoke(call, stored)
    return _marked(reply, stored)


def _invoke(call: Call, stored: RegisteredQuery) -> Reply:
    return run_read(call, _read_request(call, stored), stored=stored.name)


def _invoke_mutation(call: Call, stored: RegisteredQuery) -> Reply:
    request, conditions = _request(call), conditions_of(call)
    check_generation(call, stored.name, only_policy=True)
    try:
        receipt = call.graph.queries.invoke_mutation(
            stored.name,
            request.params,
            request.branch or MAIN,
            if_commit=conditions.if_commit,
            idempotency_key=conditions.idempotency_key,
        )
    except QueryBroken:
        # It was not begun, so it can be run by the generation that fits the schema.
        check_generation(call, stored.name)
        raise
    return change_reply(call, stored.name, receipt)


def _headers(stored: RegisteredQuery) -> Headers:
    return () if stored.query.deprecated is None else _DEPRECATED


def _marked(reply: Reply, stored: RegisteredQuery) -> Reply:
    """The reply of a deprecated query says so."""
    headers = _headers(stored)
    return replace(reply, headers=(*reply.headers, *headers)) if headers else reply


def invoke_in_memory(call: Call) -> Reply | None:
    """Run a stored read if it needs nothing but memory."""
    stored = call.serving.queries[call.path["name"]]
    reply = run_in_memory(call, _read_request(call, stored))
    if reply is None:
        return None
    _log(call, stored)
    return _marked(reply, stored)


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
    return QueryRequest(
        stored.text,
        stored.name,
        given.params,
        given.branch,
        given.snapshot,
        given.page_size,
        given.cursor,
    )


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
