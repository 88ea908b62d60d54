"""Hops that are computed at their targets: the same answers as row by row."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from omnigraph import Cancel, Graph
from omnigraph.errors import Cancelled
from omnigraph.read import pull, run, sources
from omnigraph.read.limits import Limits, ResourceGuard
from omnigraph.topology import adjacency, edges
from omnigraph.topology.adjacency import Adjacency
from tests.read.conftest import ask
from tests.read.views import make_view, viewed

SCHEMA = """\
node P { name: String @key  age: I32?  city: String?  secret: Bool }
node C { name: String @key }
edge Knows: P -> P { secret: Bool }
edge Likes: P -> P
edge At: P -> C
"""
MATCHES = {
    "$a: P  $a.age < 30  $a knows $b": "b",
    "$a: P  $a.age < 30  $a knows $b  $b knows $c": "c",
    "$a: P  $a.age < 30  $a knows $b  $b likes $c  $c knows $d": "d",
    "$a: P  $a.age < 30  $a <knows> $b  $b <likes> $c": "c",
    "$a: P  $a.age < 30  $b knows $a  $c knows $b  $c.age > 20": "c",
    '$a: P  $a.age < 30  $a knows $b  $b knows $c  $c.city != "x"': "c",
    '$a: P  $a.city = "y"  $a knows $b  $b at $c': "c",
    '$a: C  $a.name < "c3"  $b at $a  $b knows $c': "c",
    "$a: P  $a.age < 9  $a knows $b  not { $b likes $c  $c knows $d  $d.age > 50 }": "b",
    "$a: P  $a.age < 9  $a knows $b  $b knows{1,2} $c": "c",
}
RETURNS = [
    "{ count($last) as n }",
    "{ count(distinct $last) as n }",
    "{ $last.name, count($a) as n }",
    "{ max($last.name) as most, count($a) as n }",
    "{ $last.name }",
    "distinct { $last.name }",
]
# The planner counts from the end only where the groups are nodes.
TWO_HOPS = """
match { $a: P  $a.name in ["p001", "p002", "p003"]  $a knows $b  $b knows $c }
return { $c.city, count($a) as n }
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Iterator[Graph]:
    """Nodes with very many edges and with none, self-loops, parallel edges and hidden rows."""
    random = Random(5)
    names = [f"p{n:03}" for n in range(150)]

    def pairs(count: int) -> tuple[list[str], list[str]]:
        src = [names[int(len(names) * random.random() ** 2)] for _ in range(count)]
        dst = [names[int(len(names) * random.random() ** 3)] for _ in range(count)]
        return src, dst

    knows, likes = pairs(900), pairs(400)
    with Graph.init(tmp_path_factory.mktemp("pull") / "g.omni", SCHEMA, durability="os") as made:
        made.load(
            {
                "P": pa.table(
                    {
                        "name": names,
                        "age": pa.array(random.choices([None, *range(60)], k=150), pa.int32()),
                        "city": random.choices([None, "x", "y", "z"], k=150),
                        "secret": [random.random() < 0.2 for _ in names],
                    }
                ),
                "C": pa.table({"name": ["c1", "c2", "c3"]}),
                "Knows": pa.table(
                    {
                        "from": knows[0],
                        "to": knows[1],
                        "secret": [random.random() < 0.2 for _ in knows[0]],
                    }
                ),
                "Likes": pa.table({"from": likes[0], "to": likes[1]}),
                "At": pa.table(
                    {
                        "from": names[:100],
                        "to": random.choices(["c1", "c2", "c3"], k=100),
                    }
                ),
            }
        )
        yield made


@pytest.fixture
def pulled(monkeypatch) -> list[bool]:
    """Every hop is pulled that can be; whether each was weighted."""
    calls: list[bool] = []
    pull_step = pull.pull

    def noted(given, step, frame, live, *, weighted):
        after = pull_step(given, step, frame, live, weighted=weighted)
        if after is not None:
            calls.append(weighted and frame.weights is not None)
        return after

    monkeypatch.setattr(run, "_FEW", 0)
    monkeypatch.setattr(run, "pull", noted)
    monkeypatch.setattr(pull, "_FEW_EDGES", 0)
    monkeypatch.setattr(pull, "_PUSH_COST", 10**9)
    monkeypatch.setattr(adjacency, "_PIECE", 64)
    monkeypatch.setattr(sources.EdgeSource, "cached_index", sources.EdgeSource.index)
    monkeypatch.setattr(
        edges.EdgeIndex, "opposite", lambda index, along: index.adjacency(edges.OPPOSITE[along])
    )
    return calls


