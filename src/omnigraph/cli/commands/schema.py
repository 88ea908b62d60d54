"""``omnigraph init``, ``snapshot`` and ``schema``: a graph, its tables and its schema."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.cli import files
from omnigraph.cli.about import INTERNAL_SCHEMA
from omnigraph.cli.command_context import absolute
from omnigraph.cli.commands.query import parse_params
from omnigraph.cli.operator_config import load_operator_config
from omnigraph.cli.options import add_branch, add_switch
from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import progress_bar
from omnigraph.cli.output.report import show_report, yes_no
from omnigraph.cli.scopes import is_http
from omnigraph.cli.targets import echo, open_graph, resolve_target
from omnigraph.errors import AlreadyInitialized, InputError
from omnigraph.settings import Settings

if TYPE_CHECKING:
    from omnigraph.lang.schema.migrate import MigrationPlan


def add_init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "new", metavar="URI", help="location of the graph: a directory or s3://bucket/prefix"
    )
    parser.add_argument("--schema", required=True, metavar="FILE", help=".pg file; - reads stdin")
    add_switch(parser, "--force", "start over after an interrupted init")


def run_init(arguments: argparse.Namespace) -> int:
    """Creates an empty graph with a schema. Missing directories are created."""
    from omnigraph.cluster.location import refuse_inside_cluster

    load_operator_config()
    uri: str = arguments.new
    if is_http(uri):
        raise InputError(
            "`init` is a direct (storage-native) command and needs direct storage access; "
            f"'{uri}' is a remote server"
        )
    refuse_inside_cluster(uri, Settings.from_environ())
    schema = files.text_or_path(arguments.schema)
    from omnigraph.api.graph import Graph

    try:
        Graph.init(uri, schema, force=arguments.force).close()
    except AlreadyInitialized as error:
        raise AlreadyInitialized(
            f"graph already initialized at '{uri}'",
            hint="an existing graph is never overwritten; --force starts over after an "
            "interrupted init",
            details=error.details,
        ) from error
    terminal.show(f"initialized {uri}")
    return terminal.OK


def add_snapshot(parser: argparse.ArgumentParser) -> None:
    add_branch(parser)


def run_snapshot(arguments: argparse.Namespace) -> int:
    with open_graph(arguments, "r") as (graph, _):
        snapshot = graph.snapshot(arguments.branch)
        tables = sorted(snapshot.tables.items())
    document = {
        "branch": snapshot.branch,
        "manifest_version": snapshot.version,
        "internal_schema_version": INTERNAL_SCHEMA,
        "tables": [
            {
                "table_key": key,
                "table_path": table["path"],
                "table_version": table["version"],
                "table_branch": None if table["branch"] == "main" else table["branch"],
                "row_count": table["rows"],
            }
            for key, table in tables
        ],
    }
    lines = [
        f"branch: {snapshot.branch}",
        f"manifest_version: {snapshot.version}",
        f"internal_schema_version: {INTERNAL_SCHEMA}",
    ]
    for key, table in tables:
        lines.append(f"{key} v{table['version']} branch={table['branch']} rows={table['rows']}")
    return show_report(arguments, document, lines)


def add_schema_plan(parser: argparse.ArgumentParser) -> None:
    _add_change(parser)


def add_schema_apply(parser: argparse.ArgumentParser) -> None:
    _add_change(parser)
    parser.add_argument(
        "--values",
        metavar="JSON",
        help='values of newly required properties for existing rows: {"Person.age": 0}',
    )
    parser.add_argument(
        "--queries", metavar="DIR", help="directory of stored queries that must fit the new schema"
    )
    add_switch(
        parser,
        "--allow-broken-queries",
        "apply a schema that breaks stored queries; they are refused until they fit again",
    )
    add_switch(parser, "--dry-run", "also validate the data; change nothing")


def _add_change(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schema", required=True, metavar="FILE", help="desired schema (.pg)")
    add_switch(
        parser, "--allow-data-loss", "drop permanently, including earlier versions of the data"
    )


def run_schema_show(arguments: argparse.Namespace) -> int:
    with open_graph(arguments, "r") as (graph, _):
        text = graph.schema.text()
    if arguments.json:
        terminal.show_json({"schema_source": text})
    else:
        terminal.show_source(f"{text}\n")
    return terminal.OK


def run_schema_plan(arguments: argparse.Namespace) -> int:
    """Shows the migration steps from the schema of a graph, or of a .pg file, to another. Changes
    nothing.
    """
    if (arguments.uri or "").endswith(".pg"):
        return _show_plan(arguments, arguments.uri, _plan_files(arguments))
    with open_graph(arguments, "r") as (graph, target):
        desired = files.text_or_path(arguments.schema)
        plan = graph.schema.plan(desired, allow_data_loss=arguments.allow_data_loss)
    return _show_plan(arguments, target.uri, plan)


def _plan_files(arguments: argparse.Namespace) -> MigrationPlan:
    from omnigraph.lang.schema.compile import compile_schema
    from omnigraph.lang.schema.migrate import plan_migration

    accepted = compile_schema(files.read_source(arguments.uri))
    desired = compile_schema(files.read_text(arguments.schema))
    return plan_migration(accepted, desired, allow_data_loss=arguments.allow_data_loss)


def _show_plan(arguments: argparse.Namespace, uri: str, plan: MigrationPlan) -> int:
    document = {
        "uri": uri,
        "supported": plan.supported,
        "step_count": len(plan.steps),
        "steps": [step.to_json() for step in plan.steps],
    }
    lines = [
        f"schema plan for {uri}",
        f"supported: {yes_no(plan.supported)}",
        *_step_lines(plan.steps),
    ]
    return show_report(arguments, document, lines)


def _step_lines(steps: Sequence[Any]) -> Iterator[str]:
    for step in steps:
        yield f"- {step.describe()}"
    if not steps:
        yield "no schema changes"


def run_schema_apply(arguments: argparse.Namespace) -> int:
    """Changes the schema and migrates the data, in one commit."""
    from omnigraph.cluster.location import refuse_inside_cluster

    target = resolve_target(arguments)
    if not target.is_served:
        refuse_inside_cluster(absolute(target.uri), Settings.from_environ())
    elif arguments.queries is not None:
        raise InputError("--queries is not for a server", hint="it checks its own stored queries")
    values = {} if arguments.values is None else parse_params(arguments.values, "--values")
    if not arguments.dry_run:
        echo(arguments, target)
    mode: Literal["r", "rw"] = "r" if arguments.dry_run else "rw"
    opened = open_graph(arguments, mode, target, queries=arguments.queries)
    with opened as (graph, _), progress_bar("schema apply") as line:
        line.show("rewriting")
        result = graph.schema.apply(
            files.text_or_path(arguments.schema),
            allow_data_loss=arguments.allow_data_loss,
            values=values,
            allow_broken_queries=arguments.allow_broken_queries,
            dry_run=arguments.dry_run,
        )
    document = {
        "uri": target.uri,
        "supported": result.supported,
        "applied": result.applied,
        "step_count": len(result.steps),
        **result.to_json(),
    }
    lines = [
        f"schema apply for {target.uri}",
        f"supported: {yes_no(result.supported)}",
        f"applied: {yes_no(result.applied)}",
        f"manifest_version: {result.manifest_version}",
        *_step_lines(result.steps),
        *(f"! {violation.table_key}: {violation.message}" for violation in result.violations),
        *(f"! query {name} does not fit" for name in result.broken_queries),
    ]
    return show_report(arguments, document, lines)
