"""Typed conditions in Arrow against the plain evaluator, and how numbers compare."""

from __future__ import annotations

import threading
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings

from omnigraph.errors import InternalError, ParameterError
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query import typed
from omnigraph.lang.query.expressions import MAX_OPERANDS
from omnigraph.lang.query.params import convert_params
from omnigraph.lang.types import PropType, Scalar
from omnigraph.lang.values.arrow import arrow_array, arrow_scalar
from omnigraph.plan import ReadPlan, compile_query
from omnigraph.plan.arrow import ExpressionVisitor, filter_expression, pushable
from omnigraph.plan.arrow_functions import contains_function
from omnigraph.plan.bind import align, bind, bind_expr
from omnigraph.plan.explain import show
from omnigraph.plan.nodes import NodeScan
from tests.lang.query.world import CATALOG, read
from tests.plan.conditions import ROWS, arrow_table, column, conditions
from tests.plan.evaluator import evaluate

TABLE = arrow_table()
# the same rows in pieces that do not start at the beginning of their buffers
PIECES = pa.concat_tables([TABLE.slice(0, 7), TABLE.slice(7, 1), TABLE.slice(8)])


def kept(table: pa.Table, condition: typed.TypedExpr) -> list[int]:
    actual: list[int] = table.filter(filter_expression(condition))["row"].to_pylist()
    return actual


def values(table: pa.Table, expr: typed.TypedExpr) -> list[Any]:
    columns = {"row": pc.field("row"), "value": ExpressionVisitor(exact=True).visit(expr)}
    actual: list[Any] = ds.dataset(table).to_table(columns=columns)["value"].to_pylist()
    return actual


# -- two engines agree ------------------------------------------------------------------------


@settings(max_examples=100)
@given(conditions)
def test_filters_keep_the_rows_for_which_the_condition_is_true(condition: typed.TypedExpr) -> None:
    bound = bind_expr(condition, {})
    expected = [number for number, row in enumerate(ROWS) if evaluate(condition, row) is True]
    assert kept(TABLE, bound) == expected
    assert kept(PIECES, bound) == expected


@settings(max_examples=100)
@given(conditions)
def test_values_are_true_false_or_null(condition: typed.TypedExpr) -> None:
    expected = [evaluate(condition, row) for row in ROWS]
    assert values(TABLE, bind_expr(condition, {})) == expected


@settings(max_examples=100)
@given(conditions)
def test_binding_and_aligning_keep_the_meaning(condition: typed.TypedExpr) -> None:
    bound = bind_expr(condition, {})
    for row in ROWS:
        assert evaluate(bound, row) is evaluate(condition, row)
    assert bind_expr(bound, {}) == bound, "aligning twice changes nothing more"


def test_the_rows_exercise_the_conditions() -> None:
    """Otherwise the tests above would prove little."""
    assert len(ROWS) > 50
    for name in (
        f"a_{scalar.lower()}" for scalar in Scalar if scalar.value not in ("Blob", "Vector")
    ):
        assert {row[name] is None for row in ROWS} == {True, False}
        assert len({row[name] for row in ROWS}) >= 3
    lists = [row["l_i64"] for row in ROWS]
    assert () in lists
    assert any(items and None in items for items in lists)


# -- numbers (6.2) ----------------------------------------------------------------------------

LT, LE, GT, GE = typed.Relation.LT, typed.Relation.LE, typed.Relation.GT, typed.Relation.GE
EQ, NE = typed.Relation.EQ, typed.Relation.NE
I32, I64 = column("a_i32"), column("a_i64")
U32, U64 = column("a_u32"), column("a_u64")
F32, F64 = column("a_f32"), column("a_f64")


def number(value: float) -> typed.Constant:
    return typed.Constant(value, typed.FLOAT if isinstance(value, float) else typed.INT)


