"""Views of random rules: what they show is what the rules say, and a narrower one shows less."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from omnigraph import Identity, Policy
from omnigraph.lang.query import typed
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.plan.view import ALL, HIDDEN, View
from omnigraph.policy.constants import reduce_condition
from tests.policy.conditions import matches, truth

CATALOG = compile_schema(
    """
node Person { name: String @key  tenant: String?  level: I32?  tags: [String]?  ok: Bool? }
node City { name: String @key  tenant: String? }
edge Knows: Person -> Person { level: I32? }
"""
)
WHERES = [
    'tenant = "a"',
    "tenant in $actor.tenants",
    "level <= $actor.level",
    "level > 1",
    "level is null",
    "not (level > 1)",
    "tags contains $actor.id",
    "ok",
    "ok or level = 2",
    "tenant in $actor.tenants and level <= $actor.level",
    "$actor.level > 1",
    "$actor.level > 1 and ok",
    "$actor.level < 1 or ok",
    "not ($actor.level > 1 or ok)",
    "name starts_with $actor.id",
    "true",
    "false",
]
PEOPLE = [
    {"name": name, "tenant": tenant, "level": level, "tags": tags, "ok": ok}
    for name, tenant, level, tags, ok in [
        ("x", "a", 1, ["x"], True),
        ("y", "b", 2, [], False),
        ("z", None, None, None, None),
        ("xy", "a", 3, ["a", "y"], None),
        ("bo", "c", 0, ["bo"], True),
        ("ana", "b", 2, ["ana"], False),
    ]
]

rules = st.lists(
    st.fixed_dictionaries(
        {"group": st.sampled_from(["g", "h"]), "types": st.sampled_from([["Person"], ["*"]])},
        optional={
            "where": st.sampled_from(WHERES),
            "branches": st.sampled_from([["main"], ["draft/*"], ["**"]]),
        },
    ),
    max_size=4,
)
actors = st.builds(
    Identity,
    st.sampled_from(["ana", "bo", "x"]),
    st.frozensets(st.sampled_from(["g", "h"])),
    st.fixed_dictionaries(
        {},
        optional={
            "tenants": st.sampled_from([("a",), ("b", "c"), (), "a"]),
            "level": st.sampled_from([0, 1, 2, 5, "2", 1.5, True]),
        },
    ),
)


def policy_of(written: list[dict[str, Any]]) -> Policy:
    rows = [
        {"id": f"r{number}", "actors": {"group": rule["group"]}}
        | {key: rule[key] for key in ("types", "where", "branches") if key in rule}
        for number, rule in enumerate(written)
    ]
    return Policy.parse(json.dumps({"version": 2, "groups": {"g": [], "h": []}, "rows": rows}))


def visible(view: View, row: dict[str, Any]) -> bool:
    condition = view.condition("node:Person")
    return condition is None or matches(condition, row)


@given(rules, actors, st.sampled_from(["main", "draft/1"]))
@settings(max_examples=60)
def test_a_view_shows_what_any_rule_of_the_actor_opens(written, actor, branch):
    view = policy_of(written).view(actor, branch, CATALOG)
    for row in PEOPLE:
        opened = [
            rule
            for rule in written
            if rule["group"] in actor.groups
            and ("branches" not in rule or policy_names(rule["branches"], branch))
            and ("where" not in rule or opens(rule["where"], actor, row))
        ]
        assert visible(view, row) == bool(opened)


def policy_names(patterns: list[str], branch: str) -> bool:
    return {"main": branch == "main", "draft/*": branch == "draft/1", "**": True}[patterns[0]]


def opens(where: str, actor: Identity, row: dict[str, Any]) -> bool:
    """A condition as Python would say it; null is unknown, a missing attribute opens nothing."""
    level, tenants = actor.attributes.get("level"), actor.attributes.get("tenants")
    if "$actor.level" in where:
        if isinstance(level, str):
            level = int(level)
        if level is None or isinstance(level, bool | float):
            return False
    if "$actor.tenants" in where and not isinstance(tenants, tuple):
        return False
    tenant, own, tags, ok = row["tenant"], row["level"], row["tags"], row["ok"]
    result: bool | None = {
        'tenant = "a"': lambda: tenant == "a",
        "tenant in $actor.tenants": lambda: tenant in tenants,
        "level <= $actor.level": lambda: own is not None and own <= level,
        "level > 1": lambda: own is not None and own > 1,
        "level is null": lambda: own is None,
        "not (level > 1)": lambda: own is not None and not own > 1,
        "tags contains $actor.id": lambda: tags is not None and actor.id in tags,
        "ok": lambda: ok is True,
        "ok or level = 2": lambda: ok is True or own == 2,
        "tenant in $actor.tenants and level <= $actor.level": lambda: (
            tenant in tenants and own is not None and own <= level
        ),
        "$actor.level > 1": lambda: level > 1,
        "$actor.level > 1 and ok": lambda: level > 1 and ok is True,
        "$actor.level < 1 or ok": lambda: level < 1 or ok is True,
        "not ($actor.level > 1 or ok)": lambda: not level > 1 and ok is False,
        "name starts_with $actor.id": lambda: row["name"].startswith(actor.id),
        "true": lambda: True,
        "false": lambda: False,
    }[where]()
    return bool(result)


@given(rules, rules, actors, actors, st.booleans())
@settings(max_examples=80)
def test_a_view_that_is_no_wider_shows_nothing_more(first, second, one, other, related):
    """Sound for random rules; in half of the cases the second has all rules of the first."""
    if related:
        second, other = [*second, *first], one
    narrow = policy_of(first).view(one, "main", CATALOG)
    wide = policy_of(second).view(other, "main", CATALOG)
    if related:
        assert narrow.is_no_wider_than(wide)
    assume(narrow.is_no_wider_than(wide))
    for row in PEOPLE:
        assert not visible(narrow, row) or visible(wide, row)
    for key in ("node:City", "edge:Knows"):
        assert narrow.rule(key) is HIDDEN or wide.rule(key) is not HIDDEN
        assert narrow.rule(key) is not ALL or wide.rule(key) is ALL


def test_a_wider_view_is_never_called_no_wider():
    actor = Identity("x", frozenset({"g"}), {"level": 1})
    rule = {"group": "g", "types": ["Person"]}

    def view(where: str | None) -> View:
        written = [rule] if where is None else [{**rule, "where": where}]
        return policy_of(written).view(actor, "main", CATALOG)

    assert not view(None).is_no_wider_than(view("level > 1"))
    assert not view("level > 1").is_no_wider_than(view("ok"))
    assert not view("ok or level = 2").is_no_wider_than(view("ok"))
    assert view("ok").is_no_wider_than(view("ok or level = 2"))
    assert view("false").is_no_wider_than(view("ok"))


LEAVES = st.sampled_from(
    [
        typed.Constant(True, typed.BOOL),
        typed.Constant(False, typed.BOOL),
        typed.Constant(None, typed.BOOL.as_nullable()),
        typed.Column("row", "ok", typed.BOOL.as_nullable()),
        typed.Compare(
            typed.Relation.LT, typed.Constant(1, typed.INT), typed.Constant(2, typed.INT)
        ),
        typed.Membership(
            typed.Constant("a", typed.STRING),
            typed.Constant(("b", "c"), typed.STRING),
        ),
        typed.IsNull(typed.Constant(None, typed.NULL), False),
    ]
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(typed.Not, inner),
        st.builds(lambda parts: typed.And(tuple(parts)), st.lists(inner, min_size=2, max_size=3)),
        st.builds(lambda parts: typed.Or(tuple(parts)), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=8,
)


@given(CONDITIONS, st.sampled_from([True, False, None]))
def test_a_reduced_condition_has_the_same_truth(condition, ok):
    row = {"ok": ok}
    assert truth(reduce_condition(condition), row) == truth(condition, row)
