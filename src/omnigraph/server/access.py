"""Who may do what on a server: its run state, and the decision about each request.

The run state follows from what is declared: tokens, and policies in the ledger, also those of
graphs that cannot be served. A server whose only policy belongs to a damaged graph is not open.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar, cast

from omnigraph.commit.names import MAIN
from omnigraph.errors import PolicyDenied, ServerNotReady
from omnigraph.identity import Identity
from omnigraph.policy.actions import IMPLIED, Action
from omnigraph.policy.decision import Decision, allowed_message
from omnigraph.policy.policy import Policy
from omnigraph.server.boot import BootPlan

if TYPE_CHECKING:
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.plan.view import View

DEFAULT_DENY = (
    "the server runs in default-deny mode for this graph: tokens are configured, but no policy "
    "bundle is bound to the graph, so only 'read' is allowed; bind a bundle and run `cluster "
    "apply`, or start `omnigraph serve` with --policy"
)
SERVER_SCOPE = (
    "server-scoped actions need an explicit cluster policy bundle: bind one to `cluster` and run "
    "`cluster apply`, or start `omnigraph serve` with --server-policy"
)
_REMEMBERED, _LONGEST = 1024, 256
K = TypeVar("K")
V = TypeVar("V")
_OPEN = "the server is open: it has neither tokens nor policies"
_DEFAULT_ALLOWED = frozenset({"read", *IMPLIED["read"]})


class RunState(Enum):
    """How a server decides."""

    OPEN = "open"
    """No tokens and no policies, on request: everything is allowed on graphs."""
    DEFAULT_DENY = "default_deny"
    """Tokens without policies: every actor may read, and nothing else."""
    POLICY = "policy"
    """Policies decide; a graph without one is in default-deny."""


def classify(plan: BootPlan, *, recognises: bool, unauthenticated: bool) -> RunState:
    """The run state; raises ``ServerNotReady`` where serving would be unsafe or useless.

    ``recognises`` says whether there are tokens, or an identity provider.
    """
    if not recognises:
        if plan.has_policies:
            raise ServerNotReady(
                "policies are bound, but there are no bearer tokens: every request would be "
                "refused",
                hint="set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE to a JSON file of actors and "
                "tokens, or OMNIGRAPH_SERVER_OIDC_FILE to the settings of an identity provider",
            )
        if not unauthenticated:
            raise ServerNotReady(
                "there are neither bearer tokens nor policies; pass --unauthenticated to let "
                "everybody who can connect read and write",
                hint="or set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE to a JSON file of actors and "
                "tokens",
            )
        return RunState.OPEN
    return RunState.POLICY if plan.has_policies else RunState.DEFAULT_DENY


def _remember(cache: dict[K, V], key: K, value: V) -> None:
    """Clients choose names freely: few are kept, and no long ones."""
    if len(cache) >= _REMEMBERED:
        cache.clear()
    if all(not isinstance(part, str) or len(part) <= _LONGEST for part in cast(Any, key)):
        cache[key] = value


class Access:
    """Decides about the requests to a server. Immutable: a reload makes another one."""

    def __init__(
        self,
        state: RunState,
        policies: Mapping[str, Policy] | None = None,
        server_policy: Policy | None = None,
        *,
        is_loopback: bool = False,
    ) -> None:
        self.state = state
        self._policies = dict(policies or {})
        self._server_policy = server_policy
        self._is_loopback = is_loopback
        self._parsed: Mapping[str, Policy] = {}
        """The policies of graphs by their texts."""
        self._decided: dict[tuple[object, ...], Decision] = {}
        self._recognised: dict[tuple[str, Identity], bool] = {}

    @classmethod
    def from_plan(
        cls,
        plan: BootPlan,
        state: RunState,
        *,
        is_loopback: bool = False,
        previous: Access | None = None,
    ) -> Access:
        """The access rules of a plan, whose policies were checked when it was made.

        Each text is parsed once, and not again if ``previous`` has it.
        """
        parsed = {} if previous is None else dict(previous._parsed)
        used: dict[str, Policy] = {}
        policies = {}
        for graph in plan.graphs:
            text = graph.policy_text
            if text is not None:
                policy = parsed.get(text)
                if policy is None:
                    policy = parsed[text] = Policy.parse(text, name=graph.policy_name or "policy")
                used[text] = policies[graph.graph_id] = policy
        server_policy = None
        if plan.server_policy_text is not None:
            name = plan.server_policy_name or "policy"
            server_policy = Policy.parse(plan.server_policy_text, name=name, scope="server")
        access = cls(state, policies, server_policy, is_loopback=is_loopback)
        access._parsed = used
        return access

    def decide(
        self,
        graph_id: str | None,
        actor: Identity | None,
        action: Action,
        branch: str | None = None,
        target: str | None = None,
        *,
        query: str | None = None,
    ) -> Decision:
        """Whether a request is allowed; without a graph it is one to the server itself.

        Only the names of the request count, never whether they exist. ``query`` is the stored query
        that is invoked, or inside of which the action happens.
        """
        if self.state is RunState.OPEN:
            if graph_id is not None:
                return Decision(True, None, _OPEN)
            # Whoever can connect runs on this machine, and may see what it serves.
            return Decision(self._is_loopback, None, _OPEN if self._is_loopback else SERVER_SCOPE)
        if graph_id is None and (self._server_policy is None or actor is None):
            return Decision(False, None, SERVER_SCOPE)
        if actor is None:
            return Decision(False, None, PolicyDenied.without_actor(action).message)
        policy = self._server_policy if graph_id is None else self._policies.get(graph_id)
        if policy is not None:
            # The policy remembers classes of requests; to tell that of one takes ten times as long.
            key = graph_id, actor, action, branch, target, query
            decision = self._decided.get(key)
            if decision is None:
                decision = policy.decide(actor, action, branch, target, query=query)
                _remember(self._decided, key, decision)
            return decision
        if action in _DEFAULT_ALLOWED:
            return Decision(True, None, allowed_message(action, actor.id))
        return Decision(False, None, DEFAULT_DENY)

    def view(self, graph_id: str, actor: Identity | None, branch: str, catalog: Catalog) -> View:
        """What an actor sees of a branch; without rules for rows, everything."""
        from omnigraph.plan.view import WHOLE

        policy = self._policies.get(graph_id)
        if policy is None or not policy.restricts_rows:
            return WHOLE
        return policy.view(actor, branch, catalog)

    def policy_of(self, graph_id: str) -> Policy | None:
        """The bundle of a graph."""
        return self._policies.get(graph_id)

    def hides_graph(self, graph_id: str, actor: Identity | None) -> bool:
        """Whether a graph must look absent: its policy allows nothing at all to the actor."""
        policy = self._policies.get(graph_id)
        if self.state is RunState.OPEN or policy is None:
            return False
        if actor is None:
            return True
        is_recognised = self._recognised.get((graph_id, actor))
        if is_recognised is None:
            is_recognised = policy.knows(actor)
            _remember(self._recognised, (graph_id, actor), is_recognised)
        return not is_recognised

    def hides_branch(self, graph_id: str, actor: Identity | None, branch: str) -> bool:
        """Whether a branch must look absent: the actor may do nothing with it, nor list branches.

        That ``main`` exists is no secret.
        """
        policy = self._policies.get(graph_id)
        if self.state is RunState.OPEN or policy is None or branch == MAIN:
            return False
        return actor is None or policy.hides_branch(actor, branch)
