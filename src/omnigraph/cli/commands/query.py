"""``omnigraph query``: rows of a graph."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import Any

from omnigraph.cli.engines import add_engine, chosen_spark
from omnigraph.cli.output.rows import add_format, chosen_format, layout_of, show_result
from omnigraph.cli.queries import add_params, add_source, given_params, needs_server, source_text
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.cli.scopes import Server
from omnigraph.cli.targets import Target, find_target, opened
from omnigraph.errors import InputError


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "query",
        run,
        Capability.ANY,
        "run a query that reads",
        description="Runs a query of a file or a text on one state of a graph, or a stored query "
        "of a server.",
    )
    add_source(parser)
    add_params(parser)
    add_moment(parser)
    add_format(parser)
    add_engine(parser, ("local", "spark"))
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="give up after so long")
    parser.add_argument("--max-rows", type=int, metavar="N", help="fail when there are more rows")


def add_moment(parser: argparse.ArgumentParser) -> None:
    """The options that choose the state to read."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--branch", metavar="B", help="its newest state; main when nothing is said")
    group.add_argument("--snapshot", metavar="ID", help="the state that a commit left")
    group.add_argument("--tag", metavar="NAME", help="the state that a tag names")
    group.add_argument(
        "--at", metavar="MOMENT", help="main as it was then, such as 2026-01-31T12:00Z"
    )


def moment_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The chosen state, as the arguments of the engine."""
    if arguments.at is not None:
        return {"at": parse_moment(arguments.at)}
    if arguments.tag is not None:
        return {"tag": arguments.tag}
    if arguments.snapshot is not None:
        return {"commit": arguments.snapshot}
    return {"branch": "main" if arguments.branch is None else arguments.branch}


def parse_moment(text: str) -> datetime:
    """A moment; one without a zone is in UTC."""
    from datetime import UTC

    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"'{text}' is no moment", hint="write it as 2026-01-31 or 2026-01-31T12:00:00Z"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def run(arguments: argparse.Namespace) -> int:
    """Ask and show."""
    source = source_text(arguments)
    target = find_target(arguments)
    if isinstance(target.address, Server):
        return _ask_server(arguments, target, target.address)
    if source is None:
        raise needs_server(arguments.name)
    params = given_params(arguments)
    format = chosen_format(arguments, target.operator)
    with opened(arguments, "r", target) as (graph, _):
        result = graph.snapshot(**moment_of(arguments)).query(
            source,
            arguments.name,
            params,
            engine=arguments.engine,
            spark=chosen_spark(arguments),
            timeout=arguments.timeout,
            max_rows=arguments.max_rows,
        )
        with result:
            told = {"branch": None, "snapshot": None, **result.target}
            show_result(result, format, layout_of(target.operator), told, arguments.out)
    return 0


def _ask_server(arguments: argparse.Namespace, target: Target, server: Server) -> int:
    """A stored query; what comes back is shown as the rows of an own graph are."""
    from omnigraph.cli.remote import invoke_read, remote_format, show_rows

    if arguments.query is not None or arguments.query_string is not None:
        target.storage("query with a text")
    for option in ("tag", "at", "timeout", "max_rows", "master"):
        if getattr(arguments, option) is not None:
            target.storage(f"query --{option.replace('_', '-')}")
    if arguments.engine != "local":
        target.storage(f"query --engine {arguments.engine}")
    format = remote_format(arguments, target.operator)
    body: dict[str, Any] = {}
    params = given_params(arguments)
    if params:
        body["params"] = params
    for key in ("branch", "snapshot"):
        if getattr(arguments, key) is not None:
            body[key] = getattr(arguments, key)
    answer = invoke_read(server, target.operator, arguments.name, body)
    show_rows(answer, format, target.operator, arguments.out)
    return 0
