"""What agents may do with a graph, and how much they get at once."""

from __future__ import annotations

from typing import Protocol

from omnigraph.policy.actions import Action
from omnigraph.records import dataclass


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The limits of a toolbox."""

    max_rows: int = 200
    """Rows in one result."""
    max_paged_rows: int | None = None
    """Rows in all pages of a query, for an actor who may not export them."""
    max_bytes: int = 100_000
    """Bytes of JSON in one result."""
    timeout: float = 30.0
    """Seconds that a query may take."""
    max_memory: int = 512 << 20
    """Bytes of intermediate rows of a query."""
    branch_prefix: str | None = None
    """Agents create, write and delete only branches whose names begin with this."""
    read_only: bool = False
    """Whether there are no tools that write."""
    free_text: bool = True
    """Whether agents may run queries of their own besides the stored ones."""


class Grants(Protocol):
    """What the actor may do; the engine asks again before it writes."""

    def may(
        self,
        action: Action,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> bool:
        """Whether the actor may do this."""
        ...

    def require(
        self,
        action: Action,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> None:
        """Raise unless the actor may do this; a branch that it may not know of looks absent."""
        ...


class EverythingAllowed:
    """The grants of a graph without a policy."""

    def may(
        self,
        action: Action,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> bool:
        return True

    def require(
        self,
        action: Action,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> None:
        """Allows everything."""