@pytest.mark.parametrize(
    ("left", "op", "right", "expected"),
    [
        (I32, EQ, 30, "= 30 I32"),
        (I32, EQ, 30.0, "= 30 I32"),
        (I32, GT, 30.5, "> 30 I32"),
        (I32, GE, 30.5, "> 30 I32"),
        (I32, LT, 30.5, "<= 30 I32"),
        (I32, LE, 30.5, "<= 30 I32"),
        (I32, LT, -30.5, "<= -31 I32"),
        (I32, GT, -30.5, "> -31 I32"),
        # a fraction never equals an integer
        (I32, EQ, 30.5, "= 30.5 F64"),
        (I32, NE, 30.5, "!= 30.5 F64"),
        # beyond the type: always or never, but null stays null
        (I32, LT, 2**40, "<= 2147483647 I32"),
        (I32, GE, 2**40, "> 2147483647 I32"),
        (I32, EQ, 2**40, "> 2147483647 I32"),
        (I32, NE, 2**40, "<= 2147483647 I32"),
        (I32, EQ, -(2**40), "< -2147483648 I32"),
        (I32, GT, -(2**40), ">= -2147483648 I32"),
        (I64, LT, 1e300, "<= 9223372036854775807 I64"),
        (I64, LE, -1e300, "< -9223372036854775808 I64"),
        (I64, EQ, 9223372036854775808.0, "> 9223372036854775807 I64"),
        (U32, EQ, -1, "< 0 U32"),
        (U64, GE, -0.5, ">= 0 U64"),
        (U64, GE, -1, ">= 0 U64"),
        (U64, EQ, 1e19, "= 10000000000000000000 U64"),
        (F32, EQ, 0.1, "= 0.10000000149011612 F32"),
        (F32, GT, 1e39, "> 1e+39 F64"),
        (F32, EQ, 1, "= 1.0 F32"),
        (F64, EQ, 1, "= 1.0 F64"),
        (F64, EQ, 0.1, "= 0.1 F64"),
    ],
)
def test_constants_take_the_type_of_their_column(
    left: typed.Column, op: typed.Relation, right: float, expected: str
) -> None:
    actual = align(typed.Compare(op, left, number(right)))
    assert isinstance(actual, typed.Compare)
    assert actual.left == left
    assert isinstance(actual.right, typed.Constant)
    mirrored = {LT: GT, LE: GE, GT: LT, GE: LE}
    assert align(typed.Compare(mirrored.get(op, op), number(right), left)) == actual
    shown = f"{actual.op} {actual.right.value!r} {actual.right.type}"
    assert shown == expected


@pytest.mark.parametrize(
    ("item", "members", "expected"),
    [
        (I32, (1, 2.5, 2**40, None), (1, None)),
        (I32, (2.0, 3), (2, 3)),
        (F32, (0.1, 1), (0.10000000149011612, 1.0)),
        (U32, (-1, 7), (7,)),
    ],
)
def test_members_that_can_never_match_are_dropped(
    item: typed.Column, members: tuple[Any, ...], expected: tuple[Any, ...]
) -> None:
    options = typed.Constant(members, PropType(Scalar.F64, None in members, is_list=True))
    actual = align(typed.Membership(item, options))
    assert isinstance(actual, typed.Membership)
    assert isinstance(actual.options, typed.Constant)
    assert actual.options.value == expected
    assert actual.options.type.scalar is item.type.scalar


def test_a_list_whose_members_can_never_match_is_false_and_unknown_for_null() -> None:
    options = typed.Constant((2.5, 2**40), PropType(Scalar.F64, is_list=True))
    condition = bind_expr(typed.Membership(I32, options), {})
    assert values(_table("a_i32", [1, None]), condition) == [False, None]


@pytest.mark.parametrize("op", list(typed.Relation))
def test_an_integer_that_no_float_equals_is_compared_exactly(op: typed.Relation) -> None:
    beside = 2**53 + 1
    floats = [float(2**53), float(2**53 + 2), None]
    condition = bind_expr(typed.Compare(op, F64, number(beside)), {})
    expected = [evaluate(typed.Compare(op, F64, number(beside)), {F64.name: x}) for x in floats]
    assert values(_table(F64.name, floats), condition) == expected


