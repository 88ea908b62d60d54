"""Opens the addressed graph, announces the target of a write, and confirms destructive ones."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

from omnigraph.cli.command_context import current, stdin
from omnigraph.cli.operator_config import OperatorConfig, load_operator_config
from omnigraph.cli.output import terminal
from omnigraph.cli.scopes import ServerAddress, is_local, resolve_address
from omnigraph.errors import InputError, NotFound
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.api.graph import Graph
    from omnigraph.api.snapshot import GraphSnapshot
    from omnigraph.remote.graph import RemoteGraph


@dataclass(frozen=True, slots=True)
class GraphTarget:
    """What a command addresses, as the user wrote it, and the actor."""

    address: str | ServerAddress
    operator: OperatorConfig
    actor: str | None

    @property
    def uri(self) -> str:
        """The address as shown in outputs."""
        return self.address.url if isinstance(self.address, ServerAddress) else self.address

    @property
    def is_local(self) -> bool:
        return is_local(self.uri)

    @property
    def is_served(self) -> bool:
        return isinstance(self.address, ServerAddress)


def resolve_target(arguments: argparse.Namespace) -> GraphTarget:
    """Resolve what a command addresses; nothing is opened."""
    operator = load_operator_config()
    address = resolve_address(arguments, operator)
    actor: str | None = vars(arguments)["as"]
    if isinstance(address, ServerAddress):
        from omnigraph.cli.remote import check_served, require_graph

        if actor is not None:
            raise InputError(
                "`--as` is not allowed on a served write: the token determines the actor"
            )
        check_served(arguments)
        require_graph(address, operator)
    return GraphTarget(address, operator, operator.actor if actor is None else actor)


@contextmanager
def open_graph(
    arguments: argparse.Namespace,
    mode: Literal["rw", "r"],
    target: GraphTarget | None = None,
    *,
    queries: str | None = None,
) -> Iterator[tuple[Graph, GraphTarget]]:
    """Open the addressed graph for the duration of a command.

    A graph behind a server has the interface of ``Graph``, as far as the commands use it that work
    through a server. ``queries`` is the directory of its stored queries; a server has its own.
    """
    target = target or resolve_target(arguments)
    if isinstance(target.address, ServerAddress):
        from omnigraph.cli.remote import open_remote

        with open_remote(arguments, target.address, target.operator) as remote:
            yield cast("Graph", remote), target
        return
    uri = target.address
    context = current()
    if context is not None:
        with context.open_graph(uri, mode, target.actor) as graph:
            _note_recovered(graph)
            yield graph, target
        return
    # The import creates many long-lived objects; collecting among them only costs time.
    was_on = gc.isenabled()
    gc.disable()
    try:
        from omnigraph.api.graph import Graph
    finally:
        if was_on:
            gc.enable()
    with Graph.open(uri, mode, actor=target.actor, queries=queries) as graph:
        _note_recovered(graph)
        yield graph, target


def _note_recovered(graph: Graph) -> None:
    for recovery in graph.recovered:
        terminal.note(f"note: an interrupted write was recovered first ({recovery.kind})")


@contextmanager
def open_for_write(
    arguments: argparse.Namespace, target: GraphTarget | None = None
) -> Iterator[tuple[Graph, GraphTarget]]:
    """Print the target of a write, and open it."""
    target = target or resolve_target(arguments)
    echo(arguments, target)
    with open_graph(arguments, "rw", target) as opened:
        yield opened


def actor_of(graph: Graph, target: GraphTarget) -> str | None:
    """The actor of the write that was just made; a server knows it from the token."""
    return cast("RemoteGraph", graph).actor if target.is_served else target.actor


def take_snapshot(graph: Graph, **which: Any) -> GraphSnapshot:
    """A snapshot; prints a note if it includes more than the requested commit."""
    snapshot = graph.snapshot(**which)
    group = snapshot.group
    if group is not None:
        terminal.note(
            f"note: the commit is number {group.index + 1} of a group of {group.size}; "
            f"this is the state after the last, {group.id}"
        )
    return snapshot


def find_snapshot(graph: Graph, name: str) -> GraphSnapshot:
    """The snapshot of a branch, a tag or a commit, in this order."""
    branches = graph.branches.list()
    if name in branches:
        return graph.snapshot(name)
    try:
        return take_snapshot(graph, at=name)
    except NotFound:
        from omnigraph.lang.closest import suggest

        message = f"there is no branch, tag or commit '{name}'"
        names = [*branches, *(tag.name for tag in graph.tags.list())]
        raise NotFound(message, hint=suggest(name, names), details={"ref": name}) from None


def echo(arguments: argparse.Namespace, target: GraphTarget) -> None:
    """Print the target of a write."""
    if arguments.quiet:
        return
    if isinstance(target.address, ServerAddress):
        way = "served"
    else:
        way = f"direct, {'local' if target.is_local else 'remote'}"
    terminal.note(f"omnigraph {arguments.command} → {target.uri} ({way})")


def require_consent(arguments: argparse.Namespace, target: GraphTarget, what: str) -> None:
    """Raise unless the target is local or the user agrees to a destructive operation."""
    if target.is_local or arguments.yes:
        return
    if getattr(arguments, "json", False) or not terminal.is_terminal(stdin()):
        raise InputError(
            f"refusing destructive {what} on '{target.uri}' without consent", hint="pass --yes"
        )
    if not terminal.confirm(f"{what} on {target.uri} cannot be undone. Continue? [y/N] "):
        raise InputError(f"aborted: {what} on '{target.uri}'")