def all_rows(graph: Graph) -> dict[str, list[tuple]]:
    texts = [TWO_HOPS]
    for (match, last), returned in itertools.product(MATCHES.items(), RETURNS):
        texts.append(f"match {{ {match} }} return {returned.replace('$last', f'${last}')}")
    return {text: sorted((tuple(r.values()) for r in ask(graph, text)), key=str) for text in texts}


@pytest.mark.parametrize("view", [None, {"P": "secret = false", "Knows": "secret = false"}])
def test_pulled_hops_reach_the_same_nodes_as_often(graph, view, pulled, monkeypatch):
    """In all directions, with filters, negations and weights, also for a restricted actor."""
    reader = graph if view is None else viewed(graph, make_view(graph.catalog, view))
    actual = all_rows(reader)
    assert pulled.count(True) > 5
    assert pulled.count(False) > 20
    monkeypatch.setattr(pull, "_FEW_EDGES", 10**9)
    pulled.clear()
    assert actual == all_rows(reader)
    assert not pulled


def test_a_profile_says_that_a_hop_was_pulled(graph, pulled):
    profile = graph.snapshot().explain(f"query q() {{ {TWO_HOPS} }}", profile=True)
    assert str(profile).count("pulled") == 2


def test_the_opposite_adjacency_is_not_built_for_a_pull():
    ends = np.array([0, 0, 1], np.int32), np.array([1, 2, 1], np.int32)
    index = edges.EdgeIndex.__new__(edges.EdgeIndex)
    index._plain = {edges.OUT: Adjacency.of(*ends)}
    assert index.opposite(edges.OUT) is None
    assert index.opposite(edges.IN) is index._plain[edges.OUT]
    index._plain[edges.BOTH] = both = Adjacency.of(*ends)
    assert index.opposite(edges.BOTH) is both


class _Run:
    def __init__(self, **limits) -> None:
        self.guard = ResourceGuard(Limits(**limits))


def reached(against: Adjacency, weights: list[int], **limits):
    """From the first nodes, with these weights."""
    starts = np.arange(len(weights), dtype=np.int32)
    return pull._reached(_Run(**limits), against, starts, np.array(weights))


def test_starts_without_edges_cost_nothing():
    """Neither their numbers nor their weights are looked at."""
    against = Adjacency.of(np.array([0, 1], np.int32), np.array([1, 1], np.int32))
    starts = np.array([1, 2**30, 1], np.int32)
    weights = np.array([3, 2**63 - 1, 4])
    tracemalloc.start()
    assert pull._reached(_Run(), against, starts, weights).tolist() == [7, 7, 0]
    assert pull._reached(_Run(), against, starts, None).tolist() == [2, 2, 0]
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_sums_that_may_exceed_64_bits_are_pushed_which_reports_them():
    adjacency = Adjacency.of(np.array([0, 0, 1], np.int32), np.array([1, 2, 1], np.int32))
    assert reached(adjacency, [1, 2, 3]).tolist() == [5, 2, 0]
    assert reached(adjacency, [1, 2**61, 1]).tolist() == [
        2**61 + 1,
        2**61,
        0,
    ]
    assert reached(adjacency, [1, 2**61 + 1, 1]) is None


@pytest.mark.parametrize("most", [2**30 - 1, 2**30, 2**31 - 1, 2**31, 2**32, 2**33])
def test_sums_are_exact_where_running_ones_exceed_their_type(most):
    """One node leads to 1,000 others, and two to the last; the sums of all exceed 32 bits."""
    src = np.repeat(np.arange(1_000, dtype=np.int32), 2)
    dst = np.tile(np.arange(2, dtype=np.int32), 1_000)
    sums = reached(Adjacency.of(src, dst), [most, most - 1])
    assert sums.tolist() == [2 * most - 1] * 1_000 + [0]


def test_a_pull_ends_when_the_query_is_cancelled():
    cancel = Cancel()
    cancel.set()
    adjacency = Adjacency.of(np.zeros(3, np.int32), np.arange(3, dtype=np.int32))
    with pytest.raises(Cancelled):
        reached(adjacency, [1, 1, 1], cancel=cancel)


def test_a_hop_without_room_for_a_pull_is_pushed(graph, pulled, monkeypatch):
    """Pushing divides the rows: a query that fits has to fit after the adjacency is in memory."""
    expected = ask(graph, TWO_HOPS)
    assert pulled
    pulled.clear()
    monkeypatch.setattr(pull, "_NODE_BYTES", 1 << 40)
    assert ask(graph, TWO_HOPS) == expected
    assert not pulled
