"""``omnigraph schema``: what a change of the schema would do."""

from __future__ import annotations

import argparse

from omnigraph.cli import files, terminal


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command group."""
    group = commands.add_parser("schema", help="work with schemas")
    subcommands = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    plan = subcommands.add_parser(
        "plan",
        help="show the steps from one schema to another",
        description="Compares two schema files and shows the migration steps. Changes nothing.",
    )
    plan.add_argument("accepted", metavar="OLD", help="the schema in force, a .pg file")
    plan.add_argument("--schema", required=True, metavar="FILE", help="the desired .pg file")
    plan.add_argument(
        "--allow-data-loss",
        action="store_true",
        help="plan drops as hard: earlier versions of the data go too",
    )
    plan.add_argument("--json", action="store_true", help="print the plan as JSON")
    plan.set_defaults(run=run_plan)


def run_plan(arguments: argparse.Namespace) -> int:
    """Plan and show; an unsupported plan is an answer, not a failure."""
    from omnigraph.lang.schema import compile_schema
    from omnigraph.lang.schema.migrate import plan_migration

    accepted = compile_schema(files.read_source(arguments.accepted))
    desired = compile_schema(files.read_source(arguments.schema))
    plan = plan_migration(accepted, desired, allow_data_loss=arguments.allow_data_loss)
    if arguments.json:
        terminal.show_json(
            {
                "uri": arguments.accepted,
                "supported": plan.supported,
                "step_count": len(plan.steps),
                "steps": [step.to_json() for step in plan.steps],
            }
        )
        return terminal.OK
    terminal.show(f"schema plan for {arguments.accepted}")
    terminal.show(f"supported: {'yes' if plan.supported else 'no'}")
    for step in plan.steps:
        terminal.show(f"- {step.describe()}")
    if not plan.steps:
        terminal.show("no schema changes")
    return terminal.OK
