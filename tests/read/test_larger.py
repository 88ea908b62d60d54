"""What only larger tables, longer walks and longer lives of a handle show."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.errors import InputError, LimitExceeded, MemoryExceeded
from omnigraph.lang.query import typed
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.read import frame, scan, sources, values
from omnigraph.read.frame import Frame
from omnigraph.topology.cache import Codes
from omnigraph.topology.edges import EdgeIndex
from omnigraph.topology.nodes import NodeIndex
from tests.read.conftest import ask
from tests.read.world import check

SCHEMA = """\
node P { name: String @key  text: String? @index  v: Vector(2)? @index }
edge K: P -> P
"""


@pytest.fixture
def ring(tmp_path, monkeypatch):
    """A ring of 60 nodes and three more, one of which knows another; nothing is small."""
    monkeypatch.setattr(sources, "_SMALL", 0)
    names = [f"p{n}" for n in range(60)]
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.load(
            {
                "P": pa.table(
                    {
                        "name": ["c", "a", "b", "x", *names],
                        "text": ["a fox"] * 64,
                        "v": pa.array([[1.0, n] for n in range(64)], pa.list_(pa.float32(), 2)),
                    }
                ),
                "K": pa.table({"from": ["a", *names], "to": ["x", *names[1:], names[0]]}),
            }
        )
        graph.indexes.ensure()
        yield graph


WALKS = {
    "expand": ('$s.name in ["a", "b", "c"] $s k{1,2} $t', [("a", "x")]),
    "from one": ('$s.name = "p7" $s k{1,2} $t', [("p7", "p8"), ("p7", "p9")]),
    "bound": ('$s.name = "p7" $t: P $t.name = "p9" $s k{1,3} $t', [("p7", "p9")]),
}


@pytest.mark.parametrize("mode", ["indexed", "csr", "auto"])
@pytest.mark.parametrize("walk", WALKS)
def test_the_first_walk_of_a_cold_handle(ring, mode, walk, monkeypatch):
    """The index gives ids that had no number when the walk began."""
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", mode)
    pattern, expected = WALKS[walk]
    with Graph.open(ring.uri, "r") as cold:
        for _ in range(3):
            rows = ask(cold, f"match {{ $s: P {pattern} }} return {{ $s.name, $t.name }}")
            assert sorted((r["s.name"], r["t.name"]) for r in rows) == sorted(expected)


def test_the_first_search_of_a_cold_handle(ring):
    with Graph.open(ring.uri, "r") as cold:
        text = 'match { $p: P $p.name != "a" search($p.text, "fox") } return { count($p) as n }'
        assert [ask(cold, text) for _ in range(2)] == [[{"n": 63}], [{"n": 63}]]


@pytest.mark.parametrize("end", ["refresh", "close"])
def test_a_result_is_whole_although_its_handle_moves_on(ring, end):
    text = "query q() { match { $s: P $s k $t } return { $s.name, $t.name } }"
    for _ in range(3):
        result = ring.query(text)
        ring.refresh()
    result = ring.query(text)
    getattr(ring, end)()
    assert len({tuple(row.values()) for row in result.rows()}) == 61


def test_walks_are_counted_exactly_and_never_wrap_around(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        names = [f"n{n:02}" for n in range(30)]
        pairs = [(a, b) for a in names for b in names if a != b]
        graph.load(
            {
                "P": pa.table({"name": names}),
                "K": pa.table({"from": [p[0] for p in pairs], "to": [p[1] for p in pairs]}),
            }
        )

        def count(hops):
            chain = " ".join(f"$v{n} k $v{n + 1}" for n in range(hops))
            return ask(graph, f"match {{ $v0: P {chain} }} return {{ count($v0) as n }}")

        for hops in (1, 5, 10, 11):
            assert count(hops) == [{"n": 30 * 29**hops}]
        with pytest.raises(LimitExceeded, match="more rows than 64 bits can count"):
            count(12)


def test_a_total_beyond_64_bits_is_refused_where_each_row_fits():
    many = np.full(600, 2**62, np.int64)
    with pytest.raises(LimitExceeded):
        Frame(600, weights=many).merged(weighted=True)
    assert Frame(600, weights=many // 2**20).total().tolist() == [600 * 2**42]


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("sparse", [0, 10**9])
@given(st.lists(st.integers(0, 40), min_size=1, max_size=60))
def test_equal_rows_are_merged_by_sorting_or_counting(sparse, weighted, numbers):
    """Few repeated numbers may stay, in order, but only if they are not weighted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame, "_SPARSE", sparse)
        rows = Frame(len(numbers), {"a": np.array(numbers, np.int32)}).merged(weighted=weighted)
    merged = rows.nodes["a"]
    assert (rows.rows, merged.dtype) == (len(merged), np.int32)
    assert merged.tolist() == sorted(merged.tolist())
    if weighted:
        assert np.repeat(merged, rows.counts()).tolist() == sorted(numbers)
        assert rows.weights is None or len(set(merged.tolist())) == len(merged)
    else:
        assert merged.tolist() == sorted(set(numbers))


