"""Vector search: exact, in one order, with an index or without."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import InputError, ValueConversionError
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.read.search.vector import Metric, distances, metric_of, nearest
from omnigraph.storage.tables.search import vector_index
from omnigraph.storage.tables.types import IndexKind
from tests.read.search.world import Docs

VECTOR = IndexKind.VECTOR
COSINE, L2, DOT = Metric.COSINE, Metric.L2, Metric.DOT
LIBRARY = [
    ("ml-intro", None, [0.1, 0.2, 0.3, 0.4], 2020),
    ("dl-basics", None, [0.5, 0.6, 0.7, 0.8], 2021),
    ("nlp-guide", None, [0.2, 0.3, 0.4, 0.5], 2022),
    ("cv-overview", None, [0.8, 0.7, 0.6, 0.5], 2023),
    ("rl-intro", None, [0.3, 0.4, 0.5, 0.6], 2024),
    ("none", None, None, 2024),
    ("zero", None, [0.0, 0.0, 0.0, 0.0], 2024),
]
QUERY = [0.1, 0.2, 0.3, 0.4]


def near(docs, query, k, **how):
    return docs.ids(nearest(docs.table, "vector", query, k, **how).row_ids)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(params=["none", "partial", "full", "other metric"])
def library(docs, request):
    if request.param == "partial":
        return docs.append(*LIBRARY[:3]).index(VECTOR).append(*LIBRARY[3:])
    docs.append(*LIBRARY)
    if request.param == "full":
        docs.index(VECTOR)
    if request.param == "other metric":
        docs.index(VECTOR, metric="l2")
    return docs


def test_the_nearest_come_first_and_exactly_so_many(library):
    assert near(library, QUERY, 3) == ["ml-intro", "nlp-guide", "rl-intro"]
    assert near(library, QUERY, 0) == []


def test_rows_without_a_direction_are_never_near(library):
    assert set(near(library, QUERY, 100)) == {name for name, *_ in LIBRARY[:5]}


def test_conditions_and_candidates_come_before_the_search(library):
    """There are as many results as wanted although nearer ones were left out."""
    late = pc.field("year") >= 2022
    assert near(library, QUERY, 2, condition=late) == ["nlp-guide", "rl-intro"]
    # One that Lance cannot judge is judged here.
    assert near(library, QUERY, 2, condition=pc.field("size") >= 2022) == ["nlp-guide", "rl-intro"]
    chosen = library.rows("cv-overview", "rl-intro", "dl-basics", "none")
    assert near(library, QUERY, 9, candidates=chosen) == ["rl-intro", "dl-basics", "cv-overview"]
    assert near(library, QUERY, 9, candidates=chosen, condition=late) == ["rl-intro", "cv-overview"]
    assert near(library, QUERY, 9, candidates=library.rows()[:0]) == []


def test_distances_are_exact_and_undefined_where_there_is_none(library):
    rows = library.rows("ml-intro", "none", "zero", "cv-overview", "ml-intro")
    actual = distances(library.table, "vector", QUERY, rows)
    cosine = np.dot(QUERY, [0.8, 0.7, 0.6, 0.5]) / np.linalg.norm(QUERY) / np.sqrt(1.74)
    assert actual == pytest.approx([0, np.nan, np.nan, 1 - cosine, 0], abs=1e-6, nan_ok=True)
    assert distances(library.table, "vector", QUERY, rows[:0]).tolist() == []


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (COSINE, [0.0, 1.0, 2.0, None]),
        (L2, [1.0, 5**0.5, 2.0, 1.0]),
        (DOT, [-1.0, 1.0, 2.0, 1.0]),
    ],
)
@pytest.mark.parametrize("indexed", [False, True])
def test_each_metric_measures_as_documented(docs, metric, expected, indexed):
    rows = [("a", None, [2, 0, 0, 0]), ("b", None, [0, 2, 0, 0]), ("c", None, [-1, 0, 0, 0])]
    docs.append(*rows, ("d", None, [0, 0, 0, 0]))
    if indexed:
        docs.index(VECTOR, metric=metric)
        assert vector_index(docs.table, "vector").metric == metric
    hits = nearest(docs.table, "vector", [1, 0, 0, 0], 9, metric=metric)
    actual = dict(zip(docs.ids(hits.row_ids), hits.scores.tolist(), strict=True))
    wanted = dict(zip("abcd", expected, strict=True))
    assert actual == pytest.approx({k: v for k, v in wanted.items() if v is not None}, abs=1e-6)
    assert list(actual.values()) == sorted(actual.values())


def test_ties_are_never_cut_at_random(docs):
    docs.append(*((f"{n:03}", None, [1, 1, 0, 0]) for n in range(500)))
    docs.append(("first", None, [1, 0.9, 0, 0]))
    for index in (False, True):
        if index:
            docs.index(VECTOR)
        actual = near(docs, [1, 0, 0, 0], 12)
        assert actual == ["first", *(f"{n:03}" for n in range(11))]


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 40), covered=st.integers(0, 200))
def test_index_and_exact_computation_agree_on_unit_vectors(tmp_path_factory, seed, k, covered):
    docs = Docs(tmp_path_factory.mktemp("t"))
    chance = np.random.default_rng(seed)
    vectors = unit(chance.normal(size=(200, 4))).astype(np.float32)
    rows = [(f"{n:03}", None, vector.tolist()) for n, vector in enumerate(vectors)]
    if covered:
        docs.append(*rows[:covered]).index(VECTOR)
    if covered < 200:
        docs.append(*rows[covered:])
    query = unit(chance.normal(size=(1, 4))).astype(np.float32)[0]
    by_cosine, by_l2 = near(docs, query, k), near(docs, query, k, metric=L2)
    exact = 1 - (vectors.astype(float) @ query.astype(float)) / np.linalg.norm(
        vectors.astype(float), axis=1
    )
    assert by_cosine == [f"{n:03}" for n in np.argsort(exact, kind="stable")[:k]]
    gaps = np.diff(np.sort(exact)[: k + 1])
    if (gaps > 1e-6).all():
        assert by_l2 == by_cosine
    everything = docs.rows(*(row[0] for row in rows))
    assert near(docs, query, k, candidates=everything) == by_cosine


def test_updated_and_deleted_vectors_are_not_found_any_more(docs):
    docs.append(*LIBRARY).index(VECTOR)
    docs.upsert(("ml-intro", None, [-1, -1, -1, -1], 2020)).delete("nlp-guide")
    assert near(docs, QUERY, 2) == ["rl-intro", "dl-basics"]
    assert near(docs, QUERY, 9)[-1] == "ml-intro"


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("IVF_FLAT", {"num_partitions": 8}),
        ("IVF_PQ", {"num_partitions": 2, "num_sub_vectors": 2}),
        ("IVF_HNSW_SQ", {"num_partitions": 2}),
    ],
)
def test_an_index_of_another_program_is_used_with_care(docs, kind, how):
    """Many partitions, or compressed: the distances stay exact, and nearly all rows are found."""
    chance = np.random.default_rng(1)
    vectors = unit(chance.normal(size=(600, 4))).astype(np.float32)
    docs.append(*((f"{n:03}", None, vector.tolist()) for n, vector in enumerate(vectors)))
    without = nearest(docs.table, "vector", vectors[0], 10)
    dataset = lance.dataset(docs.root.path(docs.ref.path), version=docs.version)
    dataset.create_index("vector", kind, metric="cosine", **how)
    docs.version = dataset.version
    assert vector_index(docs.table, "vector").metric == "cosine"
    hits = nearest(docs.table, "vector", vectors[0], 10)
    assert len(set(hits.row_ids.tolist()) & set(without.row_ids.tolist())) >= 9
    exact = distances(docs.table, "vector", vectors[0], hits.row_ids)
    assert np.array_equal(hits.scores, exact)


# -- what cannot be compared ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ([1.0, 2.0], ["'vector'", "Vector(4)", "has 2"]),
        ([[1.0, 2.0, 3.0, 4.0]], ["'vector'", "Vector(4)", "shape"]),
        ([0.0, 0.0, 0.0, 0.0], ["'vector'", "zero", "4 dimensions"]),
        ([1.0, 2.0, 3.0, float("nan")], ["'vector'", "not finite"]),
    ],
)
@pytest.mark.parametrize("search", [nearest, distances])
def test_a_vector_that_does_not_fit_is_refused(docs, query, words, search):
    docs.append(*LIBRARY)
    last = 3 if search is nearest else docs.rows("ml-intro")
    with pytest.raises(ValueConversionError) as caught:
        search(docs.table, "vector", query, last)
    assert all(word in str(caught.value) for word in words)


def test_a_zero_vector_has_a_distance_by_other_metrics(docs):
    docs.append(*LIBRARY)
    assert near(docs, [0, 0, 0, 0], 2, metric=L2) == ["zero", "ml-intro"]


def test_the_metric_is_that_of_the_schema():
    catalog = compile_schema(
        'node D { k: String @key  a: Vector(2)?  b: Vector(2)? @vector("l2")  '
        'c: Vector(2)? @vector("DOT")  d: Vector(2)? @vector("miles") }'
    )
    props = catalog.node("D").properties
    assert [metric_of(props[name]) for name in "abc"] == [COSINE, L2, DOT]
    with pytest.raises(InputError, match=r"'d'.*'miles'"):
        metric_of(props["d"])
