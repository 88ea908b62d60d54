"""Rows of a server: as text from one document, without loading Arrow, or in a binary format."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.cli.operator_config import TEXT_FORMATS
from omnigraph.cli.options import snapshot_arguments
from omnigraph.cli.output.rows import Layout, show_envelope, show_result
from omnigraph.remote import requests
from omnigraph.remote.graph import RemoteGraph
from omnigraph.remote.snapshot import read_document, run_read
from omnigraph.remote.states import StateRef

if TYPE_CHECKING:
    from omnigraph.client.server import ServerRequest


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
    accept = None if is_text else requests.ARROW_STREAM
    request = _request(arguments, source, params, accept, state["branch"], commit)
    if is_text:
        rows = read_document(calls, request, arguments.max_rows)
        rows["target"] |= target or {}
        show_envelope(rows, format, layout, arguments.out)
        return
    with run_read(calls, request, arguments.timeout, arguments.max_rows, None, target) as result:
        show_result(result, format, layout, arguments.out)


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
