"""``omnigraph alias``: run a stored query of a server under a short name."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from omnigraph.cli.operator_config import TEXT_FORMATS, Alias, load_operator_config
from omnigraph.cli.output.rows import add_format, layout_of, show_envelope
from omnigraph.cli.queries import add_params, read_params
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.errors import InputError


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "alias",
        run,
        Capability.LOCAL,
        "run a stored query under its short name",
        description="Runs the stored query of an alias on the server and graph given in the "
        "configuration. ARGS are the values of its `args`, in order; each is parsed as JSON, else "
        "taken as text. ARGS override the `params` of the alias, and --params overrides both. "
        "Write ARGS right after NAME.",
    )
    parser.add_argument("name", metavar="NAME", help="alias to run")
    parser.add_argument("args", nargs="*", metavar="ARGS", help="parameter values, in order")
    add_params(parser)
    add_format(parser, TEXT_FORMATS)


def run(arguments: argparse.Namespace) -> int:
    from omnigraph.cli.remote import invoke_read, resolve_text_format
    from omnigraph.cli.scopes import resolve_server

    operator = load_operator_config()
    alias = operator.aliases.get(arguments.name)
    if alias is None:
        defined = ", ".join(operator.aliases) or "none"
        raise InputError(f"unknown alias '{arguments.name}'; defined: {defined}")
    params = {**alias.params, **_bind(alias, arguments.args), **read_params(arguments)}
    format = resolve_text_format(arguments, operator, alias.format)
    server = resolve_server(alias.server, alias.graph, operator)
    rows = invoke_read(server, operator, alias.query, {"params": params} if params else {})
    show_envelope(rows, format, layout_of(operator), arguments.out)
    return 0


def _bind(alias: Alias, args: Sequence[str]) -> dict[str, Any]:
    """Positional arguments by parameter name; fewer than declared are allowed."""
    if len(args) > len(alias.args):
        names = f" ({', '.join(alias.args)})" if alias.args else ""
        raise InputError(
            f"alias '{alias.name}' takes {len(alias.args)} arguments{names}, not {len(args)}",
            hint="pass other parameters with --params",
        )
    return dict(zip(alias.args, map(parse_argument, args), strict=False))


def parse_argument(text: str) -> Any:
    """An argument as JSON, or as plain text.

    >>> parse_argument("5"), parse_argument("x"), parse_argument('"5"'), parse_argument("NaN")
    (5, 'x', '5', 'NaN')
    """
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return text


def _reject_constant(word: str) -> None:
    # Python's JSON parser accepts NaN and Infinity, which are not JSON.
    raise ValueError(word)
