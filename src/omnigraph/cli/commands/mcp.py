"""``omnigraph mcp``: a graph as tools for agents, over standard input and output."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from omnigraph.cli.options import add_switch
from omnigraph.cli.targets import resolve_target
from omnigraph.errors import InputError, PackageMissing


def add_mcp(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queries", metavar="DIR", help="directory of .gq files to store")
    parser.add_argument("--policy", metavar="FILE", help="policy of the graph (YAML); needs --as")
    parser.add_argument(
        "--branch-prefix",
        metavar="PREFIX",
        help="agents write only to branches whose names begin with PREFIX",
    )
    add_switch(parser, "--read-only", "no tools that write")
    add_switch(parser, "--stored-only", "no queries and mutations besides the stored ones")
    parser.add_argument(
        "--max-rows", type=int, default=200, metavar="N", help="rows in one result (default: 200)"
    )


def run_mcp(arguments: argparse.Namespace) -> int:
    """Serves a graph to an agent by the Model Context Protocol, on standard input and output, until
    the input ends. The tools are the stored queries, queries and mutations, searches, branches,
    reviews and merges. An agent's program starts this command itself; docs/agents.md shows how.
    """
    target = resolve_target(arguments)
    if arguments.max_rows < 1:
        raise InputError("--max-rows must be at least 1")
    context, serve = _parts(target.uri, target.actor, arguments)
    try:
        asyncio.run(serve(context))
    finally:
        context.graph.close()
    return 0


def _parts(uri: str, actor: str | None, arguments: argparse.Namespace) -> tuple[Any, Any]:
    """The graph with everything that its tools need, and what serves them."""
    try:
        from omnigraph.mcp.protocol import serve_stdio
    except ModuleNotFoundError as error:
        raise PackageMissing(
            f"the command needs the package {error.name}",
            hint="install omnigraph with its extra: pip install 'omnigraph[mcp]'",
        ) from error
    from omnigraph.mcp.embedded import open_context
    from omnigraph.mcp.settings import AgentSettings

    settings = AgentSettings(
        max_rows=arguments.max_rows,
        branch_prefix=arguments.branch_prefix,
        read_only=arguments.read_only,
        free_text=not arguments.stored_only,
    )
    return open_context(uri, actor, arguments.policy, arguments.queries, settings), serve_stdio
