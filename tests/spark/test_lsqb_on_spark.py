"""The counts of the Labelled Subgraph Query Benchmark on Spark."""

from __future__ import annotations

import pytest

from tests.read.test_lsqb import COUNTS, graph, text_of

__all__ = ["graph"]


@pytest.mark.slow
@pytest.mark.parametrize("number", COUNTS)
def test_spark_counts_the_same(graph, spark, number):
    pattern, expected = COUNTS[number]
    text = text_of(pattern.split("|"))
    rows = graph.query(text, engine="spark", spark=spark.session).rows()
    assert rows == [{"n": expected}]
