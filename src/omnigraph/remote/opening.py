"""``omnigraph.connect``: a graph behind a server."""

from __future__ import annotations

from omnigraph.api.arguments import public
from omnigraph.client.server import Connection, check_address
from omnigraph.errors import InputError
from omnigraph.remote.graph import RemoteGraph


@public
def connect(url: str, *, graph: str | None = None, token: str | None = None) -> RemoteGraph:
    """Connect to a graph of a server; nothing is sent before the first call.

    ``url`` is the address of the server, and ``graph`` the id of the graph there; without it,
    ``url`` is the address of the graph itself. ``token`` is sent to this server only.

    Raises:
        InputError: the address or the id is invalid.

    >>> connect("https://graphs.example.org", graph="kb", token="secret")
    <RemoteGraph https://graphs.example.org/graphs/kb>
    """
    return RemoteGraph(graph_connection(url, graph, token))


def graph_connection(url: str, graph: str | None, token: str | None) -> Connection:
    """The connection to a graph; checks its address."""
    check_address(url)
    if graph in ("", ".", ".."):
        raise InputError(f"invalid graph id '{graph}'")
    server = Connection(url.rstrip("/"), (token or "").strip())
    return server if graph is None else server.at("graphs", graph)
