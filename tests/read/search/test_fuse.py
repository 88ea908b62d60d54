"""Reciprocal rank fusion, by its formula."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.read.search.ranking import fuse

rankings = st.lists(st.integers(0, 12), unique=True, max_size=12)


def ids(values):
    return np.array(values, np.uint64)


def test_the_score_is_the_sum_of_reciprocal_ranks():
    hits = fuse(ids([7, 8, 9]), ids([9, 7]))
    actual = dict(zip(hits.row_ids.tolist(), hits.scores.tolist(), strict=True))
    assert actual == {7: 1 / 61 + 1 / 62, 9: 1 / 63 + 1 / 61, 8: 1 / 62}
    assert hits.row_ids.tolist() == [7, 9, 8]


def test_equal_scores_keep_the_primary_order_and_the_others_come_after():
    assert fuse(ids([5, 3]), ids([3, 5])).row_ids.tolist() == [5, 3]
    assert fuse(ids([5]), ids([3])).row_ids.tolist() == [5, 3]
    assert fuse(ids([]), ids([9, 1])).row_ids.tolist() == [9, 1]
    assert len(fuse(ids([]), ids([]))) == 0


@given(primary=rankings, secondary=rankings, k=st.integers(1, 100))
def test_any_two_rankings_fuse_as_the_formula_says(primary, secondary, k):
    scores = {}
    for ranking in (primary, secondary):
        for rank, row in enumerate(ranking):
            scores[row] = scores.get(row, 0) + Fraction(1, k + rank + 1)
    locations = {row: location for location, row in reversed(list(enumerate(primary + secondary)))}
    expected = sorted(scores, key=lambda row: (-float(scores[row]), locations[row]))
    hits = fuse(ids(primary), ids(secondary), k)
    assert sorted(hits.row_ids.tolist()) == sorted(expected)
    assert np.allclose(hits.scores, [float(scores[row]) for row in hits.row_ids.tolist()])
    exact = sorted(scores, key=lambda row: (-scores[row], locations[row]))
    assert [float(scores[row]) for row in hits.row_ids.tolist()] == [
        float(scores[row]) for row in exact
    ]
