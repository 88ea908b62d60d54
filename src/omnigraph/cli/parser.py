"""The grammar of the command line: every command with its options.

A command module gives ``add(commands)``, which declares its arguments and names the function
to run; what that function needs is imported when it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from omnigraph import __version__
from omnigraph.cli import explain, fmt, lint, schema, version

_LEGEND = """\
COMMANDS BY CAPABILITY:
  any      works on a graph directly or through a server: none yet
  served   needs a server: none yet
  direct   works on storage or on files: lint, schema plan
  control  works on a cluster: none yet
  local    needs no graph: explain, fmt, version
"""


class CommandParser(argparse.ArgumentParser):
    """A parser without guessing: options are written out in full."""

    def __init__(self, **options: object) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**options)  # type: ignore[arg-type]

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str], namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As usual, but an option that does not exist is named before what is missing."""
        known = [option for action in self._actions for option in action.option_strings]
        for arg in args:
            if arg == "--":
                break
            option = arg.split("=", 1)[0]
            if option.startswith("-") and option != "-" and self._is_stranger(option, known):
                from omnigraph.lang.closest import closest

                close = closest(option, known)
                hint = f"; did you mean {close}?" if close else ""
                self.error(f"unknown option {option}{hint}")
        return super().parse_known_args(args, namespace)

    def _is_stranger(self, option: str, known: list[str]) -> bool:
        """Whether neither this parser nor a command below it has the option."""
        has_commands = any(
            isinstance(action, argparse._SubParsersAction) for action in self._actions
        )
        return option not in known and not has_commands


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command."""
    parser: argparse.ArgumentParser = CommandParser(
        prog="omnigraph",
        description="A typed property graph with git-style workflows.",
        epilog=_LEGEND,
    )
    parser.add_argument("-v", "--version", action="version", version=f"omnigraph {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (version, lint, fmt, explain, schema):
        command.add(commands)
    _add_help(parser, commands)
    return parser


def _add_help(
    parser: argparse.ArgumentParser,
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> None:
    helper = commands.add_parser("help", help="show this help, or the help of a command")
    helper.add_argument("topic", nargs="*", metavar="COMMAND", help="the command to explain")

    def run(arguments: argparse.Namespace) -> int:
        topic: Sequence[str] = arguments.topic
        parser.parse_args([*topic, "--help"])
        raise AssertionError("argparse leaves after --help")

    helper.set_defaults(run=run)
