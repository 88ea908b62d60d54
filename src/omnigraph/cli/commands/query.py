"""``omnigraph query``, ``mutate``, ``explain`` and ``alias``: run and explain queries."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from omnigraph.cli import files
from omnigraph.cli.command_context import query_cancel
from omnigraph.cli.flags import UsageError
from omnigraph.cli.operator_config import TEXT_FORMATS, Alias, load_operator_config
from omnigraph.cli.options import (
    add_branch,
    add_engine,
    add_json,
    add_local_files,
    add_snapshot,
    add_switch,
    add_write_conditions,
    seconds,
    snapshot_arguments,
    spark_config,
    whole_number,
)
from omnigraph.cli.output import terminal
from omnigraph.cli.output.report import field_lines, show_report
from omnigraph.cli.output.rows import (
    add_format,
    layout_of,
    resolve_format,
    show_envelope,
    show_result,
)
from omnigraph.cli.targets import (
    open_for_write,
    open_graph,
    resolve_target,
    take_snapshot,
)
from omnigraph.errors import InputError
from omnigraph.lang.diagnostics import Source

if TYPE_CHECKING:
    from omnigraph.remote.graph import RemoteGraph


def add_query(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_params(parser)
    add_snapshot(parser, "tag", "at")
    add_format(parser)
    add_engine(parser, ("local", "spark"))
    parser.add_argument("--timeout", type=seconds, metavar="SECONDS", help="time limit")
    parser.add_argument(
        "--max-rows", type=whole_number(0), metavar="N", help="fail if there are more rows"
    )


def run_query(arguments: argparse.Namespace) -> int:
    """Runs a query from a file or a text on one state of a graph, or a stored query of a server."""
    source = read_query_text(arguments)
    target = resolve_target(arguments)
    if source is None and not target.is_served:
        raise needs_server(arguments.name)
    params = read_params(arguments)
    format = resolve_format(arguments, target.operator)
    layout = layout_of(target.operator)
    spark = spark_config(arguments)
    with open_graph(arguments, "r", target) as (graph, _):
        if target.is_served:
            from omnigraph.cli.served_rows import show_served

            show_served(cast("RemoteGraph", graph), arguments, source, params, format, layout)
            return terminal.OK
        assert source is not None
        result = take_snapshot(graph, **snapshot_arguments(arguments)).query(
            source,
            arguments.name,
            params,
            engine=arguments.engine,
            spark=spark,
            timeout=arguments.timeout,
            max_rows=arguments.max_rows,
            cancel=query_cancel(),
        )
        with result:
            show_result(result, format, layout, arguments.out)
    return terminal.OK


def add_mutate(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_params(parser)
    add_branch(parser, "branch to change")
    add_write_conditions(parser)
    add_local_files(parser)


def run_mutate(arguments: argparse.Namespace) -> int:
    """Runs a mutation: all of its statements in one commit, or none."""
    source = read_query_text(arguments)
    target = resolve_target(arguments)
    if source is None and not target.is_served:
        raise needs_server(arguments.name)
    params = read_params(arguments)
    conditions = {
        "if_commit": arguments.if_commit,
        "idempotency_key": arguments.idempotency_key,
    }
    with open_for_write(arguments, target) as (graph, _):
        if source is None:
            queries = cast("RemoteGraph", graph).queries
            receipt = queries.invoke_mutation(
                arguments.name, params, arguments.branch, **conditions
            )
        else:
            receipt = graph.mutate(
                source,
                arguments.name,
                params,
                arguments.branch,
                allow_local_files=arguments.allow_local_files,
                **conditions,
            )
    document = {
        "branch": receipt.branch,
        "query_name": arguments.name or _only_query(source),
        "affected_nodes": receipt.affected_nodes,
        "affected_edges": receipt.affected_edges,
        "actor_id": receipt.actor,
        "commit_id": receipt.commit_id,
    }
    return show_report(arguments, document, _change_lines(document))


def _only_query(source: str | Path | None) -> str:
    from omnigraph.lang.query.parser import read_queries, select_query

    assert source is not None
    return select_query(read_queries(as_source(source))).name


def _change_lines(result: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"changed {result['branch']} via {result['query_name']}: "
        f"{result['affected_nodes']} nodes, {result['affected_edges']} edges"
    )
    yield from field_lines(result, "actor_id", "commit_id")


def add_explain(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_params(parser)
    parser.add_argument("--schema", metavar="FILE", help="a .pg file, instead of a graph")
    add_branch(parser)
    add_switch(parser, "--analyze", "run the query and show what each step took")
    add_json(parser, "print the plan as JSON")


def run_explain(arguments: argparse.Namespace) -> int:
    """Shows the plan of a query, with the estimates of each step on a graph, or against a schema
    file alone. The query is not run unless --analyze is given.
    """
    source = read_query_text(arguments)
    if source is None:
        raise needs_server(arguments.name)
    if arguments.schema is not None:
        if arguments.analyze:
            raise UsageError("--analyze needs a graph: a schema file has no data to run on")
        if arguments.store is not None or arguments.server is not None:
            raise UsageError("a graph and --schema are mutually exclusive: a query has one schema")
        if arguments.branch != "main":
            raise UsageError("--branch needs a graph: a schema file has no branches")
        from omnigraph.lang.schema.compile import compile_schema
        from omnigraph.plan import compile_query
        from omnigraph.plan.explain import explain_json, explain_text

        catalog = compile_schema(files.read_source(arguments.schema))
        plan = compile_query(catalog, as_source(source), arguments.name)
        document, text_plan = explain_json(plan), explain_text(plan)
    else:
        with open_graph(arguments, "r") as (graph, _):
            explained = graph.snapshot(arguments.branch).explain(
                source, arguments.name, read_params(arguments), profile=arguments.analyze
            )
        document, text_plan = explained.to_json(), explained.text
    return show_report(arguments, document, text_plan.splitlines())


def add_alias(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="alias to run")
    parser.add_argument("args", nargs="*", metavar="ARGS", help="parameter values, in order")
    add_params(parser)
    add_format(parser, TEXT_FORMATS)


def run_alias(arguments: argparse.Namespace) -> int:
    """Runs the stored query of an alias on the server and graph given in the configuration. ARGS
    are the values of its `args`, in order; each is parsed as JSON, else taken as text. ARGS
    override the `params` of the alias, and --params overrides both. Write ARGS right after NAME.
    """
    from omnigraph.cli.remote import open_remote
    from omnigraph.cli.scopes import resolve_server
    from omnigraph.cli.served_rows import stored_document

    operator = load_operator_config()
    alias = operator.aliases.get(arguments.name)
    if alias is None:
        defined = ", ".join(operator.aliases) or "none"
        raise InputError(f"unknown alias '{arguments.name}'; defined: {defined}")
    params = {**alias.params, **_bind(alias, arguments.args), **read_params(arguments)}
    format = resolve_format(arguments, operator, alias.format)
    server = resolve_server(alias.server, alias.graph, operator)
    with open_remote(arguments, server, operator) as graph:
        rows = stored_document(graph, alias.query, params)
    show_envelope(rows, format, layout_of(operator), arguments.out)
    return terminal.OK


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
    """The query text or file; ``None`` if only the name of a stored query was given."""
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
