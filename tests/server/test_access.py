"""Run states, and decisions in each of them: actors, actions, branches."""

from __future__ import annotations

import itertools

import pytest

from omnigraph import Policy
from omnigraph.api.gate import WriteGate
from omnigraph.errors import PolicyDenied, ServerNotReady
from omnigraph.identity import Identity
from omnigraph.policy.actions import ACTIONS, SERVER_ACTIONS, SHARED_ACTIONS
from omnigraph.server.access import Access, RunState, classify
from omnigraph.server.boot import BootPlan, GraphSpec, plan_from_cluster
from omnigraph.server.state import CurrentGate
from omnigraph.settings import Settings
from tests.cluster.ledgers import ClusterFiles

BUNDLE = """
version: 1
groups: {staff: [ana, bo], leads: [ana], idle: [ida]}
protected_branches: [main]
rules:
  - {id: read, allow: {actors: {group: staff}, actions: [read]}}
  - {id: draft, allow: {actors: {group: staff}, actions: [change], branch_scope: unprotected}}
  - {id: lead, allow: {actors: {group: leads}, actions: [change, branch_merge, admin]}}
"""
SERVER = """
version: 1
groups: {ops: [ana]}
rules: [{id: ops, allow: {actors: {group: ops}, actions: [graph_list, config_manage]}}]
"""
ANA, BO, IDA, EVE = map(Identity, ("ana", "bo", "ida", "eve"))
PLAIN = BootPlan("s", False, (GraphSpec("kb", "u"),), "d")
BOUND = BootPlan(
    "s",
    True,
    (GraphSpec("kb", "u", (), "rules", BUNDLE), GraphSpec("wiki", "v")),
    "d",
    server_policy_name="srv",
    server_policy_text=SERVER,
    has_policies=True,
)


@pytest.mark.parametrize(
    ("recognises", "plan", "unauthenticated", "expected"),
    [
        (False, PLAIN, False, "--unauthenticated"),
        (False, PLAIN, True, RunState.OPEN),
        (True, PLAIN, False, RunState.DEFAULT_DENY),
        (True, PLAIN, True, RunState.DEFAULT_DENY),
        (False, BOUND, False, "there are no bearer tokens"),
        (False, BOUND, True, "there are no bearer tokens"),
        (True, BOUND, False, RunState.POLICY),
        (True, BOUND, True, RunState.POLICY),
    ],
)
def test_the_run_state_follows_from_what_is_declared(recognises, plan, unauthenticated, expected):
    options = {"recognises": recognises, "unauthenticated": unauthenticated}
    if isinstance(expected, RunState):
        assert classify(plan, **options) is expected
    else:
        with pytest.raises(ServerNotReady, match=expected):
            classify(plan, **options)


def test_a_policy_of_a_quarantined_graph_counts(tmp_path):
    """Otherwise a server would be open because its only guarded graph is damaged."""
    cluster = ClusterFiles(tmp_path).graph("kb").graph("wiki")
    cluster.policy("rules", BUNDLE, ["graph.kb"])
    cluster.sidecar("kb")
    plan = plan_from_cluster(str(tmp_path), Settings())
    assert [graph.graph_id for graph in plan.graphs] == ["wiki"]
    with pytest.raises(ServerNotReady, match="there are no bearer tokens"):
        classify(plan, recognises=False, unauthenticated=True)
    state = classify(plan, recognises=True, unauthenticated=False)
    assert state is RunState.POLICY
    access = Access.from_plan(plan, RunState.POLICY)
    assert not access.decide("wiki", ANA, "change", "main").allowed


ACTORS = (ANA, BO, IDA, EVE, None)
BRANCHES = (None, "main", "draft")


def expected_of(state: RunState, graph: str | None, actor: Identity | None, request: tuple) -> bool:
    """The truth table, from the rules of the specification."""
    action, branch, _ = request
    if graph is None:
        if state is RunState.OPEN:
            return True
        return state is RunState.POLICY and actor == ANA and action in SERVER_ACTIONS
    if state is RunState.OPEN:
        return True
    if actor is None:
        return False
    if state is RunState.POLICY and graph == "kb":
        allowed = {
            "ana": action in ("read", "read_history", "change", "branch_merge", "admin"),
            "bo": action in ("read", "read_history") or (action == "change" and branch == "draft"),
        }
        return allowed.get(actor.id, False)
    return action in ("read", "read_history")


