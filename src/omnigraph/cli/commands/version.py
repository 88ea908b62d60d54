"""``omnigraph version``: which program this is and which storage format it speaks."""

from __future__ import annotations

import argparse

from omnigraph.cli.about import VERSION
from omnigraph.cli.output import terminal
from omnigraph.cli.registry import Capability, Commands, command


def add(commands: Commands) -> None:
    """Declare the command; without options it is answered before this is loaded."""
    command(commands, "version", run, Capability.LOCAL, "show the version and the storage format")


def run(arguments: argparse.Namespace) -> int:
    """Print the two lines."""
    terminal.show_raw(VERSION)
    return terminal.OK
