"""The analyser yields the terms of Lance's text index, whatever the text."""

from __future__ import annotations

import random
from collections import defaultdict

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.query import MatchQuery

from omnigraph.lang.query.typed import TextFunction
from omnigraph.read.search.analyser import analyse, analyse_query
from omnigraph.read.search.letters import word_ranges
from omnigraph.read.search.stemmer import stem
from omnigraph.read.search.text import matches, within_edits

pytestmark = pytest.mark.rotates(3)


def indexed(path, texts):
    """A table with a text index as Lance builds it by default."""
    dataset = lance.write_dataset(
        pa.table({"text": pa.array(texts, pa.string())}), path, enable_stable_row_ids=True
    )
    dataset.create_scalar_index("text", "INVERTED", with_position=True)
    return dataset


def actual(dataset, query, edits=0):
    requested = MatchQuery(query, "text", fuzziness=edits, max_expansions=2**31 - 1)
    scanner = dataset.scanner(columns=["_score"], full_text_query=requested, with_row_id=True)
    return set(scanner.to_table()["_rowid"].to_pylist())


def vocabulary(dataset):
    """How many different terms an index has."""
    parts = dataset.stats.index_stats("text_idx")["indices"]
    return sum(part["num_tokens"] for part in parts)


# -- single rules ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The quick, brown FOXES!", ["quick", "brown", "fox"]),
        ("don't stop", ["don", "t", "stop"]),
        ("snake_case and kebab-case", ["snake", "case", "kebab", "case"]),
        ("café Ångström straße", ["cafe", "angstrom", "strasse"]),
        ("日本語 テキスト", ["日本語", "テキスト"]),
        ("x1 42 3.14", ["x1", "42", "3", "14"]),
        ("😀 run🏃ning", ["run", "ning"]),
        ("a" * 39 + " " + "b" * 40, ["a" * 39]),
        ("é" * 19 + " " + "é" * 20, ["e" * 19]),
        ("to be or not to be", ["not"]),
        ("being others its", []),
        ("½ ㎏ Ⅳ", ["12", "iv"]),
        ("ΟΔΟΣ", ["οδοσ"]),
        ("", []),
        ("...", []),
    ],
)
def test_a_text_has_these_terms(text, terms):
    assert analyse_query(text) == terms


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("caresses", "caress"),
        ("ties", "tie"),
        ("cries", "cri"),
        ("gas", "gas"),
        ("agreed", "agre"),
        ("hopping", "hop"),
        ("hoping", "hope"),
        ("adding", "add"),
        ("lying", "lie"),
        ("inning", "inning"),
        ("succeed", "succeed"),
        ("relational", "relat"),
        ("technologist", "technolog"),
        ("university", "universiti"),
        ("sky", "sky"),
        ("pastes", "paste"),
        ("yes", "yes"),
        ("by", "by"),
    ],
)
def test_a_word_has_this_stem(word, expected):
    assert stem(word) == expected


def test_a_null_has_no_terms_and_a_column_may_be_empty():
    assert analyse(pa.array([None, "a fox"], pa.string())).rows.tolist() == [1]
    assert analyse(pa.array([], pa.string())).terms == ()
    assert analyse(pa.chunked_array([], pa.string())).size == 0


# -- against Lance --------------------------------------------------------------------------------


def test_lance_splits_at_the_same_characters(tmp_path):
    """Every character of the planes that are in use."""
    letters = [c for c in range(0x33480) if not 0xD800 <= c <= 0xDFFF]
    dataset = indexed(tmp_path / "t", ["xq" + chr(c) + "zq" for c in letters])
    split = {letters[row] for row in actual(dataset, "xq")}
    inside = {c for first, last in word_ranges() for c in range(first, last + 1)}
    assert split == set(letters) - inside


def test_lance_writes_the_same_letters_alike(tmp_path):
    """Upper and lower case, accents, forms: every letter, in its class and no other."""
    texts = [f"xq{chr(c)}zq" for first, last in word_ranges() for c in range(first, last + 1)]
    dataset = indexed(tmp_path / "t", texts)
    ours = analyse(pa.array(texts))
    assert len(ours.terms) == vocabulary(dataset)
    alike = defaultdict(set)
    for row, code in zip(ours.rows.tolist(), ours.codes.tolist(), strict=True):
        alike[code].add(row)
    several = [rows for rows in alike.values() if len(rows) > 1]
    assert len(several) > 1000
    for rows in several[::12]:
        assert actual(dataset, texts[min(rows)]) == rows


