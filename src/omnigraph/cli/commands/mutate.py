"""``omnigraph mutate``: run a query that changes the graph."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omnigraph.cli.options import add_branch, add_json, add_local_files, add_write_conditions
from omnigraph.cli.output.report import field_lines, show_report
from omnigraph.cli.queries import (
    add_params,
    add_source,
    as_source,
    needs_server,
    read_params,
    read_query_text,
    stored_query_body,
)
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.cli.scopes import ServerAddress
from omnigraph.cli.targets import GraphTarget, echo, open_graph, resolve_target
from omnigraph.errors import InputError


def add(commands: Commands) -> None:
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
    add_branch(parser, "branch to change")
    add_write_conditions(parser)
    add_local_files(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    source = read_query_text(arguments)
    target = resolve_target(arguments)
    if isinstance(target.address, ServerAddress):
        return _invoke(arguments, target, target.address)
    if source is None:
        raise needs_server(arguments.name)
    params = read_params(arguments)
    echo(arguments, target)
    with open_graph(arguments, "rw", target) as (graph, _):
        receipt = graph.mutate(
            source,
            arguments.name,
            params,
            arguments.branch,
            if_commit=arguments.if_commit,
            idempotency_key=arguments.idempotency_key,
            allow_local_files=arguments.allow_local_files,
        )
    document = {
        "branch": receipt.branch,
        "query_name": arguments.name or _only_name(source),
        "affected_nodes": receipt.affected_nodes,
        "affected_edges": receipt.affected_edges,
        "actor_id": receipt.actor,
        "commit_id": receipt.commit_id,
    }
    return show_report(arguments, document, _lines(document))


def _only_name(source: str | Path) -> str:
    from omnigraph.lang.query.parser import read_queries, select_query

    return select_query(read_queries(as_source(source))).name


def _invoke(arguments: argparse.Namespace, target: GraphTarget, server: ServerAddress) -> int:
    """Run a stored mutation of a server."""
    from omnigraph.cli.remote import invoke_change

    body = stored_query_body(arguments, target, ("if_commit", "idempotency_key"))
    if arguments.allow_local_files:
        raise InputError(
            "`--allow-local-files` is not allowed on a served write: no server reads local files",
            hint="pass the content as text that starts with 'base64:'",
        )
    echo(arguments, target)
    body = {"branch": arguments.branch, **body}
    result = invoke_change(server, target.operator, arguments.name, body)
    return show_report(arguments, result, _lines(result))


def _lines(result: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"changed {result['branch']} via {result['query_name']}: "
        f"{result['affected_nodes']} nodes, {result['affected_edges']} edges"
    )
    yield from field_lines(result, "actor_id", "commit_id")
