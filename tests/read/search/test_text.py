"""A text search finds the same rows with no index, with part of one, and with a whole one."""

from __future__ import annotations

import random

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import InputError
from omnigraph.lang.query.typed import TextFunction
from omnigraph.read.search.text import match_set, matches
from omnigraph.storage.tables.search import text_hits, text_index
from omnigraph.storage.tables.types import IndexKind
from tests.read.search.world import Docs

SEARCH, MATCH_TEXT, FUZZY = TextFunction.SEARCH, TextFunction.MATCH_TEXT, TextFunction.FUZZY
TEXT = IndexKind.TEXT

LIBRARY = [
    ("ml-intro", "Introduction to Machine Learning"),
    ("dl-basics", "Deep Learning Basics"),
    ("nlp-guide", "Natural Language Processing Guide"),
    ("cv-overview", "Computer Vision Overview"),
    ("rl-intro", "Reinforcement Learning Introduction"),
    ("untitled", None),
    ("empty", ""),
]


def searched(docs, function, query, edits=None):
    return sorted(docs.ids(match_set(docs.table, "text", function, query, edits)))


# -- coverage -------------------------------------------------------------------------------------


def none(docs):
    return docs.append(*LIBRARY)


def full(docs):
    return docs.append(*LIBRARY).index(TEXT)


def partial(docs):
    return docs.append(*LIBRARY[:3]).index(TEXT).append(*LIBRARY[3:])


def updated(docs):
    """Rows that the index knows by another text."""
    old = [(name, "Learning the old vision") for name, _ in LIBRARY]
    return docs.append(*old).index(TEXT).upsert(*LIBRARY[:4]).upsert(*LIBRARY[4:])


def retexted(docs):
    old = [(name, "Learning the old vision") for name, _ in LIBRARY]
    return docs.append(*old).index(TEXT).retext(**dict(LIBRARY))


def deleted(docs):
    more = [(f"gone-{n}", "Learning about vision") for n in range(3)]
    docs.append(*LIBRARY[:4], *more[:2]).index(TEXT).append(*LIBRARY[4:], more[2])
    return docs.delete(*(name for name, _ in more))


def compacted(docs):
    docs.append(*LIBRARY[:2]).append(*LIBRARY[2:4]).index(TEXT)
    return docs.append(LIBRARY[4]).append(*LIBRARY[5:]).compact()


def branched(docs):
    """A branch inherits the index of its fork and goes on without it."""
    return docs.append(*LIBRARY[:4]).index(TEXT).branch("b").append(*LIBRARY[4:])


def elsewhere(docs):
    """An index that somebody else built with another analyser is not asked."""
    docs.append(*LIBRARY)
    dataset = lance.dataset(docs.root.path(docs.ref.path), version=docs.version)
    dataset.create_scalar_index("text", "INVERTED", stem=False, remove_stop_words=False)
    docs.version = dataset.version
    return docs


def older(docs):
    """Nor is one in the format of older releases, which stemmed otherwise."""
    docs.append(*LIBRARY)
    dataset = lance.dataset(docs.root.path(docs.ref.path), version=docs.version)
    dataset.create_scalar_index("text", "INVERTED", format_version=1)
    docs.version = dataset.version
    return docs


def doubled(docs):
    """Beside another, not even our own is: Lance might ask the other."""
    older(docs)
    return docs.index(TEXT)


STATES = [
    none,
    full,
    partial,
    updated,
    retexted,
    deleted,
    compacted,
    branched,
    elsewhere,
    older,
    doubled,
]


@pytest.fixture(params=STATES, ids=lambda state: state.__name__)
def library(docs, request):
    return request.param(docs)


@pytest.mark.parametrize(
    ("function", "query", "expected"),
    [
        (SEARCH, "Learning", ["dl-basics", "ml-intro", "rl-intro"]),
        (SEARCH, "learned", ["dl-basics", "ml-intro", "rl-intro"]),
        (SEARCH, "nonsense", []),
        (MATCH_TEXT, "Processing", ["nlp-guide"]),
        (MATCH_TEXT, "machine introduction", ["ml-intro", "rl-intro"]),
        (MATCH_TEXT, "vision guide", ["cv-overview", "nlp-guide"]),
        (SEARCH, "the", []),
        (SEARCH, "", []),
        (SEARCH, "?!", []),
        (FUZZY, "Introductio", []),
        (FUZZY, "introductio", ["ml-intro", "rl-intro"]),
        (FUZZY, "lern", ["dl-basics", "ml-intro", "rl-intro"]),
        (FUZZY, "zzzzzz", []),
        (FUZZY, "", []),
    ],
)
def test_words_find_these_rows(library, function, query, expected):
    """Any of the words, at any place; fuzzy words are compared as written."""
    assert searched(library, function, query) == expected