def _table(name: str, items: list[Any]) -> pa.Table:
    array = arrow_array(tuple(items), column(name).type)
    return pa.table({"row": pa.array(range(len(items))), name: array})


@pytest.mark.parametrize(
    ("name", "items", "op", "other", "expected"),
    [
        # 64 bits are exact: a double cannot tell these apart
        ("a_i64", [2**53, 2**53 + 1, None], EQ, 2**53 + 1, [1]),
        ("a_i64", [2**63 - 1, 2**63 - 2], GE, 2**63 - 1, [0]),
        ("a_u64", [2**64 - 1, 2**63, 0], GT, 2**63 - 1, [0, 1]),
        ("a_u64", [2**64 - 1, 0, None], NE, -1, [0, 1]),
        ("a_i64", [2**53 + 1, None], NE, 0.5, [0]),
        ("a_i64", [2**63 - 1, None], LT, 9223372036854775808.0, [0]),
        ("a_i64", [2**63 - 1, None], EQ, 9223372036854775808.0, []),
        ("a_f32", [0.1, 0.2, None], EQ, 0.1, [0]),
        ("a_f32", [float("inf"), 3.4e38, None], EQ, 1e39, []),
        ("a_f32", [float("inf"), 3.4e38, None], LT, 1e39, [1]),
        ("a_f64", [0.1, 0.10000000149011612], EQ, 0.1, [0]),
        ("a_f64", [-0.0, 0.0, None], EQ, 0, [0, 1]),
    ],
)
def test_exact_numbers(
    name: str, items: list[Any], op: typed.Relation, other: float, expected: list[int]
) -> None:
    condition = bind_expr(typed.Compare(op, column(name), number(other)), {})
    assert kept(_table(name, items), condition) == expected


def test_both_zeros_are_members() -> None:
    options = typed.Constant((0.0,), PropType(Scalar.F64, is_list=True))
    condition = bind_expr(typed.Membership(F64, options), {})
    assert kept(_table("a_f64", [-0.0, 0.0, 1.0]), condition) == [0, 1]


def test_integer_and_float_columns_beyond_the_exact_range_compare_without_error() -> None:
    table = pa.table(
        {
            "row": pa.array([0, 1]),
            "a_i64": pa.array([2**63 - 1, 2**53 + 1]),
            "a_f64": pa.array([2.0**63, 0.5]),
        }
    )
    assert kept(table, typed.Compare(EQ, I64, F64)) == [0]
    assert kept(table, typed.Compare(GT, I64, F64)) == [1]


# -- dates ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1, 1, 1),
        datetime(1969, 12, 31, 23, 59, 59, 999000),
        datetime(2024, 2, 29, 12, 30, 15, 123000),
        datetime(9999, 12, 31, 23, 59, 59, 999000),
    ],
)
def test_the_time_of_day_survives(moment: datetime) -> None:
    actual = arrow_scalar(moment, typed.DATETIME)
    assert actual.type == pa.date64()
    expected = round((moment - datetime(1970, 1, 1)).total_seconds() * 1000)
    assert actual.cast(pa.int64()).as_py() == expected
    array = arrow_array((moment, None), typed.DATETIME)
    assert array.view(pa.int64()).to_pylist() == [expected, None]


def test_moments_of_one_day_are_different() -> None:
    early, late = datetime(2024, 1, 1, 1), datetime(2024, 1, 1, 2)
    at = column("a_datetime")
    table = _table("a_datetime", [early, late, None])
    assert kept(table, typed.Compare(GT, at, typed.Constant(early, typed.DATETIME))) == [1]
    members = typed.Constant((late,), PropType(Scalar.DATETIME, is_list=True))
    assert kept(table, typed.Membership(at, members)) == [1]


def test_dates_are_whole_days() -> None:
    table = _table("a_date", [date(2024, 1, 1), date(2024, 1, 2), None])
    condition = typed.Compare(
        LE, column("a_date"), typed.Constant(date(2024, 1, 1), PropType(Scalar.DATE))
    )
    assert kept(table, condition) == [0]