def test_conditions_on_few_texts_are_evaluated_once_for_each(tmp_path, monkeypatch):
    """Of 25,000 nodes with seven cities, nulls and empty texts among them."""
    cities = [None, "", "Bern", "bern", "Köln", "Bernau", "x"]
    with Graph.init(tmp_path / "g.omni", "node C { name: String @key  city: String? }") as graph:
        names = [f"{n:05}" for n in range(25_000)]
        graph.load({"C": pa.table({"name": names, "city": [cities[n % 7] for n in range(25_000)]})})

        def names_where(condition):
            text = (
                f"query q($in: [String]) {{ match {{ $c: C {condition} }} return {{ $c.name }} }}"
            )
            rows = graph.query(text, "q", {"in": ["Bern", "", "elsewhere"]}).to_arrow()
            return sorted(rows["c.name"].to_pylist())

        expected = {
            "$c.city in $in": {1, 2},
            "not ($c.city in $in)": {3, 4, 5, 6},
            '$c.city contains "ern"': {2, 3, 5},
            'not ($c.city contains "ern")': {1, 4, 6},
            '$c.city starts_with "Bern"': {2, 5},
            '$c.city starts_with ""': {1, 2, 3, 4, 5, 6},
            '$c.city in $in or $c.city = "x"': {1, 2, 6},
            "($c.city in $in) is null": {0},
        }
        for _ in range(3):  # so that the column is in memory
            names_where("$c.city in $in")
        by_codes = []
        lookup = sources.NodeSource.codes
        monkeypatch.setattr(
            sources.NodeSource,
            "codes",
            lambda *given: by_codes.append(lookup(*given)) or by_codes[-1],
        )
        for condition, kept in expected.items():
            by_codes.clear()
            wanted = [name for number, name in enumerate(names) if number % 7 in kept]
            assert names_where(condition) == wanted, condition
            assert any(codes is not None for codes in by_codes), condition


def test_cheap_conditions_of_a_scan_come_first_and_others_see_what_passes():
    catalog = compile_schema("node P { name: String @key  few: String?  n: I32?  m: I32? }")
    text = """query q() {
        match { $a: P  $a.name contains "x"  $a.few contains "y"  $a.n = 7  $a.few = "z"  $a.m > 1 }
        return { $a.name }
    }"""

    class Source:
        def has_few_values(self, name):
            return name == "few"

    by_name, by_text, number, code, other = check(catalog, text).pattern.conditions
    ordered = scan._cheap_first(Source(), (by_name, by_text, number, code, other))
    assert ordered == [typed.And((number, code, other)), by_text, by_name]
    assert scan._cheap_first(Source(), (by_name, number)) == [number, by_name]


