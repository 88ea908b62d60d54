"""``omnigraph version``: which program this is and which storage format it speaks."""

from __future__ import annotations

import argparse

from omnigraph import __version__
from omnigraph.cli import terminal
from omnigraph.cli.commands import Capability, Commands, command

INTERNAL_SCHEMA = 4
"""The number of the on-disk format, shared with the reference implementation."""


def add(commands: Commands) -> None:
    """Declare the command."""
    command(commands, "version", _run, Capability.LOCAL, "show the version and the storage format")


def _run(arguments: argparse.Namespace) -> int:
    return run(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Print the two lines."""
    terminal.show(f"omnigraph {__version__}")
    terminal.show(f"internal-schema {INTERNAL_SCHEMA}")
    return terminal.OK
