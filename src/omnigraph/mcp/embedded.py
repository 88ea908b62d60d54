"""The context of an agent at a graph in this process."""

from __future__ import annotations

from typing import Literal

from omnigraph.api.graph import Graph
from omnigraph.commit.names import missing_branch
from omnigraph.errors import InputError, PolicyDenied
from omnigraph.mcp.context import AgentContext
from omnigraph.mcp.settings import AgentSettings, EverythingAllowed, Grants
from omnigraph.policy.actions import Action
from omnigraph.policy.policy import Policy


class PolicyGrants:
    """What a policy allows to one actor."""

    def __init__(self, policy: Policy, actor: str) -> None:
        self._policy = policy
        self._actor = actor

    def may(
        self,
        action: Action,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> bool:
        return self._policy.decide(self._actor, action, branch, target, query=query).allowed

    def require(
        self,
        action: Action,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> None:
        try:
            self._policy.check(self._actor, action, branch, target, query=query)
        except PolicyDenied:
            # The name of a new branch is the caller's own.
            for name in (branch, None if action == "branch_create" else target):
                if name is not None and self._policy.hides_branch(self._actor, name):
                    raise missing_branch(name) from None
            raise


def open_context(
    uri: str,
    actor: str | None,
    policy_file: str | None,
    queries_directory: str | None,
    settings: AgentSettings,
) -> AgentContext:
    """Open a graph for an agent; nothing that the agent sends can name a local file."""
    grants: Grants = EverythingAllowed()
    policy = None
    if policy_file is not None:
        if actor is None:
            raise InputError("--policy needs an actor", hint="pass --as")
        policy = Policy.open(policy_file)
        grants = PolicyGrants(policy, actor)
    mode: Literal["r", "rw"] = "r" if settings.read_only else "rw"
    graph = Graph.open(
        uri, mode, actor=actor, local_files=False, policy=policy, queries=queries_directory
    )
    return AgentContext(graph, grants, settings)
