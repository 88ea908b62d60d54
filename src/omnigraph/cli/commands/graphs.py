"""``omnigraph graphs``: which graphs a server has."""

from __future__ import annotations

import argparse

from omnigraph.cli.operator_config import load_operator
from omnigraph.cli.output import terminal
from omnigraph.cli.registry import Capability, Commands, add_json, command, family
from omnigraph.cli.remote import graphs_of
from omnigraph.cli.scopes import find_scope, server_at
from omnigraph.errors import InputError


def add(commands: Commands) -> None:
    """Declare the command family."""
    forms = family(commands, "graphs", "look at the graphs of a server")
    parser = command(
        forms, "list", run_list, Capability.SERVED, "list the graphs of a server", label="graphs"
    )
    add_json(parser)


def run_list(arguments: argparse.Namespace) -> int:
    """Ask the server itself, whichever of its graphs is the usual one."""
    operator = load_operator()
    scope = find_scope(arguments, operator)
    if scope.kind != "server":
        raise InputError(
            "`graphs list` requires a remote multi-graph server", hint="address one with --server"
        )
    found = graphs_of(server_at(scope.target, None, operator), operator)
    if arguments.json:
        terminal.show_json({"graphs": found})
        return terminal.OK
    for graph in found:
        terminal.show_fields(graph["graph_id"], graph["uri"])
    return terminal.OK
