"""Which commands there are, what each is about, and how a command declares itself.

A command lives in a module of its own, which is loaded only when the command is used. It calls
``command`` for each of its forms; what kind of thing it addresses is said there, and the guard
reads it from the parsed arguments.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Run: TypeAlias = Callable[[argparse.Namespace], int]


class UsageError(Exception):
    """The options of a command do not go together; for what the parser cannot see."""


class Capability(Enum):
    """What a command works on, and the words that messages have for it."""

    ANY = "any", "data"
    SERVED = "served", "served"
    DIRECT = "direct", "direct (storage-native)"
    CONTROL = "control", "cluster control"
    LOCAL = "local", "local"

    def __init__(self, word: str, phrase: str) -> None:
        self.word = word
        self.phrase = phrase


MODULES: dict[str, str] = {
    "init": "commands.init",
    "load": "commands.load",
    "ingest": "commands.ingest",
    "query": "commands.query",
    "mutate": "commands.mutate",
    "alias": "commands.alias",
    "graphs": "commands.graphs",
    "snapshot": "commands.snapshot",
    "export": "commands.export",
    "branch": "commands.branch",
    "commit": "commands.commit",
    "log": "commands.log",
    "diff": "commands.diff",
    "changes": "commands.changes",
    "blame": "commands.revert",
    "revert": "commands.revert",
    "cherry-pick": "commands.revert",
    "tag": "commands.tag",
    "blob": "commands.blob",
    "schema": "commands.schema",
    "lint": "commands.lint",
    "fmt": "commands.fmt",
    "explain": "commands.explain",
    "index": "commands.index",
    "optimize": "commands.optimize",
    "repair": "commands.repair",
    "cleanup": "commands.cleanup",
    "doctor": "commands.doctor",
    "verify": "commands.verify",
    "backup": "commands.backup",
    "restore": "commands.backup",
    "clone": "commands.backup",
    "embed": "commands.embed",
    "profile": "commands.profile",
    "login": "commands.login",
    "logout": "commands.login",
    "shell": "shell.command",
    "completion": "commands.completion",
    "version": "commands.version",
}
"""The module of every command, in the order in which help lists them."""

_VALUES = {
    "--as": ("ACTOR", "who writes; recorded in the commit"),
    "--server": ("NAME|URL", "a server of the configuration, or its address"),
    "--graph": ("ID", "one graph of a server or a cluster"),
    "--profile": ("NAME", "a profile of the configuration"),
    "--store": ("URI", "the storage of one graph"),
    "--cluster": ("NAME|DIR|URI", "a cluster of the configuration, or its storage"),
}
_SWITCHES = {
    "--yes": "agree to destructive work on a target that is not local",
    "--quiet": "do not say where a write goes",
}
VALUE_FLAGS = frozenset(_VALUES)


def add_global_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that stand before or after the command. What is not given leaves no trace."""
    group = parser.add_argument_group("global options")
    for flag, (metavar, text) in _VALUES.items():
        group.add_argument(flag, metavar=metavar, help=text, default=argparse.SUPPRESS)
    for flag, text in _SWITCHES.items():
        group.add_argument(flag, action="store_true", help=text, default=argparse.SUPPRESS)


def fill_global_flags(arguments: argparse.Namespace) -> None:
    """Give the flags that were not given their value."""
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
    """Declare a command, or one form of a family; its own arguments are added to the result.

    ``label`` is what messages call it, where that is not its name. One that ``writes`` records
    who did; one that works ``in_cluster`` takes ``--cluster``.
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


def subcommand(
    parent: argparse.ArgumentParser, name: str, run: Run, text: str
) -> argparse.ArgumentParser:
    """Declare a further form of a command that is a command itself, such as ``backup prune``.

    The parser of commands takes the first word for it, if it has that name.
    """
    parser = type(parent)(prog=f"{parent.prog} {name}", description=_sentence(text))
    add_global_flags(parser)
    parser.set_defaults(
        **{**parent._defaults, "run": run, "label": f"{parent.get_default('label')} {name}"}
    )
    subcommands_of(parent)[name] = (parser, text)
    return parser


def subcommands_of(
    parser: argparse.ArgumentParser,
) -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """What was declared by ``subcommand``: each with what it is for."""
    found: dict[str, tuple[argparse.ArgumentParser, str]] = vars(parser).setdefault(
        "subcommands", {}
    )
    return found


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def family(commands: Commands, name: str, text: str) -> Commands:
    """Declare a command that has several forms, such as ``branch list``."""
    group = commands.add_parser(name, help=text, description=_sentence(text))
    return group.add_subparsers(title="commands", metavar="COMMAND", required=True)


def form(
    forms: Commands, family: str, name: str, run: Run, text: str, *, writes: bool = False
) -> argparse.ArgumentParser:
    """Declare a form of a family that works on a graph and has a result."""
    parser = command(forms, name, run, Capability.ANY, text, label=family, writes=writes)
    add_uri(parser, positional=False)
    add_json(parser)
    return parser


def add_uri(parser: argparse.ArgumentParser, *, positional: bool = True) -> None:
    """The command's own address of a graph."""
    text = "the graph: a directory or s3://bucket/prefix"
    if positional:
        parser.add_argument("uri", nargs="?", metavar="URI", help=text)
    else:
        parser.add_argument("--uri", metavar="URI", help=text)


def add_json(parser: Any, text: str = "print one JSON document") -> None:
    parser.add_argument("--json", action="store_true", help=text)


def add_local_files(parser: Any) -> None:
    parser.add_argument(
        "--allow-local-files",
        action="store_true",
        help="store the content of local files that Blob values name (file:///...)",
    )
