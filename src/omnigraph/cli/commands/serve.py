"""``omnigraph serve``: one graph over HTTP."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from omnigraph.cli.options import add_switch
from omnigraph.cli.output import terminal
from omnigraph.cli.targets import resolve_target
from omnigraph.errors import PackageMissing
from omnigraph.settings import Settings

if TYPE_CHECKING:
    from omnigraph.server.config import ServerSource


def add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", metavar="FILE", help="policy of the graph (YAML)")
    parser.add_argument(
        "--server-policy",
        metavar="FILE",
        help="policy of the server itself (YAML): who may list graphs, reload, read metrics",
    )
    parser.add_argument("--queries", metavar="DIR", help="directory of .gq files to store")
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="reader processes; 1 is a single process (default: one per core, at most 4)",
    )
    add_switch(parser, "--flat", "also serve the routes of the graph without /graphs/ID")
    add_server_options(parser)


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """The options of every server program."""
    parser.add_argument(
        "--bind", metavar="HOST:PORT", help="address to bind (default: 127.0.0.1:8080)"
    )
    add_switch(parser, "--unauthenticated", "serve without tokens and policies")
    add_switch(parser, "--require-all-graphs", "do not start if a graph cannot be served")


def run_serve(arguments: argparse.Namespace) -> int:
    """Serves a graph over HTTP until it is interrupted. Tokens come from the environment; the log
    is written to stderr, one JSON object per line. SIGHUP reloads tokens, policy and queries.
    """
    target = resolve_target(arguments)
    return serve(
        arguments,
        kind="store",
        location=target.uri,
        policy=arguments.policy,
        queries=arguments.queries,
        server_policy=arguments.server_policy,
        workers=arguments.workers,
        flat=arguments.flat,
    )


def serve(
    arguments: argparse.Namespace,
    *,
    kind: str,
    location: str,
    policy: str | None = None,
    queries: str | None = None,
    server_policy: str | None = None,
    workers: int | None = None,
    flat: bool = False,
) -> int:
    """Run a server until a signal; returns its exit code."""
    try:
        import msgspec.structs

        from omnigraph.server.config import ServerSource, make_config
        from omnigraph.server.start import run_server
    except ModuleNotFoundError as error:
        raise PackageMissing(
            f"the server needs the package {error.name}",
            hint="install omnigraph with its extra: pip install 'omnigraph[server]'",
        ) from error
    settings = Settings.from_environ()
    source: ServerSource = ServerSource(
        "cluster" if kind == "cluster" else "store", location, policy, queries, server_policy
    )
    config, warnings = make_config(
        source,
        settings,
        bind=arguments.bind,
        workers=workers,
        unauthenticated=arguments.unauthenticated,
        require_all_graphs=arguments.require_all_graphs,
        flat=flat,
    )
    if sys.stderr is not None:
        # What libraries write to descriptor 2 is dropped; the log has one of its own.
        log = msgspec.structs.replace(config.log, descriptor=sys.stderr.fileno())
        config = msgspec.structs.replace(config, log=log)
    return run_server(config, settings, _announce, warnings)


def _announce(address: str) -> None:
    terminal.show(f"OMNIGRAPH_LISTEN_ADDR={address}")
    terminal.flush()
