"""Opening what a command addresses, saying where a write goes, asking before destruction."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from omnigraph.cli.operator_config import Operator, load_operator
from omnigraph.cli.output import terminal
from omnigraph.cli.scopes import Server, is_local, storage_of
from omnigraph.errors import InputError, NotFound

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.api.snapshot import GraphSnapshot


@dataclass(frozen=True, slots=True)
class Target:
    """Where a command works, as the user wrote it, and who does."""

    address: str | Server
    operator: Operator
    actor: str | None

    @property
    def uri(self) -> str:
        """How outputs name it."""
        return self.address.url if isinstance(self.address, Server) else self.address

    @property
    def is_local(self) -> bool:
        return is_local(self.uri)

    def storage(self, label: str) -> str:
        """The storage to open; what a server would do is not there yet."""
        if isinstance(self.address, Server):
            raise InputError(
                f"`{label}` through a server is not there yet",
                hint="address the graph's storage with --store",
            )
        return self.address


def find_target(arguments: argparse.Namespace) -> Target:
    """What a command addresses; nothing is opened."""
    operator = load_operator()
    address = storage_of(arguments, operator)
    if isinstance(address, Server) and vars(arguments)["as"] is not None:
        raise InputError("`--as` is not allowed on a served write: the token says who writes")
    if isinstance(address, Server):
        from omnigraph.cli.remote import require_graph

        require_graph(address, operator)
    given = vars(arguments)["as"]
    return Target(address, operator, operator.actor if given is None else given)


@contextmanager
def opened(
    arguments: argparse.Namespace, mode: Literal["rw", "r"], target: Target | None = None
) -> Iterator[tuple[Graph, Target]]:
    """The graph that a command addresses, open for as long as it works."""
    found = find_target(arguments) if target is None else target
    uri = found.storage(arguments.label)
    with _no_collecting():
        from omnigraph.api.graph import Graph
    with Graph.open(uri, mode, actor=found.actor) as graph:
        for each in graph.recovered:
            terminal.note(f"note: an interrupted write was settled first ({each.kind})")
        yield graph, found


def snapshot_named(graph: Graph, name: str) -> GraphSnapshot:
    """The snapshot of a branch, a tag or a commit, in this order."""
    if name in graph.branches.list():
        return graph.snapshot(name)
    try:
        return graph.snapshot(at=name)
    except NotFound:
        message = f"there is no branch, tag or commit '{name}'"
        raise NotFound(message, details={"ref": name}) from None


@contextmanager
def _no_collecting() -> Iterator[None]:
    """Loading makes many objects that stay: looking for garbage among them only costs time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def echo(arguments: argparse.Namespace, target: Target, name: str | None = None) -> None:
    """Say where a write goes."""
    if arguments.quiet:
        return
    if isinstance(target.address, Server):
        way = "served"
    else:
        way = f"direct, {'local' if target.is_local else 'remote'}"
    terminal.note(f"omnigraph {name or arguments.label} → {target.uri} ({way})")


def consent(arguments: argparse.Namespace, target: Target, what: str) -> None:
    """Go on with destructive work only where it is local, or somebody agreed."""
    if target.is_local or arguments.yes:
        return
    if getattr(arguments, "json", False) or not terminal.is_terminal(sys.stdin):
        raise InputError(
            f"refusing destructive {what} on '{target.uri}' without consent", hint="pass --yes"
        )
    if not terminal.asked(f"{what} on {target.uri} cannot be undone. Go on? [y/N] "):
        raise InputError(f"aborted: {what} on '{target.uri}'")
