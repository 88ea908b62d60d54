"""``View``: what an actor sees of each table."""

from __future__ import annotations

import pytest

from omnigraph.lang.query import typed
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.plan.view import ALL, HIDDEN, VIEW_VARIABLE, WHOLE, RowRule, View

CATALOG = compile_schema(
    "node A { x: I64 } node B { x: I64 } edge Of: A -> B edge Next: A -> A { x: I64 }"
)
EVERYTHING = {"node:A": ALL, "node:B": ALL, "edge:Of": ALL, "edge:Next": ALL}


def above(number: int) -> typed.TypedExpr:
    column = typed.Column(VIEW_VARIABLE, "x", typed.INT)
    return typed.Compare(typed.Relation.GT, column, typed.Constant(number, typed.INT))


def view(**rules: RowRule) -> View:
    keys = {"A": "node:A", "B": "node:B", "Of": "edge:Of", "Next": "edge:Next"}
    return View.of(CATALOG, {**EVERYTHING, **{keys[name]: rule for name, rule in rules.items()}})


def test_a_view_of_everything_is_the_whole_view():
    assert view() is WHOLE
    assert WHOLE.sees_all("node:A")
    assert not WHOLE.hides("node:A")
    assert WHOLE.condition("node:A") is None
    assert WHOLE.whole_for(EVERYTHING)


def test_a_table_without_a_rule_is_hidden():
    nothing = View.of(CATALOG, {})
    assert all(map(nothing.hides, EVERYTHING))
    assert nothing.hides("node:Unknown")
    assert nothing.condition("node:A") == typed.Constant(False, typed.BOOL)


@pytest.mark.parametrize(
    ("rule", "seen", "hidden"), [(HIDDEN, False, True), (above(0), False, False)]
)
def test_the_ends_of_an_edge_decide_too(rule, seen, hidden):
    restricted = view(B=rule)
    assert not restricted.sees_all("edge:Of")
    assert restricted.hides("edge:Of") is hidden
    assert restricted.condition("edge:Of") is None
    assert restricted.sees_all("edge:Next")
    assert not restricted.hides("edge:Next")
    assert restricted.ends("edge:Of") == ("node:A", "node:B")
    assert restricted.ends("node:A") == ()


def test_a_cache_key_changes_with_whatever_decides_about_the_rows():
    keys = {
        restricted.key_of("edge:Of")
        for restricted in (WHOLE, view(Of=above(1)), view(A=above(1)), view(B=above(1)))
    }
    assert len(keys) == 4
    assert view(A=above(1)).key_of("node:B") == WHOLE.key_of("node:B")
    assert view(A=above(1)).digest == view(A=above(1)).digest != view(A=above(2)).digest
    assert view(A=above(1)) == view(A=above(1))


def test_a_view_is_no_wider_if_all_of_its_alternatives_are_among_the_others():
    one, two = view(A=above(1)), view(A=typed.Or((above(1), above(2))))
    assert one.is_no_wider_than(two)
    assert not two.is_no_wider_than(one)
    assert view(A=HIDDEN).is_no_wider_than(one)
    assert not one.is_no_wider_than(view(A=HIDDEN))
    assert one.is_no_wider_than(WHOLE)
    assert not WHOLE.is_no_wider_than(one)
    assert view(A=above(1), B=above(1)).is_no_wider_than(one)
    assert not view(B=above(1)).is_no_wider_than(one)
    assert WHOLE.is_no_wider_than(WHOLE)
    assert one.is_no_wider_than(one)
