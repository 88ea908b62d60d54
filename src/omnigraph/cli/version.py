"""``omnigraph version``: which program this is and which storage format it speaks."""

from __future__ import annotations

import argparse

from omnigraph import __version__
from omnigraph.cli import terminal

INTERNAL_SCHEMA = 4
"""The number of the on-disk format, shared with the reference implementation."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("version", help="show the version and the storage format")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the two lines."""
    terminal.show(f"omnigraph {__version__}")
    terminal.show(f"internal-schema {INTERNAL_SCHEMA}")
    return terminal.OK
