"""Every rule by its fixture, and proofs that a rule never changes what a query means."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings

from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query import typed
from omnigraph.plan import compile_query
from omnigraph.plan.explain import explain_text
from omnigraph.plan.lower import lower
from omnigraph.plan.nodes import Plan
from omnigraph.plan.rules import RULES, Rule, optimize
from omnigraph.plan.rules.simplify import simplify_expr
from tests.lang.query.world import CATALOG, check
from tests.plan.conditions import ROWS, column, conditions
from tests.plan.evaluator import evaluate

FIXTURES = Path(__file__).parents[1] / "fixtures" / "plan"


def cases() -> list[tuple[str, int, str, str, str]]:
    """A file holds cases parted by ``===``: query, ``---``, plan before, ``->``, plan after."""
    matches = []
    for path in sorted(FIXTURES.glob("*.gqt")):
        for number, case in enumerate(path.read_text("utf-8").split("\n===\n"), 1):
            text, _, plans = case.partition("\n---\n")
            before, _, after = plans.partition("\n->\n")
            matches.append((path.stem, number, text, before.strip("\n"), after.strip("\n")))
    return matches


def plan_before(rule: Rule, text: str) -> Plan:
    """The plan as the rule gets it: lowered, with the rules before it applied."""
    plan = lower(check(text), Source("q.gq", text))
    for earlier in RULES[: RULES.index(rule)]:
        plan = earlier(plan)
    return plan


BY_NAME = {rule.__name__: rule for rule in RULES}


@pytest.mark.parametrize(
    ("name", "text", "before", "after"),
    [(name, text, before, after) for name, _, text, before, after in cases()],
    ids=[f"{name}-{number}" for name, number, *_ in cases()],
)
def test_rule_fixture(name: str, text: str, before: str, after: str) -> None:
    rule = BY_NAME[name]
    plan = plan_before(rule, text)
    assert explain_text(plan) == before
    changed = rule(plan)
    assert explain_text(changed) == after
    assert rule(changed) == changed, "a rule applied twice changes nothing more"


def test_every_rule_has_a_fixture() -> None:
    assert {path.stem for path in FIXTURES.glob("*.gqt")} == set(BY_NAME)


def test_optimize_applies_the_rules_in_order() -> None:
    text = "query q() { match { $a knows $b $b knows $a $a.active = true } return { 1 } }"
    plan = lower(check(text), Source("q.gq", text))
    expected = plan
    for rule in RULES:
        expected = rule(expected)
    assert optimize(plan) == expected == compile_query(CATALOG, text)
    assert explain_text(expected) != explain_text(plan)


# -- simplify ---------------------------------------------------------------------------------

A, B = column("a_bool"), column("b_bool")
YES, NO = typed.Constant(True, typed.BOOL), typed.Constant(False, typed.BOOL)
UNKNOWN = typed.Constant(None, typed.BOOL.as_nullable())
EQ, NE = typed.Relation.EQ, typed.Relation.NE


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (typed.Compare(EQ, A, YES), A),
        (typed.Compare(EQ, YES, A), A),
        (typed.Compare(NE, A, NO), A),
        (typed.Compare(EQ, A, NO), typed.Not(A)),
        (typed.Compare(NE, A, YES), typed.Not(A)),
        (typed.Compare(EQ, A, UNKNOWN), typed.Compare(EQ, A, UNKNOWN)),
        (typed.Compare(EQ, YES, NO), typed.Compare(EQ, YES, NO)),
        (typed.Compare(typed.Relation.GT, A, NO), typed.Compare(typed.Relation.GT, A, NO)),
        (typed.Not(typed.Not(A)), A),
        (typed.Not(typed.Compare(EQ, A, NO)), A),
        (typed.Not(typed.IsNull(A, False)), typed.IsNull(A, True)),
        (typed.Not(typed.IsNull(A, True)), typed.IsNull(A, False)),
        (typed.And((A, typed.And((B, A)))), typed.And((A, B, A))),
        (typed.Or((typed.Or((A, B)), typed.And((A, B)))), typed.Or((A, B, typed.And((A, B))))),
        (typed.And((typed.Compare(EQ, typed.And((A, B)), YES), B)), typed.And((A, B, B))),
        (typed.Not(typed.And((A, B))), typed.Not(typed.And((A, B)))),
    ],
)
def test_simplify_table(before: typed.TypedExpr, after: typed.TypedExpr) -> None:
    assert simplify_expr(before) == after


@settings(max_examples=80)
@given(conditions)
def test_simplify_keeps_the_three_valued_meaning(condition: typed.TypedExpr) -> None:
    simple = simplify_expr(condition)
    for row in ROWS:
        assert evaluate(simple, row) is evaluate(condition, row)
    assert simplify_expr(simple) == simple


def _size(expr: typed.TypedExpr) -> int:
    return sum(1 for _ in typed.walk(expr))


@given(conditions)
def test_simplify_never_grows_a_condition(condition: typed.TypedExpr) -> None:
    assert _size(simplify_expr(condition)) <= _size(condition)
