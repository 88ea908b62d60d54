"""``omnigraph queries``: the applied stored queries of a cluster."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omnigraph.cli.operator_config import OperatorConfig, load_operator_config
from omnigraph.cli.output import terminal
from omnigraph.cli.output.report import show_report
from omnigraph.cli.scopes import resolve_scope
from omnigraph.errors import InputError, ServerNotReady
from omnigraph.settings import Settings

if TYPE_CHECKING:
    from omnigraph.api.stored_queries import RegisteredQuery
    from omnigraph.cluster.applied import AppliedCluster


def run_queries_list(arguments: argparse.Namespace) -> int:
    """Lists the stored queries of a graph, or of all graphs of a cluster, as they were applied."""
    from omnigraph.api.stored_queries import StoredQueries

    applied, graph = _applied(arguments)
    queries = [
        stored
        for served in applied.graphs
        if graph in (None, served.graph_id)
        for stored in StoredQueries.read(served.queries).values()
    ]
    document = {"queries": [_document(stored) for stored in queries]}
    lines = [line for stored in queries for line in _lines(stored)]
    return show_report(arguments, document, lines or ["(no stored queries registered)"])


def run_queries_validate(arguments: argparse.Namespace) -> int:
    """Checks the applied stored queries against the schemas that their graphs have now."""
    from omnigraph.api.graph import Graph
    from omnigraph.api.stored_queries import StoredQueries

    applied, graph = _applied(arguments)
    graphs = [served for served in applied.graphs if graph in (None, served.graph_id)]
    if graph is not None and not graphs:
        raise InputError(f"graph '{graph}' is not applied in this cluster, or cannot be served")
    breakages: list[dict[str, str]] = []
    warnings: list[dict[str, str]] = []
    count = 0
    for served in graphs:
        queries = StoredQueries.read(served.queries)
        count += len(queries)
        with Graph.open(served.uri, "r") as opened:
            broken = queries.breakages(opened.catalog)
        breakages += [{"query": name, "message": text} for name, text in broken.items()]
        warnings += [
            {"query": name, "message": advice}
            for name, stored in queries.items()
            for advice in stored.advice
        ]
    document = {"ok": not breakages, "breakages": breakages, "warnings": warnings}
    noun = "query" if count == 1 else "queries"
    verb = "type-checks" if count == 1 else "type-check"
    lines = [f"ERROR  query '{entry['query']}': {entry['message']}" for entry in breakages]
    lines = lines or [f"OK  {count} stored {noun} {verb} against the schema"]
    lines += [f"WARN   query '{entry['query']}': {entry['message']}" for entry in warnings]
    show_report(arguments, document, lines)
    return terminal.FAILURE if breakages else terminal.OK


def _applied(arguments: argparse.Namespace) -> tuple[AppliedCluster, str | None]:
    """The applied state of the addressed cluster, and the graph that is meant."""
    from omnigraph.cluster.applied import read_applied
    from omnigraph.cluster.location import cluster_root

    operator: OperatorConfig = load_operator_config()
    settings = Settings.from_environ()
    has_scope = arguments.cluster or arguments.profile or settings.profile
    scope = resolve_scope(arguments, operator) if has_scope else None
    if scope is None or scope.kind != "cluster":
        raise InputError(
            f"`{arguments.command}` needs a cluster",
            hint="pass --cluster <dir|uri>, or a --profile that is bound to a cluster",
        )
    root = cluster_root(operator.clusters.get(scope.target, scope.target))
    try:
        return read_applied(root, settings), scope.graph
    except ServerNotReady as error:
        lines = [
            f"  [{entry['code']}] {entry['path']}: {entry['message']}"
            for entry in error.details["diagnostics"]
        ]
        text = "\n".join([f"cluster `{scope.target}` is not servable:", *lines])
        raise InputError(text, details=error.details) from error


def _document(stored: RegisteredQuery) -> dict[str, Any]:
    query = stored.query
    document: dict[str, Any] = {
        "name": stored.name,
        "mcp_expose": False,
        "tool_name": None,
        "mutation": stored.is_mutation,
    }
    if query.description is not None:
        document["description"] = query.description
    if query.instruction is not None:
        document["instruction"] = query.instruction
    document["params"] = [
        {
            "name": param.name,
            "type": str(replace(param.type, nullable=False)),
            "nullable": param.type.nullable,
        }
        for param in query.params
    ]
    return document


def _lines(stored: RegisteredQuery) -> Iterator[str]:
    query = stored.query
    params = ", ".join(f"${param.name}: {param.type}" for param in query.params)
    yield f"{'mutation' if stored.is_mutation else 'read'}  {stored.name}({params})"
    for label, text in (("description", query.description), ("instruction", query.instruction)):
        if text is not None:
            first, *rest = text.splitlines() or [""]
            yield f"    {label}: {first}"
            yield from (f"    {' ' * len(label)}  {line}" for line in rest)
