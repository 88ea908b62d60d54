"""What commands ask of a server: its graphs, and its stored queries."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.cli.credentials import token_for
from omnigraph.cli.operator_config import TEXT_FORMATS, Operator
from omnigraph.cli.output.rows import chosen_format, layout_of, show_envelope
from omnigraph.cli.scopes import Server
from omnigraph.errors import InputError, OmniGraphError

if TYPE_CHECKING:
    from omnigraph.client.server import Connection

_READ = {"query_name": str, "target": dict, "row_count": int, "rows": list}
_CHANGE = {"branch": str, "query_name": str, "affected_nodes": int, "affected_edges": int}


def connect(server: Server, operator: Operator) -> Connection:
    """A server, or a graph of it, with the token that the operator has for it."""
    from omnigraph.client.server import Connection

    return Connection(server.url, token_for(server.url, operator))


def require_graph(server: Server, operator: Operator) -> None:
    """Say which graphs a server has when none of them was named.

    A server that does not tell is taken as it is; the request itself shows what is wrong.
    """
    if server.graph is not None:
        return
    try:
        ids = [graph["graph_id"] for graph in graphs_of(server, operator)]
    except OmniGraphError:
        return
    if ids:
        raise InputError(
            f"the server at {server.base} has the graphs {', '.join(ids)}: pass --graph <id>"
        )


def graphs_of(server: Server, operator: Operator) -> list[dict[str, str]]:
    """The graphs of a server, by their ids."""
    answer = connect(Server(server.base, None), operator).get("graphs")
    try:
        found = [
            {"graph_id": str(graph["graph_id"]), "uri": str(graph.get("uri", ""))}
            for graph in answer["graphs"]
        ]
    except (KeyError, TypeError, AttributeError):
        raise _odd(server) from None
    return sorted(found, key=lambda graph: graph["graph_id"])


def invoke_read(
    server: Server, operator: Operator, name: str, body: Mapping[str, Any]
) -> dict[str, Any]:
    """The rows of a stored query, as a server tells them."""
    answer = connect(server, operator).post(
        "queries", name, body={**body, "expect_mutation": False}
    )
    _check(answer, _READ, server)
    columns = answer.get("columns") or []
    is_table = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
    if not is_table or any(not isinstance(row, dict) for row in answer["rows"]):
        raise _odd(server)
    return dict(answer)


def invoke_change(
    server: Server, operator: Operator, name: str, body: Mapping[str, Any]
) -> dict[str, Any]:
    """What a stored mutation did."""
    answer = connect(server, operator).post(
        "queries", name, body={**body, "expect_mutation": True}, changes=True
    )
    _check(answer, _CHANGE, server)
    return dict(answer)


def remote_format(arguments: argparse.Namespace, operator: Operator, own: str | None = None) -> str:
    """The format of rows from a server: those of texts only."""
    format = chosen_format(arguments, operator, own)
    if format not in TEXT_FORMATS:
        raise InputError(
            f"rows of a server cannot be shown as {format}",
            hint=f"choose one of {', '.join(TEXT_FORMATS)}",
        )
    return format


def show_rows(answer: Mapping[str, Any], format: str, operator: Operator, out: str | None) -> None:
    """Rows of a server, shown as those of an own graph are."""
    show_envelope(answer, format, layout_of(operator), out)


def _check(answer: Any, shape: Mapping[str, type], server: Server) -> None:
    is_whole = isinstance(answer, dict) and all(
        isinstance(answer.get(key), kind) for key, kind in shape.items()
    )
    if not is_whole:
        raise _odd(server)


def _odd(server: Server) -> OmniGraphError:
    from omnigraph.client.server import unexpected_response

    return unexpected_response(server.base)
