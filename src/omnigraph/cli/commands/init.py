"""``omnigraph init``: create a graph."""

from __future__ import annotations

import argparse

from omnigraph.cli import files
from omnigraph.cli.operator_config import load_operator_config
from omnigraph.cli.output import terminal
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.cli.scopes import is_http
from omnigraph.errors import AlreadyInitialized, InputError


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "init",
        run,
        Capability.DIRECT,
        "create a graph",
        description="Creates an empty graph with a schema. Missing directories are created.",
    )
    parser.set_defaults(names_graph=True)
    parser.add_argument(
        "new", metavar="URI", help="location of the graph: a directory or s3://bucket/prefix"
    )
    parser.add_argument("--schema", required=True, metavar="FILE", help=".pg file; - reads stdin")
    parser.add_argument("--force", action="store_true", help="start over after an interrupted init")


def run(arguments: argparse.Namespace) -> int:
    from omnigraph.cli.cluster_graphs import refuse_inside_cluster

    load_operator_config()
    uri: str = arguments.new
    if is_http(uri):
        raise InputError(
            "`init` is a direct (storage-native) command and needs direct storage access; "
            f"'{uri}' is a remote server"
        )
    refuse_inside_cluster(uri)
    schema = files.text_or_path(arguments.schema)
    from omnigraph.api.graph import Graph

    try:
        Graph.init(uri, schema, force=arguments.force).close()
    except AlreadyInitialized as error:
        raise AlreadyInitialized(
            f"graph already initialized at '{uri}'",
            hint="an existing graph is never overwritten; --force starts over after an "
            "interrupted init",
            details=error.details,
        ) from error
    terminal.show(f"initialized {uri}")
    return terminal.OK
