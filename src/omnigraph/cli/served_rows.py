"""Rows of a server: as text, without loading Arrow, or in a binary format.

Lines of JSON and the binary formats are streams; the other texts are made from one document.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.cli.command_context import stdout
from omnigraph.cli.operator_config import TEXT_FORMATS
from omnigraph.cli.options import snapshot_arguments
from omnigraph.cli.output.rows import Layout, show_envelope, show_lines, show_result
from omnigraph.cli.output.terminal import is_terminal
from omnigraph.remote import requests
from omnigraph.remote.graph import RemoteGraph
from omnigraph.remote.snapshot import check_count, read_document, run_read
from omnigraph.remote.states import StateRef
from omnigraph.remote.streams import lines_or_document

if TYPE_CHECKING:
    from omnigraph.client.server import ServerRequest


_LINES = f"{requests.NDJSON}, application/json;q=0.5"
"""Other servers know no lines."""


def show_served(
    graph: RemoteGraph,
    arguments: argparse.Namespace,
    source: str | Path | None,
    params: Mapping[str, Any],
    format: str,
    layout: Layout,
) -> None:
    """Run a query text, or a stored query, and print its rows."""
    is_text = format in TEXT_FORMATS
    calls = graph.calls
    state: dict[str, Any] = {"branch": "main", "commit": None, "tag": None, "at": None}
    state |= snapshot_arguments(arguments)
    ref = StateRef.of(state["branch"], state["commit"], state["tag"], None, state["at"])
    commit, name = calls.find_commit(ref), ref.tag or ref.name
    target = None if name is None else {"snapshot": name}
    is_stream = format == "jsonl" and not (arguments.out is None and is_terminal(stdout()))
    accept = _LINES if is_stream else None if is_text else requests.ARROW_STREAM
    request = _request(arguments, source, params, accept, state["branch"], commit)
    if is_stream:
        read = lines_or_document(calls, request)
        if not isinstance(read, dict):
            shown: dict[str, Any] = {
                "branch": None if commit else state["branch"],
                "snapshot": commit,
                **(target or {}),
            }
            head = {"query_name": _query_name(arguments, source), "target": shown}
            show_lines(head, _within(read, arguments.max_rows), arguments.out)
            return
        check_count(read, arguments.max_rows)
        read["target"] |= target or {}
        show_envelope(read, format, layout, arguments.out)
        return
    if is_text:
        rows = read_document(calls, request, arguments.max_rows)
        rows["target"] |= target or {}
        show_envelope(rows, format, layout, arguments.out)
        return
    with run_read(calls, request, arguments.timeout, arguments.max_rows, None, target) as result:
        show_result(result, format, layout, arguments.out)


def _query_name(arguments: argparse.Namespace, source: str | Path | None) -> str:
    """The name of the query that the server has run."""
    if arguments.name is not None or source is None:
        return str(arguments.name)
    from omnigraph.lang.query.parser import read_queries, select_query

    return select_query(read_queries(requests.query_source(source))).name


def _within(rows: Iterator[dict[str, Any]], most: int | None) -> Iterator[dict[str, Any]]:
    """The same rows, until there are too many."""
    for count, row in enumerate(rows, 1):
        if most is not None and count > most:
            from omnigraph.remote.results import check_rows

            check_rows(count, most)
        yield row


def _request(
    arguments: argparse.Namespace,
    source: str | Path | None,
    params: Mapping[str, Any],
    accept: str | None,
    branch: str,
    commit: str | None,
) -> ServerRequest:
    options: dict[str, Any] = {"accept": accept, "timeout": arguments.timeout}
    if source is None:
        # Without an own choice the server decides, as for an alias.
        own = arguments.branch if commit is None else None
        return requests.stored_query(arguments.name, params, own, commit, mutates=False, **options)
    text = requests.query_source(source)
    on = branch if commit is None else None
    return requests.read_query(text, arguments.name, params, on, commit, **options)


def stored_document(graph: RemoteGraph, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of a stored query on the branch that the server chooses."""
    return read_document(graph.calls, requests.stored_query(name, params, None, mutates=False))
