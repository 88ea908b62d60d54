"""The parser of the command line.

Only the module of the given command is imported, or all of them for help.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import NoReturn

from omnigraph.cli.about import PROGRAM
from omnigraph.cli.flags import VALUE_FLAGS, Capability, add_global_flags
from omnigraph.cli.output import terminal
from omnigraph.cli.parser_tree import actions, extra_forms, is_subparsers, leaves
from omnigraph.cli.registry import COMMANDS, Commands, declare

_ABOUT = {
    Capability.ANY: "works on a graph; on data and branches also through a server",
    Capability.SERVED: "needs a server",
    Capability.DIRECT: "works on storage or on files",
    Capability.CONTROL: "works on a cluster",
    Capability.LOCAL: "needs no graph",
}

_REPLACED = {
    ("query", "lint"): "lint",
    ("query", "check"): "lint",
    ("check",): "lint",
    ("read",): "query",
    ("change",): "mutate",
}
_SILENT = {("schema", "get"): ["schema", "show"]}


def meaning(action: argparse.Action, quote: str = "") -> str:
    """The help text of an argument, with its default."""
    text = (action.help or "").replace("%%", "%")
    default = action.default
    if isinstance(default, bool) or default in (None, argparse.SUPPRESS) or default == []:
        return text
    shown = f"{default:g}" if isinstance(default, float) else default
    return f"{text} (default: {quote}{shown}{quote})"


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help that includes defaults."""

    def _get_help_string(self, action: argparse.Action) -> str:
        return meaning(action).replace("%", "%%")


class CommandParser(argparse.ArgumentParser):
    """A parser that takes no abbreviated options and suggests similar names."""

    def __init__(self, **options: object) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", _Help)
        super().__init__(**options)  # type: ignore[arg-type]

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str], namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As in argparse, but a command itself reports an unknown option, before missing ones, and
        arguments too many.
        """
        form = extra_forms(self).get(args[0]) if args else None
        if form is not None:
            return form[0].parse_known_args(args[1:], namespace)
        declared = {option: action for action in actions(self) for option in action.option_strings}
        is_value = False
        for arg in args:
            if arg == "--":
                break
            if is_value:
                is_value = False
                continue
            option = arg.split("=", 1)[0]
            is_value = arg in declared and declared[arg].nargs != 0
            if option.startswith("-") and option != "-" and self._is_unknown(option, declared):
                from omnigraph.lang.closest import closest

                close = closest(option, list(declared))
                hint = f"; did you mean {close}?" if close else ""
                self.error(f"unknown option {option}{hint}")
        parsed, rest = super().parse_known_args(args, namespace)
        if rest and not any(map(is_subparsers, actions(self))):
            hint = "; pass the graph with --uri" if "--uri" in declared else ""
            self.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
        return parsed, rest

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """As in argparse, but for an unknown command the closest name is suggested."""
        if is_subparsers(action) and value not in (action.choices or ()):
            from omnigraph.lang.closest import closest

            close = closest(str(value), list(map(str, action.choices or ())))
            hint = f"did you mean {close}?" if close else f"{self.prog} --help lists them"
            self.error(f"unknown command '{value}'; {hint}")
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        """Print a usage error on stderr, if it is open, and exit."""
        terminal.note_lines([*self.format_usage().splitlines(), f"{self.prog}: error: {message}"])
        raise SystemExit(terminal.USAGE)

    def _print_message(self, message: str, file: object = None) -> None:
        """Print help or the version as a result; argparse would ignore a write error."""
        terminal.show_raw(message)

    def _is_unknown(self, option: str, declared: Mapping[str, argparse.Action]) -> bool:
        """Whether neither this parser nor a command below it has the option."""
        has_commands = any(map(is_subparsers, actions(self)))
        is_number = self._negative_number_matcher.match(option) is not None
        return option not in declared and not has_commands and not is_number


def build_parser(arguments: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Build the parser of all commands, or only of the command in some arguments."""
    name = None if arguments is None else _command_of(arguments)
    parser: argparse.ArgumentParser = CommandParser(
        prog="omnigraph", description="A typed property graph with git-style workflows."
    )
    parser.add_argument("-v", "--version", action="version", version=PROGRAM)
    add_global_flags(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    entries = [entry for entry in COMMANDS if entry.family == name]
    declare(commands, entries or COMMANDS)
    if not entries:
        _add_help(parser, commands)
        parser.epilog = legend(parser)
    return parser


def _command_of(arguments: Sequence[str]) -> str | None:
    """The first word that is neither a global flag nor its value."""
    words = iter(arguments)
    for word in words:
        if word in VALUE_FLAGS:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None


def legend(parser: argparse.ArgumentParser) -> str:
    """The commands by capability."""
    lines = ["COMMANDS BY CAPABILITY:"]
    names_by: dict[Capability, list[str]] = {capability: [] for capability in Capability}
    hidden = {"ingest", "help"}
    for leaf in leaves(parser):
        name = leaf.prog.removeprefix("omnigraph ")
        capability = leaf.get_default("capability")
        if capability is not None and name not in hidden:
            names_by[capability].append(name)
    for capability, names in names_by.items():
        lines.append(f"  {capability.word:8} {_ABOUT[capability]}:")
        lines += _wrap(names or ["none yet"])
    return "\n".join(lines)


def _wrap(names: Sequence[str], width: int = 88) -> list[str]:
    from textwrap import wrap

    # A name such as "branch list" is kept on one line.
    text = ", ".join(name.replace(" ", "\xa0") for name in names)
    lines = wrap(text, width - 11, break_on_hyphens=False)
    return [f"           {line}".replace("\xa0", " ") for line in lines]


def _add_help(parser: argparse.ArgumentParser, commands: Commands) -> None:
    helper = commands.add_parser("help", help="show this help, or the help of a command")
    helper.add_argument("topic", nargs="*", metavar="COMMAND", help="command to explain")

    def run(arguments: argparse.Namespace) -> int:
        parser.parse_args([*arguments.topic, "--help"])
        raise AssertionError("argparse exits after --help")

    helper.set_defaults(run=run)


def rewrite(arguments: list[str]) -> list[str]:
    """The arguments in current spelling; warns about a deprecated one.

    >>> rewrite(["lint", "--query", "a.gq"])
    ['lint', '--query', 'a.gq']
    """
    for old, new in _REPLACED.items():
        if tuple(arguments[: len(old)]) == old:
            terminal.warn(
                f"`omnigraph {' '.join(old)}` is deprecated; use `omnigraph {new}` instead"
            )
            return [new, *arguments[len(old) :]]
    for old, words in _SILENT.items():
        if tuple(arguments[: len(old)]) == old:
            return [*words, *arguments[len(old) :]]
    return arguments