PIECES_TEXT = """
a e i o u y b ed ing ly s es ies ied tion al ment ness ful ous ive ize er ic able l ll ogi li sky
gener commun arsen inter past eed at bl iz pp w x é ß 1 7 ational ization biliti entli lessli
ative ate ion sion ement ant ent us ss sses ying inn cann univers later emerg organ 中
"""
PIECES = PIECES_TEXT.split()


def test_lance_has_the_same_stems(tmp_path):
    """Words made of all that the rules look at: the same terms, as many of them."""
    chance = random.Random(5)
    words = sorted({"".join(chance.choices(PIECES, k=chance.randint(1, 5))) for _ in range(8_000)})
    dataset = indexed(tmp_path / "t", words)
    ours = analyse(pa.array(words))
    assert len(ours.terms) == vocabulary(dataset)
    alike = defaultdict(set)
    for row, code in zip(ours.rows.tolist(), ours.codes.tolist(), strict=True):
        alike[code].add(row)
    several = [rows for rows in alike.values() if len(rows) > 1]
    for rows in several[:: max(1, len(several) // 150)]:
        assert actual(dataset, words[min(rows)]) == rows


ODD = [
    *"abcdefghijklmnopqrstuvwxyz",
    *"ABCXYZ0123456789 .,;:!?'\"-_/\\()\t\n",
    *"éèüßøæłđÅİıſÇñ",
    *"日本語中文한국어ไทยहिन्दी",
    *"😀🏃‍♀️👍🏽",
    *"ΑΒΓΣςабвЖ",
    *"’“”…–—\u00a0\u200b\u0301",
    "the ",
    "ing ",
    "running ",
    "connection ",
]


def test_random_texts_match_as_in_lance(tmp_path):
    """Thousands of odd texts, with and without edits."""
    chance = random.Random(11)
    texts = [
        None if chance.random() < 0.02 else "".join(chance.choices(ODD, k=chance.randint(0, 30)))
        for _ in range(2_000)
    ]
    dataset = indexed(tmp_path / "t", texts)
    column = pa.array(texts, pa.string())
    queries = ["".join(chance.choices(ODD, k=chance.randint(0, 12))) for _ in range(40)]
    for query in queries:
        for edits in (0, 1, 2):
            ours = matches(column, TextFunction.FUZZY, query, edits)
            assert set(np.flatnonzero(ours).tolist()) == actual(dataset, query, edits), query


@settings(max_examples=12)
@given(
    texts=st.lists(st.text(max_size=20), min_size=1, max_size=40),
    queries=st.lists(st.text(max_size=12), min_size=1, max_size=5),
)
def test_any_text_matches_as_in_lance(tmp_path_factory, texts, queries):
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    dataset = indexed(tmp_path_factory.mktemp("t") / "t", [*texts, "one"])
    column = pa.array([*texts, "one"])
    for query in (*queries, *texts[:3]):
        query = query.encode("utf-8", "ignore").decode()
        ours = matches(column, TextFunction.SEARCH, query)
        assert set(np.flatnonzero(ours).tolist()) == actual(dataset, query)


# -- edits ----------------------------------------------------------------------------------------


def distance(left, right):
    """The edit distance as the books have it."""
    before = list(range(len(right) + 1))
    for at, letter in enumerate(left, start=1):
        row = [at]
        for position, other in enumerate(right, start=1):
            row.append(
                min(before[position] + 1, row[-1] + 1, before[position - 1] + (letter != other))
            )
        before = row
    return before[-1]


@given(
    terms=st.lists(st.text("abé中", max_size=6), max_size=12),
    wanted=st.text("abé中", max_size=6),
    edits=st.integers(0, 7),
)
def test_edits_are_counted_as_the_books_say(terms, wanted, edits):
    expected = [distance(term, wanted) <= edits for term in terms]
    assert within_edits(terms, wanted, edits).tolist() == expected
