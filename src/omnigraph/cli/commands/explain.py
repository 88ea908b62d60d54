"""``omnigraph explain``: the plan of a query, or its measured profile."""

from __future__ import annotations

import argparse

from omnigraph.cli import files
from omnigraph.cli.options import add_branch, add_json
from omnigraph.cli.output.report import show_report
from omnigraph.cli.queries import (
    add_params,
    add_source,
    as_source,
    needs_server,
    read_params,
    read_query_text,
)
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.cli.targets import open_graph
from omnigraph.errors import InputError


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "explain",
        run,
        Capability.ANY,
        "show the plan of a query",
        description="Shows the plan of a query, with the estimates of each step on a graph, or "
        "against a schema file alone. The query is not run unless --analyze is given.",
    )
    add_source(parser)
    add_params(parser)
    parser.add_argument("--schema", metavar="FILE", help="a .pg file, instead of a graph")
    add_branch(parser)
    parser.add_argument(
        "--analyze", action="store_true", help="run the query and show what each step took"
    )
    add_json(parser, "print the plan as JSON")


def run(arguments: argparse.Namespace) -> int:
    source = read_query_text(arguments)
    if source is None:
        raise needs_server(arguments.name)
    if arguments.schema is not None:
        if arguments.analyze:
            raise InputError("--analyze needs a graph: a schema file has no data to run on")
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
