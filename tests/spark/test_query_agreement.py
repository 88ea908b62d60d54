"""Spark, the embedded engine and the naive evaluator give the same answers.

Random queries run against graphs in every state of ``tests.read.test_agreement``: fresh, changed,
compacted, indexed or not, on main and on a branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

from omnigraph import QueryError
from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import CheckedRead
from omnigraph.lang.query.params import convert_params
from omnigraph.lang.types import Scalar
from omnigraph.spark import SparkEngine
from tests.read.generate import Question, make_question
from tests.read.naive import answer
from tests.read.test_agreement import State, compare, rows_of, states
from tests.read.world import NOW, check
from tests.rotation import in_turn
from tests.spark.query_session import AT_ONCE, quick_session

# What the sums of 64-bit numbers that cancel each other may differ by: a few units of the last
# place of the greatest of them, in whatever order they are added.
_CANCELLED = 2.0**15
DAYS = 15
"""In so many days a slow run has asked every random query."""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[State]]:
    actual = list(states(tmp_path_factory.mktemp("spark-agreement")))
    yield actual
    for graph in {id(state.graph): state.graph for state in actual}.values():
        graph.close()


def _differences(pool: list[State], spark: SparkEngine, seeds: list[int]) -> list[str]:
    session = quick_session(spark)

    def ask(seed: int) -> str | None:
        random = Random(f"spark-{seed}")
        state = random.choice(pool)
        question = make_question(random, state.graph.catalog)
        try:
            _compare(state, question, session)
        except AssertionError as error:
            return f"seed {seed}, {state!r}:\n{question.text}\n{question.params}\n{error}"
        return None

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return [actual for actual in threads.map(ask, seeds) if actual is not None]


def _compare(state: State, question: Question, session: Any) -> None:
    params = {**question.params, typed.NOW_PARAMETER: NOW}
    try:
        query = check(state.graph.catalog, question.text)
    except QueryError:
        return
    local = state.graph.query(question.text, "q", params, branch=state.branch)
    spark = state.graph.query(
        question.text, "q", params, branch=state.branch, engine="spark", spark=session
    )
    assert spark.schema == local.schema
    actual, here = rows_of(spark), rows_of(local)
    expected = answer(query, state.data, convert_params(query.params, params))
    compare(query, _recovered(query, actual, here), expected)


def _recovered(
    query: CheckedRead, actual: list[tuple[Any, ...]], here: list[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """The rows of Spark, with sums of great numbers as the other engine has them where near."""
    if len(actual) != len(here):
        return actual
    great = [_adds_great_numbers(column.expr) for column in query.columns]

    def near(value: Any, other: Any, is_great: bool) -> Any:
        if not is_great or not isinstance(value, float) or not isinstance(other, float):
            return value
        return other if abs(value - other) <= _CANCELLED else value

    if not any(great):
        return actual
    return [tuple(map(near, row, other, great)) for row, other in zip(actual, here, strict=True)]


def _adds_great_numbers(expr: typed.TypedExpr) -> bool:
    return (
        isinstance(expr, typed.Aggregate)
        and expr.function in (typed.AggregateFunction.SUM, typed.AggregateFunction.AVG)
        and expr.arg.type.scalar in (Scalar.I64, Scalar.U64)
    )


def test_queries_on_spark_give_what_the_embedded_engine_gives(
    pool: list[State], spark: SparkEngine
):
    assert _differences(pool, spark, in_turn(range(24), 3)) == []


@pytest.mark.slow
def test_many_queries_on_spark_give_what_the_embedded_engine_gives(
    pool: list[State], spark: SparkEngine
):
    assert _differences(pool, spark, in_turn(range(24, 3_024), DAYS)) == []
