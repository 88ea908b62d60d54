"""``omnigraph mutate``: changes by a query."""

from __future__ import annotations

import argparse

from omnigraph.cli.output import terminal
from omnigraph.cli.queries import add_params, add_source, given_params, needs_server, source_text
from omnigraph.cli.registry import Capability, Commands, add_json, add_local_files, command
from omnigraph.cli.scopes import Server
from omnigraph.cli.targets import Target, echo, find_target, opened
from omnigraph.errors import InputError


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "mutate",
        run,
        Capability.ANY,
        "run a query that changes the graph",
        description="Runs a mutation: all of its statements in one commit, or none.",
        writes=True,
    )
    add_source(parser)
    add_params(parser)
    parser.add_argument("--branch", default="main", metavar="B", help="where it happens")
    parser.add_argument(
        "--if-commit", metavar="ID", help="only if this is the newest commit; exit 4 otherwise"
    )
    parser.add_argument(
        "--idempotency-key", metavar="KEY", help="do it once; a repeat gets the first answer"
    )
    add_local_files(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Change and tell."""
    source = source_text(arguments)
    target = find_target(arguments)
    if isinstance(target.address, Server):
        return _ask_server(arguments, target, target.address)
    if source is None:
        raise needs_server(arguments.name)
    params = given_params(arguments)
    echo(arguments, target)
    with opened(arguments, "rw", target) as (graph, _):
        receipt = graph.mutate(
            source,
            arguments.name,
            params,
            arguments.branch,
            if_commit=arguments.if_commit,
            idempotency_key=arguments.idempotency_key,
            allow_local_files=arguments.allow_local_files,
        )
        name = graph.snapshot().explain(source, arguments.name).to_json()["name"]
    told = {
        "branch": receipt.branch,
        "query_name": name,
        "affected_nodes": receipt.affected_nodes,
        "affected_edges": receipt.affected_edges,
        "actor_id": receipt.actor,
        "commit_id": receipt.commit_id,
    }
    if arguments.json:
        terminal.show_json(told)
        return terminal.OK
    terminal.show(
        f"changed {receipt.branch} via {name}: "
        f"{receipt.affected_nodes} nodes, {receipt.affected_edges} edges"
    )
    if receipt.actor is not None:
        terminal.show(f"actor_id: {receipt.actor}")
    if receipt.commit_id is not None:
        terminal.show(f"commit_id: {receipt.commit_id}")
    return terminal.OK


def _ask_server(arguments: argparse.Namespace, target: Target, server: Server) -> int:
    """A stored mutation of a server."""
    from omnigraph.cli.remote import invoke_change

    if arguments.query is not None or arguments.query_string is not None:
        target.storage("mutate with a text")
    for option in ("if_commit", "idempotency_key"):
        if getattr(arguments, option) is not None:
            target.storage(f"mutate --{option.replace('_', '-')}")
    if arguments.allow_local_files:
        raise InputError(
            "`--allow-local-files` is not allowed on a served write: no server reads local files",
            hint="pass the content as text that starts with 'base64:'",
        )
    body = {"branch": arguments.branch}
    params = given_params(arguments)
    if params:
        body["params"] = params
    echo(arguments, target)
    answer = invoke_change(server, target.operator, arguments.name, body)
    if arguments.json:
        terminal.show_json(answer)
        return terminal.OK
    terminal.show(
        f"changed {answer['branch']} via {answer['query_name']}: "
        f"{answer['affected_nodes']} nodes, {answer['affected_edges']} edges"
    )
    if answer.get("actor_id"):
        terminal.show(f"actor_id: {answer['actor_id']}")
    return terminal.OK