@pytest.mark.parametrize("state", RunState)
def test_the_truth_table_of_every_run_state(state):
    plan = BOUND if state is RunState.POLICY else PLAIN
    access = Access.from_plan(plan, state, is_loopback=True)
    cells = 0
    for graph, actor, action, branch, target in itertools.product(
        ("kb", "wiki", None), ACTORS, ACTIONS, BRANCHES, BRANCHES
    ):
        server_scoped = action in SERVER_ACTIONS
        if (graph is None) != server_scoped and action not in SHARED_ACTIONS:
            continue
        decision = access.decide(graph, actor, action, branch, target)
        wanted = expected_of(state, graph, actor, (action, branch, target))
        assert decision.allowed == wanted, (state, graph, actor, action, branch, target)
        if graph is not None:
            gate = CurrentGate(graph, lambda: access)
            if wanted:
                gate.check(actor, action, branch, target)
            else:
                with pytest.raises(PolicyDenied) as refusal:
                    gate.check(actor, action, branch, target)
                assert str(refusal.value) == decision.message
        cells += 1
    assert cells > 1000


def test_default_deny_says_what_to_do():
    access = Access.from_plan(PLAIN, RunState.DEFAULT_DENY)
    for action in ("change", "export", "invoke_query", "admin", "schema_apply"):
        message = access.decide("kb", ANA, action, "main").message
        assert "default-deny mode" in message
        assert "cluster apply" in message
    assert access.decide("kb", ANA, "read").allowed


def test_the_list_of_graphs_needs_a_policy_of_the_server():
    """Or an open server that only this machine can reach."""
    for state, plan in ((RunState.DEFAULT_DENY, PLAIN), (RunState.POLICY, PLAIN)):
        decision = Access.from_plan(plan, state, is_loopback=True).decide(None, ANA, "graph_list")
        assert not decision.allowed
        assert "server-scoped actions need an explicit cluster policy bundle" in decision.message
    graph_bundle = BootPlan("s", True, BOUND.graphs, "d", has_policies=True)
    assert not Access.from_plan(graph_bundle, RunState.POLICY).decide(None, ANA, "graph_list")
    granted = Access.from_plan(BOUND, RunState.POLICY)
    assert granted.decide(None, ANA, "graph_list").rule == "ops"
    assert not granted.decide(None, BO, "graph_list").allowed
    for is_loopback in (True, False):
        access = Access.from_plan(PLAIN, RunState.OPEN, is_loopback=is_loopback)
        assert access.decide(None, None, "graph_list").allowed is is_loopback


def test_a_graph_is_hidden_from_actors_to_whom_its_policy_allows_nothing():
    access = Access.from_plan(BOUND, RunState.POLICY)
    hidden = [access.hides_graph("kb", actor) for actor in ACTORS]
    assert hidden == [False, False, True, True, True]
    assert not any(access.hides_graph("wiki", actor) for actor in ACTORS)
    assert not any(access.hides_graph("absent", actor) for actor in ACTORS)
    opened = Access.from_plan(PLAIN, RunState.OPEN)
    assert not any(opened.hides_graph("kb", actor) for actor in ACTORS)


def test_a_decision_depends_on_names_only():
    """Nothing about a graph, a branch or its existence is known where it is made."""
    access = Access.from_plan(BOUND, RunState.POLICY)
    message = access.decide("kb", BO, "change", "main").message
    assert message == "policy denied action 'change' on branch 'main' for actor 'bo'"
    assert access.decide("kb", EVE, "read", "nowhere").message == (
        "policy denied action 'read' for unknown actor 'eve'"
    )


def test_the_second_gate_follows_a_reload():
    access = Access.from_plan(BOUND, RunState.POLICY)
    gate = CurrentGate("kb", lambda: access)
    assert isinstance(gate, WriteGate)
    with pytest.raises(PolicyDenied, match="policy denied action 'change'"):
        gate.check("eve", "change", "draft")
    with pytest.raises(PolicyDenied, match="no actor for engine-layer policy check"):
        gate.check(None, "change", "draft")
    wider = Policy.parse(BUNDLE.replace("[ana, bo]", "[ana, bo, eve]"))
    access = Access(RunState.POLICY, {"kb": wider})
    gate.check("eve", "change", "draft")
    access = Access(RunState.OPEN)
    gate.check(None, "change", "main")
