"""Words and vectors in queries on Spark: the rows, scores and order of the embedded engine."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.errors import LimitExceeded, ValueConversionError
from omnigraph.spark import SparkEngine
from omnigraph.spark.query import run
from tests.read.test_search_queries import NEAR, SCHEMA, fill
from tests.spark.query_session import all_same, quick_session, same

WORDS = 'bm25($d.title, "roads")'
FAR = f"nearest($d.v, {NEAR})"
FUSED = f"rrf({WORDS}, {FAR})"


@pytest.fixture(scope="module")
def session(spark: SparkEngine) -> Any:
    return quick_session(spark)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory):
    """Documents of which the indexes know some."""
    with Graph.init(tmp_path_factory.mktemp("s") / "g.omni", SCHEMA, durability="os") as graph:
        fill(graph, "partial")
        yield graph


TEXTS = [
    'match { $d: Doc search($d.title, "Learning") } return { $d.slug }',
    'match { $d: Doc fuzzy($d.title, "rode") $d.year > 2000 } return { $d.slug }',
    'match { $d: Doc } return { $d.slug, match_text($d.title, "roads") as found }',
    'match { $d: Doc search($d.title, "roads") $d cites $e } return { $d.slug, $e.slug }',
    'match { $d: Doc not { $d cites $e search($e.title, "learn") } } return { $d.slug }',
    'match { $a: Author $a $w:wrote $d search($w.remark, "draft") } return { $d.slug }',
    f"match {{ $d: Doc }} return {{ $d.slug, {WORDS} as s }} order {{ {WORDS} }} limit 2",
    f"match {{ $d: Doc {WORDS} > 0.0 }} return {{ $d.slug }}",
    f"match {{ $d: Doc $d cites $e }} return {{ $d.slug, $e.slug }} order {{ {WORDS} }}",
    f"match {{ $d: Doc }} return {{ max({WORDS}) as best, count($d) as n }}",
    f"match {{ $d: Doc }} return {{ $d.slug, {FAR} as far }} order {{ {FAR} }} limit 8",
    f"match {{ $d: Doc $d.year > 2004 }} return {{ $d.slug }} order {{ {FAR} }} limit 2",
    f"match {{ $a: Author $a wrote $d }} return {{ $d.slug }} order {{ {FAR} }} limit 3",
    f"match {{ $d: Doc {FAR} < 0.02 }} return {{ $d.slug }}",
    f"match {{ $d: Doc }} return {{ $d.slug, {FUSED} as s }} order {{ {FUSED} }} limit 3",
    f"match {{ $d: Doc }} return {{ $d.slug, {FUSED} as s }} order {{ s desc }} limit 3",
    f"match {{ $d: Doc }} return {{ $d.slug, {FUSED} as s }}",
    f"match {{ $d: Doc $d cites $e }} return {{ $e }} order {{ {FUSED} }} limit 3",
]


def test_searches(graph: Graph, session: Any):
    assert all(all_same(graph, session, TEXTS))


def test_searches_that_look_for_nothing(graph: Graph, session: Any):
    text = "match { $d: Doc search($d.title, $q) } return { $d.slug }"
    assert same(graph, session, text, {"q": ("String?", None)}) == []
    near = "match { $d: Doc } return { $d.slug } order { nearest($d.v, $q) } limit 3"
    assert same(graph, session, near, {"q": ("Vector(4)?", None)}) == []


def test_a_vector_that_cannot_be_searched_for_is_refused_by_the_workers(graph: Graph, session: Any):
    """With the error that the embedded engine raises."""
    query = "query q($q: Vector(4)) { match { $d: Doc } return { nearest($d.v, $q) as far } }"
    with pytest.raises(ValueConversionError, match="zero"):
        graph.query(query, None, {"q": [0, 0, 0, 0]}, engine="spark", spark=session).rows()


def test_searches_over_connect(graph: Graph, connect: SparkEngine):
    session = quick_session(connect)
    text = f"match {{ $d: Doc }} return {{ $d.slug, {FUSED} as s }} order {{ {FUSED} }} limit 3"
    assert [row[0] for row in same(graph, session, text)] == ["ants", "bees", "fish"]
    near = f"match {{ $d: Doc }} return {{ $d.slug }} order {{ {FAR} }} limit 2"
    assert same(graph, session, near) == [("ants",), ("bees",)]


def test_more_scores_than_can_be_sent_are_refused(
    graph: Graph, session: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run, "MOST_HITS", 2)
    query = f"query q() {{ match {{ $d: Doc }} return {{ {WORDS} as s }} }}"
    with pytest.raises(LimitExceeded, match="a search matches 3 rows"):
        graph.query(query, engine="spark", spark=session)