@pytest.mark.parametrize(("rows", "is_coded"), [(2, False), (3, True)])
def test_a_condition_is_not_evaluated_for_more_texts_than_there_are_rows(rows, is_coded):
    texts = pa.array(["x", None, "yx"])
    catalog = compile_schema("node P { name: String @key  t: String? }")
    text = 'query q() { match { $a: P  $a.t contains "x" } return { $a.name } }'
    (condition,) = check(catalog, text).pattern.conditions

    class Context(values.EvalContext):
        types: ClassVar = {"a": "P"}
        searches = None
        is_read = False

        def read_columns(self, frame, variable, names):
            self.is_read = True
            return {"t": texts.slice(0, frame.rows)}

        def codes(self, frame, expr, *, few=False):
            return Codes(np.arange(frame.rows, dtype=np.int32), 3, 1, texts)

    context = Context()
    truth = values._Values(context, Frame(rows), exact=False).visit(condition)
    assert truth.to_pylist() == [True, None, True][:rows]
    assert context.is_read is not is_coded


def test_a_pin_without_a_tag_is_told_apart_by_the_life_of_its_branch(ring):
    """As other programs write them: a branch of the same name may come again."""
    ring.branches.create("b")
    ring.append({"P": pa.table({"name": ["new"]})}, branch="b")
    pin = replace(ring._handle.store.manifest("b").current().pins["node:P"], metadata={})
    assert pin.e_tag is None
    later = replace(pin, life=("b", "another"))
    assert sources.table_id(pin) != sources.table_id(later)


def test_rows_that_are_only_counted_are_repeated_in_batches(ring):
    text = "query q() { match { $a: P $b: P $c: P $d: P $e: P $f: P } return { 1 as x } }"
    first = next(iter(ring.query(text).batches()))
    assert 0 < first.num_rows <= 65_536
    text = "match { $a: P $b: P $c: P } return { $a } order { $a.name } limit 1"
    with pytest.raises(MemoryExceeded):
        ask(ring, text, max_memory=1_000_000)


@pytest.mark.parametrize("limit", ["10000000000", "5 offset 2147483647"])
def test_more_neighbours_than_there_are_nodes(ring, limit):
    text = f"match {{ $p: P }} return {{ $p }} order {{ nearest($p.v, $q) }} limit {limit}"
    rows = ask(ring, text, {"q": ("Vector(2)", [1.0, 1.0])})
    assert len(rows) == (0 if "offset" in limit else 64)


def test_a_vector_that_was_given_can_be_returned(ring):
    text = 'match { $p: P { name: "a" } } return { $x as x }'
    assert ask(ring, text, {"x": ("Vector(3)", [1.0, 2.0, 3.0])}) == [{"x": [1.0, 2.0, 3.0]}]


def test_a_column_that_is_too_wide_is_not_held(ring, monkeypatch):
    monkeypatch.setattr(sources, "_WIDEST", 64)
    text = "match { $p: P } return { $p.text } limit 1"
    assert [ask(ring, text) for _ in range(3)] == [[{"p.text": "a fox"}]] * 3
    index = ring._handle.topology.get(sources.table_id(_pin(ring)), NodeIndex)
    assert index is None or not index.cache.has("text")


def _pin(graph):
    return graph._handle.store.manifest(None).current().pins["node:P"]


@pytest.mark.parametrize("snapshot", ["x", 5, "other"])
def test_a_snapshot_has_to_be_one_of_this_graph(ring, tmp_path, snapshot):
    with Graph.init(tmp_path / "other.omni", SCHEMA, durability="os") as other:
        given = other.snapshot() if snapshot == "other" else snapshot
        with pytest.raises(InputError):
            ask(ring, "match { $p: P } return { $p }", snapshot=given)
    with Graph.open(ring.uri, "r") as again:
        assert len(ask(ring, "match { $p: P } return { $p }", snapshot=again.snapshot())) == 64


def test_what_is_held_of_old_versions_goes(ring, monkeypatch):
    """Nothing but the topology keeps an index alive."""
    monkeypatch.setattr(ring._handle.topology, "_memory", 1)
    text = "match { $s: P $s k $t } return { count($t) as n }"
    for number in range(8):
        ring.append({"K": pa.table({"src": ["b"], "dst": [f"p{number}"]})})
        assert ask(ring, text) == [{"n": 62 + number}]
    gc.collect()
    kept = [get_object for get_object in gc.get_objects() if isinstance(get_object, EdgeIndex)]
    assert len(kept) <= 3
