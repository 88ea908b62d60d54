"""``omnigraph doctor``: how a graph is, and what to run."""

from __future__ import annotations

import argparse

from omnigraph.cli.output import terminal
from omnigraph.cli.output.doctor_page import render_doctor
from omnigraph.cli.registry import Capability, Commands, add_json, add_uri, command
from omnigraph.cli.targets import opened


def add(commands: Commands) -> None:
    """Declare the command."""
    parser = command(
        commands,
        "doctor",
        run,
        Capability.DIRECT,
        "report on one page how the graph is and what to run",
        in_cluster=True,
    )
    add_uri(parser)
    parser.add_argument("--branch", default="main", metavar="B", help="whose tables")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Look and report."""
    with opened(arguments, "r") as (graph, target):
        report = graph.maintenance.doctor(arguments.branch)
    if arguments.json:
        terminal.show_json({**report.to_json(), "uri": target.uri})
    else:
        terminal.show_lines(render_doctor(report).splitlines())
    return terminal.OK
