"""The procedure that decides: scopes, patterns, messages, and files of cases."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph import Policy
from omnigraph.errors import InputError, PolicyDenied
from omnigraph.policy.actions import ON_BRANCH, ON_TARGET
from omnigraph.policy.cases import read_cases, run_cases
from omnigraph.policy.patterns import BranchNames

BUNDLE = """
version: 1
groups:
  staff: [ana, bo]
  leads: [ana]
  idle: [ida]
protected_branches: [main, release/**]
rules:
  - {id: staff-read, allow: {actors: {group: staff}, actions: [read, export], branch_scope: any}}
  - {id: staff-draft, allow: {actors: {group: staff}, actions: [change], branch_scope: unprotected}}
  - id: leads-publish
    allow: {actors: {group: leads}, actions: [branch_merge], target_branch_scope: protected}
  - {id: leads-all, allow: {actors: {group: leads}, actions: [change, invoke_query]}}
"""


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy.parse(BUNDLE, name="team")


SCOPED = {
    None: (True, True, True),
    "any": (True, True, True),
    "protected": (False, True, False),
    "unprotected": (False, False, True),
}
BRANCHES = (None, "main", "draft")


@pytest.mark.parametrize("action", sorted(ON_BRANCH | ON_TARGET))
@pytest.mark.parametrize("scope", SCOPED)
def test_the_scope_of_a_rule_looks_at_its_own_branch(action, scope):
    key = "branch_scope" if action in ON_BRANCH else "target_branch_scope"
    restriction = "" if scope is None else f", {key}: {scope}"
    policy = Policy.parse(
        "{version: 1, groups: {g: [ana]}, protected_branches: [main], rules: "
        f"[{{id: r, allow: {{actors: {{group: g}}, actions: [{action}]{restriction}}}}}]}}"
    )
    for other in BRANCHES:
        decided = tuple(
            policy.decide(
                "ana",
                action,
                *((branch, other) if action in ON_BRANCH else (other, branch)),
            ).allowed
            for branch in BRANCHES
        )
        assert decided == SCOPED[scope]


def test_the_messages_are_those_of_the_contract(policy):
    assert policy.decide("eve", "read", "main").message == (
        "policy denied action 'read' for unknown actor 'eve'"
    )
    assert policy.decide("bo", "change", "main").message == (
        "policy denied action 'change' on branch 'main' for actor 'bo'"
    )
    assert policy.decide("bo", "branch_merge", "draft", "main").message == (
        "policy denied action 'branch_merge' on branch 'draft' targeting branch 'main' "
        "for actor 'bo'"
    )
    assert policy.decide("bo", "schema_apply", None, "main").message == (
        "policy denied action 'schema_apply' targeting branch 'main' for actor 'bo'"
    )
    assert policy.decide("bo", "invoke_query").message == (
        "policy denied action 'invoke_query' for actor 'bo'"
    )
    allowed = policy.decide("bo", "change", "draft")
    assert (allowed.allowed, allowed.rule, allowed.message) == (
        True,
        "staff-draft",
        "policy allowed action 'change' for actor 'bo'",
    )
    assert policy.decide("bo", "change", "main").rule is None


def test_the_smallest_id_of_the_matching_rules_is_named(policy):
    assert policy.decide("ana", "change", "draft").rule == "leads-all"
    assert policy.decide("ana", "change", "main").rule == "leads-all"


def test_reading_includes_the_history_in_version_1(policy):
    assert policy.decide("bo", "read_history", "main").rule == "staff-read"
    alone = Policy.parse(
        "{version: 1, groups: {g: [ana]}, rules: "
        "[{id: r, allow: {actors: {group: g}, actions: [read_history]}}]}"
    )
    assert alone.decide("ana", "read_history").allowed
    assert not alone.decide("ana", "read").allowed


def test_an_actor_is_known_if_anything_is_allowed(policy):
    verdicts = [policy.knows(actor) for actor in ("ana", "bo", "ida", "eve")]
    assert verdicts == [True, True, False, False]
    assert policy.decide("ida", "read").message == "policy denied action 'read' for actor 'ida'"
    assert policy.actors == ("ana", "bo", "ida")


def test_an_unknown_action_is_an_error(policy):
    with pytest.raises(InputError, match="invalid action 'raed'"):
        policy.decide("ana", "raed")
    with pytest.raises(InputError, match="invalid action 'raed'"):
        policy.check("ana", "raed")


def test_a_check_raises(policy):
    policy.check("bo", "change", "draft")
    with pytest.raises(PolicyDenied, match="policy denied action 'change' on branch 'main'"):
        policy.check("bo", "change", "main")
    with pytest.raises(PolicyDenied, match=r"^no actor for engine-layer policy check"):
        policy.check(None, "change", "draft")


# -- patterns ---------------------------------------------------------------------------------

PATTERNS = [
    ("main", ["main"], ["mainly", "Main", "main/x", "x/main", ""]),
    ("release/*", ["release/1", "release/"], ["release", "release/1/fix", "x/release/1"]),
    ("release/**", ["release/1", "release/1/fix"], ["release", "releases/1"]),
    ("*", ["main", "x"], ["a/b"]),
    ("**", ["main", "a/b/c", ""], []),
    ("*/hot", ["a/hot"], ["a/b/hot", "hot"]),
    ("**/hot", ["a/hot", "a/b/hot"], ["hot"]),
    ("v1.*", ["v1.0"], ["v10", "v1x0"]),
    ("a?[b]", ["a?[b]"], ["axb", "a?b"]),
    ("x\n*", ["x\ny"], ["x"]),
]


