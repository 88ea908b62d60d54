"""Look-ups by key that a server answers from memory, and everything that it must not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.api.point_reads import NewestResult, find_in_memory, query_newest
from omnigraph.commit.history import SnapshotRef
from omnigraph.errors import Closed, ParameterError, RowLimitExceeded
from omnigraph.read.gate import GATE
from omnigraph.read.limits import Limits

SCHEMA = """
node Person { name: String @key  age: I32?  note: String? }
edge Knows: Person -> Person
"""
LOOK_UP = "query q($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
WITH_KEY = "query q($n: String) { match { $p: Person { name: $n } } return { $p.name, $p.age } }"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "g.omni"
    with Graph.init(path, SCHEMA) as graph:
        people = [{"type": "Person", "data": {"name": f"p{n}", "age": n}} for n in range(50)]
        graph.load([*people, {"edge": "Knows", "from": "p1", "to": "p2"}])
    return path


@pytest.fixture
def graph(path: Path) -> Iterator[Graph]:
    with Graph.open(path, local_files=False) as graph:
        yield graph


def in_memory(
    graph: Graph,
    text: str = LOOK_UP,
    params: Any = None,
    branch: str = "main",
    limits: Limits | None = None,
) -> NewestResult | None:
    given = {"n": "p7"} if params is None else params
    return find_in_memory(graph._handle, branch, text, None, given, limits or Limits())


def warm(graph: Graph, text: str = LOOK_UP, params: Any = None, branch: str = "main") -> None:
    """Run a query until everything that it needs is in memory."""
    given = {"n": "p7"} if params is None else params
    handle, newest = graph._handle, SnapshotRef(branch)
    for _ in range(12):
        query_newest(handle, lambda: handle.read(newest), text, None, given, Limits()).result.rows()


def test_a_look_up_is_answered_from_memory_once_everything_is_there(graph):
    assert in_memory(graph) is None
    warm(graph)
    newest = in_memory(graph)
    assert newest is not None
    assert newest.result.rows() == [{"p.age": 7}]
    assert newest.commit_id == graph.snapshot().commit_id


@pytest.mark.parametrize("text", [LOOK_UP, WITH_KEY])
@pytest.mark.parametrize("name", ["p0", "p49", "nobody", "", "p7 "])
def test_it_is_the_answer_of_the_query(graph, text, name):
    warm(graph, text)
    newest = in_memory(graph, text, {"n": name})
    assert newest is not None
    assert newest.result.rows() == graph.query(text, params={"n": name}).rows()


@pytest.mark.parametrize(
    "text",
    [
        "query q() { match { $p: Person } return { $p.age } }",
        "query q($n: String?) { match { $p: Person { name: $n } } return { $p.age } }",
        "query q($n: [String]) { match { $p: Person  $p.name in $n } return { $p.age } }",
        "query q($n: String) { match { $p: Person { name: $n }  $p.age > 3 } return { $p.age } }",
        "query q($n: String) { match { $p: Person { name: $n }  $p knows $f } return { $f.age } }",
        "query q($n: String) { match { $p: Person { name: $n } } return { count($p) as c } }",
        "query q($n: String) { match { $p: Person { note: $n } } return { $p.age } }",
    ],
)
def test_anything_but_a_look_up_of_one_key_is_not(graph, text):
    params = {"n": ["p7"]} if "[String]" in text else {} if "q()" in text else {"n": "p7"}
    warm(graph, text, params)
    assert in_memory(graph, text, params) is None


def test_a_commit_of_another_handle_is_never_missed(graph, path):
    warm(graph)
    with Graph.open(path) as other:
        other.mutate('query u() { update Person set { age: 70 } where name = "p7" }')
    assert in_memory(graph) is None
    warm(graph)
    newest = in_memory(graph)
    assert newest is not None
    assert newest.result.rows() == [{"p.age": 70}]


def test_a_new_node_is_found_and_old_ones_stay_in_memory(graph):
    warm(graph)
    graph.mutate('query i() { insert Person { name: "new", age: 99 } }')
    warm(graph)
    for name, age in (("new", 99), ("p7", 7)):
        newest = in_memory(graph, params={"n": name})
        assert newest is not None
        assert newest.result.rows() == [{"p.age": age}]


def test_a_branch_that_was_deleted_or_made_again_is_read_again(graph, path):
    graph.branches.create("review")
    warm(graph, branch="review")
    assert in_memory(graph, branch="review") is not None
    with Graph.open(path) as other:
        other.branches.delete("review")
        assert in_memory(graph, branch="review") is None
        other.branches.create("review")
    assert in_memory(graph, branch="review") is None


def test_a_changed_schema_is_read_first(graph, path):
    warm(graph)
    with Graph.open(path) as other:
        other.schema.apply(SCHEMA.replace("note: String?", "note: String?  more: I32?"))
    assert in_memory(graph) is None


def test_nobody_waits_for_another_query(graph):

    warm(graph)
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with GATE:
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert entered.wait(60)
        assert in_memory(graph) is None
    finally:
        leave.set()
        thread.join()
    assert in_memory(graph) is not None


def test_errors_and_limits_are_those_of_the_query(graph):
    warm(graph)
    with pytest.raises(ParameterError):
        in_memory(graph, params={"n": 7})
    with pytest.raises(ParameterError):
        in_memory(graph, params={})
    with pytest.raises(RowLimitExceeded):
        in_memory(graph, limits=Limits(max_rows=0))
    assert GATE.is_free
    assert in_memory(graph) is not None


def test_a_closed_graph_says_so(graph):
    warm(graph)
    graph.close()
    with pytest.raises(Closed):
        in_memory(graph)
