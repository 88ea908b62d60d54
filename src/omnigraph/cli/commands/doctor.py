"""``omnigraph doctor``: the health of a graph, and which commands to run."""

from __future__ import annotations

import argparse

from omnigraph.cli.options import add_branch, add_json, add_uri
from omnigraph.cli.output.doctor_page import render_doctor
from omnigraph.cli.output.report import show_report
from omnigraph.cli.registry import Capability, Commands, command
from omnigraph.cli.targets import open_graph


def add(commands: Commands) -> None:
    parser = command(
        commands,
        "doctor",
        run,
        Capability.DIRECT,
        "report the health of a graph and which commands to run",
        in_cluster=True,
    )
    add_uri(parser)
    add_branch(parser, "branch to examine")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    with open_graph(arguments, "r") as (graph, target):
        report = graph.maintenance.doctor(arguments.branch)
    document = {**report.to_json(), "uri": target.uri}
    return show_report(arguments, document, render_doctor(report).splitlines())
