"""BM25: the rows that match, best first, with scores that do not depend on who computed them."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from omnigraph.lang.query.typed import TextFunction
from omnigraph.read.search.ranking import bm25
from omnigraph.read.search.text import match_set
from omnigraph.storage.tables.types import IndexKind
from tests.read.search.test_text import LIBRARY

TEXT = IndexKind.TEXT
ROWS = [
    ("a", "fox"),
    ("b", "fox fox fox"),
    ("c", "a red fox in the red snow"),
    ("d", "red whale"),
    ("e", None),
    ("f", "the"),
    ("g", "blue whale and a blue sky"),
]


def ranked(docs, query, **how):
    hits = bm25(docs.table, "text", query, **how)
    return dict(zip(docs.ids(hits.row_ids), hits.scores.tolist(), strict=True))


def expected_score(counts, length, mean, texts, texts_with):
    idf = math.log((texts - texts_with + 0.5) / (texts_with + 0.5) + 1)
    return idf * 2.2 * counts / (counts + 1.2 * (0.25 + 0.75 * length / mean))


def test_the_scores_are_those_of_the_books(docs):
    """Texts without a word do not count: 5 texts of 1, 3, 4, 2 and 4 words."""
    docs.append(*ROWS)
    actual = ranked(docs, "fox")
    assert list(actual) == ["b", "a", "c"]
    for name, counts, length in (("a", 1, 1), ("b", 3, 3), ("c", 1, 4)):
        assert actual[name] == pytest.approx(expected_score(counts, length, 14 / 5, 5, 3))


@pytest.mark.parametrize("query", ["fox", "red whale", "red red", "sky fox snow", "Foxes"])
def test_a_whole_index_and_none_give_the_same_scores(docs, query):
    docs.append(*ROWS)
    without = ranked(docs, query)
    docs.index(TEXT)
    assert ranked(docs, query) == pytest.approx(without, rel=1e-5)
    assert list(ranked(docs, query)) == list(without)


def test_rows_outside_the_index_are_scored_by_what_the_index_counts(docs):
    """The same text scores the same on both sides."""
    docs.append(*ROWS).index(TEXT).append(("x", "fox"), ("y", "fox fox fox"), ("z", "a new word"))
    actual = ranked(docs, "fox")
    assert actual["x"] == pytest.approx(actual["a"], rel=1e-5)
    assert actual["y"] == pytest.approx(actual["b"], rel=1e-5)
    assert set(actual) == {"a", "b", "c", "x", "y"}
    # A word that the index does not know is rarer than any it knows.
    assert ranked(docs, "word fox whale")["z"] > actual["x"]


def test_equal_scores_come_by_row(docs):
    """These three titles have one of three words each."""
    docs.append(*LIBRARY).index(TEXT)
    actual = ranked(docs, "Learning")
    assert list(actual) == ["ml-intro", "dl-basics", "rl-intro"]
    assert len(set(actual.values())) == 1


@pytest.mark.parametrize("indexed", [False, True])
def test_a_limit_cuts_no_tie_at_random(docs, indexed):
    docs.append(*((f"{n:03}", "same words here") for n in range(300)), ("best", "words words"))
    if indexed:
        docs.index(TEXT)
    everything = list(ranked(docs, "words"))
    assert len(everything) == 301
    for limit in (0, 1, 2, 17, 300, 1000):
        assert list(ranked(docs, "words", limit=limit)) == everything[:limit]


def test_only_candidates_are_ranked_and_their_scores_stay(docs):
    docs.append(*ROWS).index(TEXT)
    whole = ranked(docs, "red fox")
    chosen = ranked(docs, "red fox", candidates=docs.rows("a", "d", "e"), limit=5)
    assert chosen == {name: whole[name] for name in ("a", "d")}
    assert ranked(docs, "red fox", candidates=np.empty(0, np.uint64)) == {}


@pytest.mark.parametrize("query", ["", "the", "nothing"])
def test_a_query_that_matches_nothing_ranks_nothing(docs, query):
    docs.append(*ROWS)
    assert ranked(docs, query) == {}
    docs.index(TEXT).append(("x", "fox"))
    assert ranked(docs, query) == {}


@pytest.mark.parametrize("covered", [0, 150, 300])
def test_what_is_ranked_is_what_matches(docs, covered):
    chance = random.Random(covered)
    words = ["fox", "red", "whale", "the", "blue", "naïve"]
    rows = [
        (f"{n:03}", " ".join(chance.choices(words, k=chance.randint(0, 6)))) for n in range(300)
    ]
    if covered:
        docs.append(*rows[:covered]).index(TEXT)
    if covered < 300:
        docs.append(*rows[covered:])
    for query in ("fox", "red whale", "naive", "the", "none"):
        hits = bm25(docs.table, "text", query)
        matched = match_set(docs.table, "text", TextFunction.SEARCH, query)
        assert np.array_equal(np.sort(hits.row_ids), matched)
        assert (np.diff(hits.scores) <= 0).all()
