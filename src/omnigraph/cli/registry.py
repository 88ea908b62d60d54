"""The list of commands, and how a command declares itself.

Each command lives in its own module, loaded only when the command is used. The module calls
``command``, or ``family`` and ``Family.add``, and states there what the command addresses; the
flag guard reads that from the parsed arguments.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from enum import Enum
from typing import Any, Literal, TypeAlias

from omnigraph.cli.options import add_json, add_uri
from omnigraph.cli.parser_tree import defaults, extra_forms

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Run: TypeAlias = Callable[[argparse.Namespace], int]


class UsageError(Exception):
    """An invalid combination of options that the parser itself cannot detect."""


class Capability(Enum):
    """What a command works on, with the words used in help and in messages."""

    ANY = "any", "data"
    SERVED = "served", "served"
    DIRECT = "direct", "direct (storage-native)"
    CONTROL = "control", "cluster control"
    LOCAL = "local", "local"

    def __init__(self, word: str, phrase: str) -> None:
        self.word = word
        self.phrase = phrase


_NAMES = (
    "init load ingest query mutate alias graphs snapshot export branch commit log diff changes "
    "blame revert cherry-pick tag blob schema lint fmt explain index optimize repair cleanup "
    "doctor verify backup restore clone embed profile login logout shell completion version"
)
_SHARED = {
    "blame": "commands.revert",
    "cherry-pick": "commands.revert",
    "restore": "commands.backup",
    "clone": "commands.backup",
    "logout": "commands.login",
    "shell": "shell.command",
}
MODULES = {name: _SHARED.get(name, f"commands.{name}") for name in _NAMES.split()}
"""The module of every command, in the order of the help."""

_VALUES = {
    "--as": ("ACTOR", "actor to record in the commit"),
    "--server": ("NAME|URL", "server name from the configuration, or a URL"),
    "--graph": ("ID", "graph within a server or cluster"),
    "--profile": ("NAME", "profile from the configuration"),
    "--store": ("URI", "storage of one graph"),
    "--cluster": ("NAME|DIR|URI", "cluster name from the configuration, or its storage root"),
}
_SWITCHES = {
    "--yes": "confirm a destructive operation on a target that is not local",
    "--quiet": "do not print the target of a write",
}
VALUE_FLAGS = frozenset(_VALUES)


def add_global_flags(parser: argparse.ArgumentParser) -> None:
    """The flags allowed before and after the command; one that is absent sets no attribute."""
    group = parser.add_argument_group("global options")
    for flag, (metavar, text) in _VALUES.items():
        group.add_argument(flag, metavar=metavar, help=text, default=argparse.SUPPRESS)
    for flag, text in _SWITCHES.items():
        group.add_argument(flag, action="store_true", help=text, default=argparse.SUPPRESS)


def fill_global_flags(arguments: argparse.Namespace) -> None:
    """Set the global flags that were not given to their defaults."""
    for flag in _VALUES:
        vars(arguments).setdefault(flag.removeprefix("--"), None)
    for flag in _SWITCHES:
        vars(arguments).setdefault(flag.removeprefix("--"), False)


def command(
    commands: Commands,
    name: str,
    run: Run,
    capability: Capability,
    text: str,
    *,
    description: str | None = None,
    label: str | None = None,
    writes: bool = False,
    in_cluster: bool = False,
    is_hidden: bool = False,
) -> argparse.ArgumentParser:
    """Declare a command; its own arguments are added to the returned parser.

    ``label`` is its name in messages, if different. A command that ``writes`` takes ``--as``; one
    that works ``in_cluster`` takes ``--cluster``.
    """
    shown: dict[str, Any] = {} if is_hidden else {"help": text}
    parser = commands.add_parser(name, description=description or _sentence(text), **shown)
    add_global_flags(parser)
    parser.set_defaults(
        run=run,
        label=label or name,
        capability=capability,
        writes=writes,
        in_cluster=in_cluster,
    )
    return parser


class Family:
    """A command with several forms, such as ``branch list`` and ``branch create``."""

    def __init__(
        self, forms: Commands, label: str, capability: Capability, in_cluster: bool
    ) -> None:
        self._forms = forms
        self._label = label
        self._capability = capability
        self._in_cluster = in_cluster

    def add(
        self,
        name: str,
        run: Run,
        text: str,
        *,
        description: str | None = None,
        label: str | None = None,
        capability: Capability | None = None,
        writes: bool = False,
        uri: Literal["option", "positional"] | None = "option",
        json: str | None = "print one JSON document",
    ) -> argparse.ArgumentParser:
        """Declare one form, with its graph address and ``--json`` unless told otherwise."""
        parser = command(
            self._forms,
            name,
            run,
            capability or self._capability,
            text,
            description=description,
            label=label or self._label,
            writes=writes,
            in_cluster=self._in_cluster,
        )
        if uri is not None:
            add_uri(parser, positional=uri == "positional")
        if json is not None:
            add_json(parser, json)
        return parser


def family(
    commands: Commands,
    name: str,
    text: str,
    capability: Capability = Capability.ANY,
    *,
    in_cluster: bool = False,
) -> Family:
    """Declare a command with several forms."""
    group = commands.add_parser(name, help=text, description=_sentence(text))
    forms = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    return Family(forms, name, capability, in_cluster)


def extra_form(
    parent: argparse.ArgumentParser, name: str, run: Run, text: str
) -> argparse.ArgumentParser:
    """Declare a form of a command that is also a command itself, such as ``backup prune``."""
    parser = type(parent)(prog=f"{parent.prog} {name}", description=_sentence(text))
    add_global_flags(parser)
    parser.set_defaults(
        **{**defaults(parent), "run": run, "label": f"{parent.get_default('label')} {name}"}
    )
    extra_forms(parent)[name] = (parser, text)
    return parser


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
