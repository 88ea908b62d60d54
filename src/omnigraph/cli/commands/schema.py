"""``omnigraph schema``: the schema of a graph, and changing it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.cli import files
from omnigraph.cli.output import terminal
from omnigraph.cli.output.progress import bar
from omnigraph.cli.queries import params_of
from omnigraph.cli.registry import Capability, Commands, add_json, add_uri, command, family
from omnigraph.cli.targets import echo, find_target, opened

if TYPE_CHECKING:
    from omnigraph.lang.schema import MigrationPlan


def add(commands: Commands) -> None:
    """Declare the command family."""
    forms = family(commands, "schema", "look at the schema, plan and apply changes")
    parser = command(
        forms, "show", run_show, Capability.ANY, "print the schema", label="schema show"
    )
    add_uri(parser)
    add_json(parser)
    parser = command(
        forms,
        "plan",
        run_plan,
        Capability.DIRECT,
        "show the steps to another schema",
        description="Shows the steps from the schema of a graph, or of a .pg file, to another. "
        "Changes nothing.",
        label="schema plan",
    )
    add_uri(parser)
    _add_change(parser)
    parser = command(
        forms,
        "apply",
        run_apply,
        Capability.ANY,
        "change the schema",
        description="Changes the schema, with the data, in one commit.",
        label="schema apply",
        writes=True,
    )
    add_uri(parser)
    _add_change(parser)
    parser.add_argument(
        "--values",
        metavar="JSON",
        help='what rows get in a property that is required now: {"Person.age": 0}',
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="also look at the data; change nothing"
    )


def _add_change(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schema", required=True, metavar="FILE", help="the desired .pg file")
    parser.add_argument(
        "--allow-data-loss",
        action="store_true",
        help="drop for good: earlier versions of the data go too",
    )
    add_json(parser)


def run_show(arguments: argparse.Namespace) -> int:
    """Print the text as it was given."""
    with opened(arguments, "r") as (graph, _):
        text = graph.schema.text()
    if arguments.json:
        terminal.show_json({"schema_source": text})
    else:
        terminal.show_source(f"{text}\n")
    return terminal.OK


def run_plan(arguments: argparse.Namespace) -> int:
    """Plan and show; an unsupported plan is an answer, not a failure."""
    if (arguments.uri or "").endswith(".pg"):
        return _show_plan(arguments, arguments.uri, _plan_files(arguments))
    with opened(arguments, "r") as (graph, target):
        plan = graph.schema.plan(_desired(arguments), allow_data_loss=arguments.allow_data_loss)
    return _show_plan(arguments, target.uri, plan)


def _plan_files(arguments: argparse.Namespace) -> MigrationPlan:
    from omnigraph.lang.schema import compile_schema
    from omnigraph.lang.schema.migrate import plan_migration

    accepted = compile_schema(files.read_source(arguments.uri))
    desired = compile_schema(files.read_text(arguments.schema))
    return plan_migration(accepted, desired, allow_data_loss=arguments.allow_data_loss)


def _desired(arguments: argparse.Namespace) -> str | Path:
    if arguments.schema == files.STDIN:
        return f"{files.read_stdin().text}\n"
    return Path(arguments.schema)


def _show_plan(arguments: argparse.Namespace, uri: str, plan: MigrationPlan) -> int:
    if arguments.json:
        terminal.show_json(
            {
                "uri": uri,
                "supported": plan.supported,
                "step_count": len(plan.steps),
                "steps": [step.to_json() for step in plan.steps],
            }
        )
        return terminal.OK
    terminal.show(f"schema plan for {uri}")
    terminal.show(f"supported: {'yes' if plan.supported else 'no'}")
    _show_steps(plan.steps)
    return terminal.OK


def _show_steps(steps: Any) -> None:
    for step in steps:
        terminal.show(f"- {step.describe()}")
    if not steps:
        terminal.show("no schema changes")


def run_apply(arguments: argparse.Namespace) -> int:
    """Apply and tell."""
    from omnigraph.cli.cluster_graphs import refuse_inside_cluster

    target = find_target(arguments)
    refuse_inside_cluster(target.storage("schema apply"))
    values = {} if arguments.values is None else params_of(arguments.values, "--values")
    if not arguments.dry_run:
        echo(arguments, target)
    mode: Literal["r", "rw"] = "r" if arguments.dry_run else "rw"
    with opened(arguments, mode, target) as (graph, _), bar("schema apply") as line:
        line.show("rewriting")
        done = graph.schema.apply(
            _desired(arguments),
            allow_data_loss=arguments.allow_data_loss,
            values=values,
            dry_run=arguments.dry_run,
        )
    if arguments.json:
        told = done.to_json()
        first = {
            "uri": target.uri,
            "supported": done.supported,
            "applied": done.applied,
            "step_count": len(done.steps),
        }
        terminal.show_json({**first, **told})
        return terminal.OK
    terminal.show(f"schema apply for {target.uri}")
    terminal.show(f"supported: {'yes' if done.supported else 'no'}")
    terminal.show(f"applied: {'yes' if done.applied else 'no'}")
    terminal.show(f"manifest_version: {done.manifest_version}")
    _show_steps(done.steps)
    for violation in done.violations:
        terminal.show(f"! {violation.table_key}: {violation.message}")
    return terminal.OK
