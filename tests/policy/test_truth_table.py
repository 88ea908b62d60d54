"""Cedar and the procedure of the specification decide alike, cell by cell."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph import Identity, Policy
from omnigraph.errors import InputError, PackageMissing
from omnigraph.policy import action_rules
from omnigraph.policy.actions import ACTIONS, ON_BRANCH, ON_TARGET
from omnigraph.policy.decision import Decision
from tests.policy.oracle import BRANCHES, PLAIN, QUERIES, WrittenBundle, bundles, decide

SCOPES = (None, "any", "protected", "unprotected")


def scoped_rules() -> Iterator[dict[str, object]]:
    """Two rules for each action, whose scopes differ from action to action."""
    for (number, group), action in itertools.product(enumerate(("staff", "leads")), PLAIN):
        rule: dict[str, object] = {"id": f"{group}-{action}", "group": group, "actions": [action]}
        scope = SCOPES[(PLAIN.index(action) // 2 + 2 * number) % 4]
        key = "branch_scope" if action in ON_BRANCH else "target_branch_scope"
        if scope is not None and action in ON_BRANCH | ON_TARGET:
            rule[key] = scope
        yield rule


GROUPS = {"staff": ["ana", "bo"], "leads": ["ana"], "idle": ["ida"], "mute": ["max"]}
TABLES = [
    WrittenBundle(version, GROUPS, ["main", "rel/*"], list(scoped_rules())) for version in (1, 2)
]
TABLES.append(
    WrittenBundle(
        2,
        {"staff": ["ana", "bo"], "leads": ["ana"], "idle": ["ida"], "robots": []},
        ["main"],
        [
            {"id": "a", "group": "staff", "actions": ["read"], "branches": ["rel/*", "draft"]},
            {"id": "b", "group": "staff", "actions": ["branch_merge"], "target_branches": ["**"]},
            {"id": "c", "group": "leads", "actions": ["branch_create"], "target_branches": ["r*"]},
            {"id": "d", "group": "robots", "actions": ["invoke_query", "read"], "queries": ["top"]},
            {"id": "e", "group": "staff", "actions": ["invoke_query"], "queries": ["find"]},
            {"id": "f", "group": "leads", "actions": ["invoke_query", "change"]},
            {"id": "g", "group": "staff", "actions": ["change"], "queries": ["top", "find"]},
        ],
    )
)
ACTORS = (
    "ana",
    "bo",
    "ida",
    "max",
    "eve",
    Identity("eve", frozenset({"staff"})),
    Identity("bo", frozenset({"leads", "unknown"})),
    Identity("bot", frozenset({"robots"})),
)


def decided(decision: Decision) -> tuple[bool, str | None, str]:
    return decision.allowed, decision.rule, decision.message


@pytest.mark.parametrize("bundle", TABLES, ids=["version-1", "version-2", "names"])
def test_every_cell_of_the_table_equals_the_procedure(bundle):
    """Actors x actions x branches x targets x queries, for both versions."""
    policy = Policy.parse(bundle.text)
    branches = (None, *BRANCHES)
    cells = 0
    for request in itertools.product(ACTORS, ACTIONS, branches, branches, (None, *QUERIES, "x")):
        actor, action, branch, target, query = request
        decision = policy.decide(actor, action, branch, target, query=query)
        assert decided(decision) == decide(bundle, actor, action, branch, target, query), request
        cells += 1
    assert cells == 8 * 12 * 5 * 5 * 4


@given(bundles())
@settings(max_examples=40)
def test_a_random_bundle_is_decided_as_the_procedure_says(bundle):
    policy = Policy.parse(bundle.text)
    actors = ("ana", "bo", "eve", Identity("eve", frozenset({"g"})))
    for actor, action, branch, target, query in itertools.product(
        actors, PLAIN, (None, "main", "rel/1"), (None, "draft"), (None, "top")
    ):
        decision = policy.decide(actor, action, branch, target, query=query)
        assert decided(decision) == decide(bundle, actor, action, branch, target, query)


HOSTILE = [
    'a"b',
    "a'b",
    "a\nb",
    "a\\",
    'Omnigraph::Group::"staff"',
    "::",
    "a:read",
    "*",
    "**",
    "\x1b[2J",
    "\u202e",
    "ü",
    "u\u0308",
    "😀",
    "${x}",
    "?principal",
    "true",
    "permit(principal, action, resource);",
]


@given(bundles(st.sampled_from(HOSTILE)), st.sampled_from(HOSTILE), st.sampled_from(HOSTILE))
@settings(max_examples=40)
def test_no_name_of_an_actor_a_group_or_a_rule_is_more_than_a_name(bundle, actor, branch):
    policy = Policy.parse(bundle.text)
    for who in (actor, Identity(actor, frozenset({branch, *HOSTILE[:3]}))):
        for action in PLAIN:
            for names in ((None, None), (branch, None), (None, branch), (branch, "main")):
                decision = policy.decide(who, action, *names, query=branch)
                assert decided(decision) == decide(bundle, who, action, *names, branch)


@pytest.mark.parametrize("broken", ["\ud800", "a\x00b"])
def test_a_name_that_no_text_can_be_is_refused_or_only_a_name(broken):
    bundle = WrittenBundle(
        2, {"g": []}, ["main"], [{"id": "r", "group": "g", "actions": ["change"]}]
    )
    policy = Policy.parse(bundle.text)
    for names in ((broken, "main"), ("ana", broken)):
        with pytest.raises(InputError, match=r"actor|branch"):
            policy.decide(names[0], "change", names[1])
    allowed = policy.decide(Identity(broken, frozenset({"g"})), "change", "main")
    assert (allowed.allowed, allowed.rule) == (True, "r")


# -- the cache ------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(ACTORS), st.sampled_from(["main", "draft", None]))))
@settings(max_examples=25)
def test_a_decision_never_depends_on_the_requests_before_it(requests):
    bundle = TABLES[1]
    policy = _SHARED
    for actor, branch in requests:
        decision = policy.decide(actor, "change", branch)
        assert decided(decision) == decide(bundle, actor, "change", branch)


_SHARED = Policy.parse(TABLES[1].text)


def test_two_actors_with_the_same_groups_share_a_decision_but_not_a_message():
    policy = Policy.parse(TABLES[0].text)
    one = policy.decide("ida", "read", "main")
    other = policy.decide(Identity("idb", frozenset({"idle"})), "read", "main")
    assert one.message == "policy denied action 'read' on branch 'main' for actor 'ida'"
    assert other.message == "policy denied action 'read' on branch 'main' for actor 'idb'"


def test_the_caches_are_bounded(monkeypatch):
    monkeypatch.setattr(action_rules, "MOST_DECISIONS", 8)
    monkeypatch.setattr(action_rules, "MOST_NAMES", 8)
    bundle = TABLES[2]
    policy = Policy.parse(bundle.text)
    for number in range(100):
        name = f"n{number}"
        decision = policy.decide("ana", "read", name, name, query=name)
        assert decided(decision) == decide(bundle, "ana", "read", name, name, name)
    rules = policy._rules
    caches = (rules._decisions, rules._branches, rules._targets, rules._queries)
    assert all(len(cache) <= 8 for cache in caches)


def test_a_class_is_decided_by_cedar_once(monkeypatch):
    policy = Policy.parse(TABLES[0].text)
    calls = []
    original = policy._rules._cedar.decide
    monkeypatch.setattr(
        policy._rules._cedar, "decide", lambda *request: calls.append(request) or original(*request)
    )
    for number in range(20):
        policy.decide("bo", "change", f"draft{number}")
    policy.decide("bo", "change", "main")
    assert len(calls) == 2


def test_threads_share_a_policy():
    bundle = TABLES[1]
    policy = Policy.parse(bundle.text)
    failures = []

    def decide_all(actor) -> None:
        for branch, action in itertools.product(BRANCHES, PLAIN):
            decision = policy.decide(actor, action, branch)
            if decided(decision) != decide(bundle, actor, action, branch):
                failures.append((actor, action, branch))

    threads = [threading.Thread(target=decide_all, args=(actor,)) for actor in ACTORS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# -- without Cedar -------------------------------------------------------------------------------


def test_a_policy_without_the_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cedarpy", None)
    with pytest.raises(PackageMissing, match="policies need the package cedarpy") as missing:
        Policy.parse("{version: 1}")
    assert "omnigraph[policy]" in str(missing.value.hint)