def test_the_states_are_what_they_say(tmp_path):
    def index(state):
        (tmp_path / state.__name__).mkdir()
        return text_index(state(Docs(tmp_path / state.__name__)).table, "text")

    assert index(none) is None
    assert index(elsewhere) is None
    assert index(older) is None
    assert index(doubled) is None
    whole = index(full)
    assert (whole.complete, whole.name) == (True, "text_text")
    for state in (partial, updated, branched, compacted):
        actual = index(state)
        assert not actual.complete, state


@pytest.mark.parametrize(("edits", "expected"), [(0, []), (1, []), (2, ["a"]), (3, ["a", "b"])])
def test_the_edits_of_fuzzy_count_as_given(docs, edits, expected):
    docs.append(("a", "graph"), ("b", "graphite")).index(TEXT)
    assert searched(docs, FUZZY, "grahp", edits) == expected


def test_edits_cannot_be_negative(docs):
    docs.append(("a", "graph"))
    with pytest.raises(InputError, match="negative"):
        match_set(docs.table, "text", FUZZY, "graph", -1)


@pytest.mark.parametrize("edits", [3, 8, 10_000])
def test_more_edits_than_an_index_can_look_for_are_counted_without_it(docs, edits):
    """A long word and many edits are more than the index takes."""
    docs.append(("a", "abcdefghijklmnopqrstuvwxyz"), ("b", "fox"), ("c", None)).index(TEXT)
    word = "abcdefghijklmnopqrstuvw"
    index = text_index(docs.table, "text")
    assert text_hits(docs.table, index, word, max_edits=min(edits, 255)) is None
    expected = ["a"] if edits < 20 else ["a", "b"]
    assert searched(docs, FUZZY, word, edits) == expected


def test_a_fuzzy_word_is_compared_with_every_term(docs):
    """Not only with the fifty that Lance would stop at."""
    words = [f"w{first}{second}" for first in "abcdefghij" for second in "abcdefghij"]
    docs.append(*((word, word) for word in words)).index(TEXT)
    assert searched(docs, FUZZY, "wzz", 2) == sorted(words)


def test_a_condition_is_judged_before_the_search(docs):
    docs.append(("a", "red fox", None, 1), ("b", "red fox", None, 2)).index(TEXT)
    index = text_index(docs.table, "text")
    hits = text_hits(docs.table, index, "fox", condition=pc.field("year") == 2, limit=1)
    assert docs.ids(hits.row_ids) == ["b"]
    assert text_hits(docs.table, index, "fox", condition=pc.field("size") == 2) is None


# -- any table, any query -------------------------------------------------------------------------

WORDS = ("red", "reds", "fox", "foxes", "box", "Fox", "the", "naïve", "naive", "日本", "42")
texts = st.one_of(st.none(), st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join))
names = st.sampled_from("abcdefgh")
writes = st.one_of(
    st.tuples(st.just("upsert"), st.dictionaries(names, texts, min_size=1)),
    st.tuples(st.just("delete"), st.lists(names, min_size=1, unique=True)),
    st.tuples(st.just("index"), st.none()),
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("branch"), st.none()),
)


@settings(max_examples=30)
@given(
    steps=st.lists(writes, max_size=8),
    queries=st.lists(
        st.tuples(st.lists(st.sampled_from(WORDS), max_size=3).map(" ".join), st.integers(0, 2)),
        min_size=1,
        max_size=4,
    ),
)
def test_whatever_was_done_to_a_table_the_same_rows_match(tmp_path_factory, steps, queries):
    docs = Docs(tmp_path_factory.mktemp("t"))
    model = {"z": "red fox"}
    docs.append(("z", "red fox"))
    for number, (action, what) in enumerate(steps):
        if action == "upsert":
            docs.upsert(*what.items())
            model.update(what)
        elif action == "delete":
            there = [name for name in what if name in model]
            if there:
                docs.delete(*there)
                model = {name: text for name, text in model.items() if name not in there}
        elif action == "index":
            docs.index(TEXT)
        elif action == "compact":
            docs.compact()
        elif docs.ref.branch is None:
            docs.branch(f"b{number}")
    existing = sorted(model)
    column = pa.array([model[name] for name in existing], pa.string())
    for query, edits in queries:
        flags = matches(column, FUZZY, query, edits)
        expected = [existing[position] for position in np.flatnonzero(flags)]
        assert searched(docs, FUZZY, query, edits) == expected


def test_thousands_of_rows_match_alike_outside_and_inside(docs):
    chance = random.Random(3)
    parts = ["fox", "running", "naïve", "the", "connection", "Graph", "données", "42", "x"]
    rows = [
        (f"{n:05}", " ".join(chance.choices(parts, k=chance.randint(0, 5)))) for n in range(4_000)
    ]
    docs.append(*rows[:2_000]).append(*rows[2_000:])
    queries = [(word, edits) for word in ("fox", "run", "donnees", "graph 42") for edits in (0, 2)]
    before = [searched(docs, FUZZY, *query) for query in queries]
    docs.index(TEXT)
    assert [searched(docs, FUZZY, *query) for query in queries] == before
    assert all(before)
