"""Words and vectors inside queries: on scanned and walked variables, whatever an index covers."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.embed import EmbeddingConfig
from omnigraph.embed.providers.choice import make_embedder
from omnigraph.errors import EmbeddingError, QueryError, QueryTimeout, ValueConversionError
from omnigraph.read import engine
from omnigraph.storage.tables.types import IndexKind
from tests.embed.server import Hang, provider
from tests.read.conftest import ask, column

SCHEMA = """\
node Doc {
  slug: String @key
  title: String? @index
  year: I32?
  v: Vector(4)? @index
  flat: Vector(2)? @vector("l2")
}
node Author { name: String @key  bio: String? @index }
edge Wrote: Author -> Doc { remark: String?  taste: Vector(2)? }
edge Cites: Doc -> Doc
"""
DOCS = [
    # slug, title, year, v, flat
    ("ants", "Ants build roads", 2001, [0.1, 0.2, 0.3, 0.4], [1.0, 0.0]),
    ("bees", "Bees and their roads of scent", 2005, [0.2, 0.3, 0.4, 0.5], [9.0, 0.0]),
    ("crow", "Crows learn to count", 2010, [0.3, 0.4, 0.5, 0.6], [0.0, 1.5]),
    ("dogs", "Learning with dogs", 2015, [0.5, 0.6, 0.7, 0.8], [0.0, 0.5]),
    ("eels", None, 2020, [0.8, 0.7, 0.6, 0.5], None),
    ("fish", "Fish learn roads, roads and roads", 1999, None, [2.0, 0.0]),
    ("zeal", "Introduction to zeal", 1990, None, None),
]
# Enough others that searches go through the index where there is one.
OTHERS = [(f"x{n:02}", f"nothing x{n}", 1900, [-1.0, 0.0, 0.0, 0.0], None) for n in range(90)]
WROTE = [
    ("Ann", "ants", "a rough draft", [1.0, 0.0]),
    ("Ann", "dogs", "final", [0.0, 1.0]),
    ("Ann", "eels", None, None),
    ("Ben", "bees", "final draft of a draft", [1.0, 1.0]),
    ("Ben", "fish", "rough", None),
    ("Ben", "crow", "final", [-1.0, 0.0]),
]
CITES = [("ants", "crow"), ("bees", "ants"), ("bees", "fish"), ("dogs", "bees"), ("fish", "zeal")]
NEAR = "[0.1, 0.2, 0.3, 0.4]"


def docs(rows):
    slugs, titles, years, vectors, flats = map(list, zip(*rows, strict=True))
    return pa.table(
        {
            "slug": slugs,
            "title": pa.array(titles, pa.string()),
            "year": pa.array(years, pa.int32()),
            "v": pa.array(vectors, pa.list_(pa.float32(), 4)),
            "flat": pa.array(flats, pa.list_(pa.float32(), 2)),
        }
    )


def fill(graph, coverage):
    """The documents, of which an index knows none, some or all."""
    names, slugs, remarks, tastes = map(list, zip(*WROTE, strict=True))
    rest = {
        "Author": pa.table({"name": ["Ann", "Ben"], "bio": ["likes long roads", None]}),
        "Wrote": pa.table(
            {
                "from": names,
                "to": slugs,
                "remark": pa.array(remarks, pa.string()),
                "taste": pa.array(tastes, pa.list_(pa.float32(), 2)),
            }
        ),
        "Cites": pa.table({"from": [a for a, _ in CITES], "to": [b for _, b in CITES]}),
    }
    everything = [*DOCS, *OTHERS]
    early = everything[:3] + everything[40:] if coverage == "partial" else everything
    graph.load({"Doc": docs(early)})
    if coverage != "none":
        graph.indexes.ensure()
    if coverage == "partial":
        graph.load({"Doc": docs(everything[3:40])})
    graph.load(rest)


@pytest.fixture(scope="module", params=["none", "partial", "full"])
def graph(request, tmp_path_factory):
    location = tmp_path_factory.mktemp(f"search-{request.param}") / "g.omni"
    with Graph.init(location, SCHEMA, durability="os") as graph:
        fill(graph, request.param)
        state = coverage_of(graph)
        if request.param == "none":
            assert state is None
        else:
            assert state.complete is (request.param == "full")
        yield graph


def coverage_of(graph):
    """How much of the titles a text index knows; nothing when there is none."""
    states = graph.indexes.status().indexes
    return next(s.coverage for s in states if (s.column, s.kind) == ("title", IndexKind.TEXT))


def actual(graph, text, params=None):
    """The first column of a query, in the order in which it comes."""
    return [next(iter(row.values())) for row in ask(graph, text, params)]


# -- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clause", "slugs"),
    [
        ('search($d.title, "Learning")', ["crow", "dogs", "fish"]),
        ('search($d.title, "ROADS")', ["ants", "bees", "fish"]),
        ('search($d.title, "xyzzy")', []),
        ('search($d.title, "the and of")', []),
        ('search($d.title, "")', []),
        ('search($d.title, "scent crows")', ["bees", "crow"]),
        ('match_text($d.title, "roads scent")', ["ants", "bees", "fish"]),
        ('match_text($d.title, "count")', ["crow"]),
        ('fuzzy($d.title, "rode")', ["ants", "bees", "fish"]),
        ('fuzzy($d.title, "rode", 1)', []),
        ('fuzzy($d.title, "road", 0)', ["ants", "bees", "fish"]),
        ('fuzzy($d.title, "Introductio")', []),
        ('fuzzy($d.title, "introductio")', ["zeal"]),
        ('search($d.title, "roads") = true', ["ants", "bees", "fish"]),
        ('search($d.title, "roads") and $d.year > 2000', ["ants", "bees"]),
        ('search($d.title, "roads") or $d.slug = "eels"', ["ants", "bees", "eels", "fish"]),
        # Two clauses about one variable both count.
        ('search($d.title, "roads") search($d.title, "learn")', ["fish"]),
        ('search($d.title, "roads") not (search($d.title, "learn"))', ["ants", "bees"]),
    ],
)
def test_text_clauses(graph, clause, slugs):
    assert column(graph, f"match {{ $d: Doc {clause} }} return {{ $d.slug }}") == slugs


def test_words_from_a_parameter(graph):
    text = "match { $d: Doc search($d.title, $q) } return { $d.slug }"
    assert column(graph, text, {"q": ("String", "roads")}) == ["ants", "bees", "fish"]
    assert column(graph, text, {"q": ("String?", None)}) == []
    negated = text.replace("search($d.title, $q)", "not (search($d.title, $q))")
    assert column(graph, negated, {"q": ("String?", None)}) == []


def test_a_missing_text_is_unknown(graph):
    text = "match { $d: Doc $d.year >= 1990 %s } return { $d.slug }"
    assert column(graph, text % 'search($d.title, "roads") is null') == ["eels"]
    negated = column(graph, text % 'not (search($d.title, "roads"))')
    assert negated == ["crow", "dogs", "zeal"]


def test_a_match_is_a_column(graph):
    text = """match { $d: Doc $d.year >= 1990 } return { $d.slug, search($d.title, "roads") }
              order { $d.slug }"""
    assert [row["search"] for row in ask(graph, text)] == [
        True, True, False, False, None, True, False
    ]  # fmt: skip


# -- words on walked variables, around traversals and negations -----------------------------------


def test_a_walked_variable_is_searched(graph):
    text = """match { $a: Author { name: "Ben" } $a wrote $d search($d.title, "roads") }
              return { $d.slug }"""
    assert column(graph, text) == ["bees", "fish"]
    ranked = 'match { $a: Author $a wrote $d } return { $d.slug } order { bm25($d.title, "roads") }'
    assert actual(graph, ranked) == ["fish", "ants", "bees"]
    near = f"""match {{ $a: Author {{ name: "Ben" }} $a wrote $d }} return {{ $d.slug }}
               order {{ nearest($d.v, {NEAR}) }} limit 5"""
    assert actual(graph, near) == ["bees", "crow"]
    fused = f"""match {{ $a: Author {{ name: "Ben" }} $a wrote $d }} return {{ $d.slug }}
                order {{ rrf(nearest($d.v, {NEAR}), bm25($d.title, "roads")) }} limit 5"""
    # fish 1/61, bees 1/61 + 1/62, crow 1/62
    assert actual(graph, fused) == ["bees", "fish", "crow"]


def test_a_traversal_starts_at_what_is_found(graph):
    text = 'match { $d: Doc search($d.title, "roads") $d cites $e } return { $d.slug, $e.slug }'
    assert sorted(tuple(row.values()) for row in ask(graph, text)) == [
        ("ants", "crow"), ("bees", "ants"), ("bees", "fish"), ("fish", "zeal")
    ]  # fmt: skip
    both = """match { $d: Doc search($d.title, "roads") $d cites $e search($e.title, "learn") }
              return { $d.slug, $e.slug }"""
    assert sorted(tuple(row.values()) for row in ask(graph, both)) == [
        ("ants", "crow"), ("bees", "fish")
    ]  # fmt: skip
    back = 'match { $a: Author $a wrote $d search($a.bio, "road") } return { $d.slug }'
    assert column(graph, back) == ["ants", "dogs", "eels"]


def test_searches_in_negations(graph):
    text = """match { $d: Doc search($d.title, "roads learn")
              not { $d cites $e search($e.title, "learn") } } return { $d.slug }"""
    assert column(graph, text) == ["crow", "dogs", "fish"]
    far = f"""match {{ $d: Doc $d cites $_ not {{ $d cites $e nearest($e.v, {NEAR}) < 0.01 }} }}
              return {{ $d.slug }}"""
    assert column(graph, far) == ["ants", "fish"]


def test_rows_of_a_walk_are_ranked_by_one_of_their_variables(graph):
    """Rows that are equally good come in the order of their ids."""
    text = """match { $d: Doc $d cites $e } return { $d.slug, $e.slug }
              order { bm25($d.title, "roads") }"""
    assert [tuple(row.values()) for row in ask(graph, text)] == [
        ("fish", "zeal"), ("ants", "crow"), ("bees", "ants"), ("bees", "fish")
    ]  # fmt: skip


# -- words that are ranked ------------------------------------------------------------------------


def test_bm25_puts_the_best_first_and_leaves_out_the_rest(graph):
    text = 'match { $d: Doc } return { $d.slug } order { bm25($d.title, "roads") }'
    assert actual(graph, text) == ["fish", "ants", "bees"]
    assert actual(graph, text[:-2] + " desc }") == ["fish", "ants", "bees"]
    assert actual(graph, f"{text} limit 2") == ["fish", "ants"]
    assert actual(graph, f"{text} limit 2 offset 1") == ["ants", "bees"]
    assert actual(graph, text.replace("roads", "nonsense")) == []


def test_conditions_come_before_a_ranking(graph):
    text = """match { $d: Doc $d.year > 2000 } return { $d.slug }
              order { bm25($d.title, "roads") } limit 2"""
    assert actual(graph, text) == ["ants", "bees"]


def test_scores_are_columns(graph):
    text = """match { $d: Doc $d.year >= 1990 } return { $d.slug, bm25($d.title, "roads") as score }
              order { score desc, $d.slug }"""
    rows = ask(graph, text)
    assert [row["d.slug"] for row in rows] == [
        "fish", "ants", "bees", "crow", "dogs", "eels", "zeal"
    ]  # fmt: skip
    scores = [row["score"] for row in rows]
    assert scores[0] > scores[1] > 0
    assert scores[1] == pytest.approx(scores[2])
    assert scores[3:] == [None] * 4
    above = 'match { $d: Doc bm25($d.title, "roads") > 0.0 } return { $d.slug }'
    assert column(graph, above) == ["ants", "bees", "fish"]
    best = 'match { $d: Doc } return { max(bm25($d.title, "roads")) as best, count($d) as n }'
    assert ask(graph, best) == [{"best": pytest.approx(scores[0]), "n": 97}]


def test_scores_are_those_of_the_formula(graph):
    """k1 = 1.2, b = 0.75; where an index covers a part, that part says how rare words are."""
    words = {"ants": 3, "bees": 3, "crow": 3, "dogs": 2, "fish": 5, "zeal": 2}
    coverage = coverage_of(graph)
    if coverage is None or coverage.complete:
        lengths, having = [*words.values(), *(2 for _ in OTHERS)], 3
    else:
        lengths, having = [3, 3, 3, *(2 for _ in OTHERS[33:])], 2
    mean = sum(lengths) / len(lengths)
    rarity = math.log((len(lengths) - having + 0.5) / (having + 0.5) + 1)

    def score(slug, count):
        norm = 1.2 * (0.25 + 0.75 * words[slug] / mean)
        return pytest.approx(rarity * 2.2 * count / (count + norm), rel=1e-3)

    text = 'match { $d: Doc } return { bm25($d.title, "roads") as s } order { s desc } limit 3'
    assert actual(graph, text) == [score("fish", 3), score("ants", 1), score("bees", 1)]


def test_what_is_written_behind_a_search_breaks_its_ties(graph):
    text = """match { $d: Doc } return { $d.slug }
              order { bm25($d.title, "roads"), $d.slug desc } limit 3"""
    assert actual(graph, text) == ["fish", "bees", "ants"]


# -- vectors --------------------------------------------------------------------------------------


def test_the_nearest_come_first_and_as_many_as_are_asked_for(graph):
    text = f"match {{ $d: Doc }} return {{ $d.slug }} order {{ nearest($d.v, {NEAR}) }}"
    everybody = ["ants", "bees", "crow", "dogs", "eels"]
    for limit in range(1, 6):
        assert actual(graph, f"{text} limit {limit}") == everybody[:limit]
    assert actual(graph, f"{text} limit 2 offset 2") == ["crow", "dogs"]
    given = text.replace(NEAR, "$q")
    query = {"q": ("Vector(4)", [0.1, 0.2, 0.3, 0.4])}
    assert actual(graph, f"{given} limit 3", query) == everybody[:3]


def test_rows_that_are_equally_near_come_in_the_order_of_their_ids(graph):
    text = f"match {{ $d: Doc }} return {{ $d.slug }} order {{ nearest($d.v, {NEAR}) }} limit 8"
    assert actual(graph, text)[5:] == ["x00", "x01", "x02"]
    last = f"""match {{ $d: Doc $d.year = 1900 }} return {{ $d.slug }}
               order {{ nearest($d.v, {NEAR}), $d.slug desc }} limit 2"""
    assert actual(graph, last) == ["x89", "x88"]


def test_conditions_come_before_the_nearest(graph):
    """As many rows as are asked for, of those that are left."""
    text = f"match {{ $d: Doc %s }} return {{ $d.slug }} order {{ nearest($d.v, {NEAR}) }} limit 2"
    assert actual(graph, text % "$d.year > 2004") == ["bees", "crow"]
    assert actual(graph, text % 'search($d.title, "learn")') == ["crow", "dogs"]
    assert actual(graph, text % "not { $_ wrote $d }") == ["x00", "x01"]
    assert actual(graph, text % "$d.year > 3000") == []
    assert actual(graph, text % '$d.slug in ["eels", "dogs", "zeal"]') == ["dogs", "eels"]


def test_distances_are_columns(graph):
    text = f"""match {{ $d: Doc $d.year >= 1990 }}
               return {{ $d.slug, nearest($d.v, {NEAR}) as far }} order {{ far, $d.slug }}"""
    rows = ask(graph, text)
    assert [row["d.slug"] for row in rows] == [
        "fish", "zeal", "ants", "bees", "crow", "dogs", "eels"
    ]  # fmt: skip
    cosine = 1 - 0.4 / math.sqrt(0.3 * 0.54)
    assert [row["far"] for row in rows[:4]] == [None, None, pytest.approx(0, abs=1e-6),
                                                pytest.approx(cosine, abs=1e-6)]  # fmt: skip
    close = f"match {{ $d: Doc nearest($d.v, {NEAR}) < 0.02 }} return {{ $d.slug }}"
    assert column(graph, close) == ["ants", "bees", "crow"]
    mean = f"""match {{ $d: Doc $d.year >= 1990 }}
               return {{ count(nearest($d.v, {NEAR})) as n, min(nearest($d.v, {NEAR})) as m }}"""
    assert ask(graph, mean) == [{"n": 5, "m": pytest.approx(0, abs=1e-6)}]


def test_another_metric(graph):
    text = "match { $d: Doc } return { $d.slug, nearest($d.flat, [0.0, 0.0]) as far }"
    rows = ask(graph, f"{text} order {{ nearest($d.flat, [0.0, 0.0]) }} limit 9")
    assert [tuple(row.values()) for row in rows] == [
        ("dogs", 0.5), ("ants", 1.0), ("crow", 1.5), ("fish", 2.0), ("bees", 9.0)
    ]  # fmt: skip


def test_vectors_that_cannot_be_searched_for(graph):
    text = "match { $d: Doc } return { $d.slug } order { nearest($d.v, $q) } limit 3"
    with pytest.raises(ValueConversionError, match="zero"):
        actual(graph, text, {"q": ("Vector(4)", [0, 0, 0, 0])})
    with pytest.raises(QueryError, match="T15"):
        actual(graph, text, {"q": ("Vector(3)", [0, 0, 1])})
    assert actual(graph, text, {"q": ("Vector(4)?", None)}) == []


# -- two rankings ---------------------------------------------------------------------------------


def test_two_rankings_are_fused(graph):
    rank = f'rrf(bm25($d.title, "roads"), nearest($d.v, {NEAR}))'
    text = f"match {{ $d: Doc }} return {{ $d.slug, {rank} as score }} order {{ %s }} limit 3"
    # By words: fish, ants, bees. By vectors, of which the limit takes three: ants, bees, crow.
    expected = [
        {"d.slug": "ants", "score": pytest.approx(1 / 62 + 1 / 61)},
        {"d.slug": "bees", "score": pytest.approx(1 / 63 + 1 / 62)},
        {"d.slug": "fish", "score": pytest.approx(1 / 61)},
    ]
    assert ask(graph, text % rank) == expected
    assert ask(graph, text % "score desc") == expected


def test_the_constant_of_a_fusion(graph):
    rank = f'rrf(bm25($d.title, "roads"), nearest($d.v, {NEAR}), $k)'
    text = f"match {{ $d: Doc }} return {{ $d.slug, {rank} as score }} order {{ {rank} }} limit 1"
    assert ask(graph, text, {"k": ("I64", 1)}) == [
        {"d.slug": "ants", "score": pytest.approx(1 / 3 + 1 / 2)}
    ]


def test_two_rankings_of_one_kind(graph):
    words = 'rrf(bm25($d.title, "roads"), bm25($d.title, "learn fish"))'
    text = f"match {{ $d: Doc }} return {{ $d.slug }} order {{ {words} }} limit 5"
    # fish, ants, bees and fish, dogs, crow
    assert actual(graph, text) == ["fish", "ants", "dogs", "bees", "crow"]
    assert actual(graph, text.replace("limit 5", "limit 2")) == ["fish", "ants"]
    vectors = f"rrf(nearest($d.v, {NEAR}), nearest($d.v, [0.8, 0.7, 0.6, 0.5]))"
    text = f"match {{ $d: Doc $d.year > 2000 }} return {{ $d.slug }} order {{ {vectors} }} limit 5"
    # one order and its reverse: the ends of both are better than the middle of both
    assert actual(graph, text) == ["ants", "eels", "bees", "dogs", "crow"]


def test_equal_sums_keep_the_order_of_the_first_ranking(graph):
    rank = 'rrf(bm25($d.title, "zeal"), bm25($d.title, "count"))'
    text = f"match {{ $d: Doc }} return {{ $d.slug }} order {{ {rank} }} limit 5"
    assert actual(graph, text) == ["zeal", "crow"]
    further = text.replace(f"{rank} }}", f"{rank}, $d.slug }}")
    assert actual(graph, further) == ["crow", "zeal"]


def test_ranks_are_among_all_rows_and_not_among_those_that_are_shown(graph):
    rank = 'rrf(bm25($d.title, "roads"), bm25($d.title, "learn"))'
    text = f"match {{ $d: Doc $d.year >= 1990 }} return {{ $d.slug, {rank} as s }}"
    everything = {row["d.slug"]: row["s"] for row in ask(graph, text)}
    assert len(everything) == 7
    assert everything["zeal"] is None
    assert everything["bees"] == pytest.approx(1 / 63)
    shown = ask(graph, f"{text} order {{ $d.slug }} limit 2 offset 1")
    assert [tuple(row.values()) for row in shown] == [
        ("bees", everything["bees"]), ("crow", everything["crow"])
    ]  # fmt: skip


def test_ranks_are_among_all_rows_and_not_among_those_of_a_batch(graph, monkeypatch):
    rank = f'rrf(bm25($d.title, "roads"), nearest($d.v, {NEAR}))'
    text = f"match {{ $d: Doc }} return {{ $d.slug, {rank} as s }}"
    whole = {row["d.slug"]: row["s"] for row in ask(graph, text)}
    monkeypatch.setattr(engine, "_FIRST_BATCH", 2)
    assert {row["d.slug"]: row["s"] for row in ask(graph, text)} == whole
    assert whole["fish"] == pytest.approx(1 / 61)


def test_rankings_of_two_variables_are_not_fused(graph):
    rank = 'rrf(bm25($d.title, "a"), bm25($e.title, "b"))'
    with pytest.raises(QueryError, match="T21"):
        ask(graph, f"match {{ $d: Doc $d cites $e }} return {{ $d }} order {{ {rank} }} limit 1")


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("search($d.title, $e.title) as x", "T19"),
        ("bm25($d.title, $e.title) as x", "T20"),
        ("nearest($d.v, $e.v) as x", "T15"),
    ],
)
def test_one_thing_is_asked_of_all_rows(graph, call, code):
    with pytest.raises(QueryError, match=code):
        ask(graph, f"match {{ $d: Doc $d cites $e }} return {{ {call} }}")


# -- properties of edges --------------------------------------------------------------------------


def test_edges_are_searched_too(graph):
    text = 'match { $a: Author $a $w:wrote $d search($w.remark, "drafts") } return { $d.slug }'
    assert column(graph, text) == ["ants", "bees"]
    ranked = """match { $a: Author $a $w:wrote $d } return { $d.slug }
                order { bm25($w.remark, "draft") }"""
    assert actual(graph, ranked) == ["bees", "ants"]
    near = """match { $a: Author $a $w:wrote $d }
              return { $d.slug, nearest($w.taste, [0.0, 1.0]) as far }
              order { nearest($w.taste, [0.0, 1.0]) } limit 3"""
    assert [row["d.slug"] for row in ask(graph, near)] == ["dogs", "bees", "ants"]
    assert ask(graph, near)[0]["far"] == pytest.approx(0, abs=1e-6)
    rank = 'rrf(bm25($w.remark, "final"), nearest($w.taste, [0.0, 1.0]))'
    fused = f"match {{ $a: Author $a $w:wrote $d }} return {{ $d.slug }} order {{ {rank} }} limit 1"
    assert actual(graph, fused) == ["dogs"]


# -- writes, branches, earlier states -------------------------------------------------------------

ROADS = 'match { $d: Doc search($d.title, "roads") } return { $d.slug }'
RANKED = 'match { $d: Doc } return { $d.slug } order { bm25($d.title, "roads") }'
NEAREST = f"match {{ $d: Doc }} return {{ $d.slug }} order {{ nearest($d.v, {NEAR}) }} limit 3"


@pytest.mark.parametrize("coverage", ["none", "full"])
def test_searches_follow_what_is_written(tmp_path, coverage):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        fill(graph, coverage)
        before = graph.commits()[0]
        graph.branches.create("b")
        graph.mutate(
            'query q() { update Doc set { title: "Ants dig" } where slug = "ants" }', branch="b"
        )
        graph.mutate('query q() { delete Doc where slug = "fish" }', branch="b")
        graph.mutate(
            """query q($v: Vector(4)) {
                insert Doc { slug: "goat", title: "Goats on roads", v: $v }
                update Doc set { v: $v } where slug = "zeal"
            }""",
            None,
            {"v": [0.1, 0.2, 0.3, 0.4]},
            branch="b",
        )
        graph.mutate('query q() { delete Doc where slug = "ants" }', branch="b")
        for again in range(2):
            assert column(graph, ROADS, branch="b") == ["bees", "goat"]
            assert sorted(row["d.slug"] for row in ask(graph, RANKED, branch="b")) == [
                "bees",
                "goat",
            ]
            rows = ask(graph, NEAREST, branch="b")
            assert [row["d.slug"] for row in rows] == ["goat", "zeal", "bees"]
            assert actual(graph, NEAREST) == ["ants", "bees", "crow"]
            assert actual(graph, RANKED) == ["fish", "ants", "bees"]
            earlier = ask(graph, ROADS, at=before.commit_id)
            assert len(earlier) == 3
            if coverage == "full" and not again:
                graph.indexes.ensure(branch="b")
                graph.indexes.ensure()


# -- texts that are embedded ----------------------------------------------------------------------

EMBEDDED = """\
node Note {
  slug: String @key
  text: String?
  free: Vector(8)?
  bound: Vector(8)? @embed("text", model="model-a")
}
"""
KEYS = ["OPENROUTER_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"]
ABOUT = "match { $n: Note } return { $n.slug } order { nearest($n.%s, $q) } limit 3"


@pytest.fixture(scope="module")
def notes(tmp_path_factory):
    """The place of a graph with mock embeddings of three words."""
    words = ["apple", "brick", "cloud"]
    vectors = make_embedder(EmbeddingConfig("mock")).embed(words, 8).vectors
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 8)
    location = tmp_path_factory.mktemp("notes") / "g.omni"
    with Graph.init(location, EMBEDDED, durability="os") as graph:
        graph.load(
            {"Note": pa.table({"slug": words, "text": words, "free": column, "bound": column})}
        )
    return location


@pytest.fixture
def bare(monkeypatch):
    """An environment that says nothing about embeddings."""
    for name in (*KEYS, "OMNIGRAPH_EMBED_PROVIDER", "OMNIGRAPH_EMBEDDINGS_MOCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("OMNIGRAPH_EMBED_MODEL", raising=False)
    return monkeypatch


def test_a_text_is_searched_as_its_vector(notes, bare):
    bare.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    vector = make_embedder(EmbeddingConfig("mock")).embed(["brick"], 8).vectors[0].tolist()
    with Graph.open(notes, "r") as graph:
        by_vector = actual(graph, ABOUT % "free", {"q": ("Vector(8)", vector)})
        assert by_vector[0] == "brick"
        assert actual(graph, ABOUT % "free", {"q": ("String", "brick")}) == by_vector
        literal = (ABOUT % "free").replace("$q", '"brick"')
        assert actual(graph, literal) == by_vector
        fused = literal.replace(
            'nearest($n.free, "brick")', 'rrf(nearest($n.free, "brick"), bm25($n.text, "brick"))'
        )
        assert actual(graph, fused)[0] == "brick"
        far = 'match { $n: Note } return { $n.slug, nearest($n.free, "brick") as far }'
        near = {row["n.slug"]: row["far"] for row in ask(graph, far)}
        assert near["brick"] == pytest.approx(0, abs=1e-6)


def test_only_texts_need_a_provider(notes, bare):
    with Graph.open(notes, "r") as graph:
        assert len(actual(graph, ABOUT % "free", {"q": ("Vector(8)", [1.0] * 8)})) == 3
        with pytest.raises(EmbeddingError) as caught:
            actual(graph, ABOUT % "free", {"q": ("String", "brick")})
        assert "set OPENROUTER_API_KEY or OPENAI_API_KEY" in caught.value.hint


def test_vectors_of_another_model_are_not_compared(notes, bare):
    right, wrong = EmbeddingConfig("mock", "model-a"), EmbeddingConfig("mock", "model-b")
    with Graph.open(notes, "r", embedding=right) as graph:
        assert actual(graph, ABOUT % "bound", {"q": ("String", "cloud")})[0] == "cloud"
    with Graph.open(notes, "r", embedding=wrong) as graph:
        with pytest.raises(EmbeddingError, match=r"model-a.*model-b"):
            actual(graph, ABOUT % "bound", {"q": ("String", "cloud")})
        # Where no model is recorded, any will do.
        assert actual(graph, ABOUT % "free", {"q": ("String", "cloud")})[0] == "cloud"


def test_the_provider_of_the_handle_wins_over_the_environment(notes, bare):
    bare.setenv("OMNIGRAPH_EMBED_PROVIDER", "openai")
    with Graph.open(notes, "r", embedding=EmbeddingConfig("mock")) as graph:
        assert actual(graph, ABOUT % "free", {"q": ("String", "apple")})[0] == "apple"
    bare.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    with (
        Graph.open(notes, "r", embedding=EmbeddingConfig("gemini")) as graph,
        pytest.raises(EmbeddingError, match="gemini"),
    ):
        actual(graph, ABOUT % "free", {"q": ("String", "apple")})


def test_one_text_is_embedded_once_in_a_query(notes, bare):
    answer = {"data": [{"index": 0, "embedding": [1.0] * 8}]}
    with provider(answer) as server:
        config = EmbeddingConfig(base_url=server.url, api_key="key")
        with Graph.open(notes, "r", embedding=config) as graph:
            rank = "nearest($n.free, $q)"
            text = f"""match {{ $n: Note {rank} < 3.0 }} return {{ $n.slug, {rank} as far }}
                       order {{ {rank} }} limit 3"""
            assert len(actual(graph, text, {"q": ("String", "apple")})) == 3
        assert len(server.requests) == 1


def test_a_provider_that_does_not_answer_ends_with_its_deadline(notes, bare):
    with provider(Hang()) as server:
        config = EmbeddingConfig(base_url=server.url, api_key="key", deadline_ms=50)
        with (
            Graph.open(notes, "r", embedding=config) as graph,
            pytest.raises(EmbeddingError, match="deadline"),
        ):
            actual(graph, ABOUT % "free", {"q": ("String", "apple")})


def test_a_provider_takes_no_longer_than_the_query_may(notes, bare):
    with provider(Hang()) as server:
        config = EmbeddingConfig(base_url=server.url, api_key="key")
        with Graph.open(notes, "r", embedding=config) as graph, pytest.raises(QueryTimeout):
            graph.query(
                f"query q($q: String) {{ {ABOUT % 'free'} }}", None, {"q": "apple"}, timeout=0.1
            )
