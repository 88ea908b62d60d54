"""``omnigraph schema``: show and change the schema of a graph."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.cli import files
from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import progress_bar
from omnigraph.cli.output.report import show_report, yes_no
from omnigraph.cli.queries import parse_params
from omnigraph.cli.registry import Capability, Commands, family
from omnigraph.cli.targets import echo, open_graph, resolve_target

if TYPE_CHECKING:
    from omnigraph.lang.schema.migrate import MigrationPlan


def add(commands: Commands) -> None:
    schema = family(commands, "schema", "show, plan and apply schema changes")
    schema.add("show", run_show, "print the schema", label="schema show", uri="positional")
    parser = schema.add(
        "plan",
        run_plan,
        "show the steps to another schema",
        description="Shows the migration steps from the schema of a graph, or of a .pg file, to "
        "another. Changes nothing.",
        label="schema plan",
        capability=Capability.DIRECT,
        uri="positional",
    )
    _add_change(parser)
    parser = schema.add(
        "apply",
        run_apply,
        "change the schema",
        description="Changes the schema and migrates the data, in one commit.",
        label="schema apply",
        writes=True,
        uri="positional",
    )
    _add_change(parser)
    parser.add_argument(
        "--values",
        metavar="JSON",
        help='values of newly required properties for existing rows: {"Person.age": 0}',
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="also validate the data; change nothing"
    )


def _add_change(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schema", required=True, metavar="FILE", help="desired schema (.pg)")
    parser.add_argument(
        "--allow-data-loss",
        action="store_true",
        help="drop permanently, including earlier versions of the data",
    )


def run_show(arguments: argparse.Namespace) -> int:
    with open_graph(arguments, "r") as (graph, _):
        text = graph.schema.text()
    if arguments.json:
        terminal.show_json({"schema_source": text})
    else:
        terminal.show_source(f"{text}\n")
    return terminal.OK


def run_plan(arguments: argparse.Namespace) -> int:
    """Show a plan; an unsupported one is a result, not a failure."""
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


def run_apply(arguments: argparse.Namespace) -> int:
    from omnigraph.cli.cluster_graphs import refuse_inside_cluster

    target = resolve_target(arguments)
    refuse_inside_cluster(target.storage("schema apply"))
    values = {} if arguments.values is None else parse_params(arguments.values, "--values")
    if not arguments.dry_run:
        echo(arguments, target)
    mode: Literal["r", "rw"] = "r" if arguments.dry_run else "rw"
    with open_graph(arguments, mode, target) as (graph, _), progress_bar("schema apply") as line:
        line.show("rewriting")
        result = graph.schema.apply(
            files.text_or_path(arguments.schema),
            allow_data_loss=arguments.allow_data_loss,
            values=values,
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
    ]
    return show_report(arguments, document, lines)
