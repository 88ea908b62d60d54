"""What a request asks for, in the words of the log and of the lanes: never its parameters."""

from __future__ import annotations

from omnigraph.server.calls import Call

_NO_GRAPH = "-"


def kind_of(call: Call) -> tuple[str, str, int]:
    """The kind of a read: the same query on the same graph takes about the same time."""
    text, name = query_of(call)
    graph_id = _NO_GRAPH if call.served is None else call.served.graph_id
    return call.route.operation_id, graph_id, hash((text, name))


def query_of(call: Call | None) -> tuple[str | None, str | None]:
    """The text and the name of the query of a request, never its parameters."""
    if call is None:
        return None, None
    if call.route.is_lenient:
        return None, call.path["name"]
    body = call.body
    text = getattr(body, "query", None) or getattr(body, "query_source", None)
    name = getattr(body, "name", None) or getattr(body, "query_name", None)
    return (text if isinstance(text, str) else None), (name if isinstance(name, str) else None)


def label_method(method: str) -> str:
    """A method of the table, or ``OTHER``: clients choose methods freely.

    >>> label_method("GET"), label_method("BREW")
    ('GET', 'OTHER')
    """
    return method if method in ("GET", "HEAD", "POST", "PUT", "DELETE") else "OTHER"