# -- membership and null ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ((1,), [True, False, None]),
        ((1, None), [True, None, None]),
        ((None,), [None, None, None]),
        ((), [False, False, False]),
        (None, [None, None, None]),
    ],
)
def test_membership_with_null_elements(members: Any, expected: list[bool | None]) -> None:
    options = typed.Constant(members, PropType(Scalar.I64, nullable=True, is_list=True))
    condition = bind_expr(typed.Membership(I64, options), {})
    table = _table("a_i64", [1, 2, None])
    assert values(table, condition) == expected
    assert values(table, typed.Not(condition)) == [None if e is None else not e for e in expected]
    assert kept(table, condition) == [i for i, e in enumerate(expected) if e is True]
    assert kept(table, typed.Not(condition)) == [i for i, e in enumerate(expected) if e is False]


def test_an_unknown_condition_is_not_equal_to_false() -> None:
    inner = typed.Membership(I64, typed.Constant((1,), PropType(Scalar.I64, is_list=True)))
    table = _table("a_i64", [1, 2, None])
    flag = typed.Constant(False, typed.BOOL)
    assert kept(table, typed.Compare(EQ, inner, flag)) == [1]
    members = typed.Constant((False,), PropType(Scalar.BOOL, is_list=True))
    assert kept(table, typed.Membership(inner, members)) == [1]


@pytest.mark.parametrize("condition", ["null", "not (null)", "null or $p.age = 1", "$p.age = null"])
def test_null_conditions_run(condition: str) -> None:
    plan = compile_query(CATALOG, read(f"$p: Person {condition}"))
    assert isinstance(plan, ReadPlan)
    actual = [
        c
        for step in plan.pipeline
        for c in (step.filters if isinstance(step, NodeScan) else (step.condition,))  # type: ignore[attr-defined]
    ]
    table = pa.table({"row": [0, 1], "age": pa.array([1, None], pa.int32())})
    expected = [0] if " or " in condition else []
    assert [kept(table, bind_expr(c, {})) for c in actual] == [expected]


def test_an_empty_table_is_no_problem() -> None:
    empty = TABLE.slice(0, 0)
    for name, item in (("l_string", "a"), ("l_i64", 1)):
        member = typed.Constant(item, column(name).type.element)
        assert kept(empty, typed.Membership(member, column(name))) == []


# -- binding ----------------------------------------------------------------------------------


def bound_plan(match: str, params: str, given: dict[str, Any], result: str = "$p.name") -> ReadPlan:
    plan = compile_query(CATALOG, Source("q.gq", read(match, result, params)))
    assert isinstance(plan, ReadPlan)
    return bind(plan, convert_params(plan.params, given))


def test_binding_replaces_every_parameter() -> None:
    plan = bound_plan(
        "$p: Person { name: $n } $p knows $f $f: Person { age: $a } "
        "not { $p knows $x $x.age in [$a, 7, $big] } $p.age < $f.age or $p.seen = now()",
        "$n: String, $a: F64, $big: I64, $l: [I32]?",
        {"n": "x", "a": 2.0, "big": 2**40},
        "$l $n now() as t",
    )
    parts = [part for expr in plan.exprs() for part in typed.walk(expr)]
    assert not any(isinstance(part, typed.Parameter | typed.ListOf) for part in parts)
    shown = [show(expr) for expr in plan.exprs()]
    assert '$p.name = "x"' in shown
    assert "$f.age = 2" in shown, "the constant has the type of the column"
    assert "$x.age in [2, 7]" in shown, "what can never match is dropped"


def test_binding_leaves_the_plan_as_it_was() -> None:
    plan = compile_query(CATALOG, read("$p: Person { name: $n }", params="$n: String"))
    before = repr(plan)
    bind(plan, {"n": "a"})  # type: ignore[type-var]
    assert repr(plan) == before


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(ParameterError, match="parameter 'n' not provided"):
        bind_expr(typed.Parameter("n", typed.STRING), {})


