"""Graphs behind a server: connecting with the operator's token, and what can be done there."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from omnigraph.cli.credentials import find_token
from omnigraph.cli.operator_config import OperatorConfig
from omnigraph.cli.scopes import ServerAddress
from omnigraph.errors import InputError, NotServed, OmniGraphError

if TYPE_CHECKING:
    from omnigraph.client.server import Connection
    from omnigraph.remote.graph import RemoteGraph

SERVED_COMMANDS = frozenset(
    {
        "load",
        "ingest",
        "query",
        "mutate",
        "snapshot",
        "export",
        "branch create",
        "branch list",
        "branch delete",
        "branch merge",
        "commit list",
        "commit show",
        "commit changes",
        "log",
        "diff",
        "changes poll",
        "changes baseline",
        "blame",
        "revert",
        "cherry-pick",
        "tag create",
        "tag list",
        "tag delete",
        "explain",
        "schema show",
        "schema plan",
        "schema apply",
        "blob get",
        "blob stat",
        "blob put",
        "blob delete",
        "index status",
        "index ensure",
        "index rebuild",
        "optimize",
        "repair",
        "cleanup",
        "verify",
    }
)
"""The commands on a graph that work through a server; the others need its storage."""
_ON_SPARK = frozenset({"load", "optimize"})
"""Those that a server runs on Spark too, as jobs."""
_HINT = "address the graph's storage with --store"


def connect(server: ServerAddress, operator: OperatorConfig) -> Connection:
    """Connect to a server or one of its graphs, with the operator's token."""
    from omnigraph.client.server import Connection

    return Connection(server.url, find_token(server.url, operator))


@contextmanager
def open_remote(
    arguments: argparse.Namespace, server: ServerAddress, operator: OperatorConfig
) -> Iterator[RemoteGraph]:
    """A graph behind a server for the duration of a command."""
    from omnigraph.remote.graph import RemoteGraph

    with RemoteGraph(connect(server, operator)) as graph:
        try:
            yield graph
        except NotServed as error:
            raise not_through_server(_option(arguments, error)) from error


def check_served(arguments: argparse.Namespace) -> None:
    """Refuse a command that does not work through a server, before anything is sent."""
    if arguments.command not in SERVED_COMMANDS:
        raise not_through_server(arguments.label)
    if getattr(arguments, "allow_local_files", False):
        raise InputError(
            "`--allow-local-files` is not allowed on a served write: no server reads local files",
            hint="pass the content as text that starts with 'base64:'",
        )
    if getattr(arguments, "master", None) is not None:
        raise not_through_server(f"{arguments.label} --master")
    engine = getattr(arguments, "engine", "local")
    if engine == "spark" and arguments.command not in _ON_SPARK:
        raise not_through_server(f"{arguments.label} --engine {engine}")


def not_through_server(what: str) -> NotServed:
    """The error of something that needs the storage of a graph."""
    return NotServed(f"`{what}` through a server is not supported yet", hint=_HINT)


def _option(arguments: argparse.Namespace, error: NotServed) -> str:
    """The command, with the option that the server does not offer: ``load(rejects=)``."""
    name = str(error.details.get("name", ""))
    option = name.partition("(")[2].removesuffix("=)")
    return f"{arguments.command} --{option.replace('_', '-')}" if option else arguments.command


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
    from omnigraph.client.server import unexpected_response

    connection = connect(ServerAddress(server.base, None), operator)
    try:
        response: Any = connection.get("graphs")
    finally:
        connection.close()
    try:
        graphs = [
            {"graph_id": str(graph["graph_id"]), "uri": str(graph.get("uri", ""))}
            for graph in response["graphs"]
        ]
    except (KeyError, TypeError, AttributeError):
        raise unexpected_response(server.base) from None
    return sorted(graphs, key=lambda graph: graph["graph_id"])
