"""The actions that rules allow, what they act on, and which scope may restrict them."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Action: TypeAlias = Literal[
    "read",
    "export",
    "change",
    "schema_apply",
    "branch_create",
    "branch_delete",
    "branch_merge",
    "invoke_query",
    "admin",
    "graph_list",
    "read_history",
    "config_manage",
]
"""What an actor wants to do."""
BundleScope: TypeAlias = Literal["graph", "server"]
"""What a bundle is bound to."""

ACTIONS: tuple[Action, ...] = get_args(Action)
SERVER_ACTIONS: frozenset[str] = frozenset({"graph_list", "config_manage"})
"""Only for the whole server."""
SHARED_ACTIONS: frozenset[str] = frozenset({"admin"})
"""For a graph (maintenance, backup) and for the server (metrics, the log of decisions)."""
GRAPH_ACTIONS: frozenset[str] = frozenset(ACTIONS) - SERVER_ACTIONS - SHARED_ACTIONS
"""Only for one graph."""

ON_BRANCH: frozenset[str] = frozenset({"read", "read_history", "export", "change"})
"""May be restricted by ``branch_scope``."""
ON_TARGET: frozenset[str] = frozenset(
    {"schema_apply", "branch_create", "branch_delete", "branch_merge"}
)
"""May be restricted by ``target_branch_scope``."""
IN_QUERIES: frozenset[str] = frozenset({"invoke_query", "read", "change"})
"""May be restricted by ``queries``: invoking them, and what they read or change."""

IMPLIED: dict[str, tuple[Action, ...]] = {"read": ("read_history",)}
"""What an action allows besides itself, in version 1."""
