"""The grammar of the command line.

Only the module of the command that is asked for is loaded; all of them when help is.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from omnigraph.cli.about import PROGRAM
from omnigraph.cli.output import terminal
from omnigraph.cli.registry import (
    MODULES,
    VALUE_FLAGS,
    Capability,
    Commands,
    add_global_flags,
    subcommands_of,
)

_ABOUT = {
    Capability.ANY: "works on a graph directly or through a server",
    Capability.SERVED: "needs a server",
    Capability.DIRECT: "works on storage or on files",
    Capability.CONTROL: "works on a cluster",
    Capability.LOCAL: "needs no graph",
}


def meaning(action: argparse.Action, quote: str = "") -> str:
    """What help says of an argument, with what counts when it is not given."""
    text = (action.help or "").replace("%%", "%")
    default = action.default
    if isinstance(default, bool) or default in (None, argparse.SUPPRESS) or default == []:
        return text
    shown = f"{default:g}" if isinstance(default, float) else default
    return f"{text} ({quote}{shown}{quote} if not given)"


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help that also names defaults."""

    def _get_help_string(self, action: argparse.Action) -> str:
        return meaning(action).replace("%", "%%")


class CommandParser(argparse.ArgumentParser):
    """A parser without guessing: options are written out in full."""

    def __init__(self, **options: object) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", _Help)
        super().__init__(**options)  # type: ignore[arg-type]

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str], namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As usual, but an option that does not exist is named before what is missing."""
        form = subcommands_of(self).get(args[0]) if args else None
        if form is not None:
            return form[0].parse_known_args(args[1:], namespace)
        known = [option for action in self._actions for option in action.option_strings]
        taking = {
            option
            for action in self._actions
            if action.nargs != 0
            for option in action.option_strings
        }
        is_value = False
        for arg in args:
            if arg == "--":
                break
            if is_value:
                is_value = False
                continue
            option = arg.split("=", 1)[0]
            is_value = arg in taking
            if option.startswith("-") and option != "-" and self._is_stranger(option, known):
                from omnigraph.lang.closest import closest

                close = closest(option, known)
                hint = f"; did you mean {close}?" if close else ""
                self.error(f"unknown option {option}{hint}")
        return super().parse_known_args(args, namespace)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """As usual, but for a command that does not exist the nearest is named, not all."""
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            from omnigraph.lang.closest import closest

            close = closest(str(value), list(action.choices))
            hint = f"did you mean {close}?" if close else f"{self.prog} --help lists them"
            self.error(f"unknown command '{value}'; {hint}")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        """Wrong usage, said on stderr and nowhere else, also when there is none."""
        terminal.note_lines([*self.format_usage().splitlines(), f"{self.prog}: error: {message}"])
        raise SystemExit(terminal.USAGE)

    def _print_message(self, message: str, file: object = None) -> None:
        """Help and version, which are results; argparse would drop what cannot be written."""
        terminal.show_raw(message)

    def _is_stranger(self, option: str, known: list[str]) -> bool:
        """Whether neither this parser nor a command below it has the option."""
        has_commands = any(
            isinstance(action, argparse._SubParsersAction) for action in self._actions
        )
        is_number = self._negative_number_matcher.match(option) is not None
        return option not in known and not has_commands and not is_number


def build_parser(arguments: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser of the whole command, or what of it some arguments need."""
    asked = None if arguments is None else _command_of(arguments)
    parser: argparse.ArgumentParser = CommandParser(
        prog="omnigraph", description="A typed property graph with git-style workflows."
    )
    parser.add_argument("-v", "--version", action="version", version=PROGRAM)
    add_global_flags(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    if asked in MODULES:
        _add(MODULES[asked], commands)
        return parser
    for module in dict.fromkeys(MODULES.values()):
        _add(module, commands)
    _add_help(parser, commands)
    parser.epilog = legend(parser)
    return parser


def _add(module: str, commands: Commands) -> None:
    import_module(f"omnigraph.cli.{module}").add(commands)


def _command_of(arguments: Sequence[str]) -> str | None:
    """The first word that is neither a global flag nor its value."""
    words = iter(arguments)
    for word in words:
        if word in VALUE_FLAGS:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None


def leaves(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Every command that can be run, the forms of a family one by one."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return [leaf for child in action.choices.values() for leaf in leaves(child)]
    return [parser, *(form for form, _ in subcommands_of(parser).values())]


def legend(parser: argparse.ArgumentParser) -> str:
    """Which commands have which capability."""
    lines = ["COMMANDS BY CAPABILITY:"]
    found: dict[Capability, list[str]] = {capability: [] for capability in Capability}
    hidden = {"ingest", "help"}
    for leaf in leaves(parser):
        name = leaf.prog.removeprefix("omnigraph ")
        capability = leaf.get_default("capability")
        if capability is not None and name not in hidden:
            found[capability].append(name)
    for capability, names in found.items():
        lines.append(f"  {capability.word:8} {_ABOUT[capability]}:")
        lines += _wrapped(names or ["none yet"])
    return "\n".join(lines)


def _wrapped(names: Sequence[str], width: int = 88) -> list[str]:
    lines, line = [], ""
    for name in names:
        piece = f"{line}, {name}" if line else name
        if len(piece) > width - 11:
            lines.append(f"{line},")
            piece = name
        line = piece
    return [f"           {each}" for each in [*lines, line]]


def _add_help(parser: argparse.ArgumentParser, commands: Commands) -> None:
    helper = commands.add_parser("help", help="show this help, or the help of a command")
    helper.add_argument("topic", nargs="*", metavar="COMMAND", help="the command to explain")

    def run(arguments: argparse.Namespace) -> int:
        topic: Sequence[str] = arguments.topic
        parser.parse_args([*topic, "--help"])
        raise AssertionError("argparse leaves after --help")

    helper.set_defaults(run=run)
