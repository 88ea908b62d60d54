"""Reads the options, positional arguments and subcommands of a parser.

Tab completion, the help legend and the commands page are derived from the parsers. ``argparse``
has no public way to list what was declared, so its private attributes are used here and nowhere
else.
"""

from __future__ import annotations

import argparse
from typing import Any


def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Every option and positional argument, in declaration order."""
    return parser._actions


def options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """The options by each of their spellings."""
    return parser._option_string_actions


def positionals(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The positional arguments in order."""
    return [action for action in parser._actions if not action.option_strings]


def defaults(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """The defaults set with ``set_defaults``."""
    return parser._defaults


def exclusive_groups(parser: argparse.ArgumentParser) -> list[set[str]]:
    """The destinations of each group of mutually exclusive options."""
    return [
        {action.dest for action in group._group_actions}
        for group in parser._mutually_exclusive_groups
    ]


def is_repeatable(action: argparse.Action) -> bool:
    return isinstance(action, argparse._AppendAction)


def is_subparsers(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction)


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of each command below this one; empty for a command without subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def listed_commands(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    """The commands that help lists, each with its help text."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return [(choice.dest, choice.help or "") for choice in action._choices_actions]
    return []


def leaves(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Every parser of a command that can be run."""
    children = subparsers(parser)
    if children:
        return [leaf for child in children.values() for leaf in leaves(child)]
    return [parser, *(form for form, _ in extra_forms(parser).values())]


def extra_forms(parser: argparse.ArgumentParser) -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """The subcommands of a command that can also be run itself, with their help texts.

    ``argparse`` has no such thing (``backup URI`` beside ``backup prune``); the command parser
    looks here before it parses.
    """
    forms: dict[str, tuple[argparse.ArgumentParser, str]] = vars(parser).setdefault(
        "extra_forms", {}
    )
    return forms