def test_a_null_parameter_matches_nothing() -> None:
    plan = bound_plan("$p: Person { age: $a }", "$a: I32?", {})
    (scan,) = plan.pipeline
    assert isinstance(scan, NodeScan)
    table = pa.table({"row": [0, 1], "age": pa.array([1, None], pa.int32())})
    assert kept(table, scan.filters[0]) == []


def test_lists_of_mixed_numbers_can_be_returned() -> None:
    plan = bound_plan(
        "$p: Person",
        "$i: I32, $l: I64",
        {"i": 1, "l": 2**40},
        "[$i, $l] as a [1.5, 9007199254740993] as b",
    )
    table = pa.table({"row": [0]})
    assert [values(table, c.expr) for c in plan.columns] == [[[1, 2**40]], [[1.5, 2.0**53]]]


# -- what storage can run ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ('$p.age > 1 and $p.name = "a" or not ($p.active)', True),
        ("$p.age in [1, 2]", True),
        ("$p.age in $list", True),
        ('$p.name contains "a"', True),
        ('$p.name starts_with "a"', True),
        ("$p.age is null", True),
        ("$p.age = $p.big", True),
        ('$p.tags contains "a"', False),
        ("$p.name in $p.tags", False),
        ("$p.name contains $p.name", False),
        ("$p.name starts_with $p.name", False),
        ('search($p.name, "a")', False),
        ('$p.age = 1 or search($p.name, "a")', False),
        ('bm25($p.name, "a") > 0.5', False),
    ],
)
def test_pushable(condition: str, expected: bool) -> None:
    plan = bound_plan(f"$p: Person {condition}", "$list: [I32]", {"list": [1]})
    (scan,) = plan.pipeline
    assert isinstance(scan, NodeScan)
    (actual,) = scan.filters
    assert pushable(actual) is expected


@pytest.mark.parametrize(
    "expr",
    [
        typed.Parameter("n", typed.STRING),
        typed.Aggregate(typed.AggregateFunction.COUNT, I64),
        typed.TextMatch(
            typed.TextFunction.SEARCH, column("a_string"), typed.Constant("a", typed.STRING)
        ),
    ],
)
def test_what_must_be_resolved_first_is_refused_by_name(expr: typed.TypedExpr) -> None:
    with pytest.raises(InternalError, match=type(expr).__name__):
        ExpressionVisitor(exact=True).visit(expr)


@pytest.mark.parametrize("join", [typed.Or, typed.And])
def test_the_longest_chain_that_can_be_written_can_be_run(join: Any) -> None:
    parts = tuple(typed.Compare(GE, I64, number(n)) for n in range(MAX_OPERANDS + 1))
    condition = bind_expr(join(parts), {})
    table = _table("a_i64", [5, -1, 40_000, None])
    expected = [5, 40_000] if join is typed.Or else [40_000]
    assert table.filter(filter_expression(condition))["a_i64"].to_pylist() == expected
    assert table.filter(filter_expression(typed.Not(condition))).num_rows > 0


def test_children_that_a_null_list_hides_are_not_seen() -> None:
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 2, 3, 3]),
        pa.array([1, 2, 3], pa.int64()),
        mask=pa.array([True, False, False]),
    )
    nums = typed.Column("p", "nums", PropType(Scalar.I64, nullable=True, is_list=True))
    condition = typed.Membership(number(3), nums)
    table = pa.table({"nums": hidden})
    expression = ExpressionVisitor(exact=True).visit(bind_expr(condition, {}))
    actual = ds.dataset(table).to_table(columns={"value": expression})["value"]
    assert actual.to_pylist() == [None, True, False]


def test_functions_are_registered_once_whoever_asks_first() -> None:
    names: list[str] = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        names.append(contains_function(pa.list_(pa.uint16()), pa.uint16()))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(names)) == 1
    assert len(names) == 8
    assert pc.list_functions().count(names[0]) == 1
