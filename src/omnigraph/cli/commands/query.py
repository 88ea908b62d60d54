"""``omnigraph query``: run a query that reads."""

from __future__ import annotations

import argparse

from omnigraph.cli.engines import add_engine, spark_config
from omnigraph.cli.options import add_snapshot, snapshot_arguments
from omnigraph.cli.output.rows import (
    add_format,
    layout_of,
    resolve_format,
    show_envelope,
    show_result,
)
from omnigraph.cli.queries import (
    add_params,
    add_source,
    needs_server,
    read_params,
    read_query_text,
    stored_query_body,
)
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.cli.scopes import ServerAddress
from omnigraph.cli.targets import GraphTarget, open_graph, resolve_target


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "query",
        run,
        Capability.ANY,
        "run a query that reads",
        description="Runs a query from a file or a text on one state of a graph, or a stored "
        "query of a server.",
    )
    add_source(parser)
    add_params(parser)
    add_snapshot(parser, "tag", "at")
    add_format(parser)
    add_engine(parser, ("local", "spark"))
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="time limit")
    parser.add_argument("--max-rows", type=int, metavar="N", help="fail if there are more rows")


def run(arguments: argparse.Namespace) -> int:
    source = read_query_text(arguments)
    target = resolve_target(arguments)
    if isinstance(target.address, ServerAddress):
        return _invoke(arguments, target, target.address)
    if source is None:
        raise needs_server(arguments.name)
    params = read_params(arguments)
    format = resolve_format(arguments, target.operator)
    with open_graph(arguments, "r", target) as (graph, _):
        result = graph.snapshot(**snapshot_arguments(arguments)).query(
            source,
            arguments.name,
            params,
            engine=arguments.engine,
            spark=spark_config(arguments),
            timeout=arguments.timeout,
            max_rows=arguments.max_rows,
        )
        with result:
            show_result(result, format, layout_of(target.operator), arguments.out)
    return 0


def _invoke(arguments: argparse.Namespace, target: GraphTarget, server: ServerAddress) -> int:
    """Run a stored query of a server."""
    from omnigraph.cli.remote import invoke_read, resolve_text_format

    body = stored_query_body(arguments, target, ("tag", "at", "timeout", "max_rows", "master"))
    if arguments.engine != "local":
        target.storage(f"query --engine {arguments.engine}")
    format = resolve_text_format(arguments, target.operator)
    for key in ("branch", "snapshot"):
        if getattr(arguments, key) is not None:
            body[key] = getattr(arguments, key)
    rows = invoke_read(server, target.operator, arguments.name, body)
    show_envelope(rows, format, layout_of(target.operator), arguments.out)
    return 0
