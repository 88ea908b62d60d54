"""The protocol of what a handle asks before it writes; ``omnigraph.Policy`` implements it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class WriteGate(Protocol):
    """Decides about each write of a handle, before anything is read or written for it."""

    def check(
        self,
        actor: str | None,
        action: str,
        branch: str | None = None,
        target: str | None = None,
    ) -> None:
        """Raise ``PolicyDenied`` unless the actor may do this.

        ``action`` is one of the actions of ``docs/policy.md``; ``branch`` is the branch that is
        changed or read from, ``target`` the one that is created, deleted, merged into, or given a
        schema. ``actor`` is ``None`` if neither the call nor the handle says who acts: refuse it,
        as ``Policy`` does.

        >>> class ReadersOnly:
        ...     def check(self, actor, action, branch=None, target=None):
        ...         raise PermissionError(action)
        >>> isinstance(ReadersOnly(), WriteGate)
        True
        """
        ...
