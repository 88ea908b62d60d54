"""``omnigraph graphs``: the graphs of a server."""

from __future__ import annotations

import argparse

from omnigraph.cli.operator_config import load_operator_config
from omnigraph.cli.output import terminal
from omnigraph.cli.registry import Capability, Commands, family
from omnigraph.cli.remote import list_graphs
from omnigraph.cli.scopes import resolve_scope, resolve_server
from omnigraph.errors import InputError


def add(commands: Commands) -> None:
    graphs = family(commands, "graphs", "show the graphs of a server", Capability.SERVED)
    graphs.add("list", run_list, "list the graphs of a server", uri=None)


def run_list(arguments: argparse.Namespace) -> int:
    """Ask the server itself; its default graph is ignored."""
    operator = load_operator_config()
    scope = resolve_scope(arguments, operator)
    if scope.kind != "server":
        raise InputError(
            "`graphs list` requires a remote multi-graph server", hint="address one with --server"
        )
    graphs = list_graphs(resolve_server(scope.target, None, operator), operator)
    if arguments.json:
        terminal.show_json({"graphs": graphs})
        return terminal.OK
    for graph in graphs:
        terminal.show_fields(graph["graph_id"], graph["uri"])
    return terminal.OK
