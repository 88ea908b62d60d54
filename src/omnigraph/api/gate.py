"""The protocols of what a handle asks; ``omnigraph.Policy`` implements them all.

A ``WriteGate`` is asked before each write. A gate that is also a ``ViewGate`` decides which rows an
actor sees; with any other gate every actor sees the whole graph. The cursors of pages are bound to
the rules of a gate that is also a ``DigestGate``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from omnigraph.identity import Identity

if TYPE_CHECKING:
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.plan.view import View


@runtime_checkable
class WriteGate(Protocol):
    """Decides about each write of a handle, before anything is read or written for it."""

    def check(
        self,
        actor: Identity | str | None,
        action: str,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> None:
        """Raise ``PolicyDenied`` unless the actor may do this.

        ``action`` is one of the actions of ``docs/policy.md``; ``branch`` is the branch that is
        changed or read from, ``target`` the one that is created, deleted, merged into, or given a
        schema; ``query`` is the stored query that does it. ``actor`` is an ``Identity`` on a graph
        that ``Graph.for_actor`` made for one, else the name of the actor; ``None`` if neither the
        call nor the handle says who acts: refuse it, as ``Policy`` does.

        >>> class ReadersOnly:
        ...     def check(self, actor, action, branch=None, target=None, *, query=None):
        ...         raise PermissionError(action)
        >>> isinstance(ReadersOnly(), WriteGate)
        True
        """
        ...


@runtime_checkable
class ViewGate(Protocol):
    """Decides which rows an actor sees."""

    def view(self, actor: Identity | None, branch: str, catalog: Catalog) -> View:
        """What an actor sees of a snapshot: of its branch, under its schema.

        It is called for every read and must be cheap. ``actor`` is ``None`` if nobody says who
        acts.
        """
        ...


@runtime_checkable
class DigestGate(Protocol):
    """Has a digest of its rules."""

    @property
    def digest(self) -> str:
        """Changes whenever the rules do."""
        ...
