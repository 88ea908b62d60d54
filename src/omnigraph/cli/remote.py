"""Requests to a server: its graphs and its stored queries."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.cli.credentials import find_token
from omnigraph.cli.operator_config import TEXT_FORMATS, OperatorConfig
from omnigraph.cli.output.rows import resolve_format
from omnigraph.cli.scopes import ServerAddress
from omnigraph.errors import InputError, OmniGraphError

if TYPE_CHECKING:
    from omnigraph.client.server import Connection

_READ = {"query_name": str, "target": dict, "row_count": int, "rows": list}
_CHANGE = {"branch": str, "query_name": str, "affected_nodes": int, "affected_edges": int}


def connect(server: ServerAddress, operator: OperatorConfig) -> Connection:
    """Connect to a server or one of its graphs, with the operator's token."""
    from omnigraph.client.server import Connection

    return Connection(server.url, find_token(server.url, operator))


def require_graph(server: ServerAddress, operator: OperatorConfig) -> None:
    """Raise, listing the graphs of the server, if no graph was chosen.

    If the server does not list its graphs, the actual request reports the problem.
    """
    if server.graph is not None:
        return
    try:
        ids = [graph["graph_id"] for graph in list_graphs(server, operator)]
    except OmniGraphError:
        return
    if ids:
        raise InputError(
            f"the server at {server.base} has the graphs {', '.join(ids)}: pass --graph <id>"
        )


def list_graphs(server: ServerAddress, operator: OperatorConfig) -> list[dict[str, str]]:
    """The graphs of a server, sorted by id."""
    response = connect(ServerAddress(server.base, None), operator).get("graphs")
    try:
        graphs = [
            {"graph_id": str(graph["graph_id"]), "uri": str(graph.get("uri", ""))}
            for graph in response["graphs"]
        ]
    except (KeyError, TypeError, AttributeError):
        raise _invalid_response(server) from None
    return sorted(graphs, key=lambda graph: graph["graph_id"])


def invoke_read(
    server: ServerAddress, operator: OperatorConfig, name: str, body: Mapping[str, Any]
) -> dict[str, Any]:
    """Run a stored query; returns the server's ReadOutput."""
    response = connect(server, operator).post(
        "queries", name, body={**body, "expect_mutation": False}
    )
    _check(response, _READ, server)
    columns = response.get("columns") or []
    is_table = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
    if not is_table or any(not isinstance(row, dict) for row in response["rows"]):
        raise _invalid_response(server)
    return dict(response)


def invoke_change(
    server: ServerAddress, operator: OperatorConfig, name: str, body: Mapping[str, Any]
) -> dict[str, Any]:
    """Run a stored mutation; returns the server's ChangeOutput."""
    response = connect(server, operator).post(
        "queries", name, body={**body, "expect_mutation": True}, changes=True
    )
    _check(response, _CHANGE, server)
    return dict(response)


def resolve_text_format(
    arguments: argparse.Namespace, operator: OperatorConfig, own: str | None = None
) -> str:
    """The output format of served rows, which must be a text format."""
    format = resolve_format(arguments, operator, own)
    if format not in TEXT_FORMATS:
        raise InputError(
            f"rows of a server cannot be printed as {format}",
            hint=f"choose one of {', '.join(TEXT_FORMATS)}",
        )
    return format


def _check(response: Any, shape: Mapping[str, type], server: ServerAddress) -> None:
    is_valid = isinstance(response, dict) and all(
        isinstance(response.get(key), kind) for key, kind in shape.items()
    )
    if not is_valid:
        raise _invalid_response(server)


def _invalid_response(server: ServerAddress) -> OmniGraphError:
    from omnigraph.client.server import unexpected_response

    return unexpected_response(server.base)
