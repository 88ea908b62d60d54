"""How many requests an operation makes on S3, how many of them in sequence, and whether that stays.

Publishes that compact the manifest, and those that record checksums, cost more; they are rare and
counted apart.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import pytest

from omnigraph import Graph
from tests.s3.proxy import S3Proxy

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key }
edge Knows: Person -> Person
edge LivesIn: Person -> City
"""
TEXT = """
query add($name: String) { insert Person { name: $name, age: 3 } }
query rename($name: String, $age: I32) { update Person set { age: $age } where name = $name }
query leave($name: String) { delete Person where name = $name }
query friends($name: String) {
  match { $p: Person { name: $name } $p knows $other }
  return { $other.name }
}
"""
PEOPLE = 40
INSERT, QUERY = (22, 18), (1, 1)
DELETE = (57, 49)


@pytest.fixture
def graph(s3_root, proxy: S3Proxy):
    root = s3_root("g.omni", proxy.endpoint)
    with Graph.init(root.uri, SCHEMA, storage_options=root.options) as graph:
        people = [{"type": "Person", "data": {"name": f"p{n}"}} for n in range(PEOPLE)]
        edges = [
            {"edge": "Knows", "from": f"p{n}", "to": f"p{(n + 1) % PEOPLE}"} for n in range(40)
        ]
        homes = [{"edge": "LivesIn", "from": f"p{n}", "to": "c"} for n in range(PEOPLE)]
        graph.load([*people, {"type": "City", "data": {"name": "c"}}, *edges, *homes])
        yield graph


@pytest.fixture
def cost(proxy: S3Proxy):
    """The requests of a call, and how many of them in sequence."""

    def measure(work: Callable[[], object]) -> tuple[int, int]:
        # Requests that are started together overlap only if each takes a while.
        proxy.latency = 0.01
        proxy.reset()
        work()
        proxy.latency = 0.0
        return len(proxy.log), proxy.depth

    return measure


def insert(graph: Graph, name: str) -> None:
    graph.mutate(TEXT, "add", {"name": name})


def usual(costs: list[tuple[int, int]]) -> tuple[int, int]:
    """The median of each: compactions and records are rare."""
    requests, depths = zip(*costs, strict=True)
    return int(statistics.median(requests)), int(statistics.median(depths))


def assert_insert_costs(graph: Graph, cost, commits: int) -> None:
    for number in range(commits):
        insert(graph, f"before-{number}")
    costs = [cost(lambda n=number: insert(graph, f"after-{n}")) for number in range(9)]
    requests, depth = usual(costs)
    assert requests <= INSERT[0] + 1, costs
    assert depth <= INSERT[1] + 1, costs


def test_a_one_row_insert_makes_few_requests(graph, cost):
    assert_insert_costs(graph, cost, 10)


@pytest.mark.slow
@pytest.mark.parametrize("commits", [100, 500])
def test_it_makes_as_many_after_many_commits(graph, cost, commits):
    graph.close()
    with Graph.open(graph.uri, storage_options=graph.storage_options, auto_compact=True) as again:
        assert_insert_costs(again, cost, commits)


def test_a_delete_with_its_edges_makes_few_requests(graph, cost):
    graph.mutate(TEXT, "leave", {"name": "p0"})
    costs = [cost(lambda n=n: graph.mutate(TEXT, "leave", {"name": f"p{n}"})) for n in (3, 6, 9)]
    requests, depth = usual(costs)
    assert requests <= DELETE[0] + 2, costs
    assert depth <= DELETE[1] + 2, costs


def test_a_warm_query_asks_once(graph, cost):
    def ask() -> None:
        graph.query(TEXT, "friends", {"name": "p1"}).rows()

    for _ in range(3):
        ask()
    assert cost(ask) == QUERY