@pytest.mark.parametrize(("pattern", "matching", "others"), PATTERNS)
def test_a_pattern_of_protected_branches(pattern, matching, others):
    names = BranchNames((pattern,))
    assert [name for name in matching + others if names.contain(name)] == matching


@given(st.text("ab/*", max_size=6), st.text("ab/", max_size=6))
def test_a_pattern_matches_as_its_definition_says(pattern, branch):
    pieces = re.split(r"(\*+)", pattern)
    stars = {True: r"[^/]*", False: r"[\s\S]*"}
    expression = "".join(
        stars[piece == "*"] if piece.startswith("*") else re.escape(piece) for piece in pieces
    )
    assert BranchNames((pattern,)).contain(branch) == bool(re.fullmatch(expression, branch))


# -- files of cases ------------------------------------------------------------------------------

CASES = """
version: 1
cases:
  - {id: bo-cannot-touch-main, actor: bo, action: change, branch: main, expect: deny}
  - {id: ana-merges, actor: ana, action: branch_merge, target_branch: main, expect: allow}
  - {id: wrong, actor: bo, action: read, branch: ~, expect: deny}
  - {id: wrong-too, actor: bo, action: branch_merge, target_branch: main, expect: allow}
"""


def test_the_cases_of_a_file_are_run(policy):
    failures = run_cases(policy, read_cases(CASES))
    assert [str(failure) for failure in failures] == [
        "wrong: expected Deny but got allow",
        "wrong-too: expected Allow but got deny",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{version: 3, cases: []}", "policy test version must be 1"),
        ("{version: 1}", "missing key 'cases'"),
        ("{version: 1, cases: [{id: a}]}", "missing key 'cases[0].actor'"),
        (
            "version: 1\ncases:\n  - {id: ' ', actor: a, action: read, expect: deny}",
            r"line 3: cases[0].id must not be blank",
        ),
        (
            "{version: 1, cases: [{id: a, actor: ' ', action: read, expect: deny}]}",
            "cases[0].actor must not be blank",
        ),
        (
            "{version: 1, cases: [{id: a, actor: b, action: read, expect: deny}, "
            "{id: a, actor: b, action: read, expect: deny}]}",
            "duplicate policy test id 'a'",
        ),
        (
            "{version: 1, cases: [{id: a, actor: b, action: branch-merge, expect: deny}]}",
            "invalid cases[0].action 'branch-merge'",
        ),
        (
            "{version: 1, cases: [{id: a, actor: b, action: read, expect: no}]}",
            "cases[0].expect must be text; quote it",
        ),
        (
            "{version: 1, cases: [{id: a, actor: b, action: read, query: q, expect: deny}]}",
            "unknown key 'cases[0].query'",
        ),
        (
            "{version: 2, cases: [{id: a, actor: b, expect: deny}]}",
            "missing key 'cases[0].action'",
        ),
        (
            "{version: 2, cases: [{id: a, actor: b, sees: {type: T}, expect: deny}]}",
            "missing key 'cases[0].sees.id'",
        ),
        (
            "{version: 2, cases: [{id: a, actor: b, action: read, sees: {type: T, id: x}, "
            "expect: deny}]}",
            "cases[0] has both action and sees",
        ),
        (
            "{version: 2, cases: [{id: a, actor: b, attributes: {id: x}, action: read, "
            "expect: deny}]}",
            "every actor has 'id'",
        ),
        (
            "{version: 1, cases: [{id: a, actor: b, action: read, expect: deny, when: x}]}",
            "unknown key 'cases[0].when'",
        ),
    ],
)
def test_a_file_of_cases_is_refused_with_its_line(text, message):
    with pytest.raises(InputError, match=re.escape(message)):
        read_cases(text)
