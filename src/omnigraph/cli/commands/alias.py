"""``omnigraph alias``: a stored query of a server, under a short name."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from omnigraph.cli.operator_config import TEXT_FORMATS, Alias, load_operator
from omnigraph.cli.output.rows import add_format
from omnigraph.cli.queries import add_params, given_params
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.errors import InputError


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "alias",
        run,
        Capability.LOCAL,
        "run a stored query under its short name",
        description="Runs the stored query that an alias of the configuration names, on the "
        "server and graph that it names. ARGS stand for the parameters in its `args`: each is "
        "read as JSON, or else as a text. They go over the `params` of the alias, and --params "
        "goes over both. Write ARGS right after NAME.",
    )
    parser.add_argument("name", metavar="NAME", help="the alias")
    parser.add_argument("args", nargs="*", metavar="ARGS", help="its parameters, in order")
    add_params(parser)
    add_format(parser, TEXT_FORMATS)


def run(arguments: argparse.Namespace) -> int:
    """Ask and show."""
    from omnigraph.cli.remote import invoke_read, remote_format, show_rows
    from omnigraph.cli.scopes import server_at

    operator = load_operator()
    alias = operator.aliases.get(arguments.name)
    if alias is None:
        known = ", ".join(operator.aliases) or "none"
        raise InputError(f"unknown alias '{arguments.name}'; defined: {known}")
    params = {**alias.params, **_named(alias, arguments.args), **given_params(arguments)}
    format = remote_format(arguments, operator, alias.format)
    server = server_at(alias.server, alias.graph, operator)
    answer = invoke_read(server, operator, alias.query, {"params": params} if params else {})
    show_rows(answer, format, operator, arguments.out)
    return 0


def _named(alias: Alias, args: Sequence[str]) -> dict[str, Any]:
    """Arguments by the names that the alias has for them; fewer are allowed."""
    if len(args) > len(alias.args):
        names = f" ({', '.join(alias.args)})" if alias.args else ""
        raise InputError(
            f"alias '{alias.name}' takes {len(alias.args)} arguments{names}, not {len(args)}",
            hint="pass other parameters with --params",
        )
    return dict(zip(alias.args, map(argument_value, args), strict=False))


def argument_value(text: str) -> Any:
    """An argument as JSON, or as the text that it is.

    >>> argument_value("5"), argument_value("x"), argument_value('"5"'), argument_value("NaN")
    (5, 'x', '5', 'NaN')
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(word: str) -> None:
    # NaN and Infinity are words to JSON.
    raise ValueError(word)
