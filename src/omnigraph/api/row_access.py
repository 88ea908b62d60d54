"""What calls that write need of the view of their actor.

A handle whose policy has no rules for rows sees everything, and nothing is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from omnigraph.api.gate import ViewGate, WriteGate
from omnigraph.api.handle import Handle
from omnigraph.commit.names import normal_branch
from omnigraph.commit.schema.history import recorded_catalogs
from omnigraph.errors import PolicyDenied
from omnigraph.identity import Identity
from omnigraph.lang.schema.catalog import Catalog

if TYPE_CHECKING:
    from omnigraph.write.row_security import RowSecurity


def row_security(
    handle: Handle, actor: str | None, action: str, branch: str, catalog: Catalog
) -> RowSecurity | None:
    """What a write on a branch may see and change; ``None`` if its actor sees everything."""
    view = handle.view(normal_branch(branch), catalog, actor)
    if view.is_whole:
        return None
    from omnigraph.write.row_security import RowSecurity

    return RowSecurity(view, actor, action, branch)


def require_whole_view(
    handle: Handle,
    actor: str | None,
    action: str,
    branch: str | None,
    catalog: Catalog,
    *,
    target: str | None = None,
) -> None:
    """Refuse a call unless its actor sees all rows of a branch; of all branches without one.

    ``target`` is the branch instead if the action names it so.
    """
    if handle.policy is None:
        return
    from omnigraph.commit.branches import Branches

    named = branch if target is None else target
    branches = Branches(handle.store).list() if named is None else [named]
    for name in branches:
        if not handle.view(normal_branch(name), catalog, actor).is_whole:
            raise PolicyDenied.beyond_view(actor, action, branch, target)


def authorize_copy(policy: WriteGate | None, actor: str | None) -> None:
    """Ask a policy about a call that copies graphs or backups without an open graph."""
    if policy is not None:
        policy.check(actor, "admin")


def require_whole_copy(
    policy: WriteGate | None,
    actor: str | None,
    branches: Iterable[str],
    catalog: Callable[[], Catalog | None],
) -> None:
    """Refuse to copy a graph of some branches unless the actor sees all of its rows."""
    gate: object = policy
    if not isinstance(gate, ViewGate):
        return
    identity, schema = None if actor is None else Identity(actor), catalog()
    for branch in branches:
        if schema is None or not gate.view(identity, branch, schema).is_whole:
            raise PolicyDenied.beyond_view(actor, "admin", None)


WholeTables = Callable[[str | None, Iterable[str]], None]
"""Raises unless the actor of a call sees all rows of some tables on a branch."""


def whole_tables(
    handle: Handle,
    actor: str | None,
    action: str,
    catalog: Catalog,
    branch: str | None,
    target: str | None = None,
) -> WholeTables | None:
    """The check of a call that needs all rows of the tables that it touches."""
    if handle.policy is None:
        return None

    def check(on: str | None, keys: Iterable[str]) -> None:
        if not handle.view(on, catalog, actor).whole_for(keys):
            raise PolicyDenied.beyond_view(actor, action, branch, target)

    return check


def refuse_wider_branch(handle: Handle, actor: str | None, source: str, name: str) -> None:
    """Refuse a new branch on which its creator would see more than on its source.

    A branch inherits the history of its source, so that holds for earlier schemas too.
    """
    if handle.policy is None:
        return
    origin = normal_branch(source)
    for catalog in (handle.accepted().catalog, *recorded_catalogs(handle.store, origin)):
        new = handle.view(normal_branch(name), catalog, actor)
        if not new.is_no_wider_than(handle.view(origin, catalog, actor)):
            raise PolicyDenied.beyond_view(actor, "branch_create", source, name)
