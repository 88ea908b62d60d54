"""The one way to print a result: a JSON document for programs, lines for people."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from omnigraph.cli.output import terminal


def show_report(arguments: argparse.Namespace, document: Any, lines: str | Iterable[str]) -> int:
    """Print the document with ``--json`` and the lines otherwise. Returns exit code 0.

    The lines may be a generator; it is not run when JSON is printed.
    """
    if arguments.json:
        terminal.show_json(document)
    else:
        terminal.show_lines([lines] if isinstance(lines, str) else lines)
    return terminal.OK


def field_lines(fields: Mapping[str, Any], *names: str) -> Iterator[str]:
    """``name: value`` for the named fields, or for all of them; null values are left out.

    >>> list(field_lines({"actor_id": None, "commit_id": "01A"}))
    ['commit_id: 01A']
    """
    for name in names or fields:
        if fields.get(name) is not None:
            yield f"{name}: {fields[name]}"


def yes_no(value: bool) -> str:
    return "yes" if value else "no"
