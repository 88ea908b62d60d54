"""The places where a hidden row could show: one case for each."""

from __future__ import annotations

import math
from dataclasses import replace

import pyarrow as pa
import pytest

from omnigraph import Graph, Source
from omnigraph.api.query import explain_query, profile_query
from omnigraph.commit.history import SnapshotRef
from omnigraph.errors import InternalError, PolicyDenied
from omnigraph.plan.nodes import Expand, NodeScan
from omnigraph.plan.rules.restrict import check_marks
from omnigraph.plan.view import WHOLE
from omnigraph.read.limits import Limits
from tests.read.conftest import ask
from tests.read.views import make_view, viewed

SCHEMA = """\
node P { name: String @key  secret: Bool  text: String?  v: Vector(2)? @index }
edge Knows: P -> P { secret: Bool }
edge Likes: P -> P
"""
# a-b twice, once in secret; b-h-c through a hidden node; a triangle with a secret side.
KNOWS = [
    ("a", "b", False),
    ("a", "b", True),
    ("b", "h", False),
    ("h", "c", False),
    ("b", "c", True),
    ("c", "d", False),
    ("d", "a", False),
]
LIKES = [("a", "c"), ("b", "c"), ("a", "h"), ("b", "h"), ("c", "h")]
RULES = {"P": "secret = false", "Knows": "secret = false"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    with Graph.init(tmp_path_factory.mktemp("r") / "g.omni", SCHEMA, durability="os") as graph:
        names = [*"abcd", "h"]
        graph.load(
            {
                "P": pa.table(
                    {
                        "name": names,
                        "secret": [name == "h" for name in names],
                        "text": ["red fox", "red", "blue sky", None, "red red red hidden words"],
                        "v": pa.array(
                            [[1, 0], [1, 1], [0, 1], [-1, 0], [1, 0]], pa.list_(pa.float32(), 2)
                        ),
                    }
                ),
                "Knows": pa.table(
                    {
                        "from": [a for a, _, _ in KNOWS],
                        "to": [b for _, b, _ in KNOWS],
                        "secret": [s for _, _, s in KNOWS],
                    }
                ),
                "Likes": pa.table({"from": [a for a, _ in LIKES], "to": [b for _, b in LIKES]}),
            }
        )
        yield graph


@pytest.fixture
def seen(whole):
    return viewed(whole, make_view(whole.catalog, RULES))


def pairs(graph, match, *names):
    returned = ", ".join(f"${name}.name" for name in names)
    return sorted(
        tuple(r.values()) for r in ask(graph, f"match {{ {match} }} return {{ {returned} }}")
    )


def test_scans_and_look_ups_do_not_find_hidden_nodes(seen):
    assert pairs(seen, "$p: P", "p") == [("a",), ("b",), ("c",), ("d",)]
    assert pairs(seen, '$p: P { name: "h" }', "p") == []
    assert pairs(seen, '$p: P { name: "a" }', "p") == [("a",)]
    assert ask(seen, "match { $p: P } return { count($p) as n }") == [{"n": 4}]
    assert ask(seen, "match { $p: P } return { $p.name } order { $p.name desc } limit 1") == [
        {"p.name": "d"}
    ]


def test_hidden_edges_make_no_neighbours_and_are_not_counted(seen):
    assert pairs(seen, "$p: P $p knows $q", "p", "q") == [("a", "b"), ("c", "d"), ("d", "a")]
    edges = ask(seen, "match { $p: P $p $k:knows $q } return { count($k) as n }")
    assert edges == [{"n": 3}]
    assert ask(seen, "match { $p: P $p knows $q $q knows $r } return { count($p) as n }") == [
        {"n": 2}
    ]
    assert pairs(seen, "$p: P $p likes $q", "p", "q") == [("a", "c"), ("b", "c")]


def test_several_hops_do_not_pass_through_hidden_nodes_or_edges(seen):
    assert pairs(seen, '$p: P { name: "a" } $p knows{1,5} $q', "q") == [("b",)]
    assert pairs(seen, '$p: P { name: "b" } $p knows{1,5} $q', "q") == []
    assert pairs(seen, '$p: P { name: "a" } $q: P { name: "c" } $p knows{1,5} $q', "q") == []


def test_cycles_and_common_neighbours_are_those_of_visible_edges(seen, whole):
    cycle = "$p: P $p knows $q $q knows $r $p likes $r"
    assert pairs(whole, cycle, "p", "q", "r") == [("a", "b", "c"), ("a", "b", "h"), ("b", "h", "c")]
    assert pairs(seen, cycle, "p", "q", "r") == []
    common = "$p: P $p knows $q $p likes $r $q likes $r"
    assert pairs(seen, common, "p", "q", "r") == [("a", "b", "c")]
    assert ask(seen, f"match {{ {common} }} return {{ count($r) as n }}") == [{"n": 1}]


def test_a_negation_ignores_hidden_rows(seen):
    assert pairs(seen, "$p: P not { $p knows $q }", "p") == [("b",)]
    assert pairs(seen, "$p: P not { $p likes $q }", "p") == [("c",), ("d",)]


def test_every_kind_of_count_agrees(seen):
    """By degrees, by weights, and as a sum of counts."""
    distinct = "$p: P $p knows $q $q knows $r $p.name != $r.name"
    assert ask(seen, f"match {{ {distinct} }} return {{ count($p) as n }}") == [{"n": 2}]
    fan = "$p: P $p knows $q $p likes $r $q likes $s"
    assert ask(seen, f"match {{ {fan} }} return {{ count($p) as n }}") == [{"n": 1}]


def test_searches_know_visible_texts_and_vectors_only(seen, whole, tmp_path):
    near = "match { $p: P } return { $p.name } order { nearest($p.v, [1.0, 0.0]) } limit 2"
    assert ask(seen, near) == [{"p.name": "a"}, {"p.name": "b"}]
    red = (
        'match { $p: P } return { $p.name, bm25($p.text, "red") as s } order {bm25($p.text, "red")}'
    )
    rows = ask(seen, f"{red} limit 5")
    assert [row["p.name"] for row in rows] == ["b", "a"]
    # Without the hidden text: the word is in 2 of 3 texts, which have 5 words together.
    idf, norm = math.log(1.5 / 2.5 + 1), 1.2 * (0.25 + 0.75 * 1 / (5 / 3))
    assert rows[0]["s"] == pytest.approx(idf * 2.2 / (1 + norm))
    assert len(ask(whole, f"{red} limit 5")) == 3


def test_a_plan_for_one_view_is_not_used_for_another(whole, seen):
    text = "match { $p: P $p knows $q } return { count($p) as n }"
    assert ask(whole, text) == [{"n": 6}]
    assert ask(seen, text) == [{"n": 3}]
    other = viewed(whole, make_view(whole.catalog, {"P": 'name in ["b", "h", "c"]'}))
    assert ask(other, text) == [{"n": 3}]
    assert ask(whole, text) == [{"n": 6}]


def test_a_prepared_query_follows_the_view_of_the_branch(whole):
    whole.branches.create("open")
    try:
        graph = viewed(
            whole, lambda branch, catalog: make_view(catalog, RULES) if branch == "main" else WHOLE
        )
        count = graph.prepare("query q() { match { $p: P } return { count($p) as n } }")
        counts = [count(branch=branch).rows() for branch in ("main", "open", "main")]
        assert counts == [[{"n": 4}], [{"n": 5}], [{"n": 4}]]
    finally:
        whole.branches.delete("open")


def test_a_plan_that_lost_a_mark_is_refused(whole, seen):
    handle = seen._handle
    context = handle.read(SnapshotRef())
    text = Source("<q>", "query q() { match { $p: P $p knows $q } return { $q.name } }")
    prepared = handle.plans.read(context.catalog, text, None, context.view)
    check_marks(prepared.ready, context.view.restricted)
    for step in prepared.ready.pipeline:
        lost = {"visible": None} if isinstance(step, NodeScan) else {"through": None}
        assert isinstance(step, NodeScan | Expand)
        steps = tuple(replace(s, **lost) if s is step else s for s in prepared.ready.pipeline)
        with pytest.raises(InternalError, match="lost the marks"):
            check_marks(replace(prepared.ready, pipeline=steps), context.view.restricted)


def test_explain_and_profile_show_no_numbers_of_hidden_rows(whole, seen):
    text = "query q() { match { $p: P $p knows $q } return { $q.name } }"
    plan = seen.snapshot().explain(text)
    assert "expected" not in plan.to_json()
    assert "statistics" not in plan.to_json()
    assert "scan visible $q: P" in plan.text
    assert "secret" not in plan.text
    profile = seen.snapshot().explain(text, profile=True)
    assert profile.to_json()["rows"] == 3
    assert not {"profile", "peak_bytes"} & profile.to_json().keys()
    handle = seen._handle
    context = handle.read(SnapshotRef())
    assert "expected" in explain_query(handle, context, text, None, counts=True).to_json()
    shown = profile_query(handle, context, text, None, None, Limits(), counts=True)
    assert "profile" in shown.to_json()
    assert "expected" in whole.snapshot().explain(text).to_json()


def test_spark_is_refused_for_a_part_of_the_graph(seen):
    text = "query q() { match { $p: P } return { $p.name } }"
    with pytest.raises(PolicyDenied, match="only a part of the graph"):
        seen.query(text, engine="spark")
    with pytest.raises(PolicyDenied, match="only a part of the graph"):
        seen.query(text, spark="local[1]")


def test_the_view_of_an_old_snapshot_is_made_for_its_schema(tmp_path):
    """A property that the old schema does not have opens nothing there."""

    def view(_: str, catalog):
        has_level = "level" in catalog.node_types["Person"].properties
        return make_view(catalog, {"Person": "level > 1" if has_level else False})

    old = "node Person { name: String @key }"
    with Graph.init(tmp_path / "g.omni", old, durability="os") as graph:
        graph.load([{"type": "Person", "data": {"name": "Ada"}}])
        before = graph.commits()[0].commit_id
        graph.schema.apply("node Person { name: String @key  level: I32? }")
        graph.load([{"type": "Person", "data": {"name": "Bob", "level": 2}}])
        seen, text = viewed(graph, view), "query q() { match { $p: Person } return { $p.name } }"
        assert seen.query(text).rows() == [{"p.name": "Bob"}]
        assert seen.query(text, at=before).rows() == []
        assert graph.query(text, at=before).rows() == [{"p.name": "Ada"}]


def test_a_vector_index_returns_as_many_visible_rows_as_requested(tmp_path):
    schema = (
        'node D { n: I64 @key  v: Vector(4) @index @vector("l2", method="ivf_flat", probes=1) }'
    )
    rows = [[float(n % 7) + 1, float(n % 11), float(n % 13), float(n % 5)] for n in range(1_200)]
    with Graph.init(tmp_path / "g.omni", schema, durability="os") as graph:
        vectors = pa.array(rows, pa.list_(pa.float32(), 4))
        graph.load({"D": pa.table({"n": pa.array(range(1_200), pa.int64()), "v": vectors})})
        graph.indexes.ensure()
        seen = viewed(graph, make_view(graph.catalog, {"D": "n < 40"}))
        near = (
            "match { $d: D } return { $d.n } order { nearest($d.v, [9.0, 9.0, 9.0, 9.0]) } limit 25"
        )
        answer = [row["d.n"] for row in ask(seen, near)]
        assert len(answer) == len(set(answer)) == 25
        assert max(answer) < 40
