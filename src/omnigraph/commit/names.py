"""Names of branches, tags, actors and leases: validation and spelling.

A name is used exactly as given, never trimmed. Only new names are checked: existing ones can always
be read, listed and deleted.
"""

from __future__ import annotations

import re

from omnigraph.errors import BranchNotFound, InputError
from omnigraph.escaping import has_controls

MAIN = "main"
SCHEMA_LOCK = "__schema_apply_lock__"
"""The branch that exists while a schema is applied; hidden from users."""

_SEGMENT = r"[A-Za-z0-9._-]+"
_LONGEST = 200


def normal_branch(name: str | None) -> str | None:
    """A branch as the manifest names it: ``None`` for main.

    >>> normal_branch("main"), normal_branch("review/x")
    (None, 'review/x')
    """
    if name is None:
        return None
    if not name.strip():
        raise InputError("the name of a branch cannot be empty")
    if name.lstrip("/") == SCHEMA_LOCK:
        raise InputError(
            f"branch '{name}' is internal", hint="choose another name", details={"name": name}
        )
    return None if name == MAIN else name


def branch_label(branch: str | None) -> str:
    """The display name of a branch."""
    return branch or MAIN


def missing_branch(branch: str) -> BranchNotFound:
    return BranchNotFound(f"branch '{branch}' not found", details={"branch": branch})


def check_new_branch(name: str) -> str:
    """Validate the name of a new branch; ``InputError`` if it is invalid.

    >>> check_new_branch("review/2026-05")
    'review/2026-05'
    """
    branch = normal_branch(name)
    if branch is None:
        raise InputError("cannot create branch 'main'", hint="it always exists")
    _check_path(branch, "branch")
    return branch


def check_tag(name: str) -> str:
    """Validate the name of a tag; ``InputError`` if it is invalid."""
    if not name.strip():
        raise InputError("the name of a tag cannot be empty")
    _check_path(name, "tag")
    return name


def check_actor(actor: str) -> str:
    """Validate the name of an actor: no control characters, since histories are printed by line.

    >>> check_actor("agent 7")
    'agent 7'
    """
    if has_controls(actor):
        raise InputError("the name of an actor cannot hold control characters")
    return actor


def _check_path(name: str, what: str) -> None:
    segments = name.split("/")
    good = all(re.fullmatch(_SEGMENT, part) and part.strip(".") for part in segments)
    if not good or len(name) > _LONGEST or name.endswith(".lock") or ".." in name:
        raise InputError(
            f"'{name}' cannot be the name of a {what}",
            hint="use letters, digits, '.', '-' and '_', with '/' between segments, "
            f"and at most {_LONGEST} characters",
            details={"name": name},
        )


def table_lease(table_key: str, branch: str | None) -> str:
    """The right to write one table on one branch."""
    return f"{table_key}@{branch_label(branch)}"


def publish_lease(branch: str | None) -> str:
    """The right to publish on one branch."""
    return f"publish@{branch_label(branch)}"


def claim_lease(branch: str) -> str:
    """The right to create a branch for a load, until the load has ended."""
    return f"load@{branch}"


BRANCHES_LEASE = "branches"
"""The right to create or delete a branch."""

SCHEMA_LEASE = "schema"
"""The right to change the schema; held for the whole of an apply."""

INIT_LEASE = "init"
"""The right to create the graph."""
