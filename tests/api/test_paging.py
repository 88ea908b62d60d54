"""Pages of a query in this process: together they are the result of one state."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from omnigraph import Graph, InputError, Policy
from omnigraph.api import page_cache, paging
from omnigraph.errors import HistoryGone, InvalidCursor, LimitExceeded, ViewChanged

pytestmark = pytest.mark.rotates(2)

SCHEMA = """
node Person { name: String @key  age: I64?  tags: [String]?  height: F64? }
edge Knows: Person -> Person { since: I64? }
"""
COUNT = 60
QUERIES = {
    "a scan": "query q() { match { $p: Person } return { $p.name, $p.age } }",
    "a traversal": "query q() { match { $b: Person  $b knows $a } return { $a.age, $b.name } }",
    "equal rows": "query q() { match { $b: Person  $b knows $a } return { $b.age } }",
    "an unused variable": "query q() { match { $z: Person  $z knows $m } return { $z.name } }",
    "edges": "query q() { match { $a: Person  $a $k: knows $b } return { $k.since, $b.name } }",
    "an order": "query q() { match { $p: Person } return { $p.name } order { $p.age desc } }",
    "a window": "query q() { match { $p: Person } return { $p.name } limit 40 offset 7 }",
    "groups": "query q() { match { $p: Person } return { $p.age, count($p) as n } }",
    "groups by lists": "query q() { match { $p: Person } return { $p.tags, count($p) as n } }",
    "distinct rows": "query q() { match { $p: Person } return distinct { $p.age, $p.tags } }",
    "one row": "query q() { match { $p: Person } return { count($p) as n } }",
    "no rows": "query q() { match { $p: Person { age: 99 } } return { $p.name } }",
}


def rows() -> Iterator[dict[str, object]]:
    for i in range(COUNT):
        # Neither in the order of the names nor without gaps.
        name = f"p{i * 37 % COUNT:03}"
        data = {"name": name, "age": None if i % 9 == 0 else i % 7, "tags": ["x" * (i % 4)]}
        yield {"type": "Person", "data": {**data, "height": i / 7}}
    for i in range(2 * COUNT):
        ends = {"from": f"p{i % COUNT:03}", "to": f"p{i * i % COUNT:03}"}
        yield {"edge": "Knows", **ends, "data": {"since": i % 5}}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Iterator[Graph]:
    with Graph.init(tmp_path_factory.mktemp("paging") / "g.omni", SCHEMA) as graph:
        graph.load(list(rows()))
        yield graph


@pytest.fixture
def graph(tmp_path) -> Iterator[Graph]:
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        graph.load(list(rows()))
        yield graph


def texts(read: list[dict[str, object]]) -> list[str]:
    return [json.dumps(row) for row in read]


@pytest.mark.parametrize("name", QUERIES)
def test_the_pages_are_the_result_of_the_query(built, name):
    one = texts(built.query(QUERIES[name]).rows())
    if name == "a window":
        # Without an order, any of the rows may be in it.
        every = built.query(QUERIES["a scan"]).rows()
        one = [json.dumps({"p.name": p}) for p in sorted(row["p.name"] for row in every)[7:47]]
    orders = set()
    for size in (1, 7, len(one) or 1, 1_000):
        pages = list(built.pages(QUERIES[name], page_size=size))
        read = texts([row for page in pages for row in page.result.rows()])
        assert sorted(read) == sorted(one)
        assert [len(page.result) for page in pages[:-1]] == [size] * (len(pages) - 1)
        assert [page.cursor is None for page in pages] == [False] * (len(pages) - 1) + [True]
        orders.add(tuple(read))
    assert len(orders) == 1
    if name == "an order":
        assert orders == {tuple(one)}


@pytest.mark.parametrize("name", QUERIES)
def test_another_process_continues_at_a_cursor(built, name):
    read: list[dict[str, object]] = []
    cursor = None
    while True:
        # A handle that has cached and measured nothing.
        with Graph.open(built.uri, "r") as other:
            page = next(other.pages(QUERIES[name], page_size=11, cursor=cursor))
            read += page.result.rows()
        cursor = page.cursor
        if cursor is None:
            break
    every = built.pages(QUERIES[name], page_size=10_000)
    assert texts(read) == texts([row for page in every for row in page.result.rows()])


def test_pages_stay_on_their_state_while_others_write(graph):
    text = QUERIES["a traversal"]
    before = texts(next(graph.pages(text, page_size=10_000)).result.rows())
    stop = threading.Event()

    def write(number: int) -> None:
        for i in range(1_000):
            if stop.is_set():
                return
            graph.load([{"type": "Person", "data": {"name": f"new-{number}-{i}", "age": 1}}])

    pages = graph.pages(text, page_size=13)
    read = next(pages).result.rows()
    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    try:
        for page in pages:
            graph.load(
                [{"type": "Person", "data": {"name": f"p{len(read) % COUNT:03}", "age": 50}}]
            )
            read += page.result.rows()
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert texts(read) == before


def test_a_page_of_a_branch_without_own_commits_is_read_there(graph):
    graph.branches.create("review")
    first = next(graph.pages(QUERIES["a scan"], branch="review", page_size=20))
    graph.branches.create("other")
    graph.mutate('query q() { delete Person where name = "p059" }', branch="review")
    rest = list(graph.pages(QUERIES["a scan"], branch="review", page_size=20, cursor=first.cursor))
    assert sum(len(page.result) for page in rest) == 40
    assert rest[0].result.target == {"branch": "review"}
    with pytest.raises(InvalidCursor):
        graph.pages(QUERIES["a scan"], branch="other", page_size=20, cursor=first.cursor)


def test_now_is_the_same_on_all_pages(graph):
    text = "query q() { match { $p: Person } return { $p.name, now() as at } }"
    pages = list(graph.pages(text, page_size=25))
    assert len({row["at"] for page in pages for row in page.result.rows()}) == 1


def test_a_state_that_was_cleaned_away_is_gone(graph):
    page = next(graph.pages(QUERIES["a scan"], page_size=5))
    graph.mutate('query q() { delete Person where name = "p059" }')
    graph.maintenance.optimize()
    graph.refresh()
    graph.maintenance.cleanup(1, min_age=0, feed_retention=0)
    with Graph.open(graph.uri, "r") as other, pytest.raises(HistoryGone):
        other.pages(QUERIES["a scan"], page_size=5, cursor=page.cursor)


def test_another_view_is_another_result(tmp_path):
    def rules(most: int) -> Policy:
        return Policy.parse(f"""
