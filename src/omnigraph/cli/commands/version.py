"""``omnigraph version``: the version of the program and of the storage format."""

from __future__ import annotations

import argparse

from omnigraph.cli.about import VERSION
from omnigraph.cli.output import terminal
from omnigraph.cli.registry import Capability, Commands, command


def add(commands: Commands) -> None:
    command(commands, "version", run, Capability.LOCAL, "show the version and the storage format")


def run(arguments: argparse.Namespace) -> int:
    terminal.show_raw(VERSION)
    return terminal.OK
