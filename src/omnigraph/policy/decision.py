"""Decisions, and the protocol of whatever makes them."""

from __future__ import annotations

from typing import Protocol

from omnigraph.identity import Identity
from omnigraph.policy.actions import Action
from omnigraph.records import dataclass


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether an action is allowed, by which rule, and the sentence for the actor."""

    allowed: bool
    rule: str | None
    message: str

    def __bool__(self) -> bool:
        return self.allowed


class Decider(Protocol):
    """Decides for one scope: one graph, or the server."""

    @property
    def digest(self) -> str:
        """Changes if decisions may change."""
        ...

    def decide(
        self,
        actor: str | Identity,
        action: Action,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> Decision: ...

    def knows(self, actor: str | Identity) -> bool:
        """Whether anything at all is allowed to an actor."""
        ...


def allowed_message(action: str, actor: str) -> str:
    return f"policy allowed action '{action}' for actor '{actor}'"


def unknown_actor_message(action: str, actor: str) -> str:
    return f"policy denied action '{action}' for unknown actor '{actor}'"


def denied_message(action: str, actor: str, branch: str | None, target: str | None) -> str:
    """The text of a denial; part of the contract with clients.

    >>> denied_message("change", "bo", "main", None)
    "policy denied action 'change' on branch 'main' for actor 'bo'"
    """
    on = "" if branch is None else f" on branch '{branch}'"
    targeting = "" if target is None else f" targeting branch '{target}'"
    return f"policy denied action '{action}'{on}{targeting} for actor '{actor}'"
