"""``omnigraph explain``: the plan of a query, compiled against a schema file."""

from __future__ import annotations

import argparse

from omnigraph.cli import files, terminal


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "explain",
        help="show the plan of a query",
        description="Compiles a query against a schema and shows its plan. Runs nothing.",
    )
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="the query; may be left out if there is only one"
    )
    parser.add_argument("--query", required=True, metavar="FILE", help="the .gq file")
    parser.add_argument("--schema", required=True, metavar="FILE", help="the .pg file")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compile and show."""
    from omnigraph.lang.schema import compile_schema
    from omnigraph.plan import compile_query
    from omnigraph.plan.explain import explain_json, explain_text

    catalog = compile_schema(files.read_source(arguments.schema))
    plan = compile_query(catalog, files.read_source(arguments.query), arguments.name)
    if arguments.json:
        terminal.show_json(explain_json(plan))
    else:
        terminal.show(explain_text(plan).rstrip("\n"))
    return terminal.OK
