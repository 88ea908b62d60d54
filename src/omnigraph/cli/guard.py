"""Checks that the global flags apply to the command, before anything else happens."""

from __future__ import annotations

import argparse

from omnigraph.cli.registry import Capability
from omnigraph.errors import InputError

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
    if arguments.label == "alias":
        _check_alias(given)
    for flag in _MEANING:
        if flag in given and not _applies(flag, arguments):
            raise InputError(
                f"`{arguments.label}` is a {arguments.capability.phrase} command; "
                f"{_MEANING[flag]} and does not apply.{_remedy(arguments)}"
            )


def _check_alias(given: list[str]) -> None:
    if given:
        flags = ", ".join(f"--{flag}" for flag in given)
        raise InputError(
            "`alias` uses the server, graph, and stored query of its definition; "
            f"{flags} cannot be combined with it"
        )


def _applies(flag: str, arguments: argparse.Namespace) -> bool:
    capability: Capability = arguments.capability
    addressed = capability in (Capability.ANY, Capability.SERVED)
    if flag == "server":
        return addressed
    if flag == "cluster":
        return bool(arguments.in_cluster)
    if flag == "graph":
        return capability is Capability.ANY or bool(arguments.in_cluster)
    if flag == "as":
        return bool(arguments.writes)
    if flag == "store" and capability is Capability.SERVED:
        return False
    return capability is not Capability.LOCAL and not getattr(arguments, "names_graph", False)


def _remedy(arguments: argparse.Namespace) -> str:
    if arguments.capability is Capability.LOCAL:
        return " It does not address a graph."
    if arguments.capability is Capability.DIRECT:
        if arguments.in_cluster and arguments.label != "lint":
            return " Pass a storage URI, or --cluster <dir> --graph <id>."
        return " Pass a storage URI."
    return ""
