"""``omnigraph explain``: the plan of a query, or what it really took."""

from __future__ import annotations

import argparse

from omnigraph.cli import files
from omnigraph.cli.output import terminal
from omnigraph.cli.queries import add_params, add_source, given_params, needs_server, source_text
from omnigraph.cli.registry import Capability, Commands, add_json, command
from omnigraph.cli.targets import opened
from omnigraph.errors import InputError
from omnigraph.lang.diagnostics import Source


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "explain",
        run,
        Capability.ANY,
        "show the plan of a query",
        description="Shows the plan of a query on a graph, with what is expected of each step, "
        "or against a schema file alone. Runs nothing, unless --analyze is given.",
    )
    add_source(parser)
    add_params(parser)
    parser.add_argument("--schema", metavar="FILE", help="a .pg file, instead of a graph")
    parser.add_argument("--branch", default="main", metavar="B", help="the branch")
    parser.add_argument(
        "--analyze", action="store_true", help="run it, and show what every step took"
    )
    add_json(parser, "print the plan as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Compile and show."""
    source = source_text(arguments)
    if source is None:
        raise needs_server(arguments.name)
    if arguments.schema is not None:
        if arguments.analyze:
            raise InputError("--analyze runs the query, and a schema file has no data")
        from omnigraph.lang.schema import compile_schema
        from omnigraph.plan import compile_query
        from omnigraph.plan.explain import explain_json, explain_text

        catalog = compile_schema(files.read_source(arguments.schema))
        text = Source("<query>", source) if isinstance(source, str) else None
        plan = compile_query(catalog, text or files.read_source(str(source)), arguments.name)
        told, shown = explain_json(plan), explain_text(plan)
    else:
        with opened(arguments, "r") as (graph, _):
            found = graph.snapshot(arguments.branch).explain(
                source, arguments.name, given_params(arguments), profile=arguments.analyze
            )
        told, shown = found.to_json(), found.text
    if arguments.json:
        terminal.show_json(told)
    else:
        terminal.show_lines(shown.splitlines())
    return terminal.OK
