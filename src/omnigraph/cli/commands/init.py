"""``omnigraph init``: a new graph."""

from __future__ import annotations

import argparse
from pathlib import Path

from omnigraph.cli import files
from omnigraph.cli.operator_config import load_operator
from omnigraph.cli.output import terminal
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.cli.scopes import is_http
from omnigraph.errors import AlreadyInitialized, InputError


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "init",
        run,
        Capability.DIRECT,
        "create a graph",
        description="Creates an empty graph with a schema. Directories are made as needed.",
    )
    parser.set_defaults(names_graph=True)
    parser.add_argument("new", metavar="URI", help="where: a directory or s3://bucket/prefix")
    parser.add_argument(
        "--schema", required=True, metavar="FILE", help="the .pg file; - reads stdin"
    )
    parser.add_argument(
        "--force", action="store_true", help="start over where an earlier init was interrupted"
    )


def run(arguments: argparse.Namespace) -> int:
    """Create and say so."""
    from omnigraph.cli.cluster_graphs import refuse_inside_cluster

    load_operator()
    uri: str = arguments.new
    if is_http(uri):
        raise InputError(
            "`init` is a direct (storage-native) command and needs direct storage access; "
            f"'{uri}' is a remote server"
        )
    refuse_inside_cluster(uri)
    schema: str | Path = Path(arguments.schema)
    if arguments.schema == files.STDIN:
        schema = f"{files.read_stdin().text}\n"
    from omnigraph.api.graph import Graph

    try:
        Graph.init(uri, schema, force=arguments.force).close()
    except AlreadyInitialized as error:
        raise AlreadyInitialized(
            f"graph already initialized at '{uri}'",
            hint="a graph is never overwritten; force only starts over where an init stopped",
            details=error.details,
        ) from error
    terminal.show(f"initialized {uri}")
    return terminal.OK
