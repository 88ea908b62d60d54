"""What ``query``, ``mutate`` and ``explain`` share: the text of a query, and its parameters."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from omnigraph.cli import files
from omnigraph.errors import InputError


def add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="the query")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--query", metavar="FILE", help="the .gq file; - reads stdin")
    group.add_argument("-e", "--query-string", metavar="GQ", help="the text: query q() { … }")


def add_params(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--params", metavar="JSON", help="the parameters, as a JSON object")
    group.add_argument("--params-file", metavar="FILE", help="a file of them; - reads stdin")


def source_text(arguments: argparse.Namespace) -> str | Path | None:
    """The text or file that was given; none when there is only the name of a stored query."""
    if arguments.query_string is not None:
        if not arguments.query_string.strip():
            raise InputError("the text of the query must not be empty")
        # The line end says that this is a text, whatever it looks like.
        return f"{arguments.query_string}\n"
    if arguments.query == files.STDIN:
        return f"{files.read_stdin().text}\n"
    if arguments.query is not None:
        return Path(arguments.query)
    if arguments.name is None:
        raise InputError("provide a query name of the server, or a text with --query FILE or -e GQ")
    return None


def given_params(arguments: argparse.Namespace) -> dict[str, Any]:
    """The parameters of the command line."""
    if arguments.params is not None:
        return params_of(arguments.params, "--params")
    if arguments.params_file is not None:
        source = files.read_text(arguments.params_file)
        return params_of(source.text, source.name)
    return {}


def params_of(text: str, name: str) -> dict[str, Any]:
    """Parameters from a text.

    >>> params_of('{"name": "Ana"}', "--params")
    {'name': 'Ana'}
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        column = getattr(error, "colno", 1)
        raise InputError(
            f"{name}: not JSON (line {line}, column {column})",
            hint='write an object, such as {"name": "Ana"}',
        ) from None
    if not isinstance(found, dict):
        raise InputError(
            f"{name}: parameters are a JSON object", hint='write it as {"name": "Ana"}'
        )
    return found


def needs_server(name: str) -> InputError:
    """A stored query can only be asked of a server."""
    return InputError(
        f"'{name}' names a stored query, and by-name invocation needs a server",
        hint="pass the text with --query FILE or -e GQ, or address a server with --server",
    )
