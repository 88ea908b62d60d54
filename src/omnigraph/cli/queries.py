"""Shared by ``query``, ``mutate``, ``explain`` and ``alias``: query text and parameters."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.cli import files
from omnigraph.errors import InputError
from omnigraph.lang.diagnostics import Source

if TYPE_CHECKING:
    from omnigraph.cli.targets import GraphTarget


def add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="query to run")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--query", metavar="FILE", help=".gq file; - reads stdin")
    group.add_argument("-e", "--query-string", metavar="GQ", help="query text: query q() { … }")


def add_params(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--params", metavar="JSON", help="parameters as a JSON object")
    group.add_argument(
        "--params-file", metavar="FILE", help="file with the parameters; - reads stdin"
    )


def read_query_text(arguments: argparse.Namespace) -> str | Path | None:
    """The query text or file; none if only the name of a stored query was given."""
    if arguments.query_string is not None:
        if not arguments.query_string.strip():
            raise InputError("the query text must not be empty")
        # The newline marks it as a text, whatever it looks like.
        return f"{arguments.query_string}\n"
    if arguments.query is not None:
        return files.text_or_path(arguments.query)
    if arguments.name is None:
        raise InputError(
            "provide a query name of the server, or a query text with --query FILE or -e GQ"
        )
    return None


def as_source(query: str | Path) -> Source:
    """A query text or file, for the compiler."""
    return Source("<query>", query) if isinstance(query, str) else files.read_source(str(query))


def read_params(arguments: argparse.Namespace) -> dict[str, Any]:
    """The parameters given on the command line."""
    if arguments.params is not None:
        return parse_params(arguments.params, "--params")
    if arguments.params_file is not None:
        source = files.read_text(arguments.params_file)
        return parse_params(source.text, source.name)
    return {}


def parse_params(text: str, name: str) -> dict[str, Any]:
    """Parse a JSON object of parameters.

    >>> parse_params('{"name": "Ana"}', "--params")
    {'name': 'Ana'}
    """
    try:
        params = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        column = getattr(error, "colno", 1)
        raise InputError(
            f"{name}: not JSON (line {line}, column {column})",
            hint='write an object, such as {"name": "Ana"}',
        ) from None
    if not isinstance(params, dict):
        raise InputError(
            f"{name}: parameters must be a JSON object", hint='write it as {"name": "Ana"}'
        )
    return params


def needs_server(name: str) -> InputError:
    """The error for a query name without a query text."""
    return InputError(
        f"'{name}' names a stored query, and by-name invocation needs a server",
        hint="pass the query with --query FILE or -e GQ, or address a server with --server",
    )


def stored_query_body(
    arguments: argparse.Namespace, target: GraphTarget, unsupported: Sequence[str]
) -> dict[str, Any]:
    """The request body to run a stored query; refuses what a server cannot do yet."""
    if arguments.query is not None or arguments.query_string is not None:
        target.storage(f"{arguments.label} with a query text")
    for option in unsupported:
        if getattr(arguments, option) is not None:
            target.storage(f"{arguments.label} --{option.replace('_', '-')}")
    params = read_params(arguments)
    return {"params": params} if params else {}