version: 2
groups: {{ staff: [ana] }}
rules: [{{ id: r, allow: {{ actors: {{ group: staff }}, actions: [read] }} }}]
rows:
  - {{ id: young, actors: {{ group: staff }}, types: ["*"], where: "age < {most}" }}
""")

    with Graph.init(tmp_path / "g.omni", "node Person { name: String @key  age: I64? }") as graph:
        people = [{"type": "Person", "data": {"name": f"p{i}", "age": i}} for i in range(9)]
        graph.load(people)
    text = QUERIES["a scan"]
    with Graph.open(tmp_path / "g.omni", "r", policy=rules(5), actor="ana") as graph:
        pages = list(graph.pages(text, page_size=2))
        assert [len(page.result) for page in pages] == [2, 2, 1]
    with (
        Graph.open(tmp_path / "g.omni", "r", policy=rules(6), actor="ana") as graph,
        pytest.raises(ViewChanged),
    ):
        graph.pages(text, page_size=2, cursor=pages[0].cursor)


def test_limits_and_sizes_are_checked(graph):
    for size in (0, -1, 10_001):
        with pytest.raises(InputError, match="between 1 and 10000"):
            graph.pages(QUERIES["a scan"], page_size=size)
    with pytest.raises(LimitExceeded):
        graph.pages(QUERIES["a scan"], timeout=0)


def test_rows_ahead_save_runs_and_are_bounded(graph, monkeypatch):
    runs = []
    monkeypatch.setattr(
        paging, "first_rows", lambda *a, run=paging.first_rows: runs.append(1) or run(*a)
    )
    assert sum(len(page.result) for page in graph.pages(QUERIES["a scan"], page_size=3)) == COUNT
    assert len(runs) == 2
    monkeypatch.setattr(page_cache, "MOST_BYTES", 0)
    runs.clear()
    assert sum(len(page.result) for page in graph.pages(QUERIES["a scan"], page_size=3)) == COUNT
    assert len(runs) == COUNT // 3
