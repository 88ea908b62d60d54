"""How many requests an operation makes on S3, how many of them in sequence, and whether that stays.

A publish that compacts the manifest, one that records checksums, and one that asks who waits for a
lease, cost a few more.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count, islice

import pytest

from omnigraph import Graph
from tests.s3.proxy import S3Proxy

pytestmark = pytest.mark.rotates(3)

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
INSERT, UPDATE, QUERY = (15, 8), (15, 8), (1, 1)
DELETE = (23, 9)
ON_A_BRANCH = (17, 8)
MOST = 20
"""The most requests of any insert."""


@pytest.fixture(autouse=True)
def timeless(monkeypatch):
    """Requests that are made again after a while would be counted on a busy machine only."""
    for constant in (
        "omnigraph.api.handle._COMPARED_SECONDS",
        "omnigraph.storage.objects.ahead._VALID_SECONDS",
        "omnigraph.storage.leases.s3._ASK_SECONDS",
    ):
        monkeypatch.setattr(constant, float("inf"))


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

    def measure(work: Callable[[], object], latency: float = 0.03) -> tuple[int, int]:
        # Requests that are started together overlap only if each takes a while.
        proxy.latency = latency
        proxy.reset()
        work()
        proxy.latency = 0.0
        return len(proxy.log), proxy.depth

    return measure


def insert(graph: Graph, name: str) -> None:
    graph.mutate(TEXT, "add", {"name": name})


def assert_costs(
    cost, works: Iterable[Callable[[], object]], samples: int, expected: tuple[int, int]
) -> None:
    """Compare ``samples`` operations of a kind with what one of them may cost.

    The median of the requests: some writes in a row compact, record or look for waiters. The least
    of the depths: on a busy machine requests that are started together overlap only if each of them
    takes long.
    """
    remaining = iter(works)
    costs = [cost(work) for work in islice(remaining, samples)]
    if min(depth for _, depth in costs) > expected[1]:
        costs += [cost(work, latency=0.4) for work in islice(remaining, 2)]
    requests, depths = zip(*costs, strict=True)
    assert statistics.median(requests) <= expected[0] + 1, costs
    assert min(depths) <= expected[1], costs


def assert_insert_costs(graph: Graph, cost, commits: int) -> None:
    for number in range(commits):
        insert(graph, f"before-{number}")
    works = (partial(insert, graph, f"after-{n}") for n in count())
    assert_costs(cost, works, 9, INSERT)


def test_a_one_row_insert_makes_few_requests(graph, cost):
    assert_insert_costs(graph, cost, 10)


def test_no_insert_makes_many(graph, proxy):
    """Not even one that compacts the manifest or records checksums."""
    counts = []
    for number in range(60):
        proxy.reset()
        insert(graph, f"p-{number}")
        counts.append(len(proxy.log))
    # The first of each is dearer: it reads what the load and the init have written.
    assert max(counts[20:]) <= MOST, counts


def test_an_insert_on_a_branch_makes_few_requests(graph, cost):
    graph.branches.create("team")

    def add(name: str) -> None:
        graph.mutate(TEXT, "add", {"name": name}, branch="team")

    for number in range(3):
        add(f"before-{number}")
    assert_costs(cost, (partial(add, f"after-{n}") for n in count()), 5, ON_A_BRANCH)


def test_an_update_makes_few_requests(graph, cost):
    def rename(age: int) -> None:
        graph.mutate(TEXT, "rename", {"name": "p5", "age": age})

    rename(1)
    assert_costs(cost, (partial(rename, n) for n in count()), 5, UPDATE)


@pytest.mark.slow
@pytest.mark.parametrize("commits", [100, 500])
def test_it_makes_as_many_after_many_commits(graph, cost, commits):
    graph.close()
    with Graph.open(graph.uri, storage_options=graph.storage_options, auto_compact=True) as again:
        assert_insert_costs(again, cost, commits)


def test_a_delete_with_its_edges_makes_few_requests(graph, cost):
    def leave(number: int) -> None:
        graph.mutate(TEXT, "leave", {"name": f"p{number}"})

    leave(0)
    assert_costs(cost, (partial(leave, n) for n in range(3, PEOPLE, 3)), 3, DELETE)


def test_a_warm_query_asks_once(graph, cost):
    def ask() -> None:
        graph.query(TEXT, "friends", {"name": "p1"}).rows()

    for _ in range(3):
        ask()
    assert cost(ask) == QUERY


def test_a_query_after_an_insert_reads_nothing_that_was_just_written(graph, cost):
    def ask() -> None:
        graph.query(TEXT, "friends", {"name": "p1"}).rows()

    for number in range(3):
        insert(graph, f"before-{number}")
        ask()
    insert(graph, "last")
    assert cost(ask) == QUERY
