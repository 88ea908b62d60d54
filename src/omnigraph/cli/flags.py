"""The global flags, and which of them apply to a command.

``check_flags`` reads the capability of the command from the parsed arguments.
"""

from __future__ import annotations

import argparse
from enum import Enum

from omnigraph.errors import InputError


class UsageError(Exception):
    """An invalid combination of options that the parser itself cannot detect."""


class Capability(Enum):
    """What a command works on, with the text for help and messages."""

    ANY = "any", "data"
    SERVED = "served", "served"
    DIRECT = "direct", "direct (storage-native)"
    CONTROL = "control", "cluster control"
    LOCAL = "local", "local"

    def __init__(self, word: str, phrase: str) -> None:
        self.word = word
        self.phrase = phrase


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


_MEANING = {
    "server": "--server addresses a served graph",
    "cluster": "--cluster addresses a cluster-scoped command",
    "graph": "--graph selects a graph within a server or cluster scope",
    "store": "--store addresses the storage of one graph",
    "profile": "--profile addresses a graph",
    "as": "--as names the actor of a write",
}
_BOUND = ("server", "graph", "store", "cluster", "profile", "as")
"""Flags that an alias defines itself."""


def check_flags(arguments: argparse.Namespace) -> None:
    """Refuse flags that do not apply to the command."""
    given = [flag for flag in _BOUND if getattr(arguments, flag) is not None]
    if arguments.label == "alias" and given:
        flags = ", ".join(f"--{flag}" for flag in given)
        raise InputError(
            "`alias` uses the server, graph, and stored query of its definition; "
            f"{flags} cannot be combined with it"
        )
    capability: Capability = arguments.capability
    is_addressed = capability is not Capability.LOCAL and not arguments.names_graph
    if arguments.label == "cluster":
        # It is addressed by its own directory.
        is_addressed = False
    applies = {
        "server": capability in (Capability.ANY, Capability.SERVED) or arguments.through_server,
        "cluster": arguments.in_cluster,
        "graph": capability is Capability.ANY
        or arguments.in_cluster
        or (capability is Capability.DIRECT and arguments.through_server),
        "store": is_addressed and capability is not Capability.SERVED,
        "profile": is_addressed,
        "as": arguments.writes,
    }
    for flag, meaning in _MEANING.items():
        if flag in given and not applies[flag]:
            raise InputError(
                f"`{arguments.label}` is a {capability.phrase} command; "
                f"{meaning} and does not apply.{_remedy(arguments)}"
            )


def _remedy(arguments: argparse.Namespace) -> str:
    if arguments.capability is Capability.LOCAL:
        return " It does not address a graph."
    if arguments.capability is Capability.DIRECT:
        if arguments.in_cluster and arguments.label != "lint":
            return " Pass a storage URI, or --cluster <dir> --graph <id>."
        return " Pass a storage URI."
    if arguments.label == "cluster":
        return " Pass --config <dir>."
    if arguments.label.startswith("queries"):
        return " Pass --cluster <dir|uri>."
    if arguments.capability is Capability.CONTROL:
        return " Pass --cluster <dir|uri>, or the FILE of a bundle."
    return ""
