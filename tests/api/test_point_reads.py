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
WHOLE_NODE = "query q($n: String) { match { $p: Person { name: $n } } return { $p, $p.note } }"
LIMITED = "query q($n: String) { match { $p: Person { name: $n } } return { $p.age } limit 1 }"
NAMED = "query q($n: String) { match { $p: Person { name: $n } } return { $p.age as years } }"
EVERYTHING = """
node Thing {
    name: String @key
    text: String?
    flag: Bool?
    small: I32?
    whole: U32?
    big: I64?
    huge: U64?
    ratio: F32?
    exact: F64?
    day: Date?
    moment: DateTime?
    words: [String]?
    days: [Date]?
    numbers: [I64]?
    place: Vector(2)?
}
"""


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


@pytest.mark.parametrize("text", [LOOK_UP, WITH_KEY, WHOLE_NODE, LIMITED, NAMED])
@pytest.mark.parametrize("name", ["p0", "p49", "nobody", "", "p7 "])
def test_it_is_the_answer_of_the_query(graph, text, name):
    warm(graph, text)
    newest = in_memory(graph, text, {"n": name})
    assert newest is not None
    assert newest.result.rows() == graph.query(text, params={"n": name}).rows()


@pytest.mark.parametrize("name", ["full", "empty"])
@pytest.mark.parametrize("form", ["native", "sdk"])
def test_every_type_is_answered_as_by_the_query(tmp_path, name, form):
    full = {
        "text": "Ω",
        "flag": True,
        "small": -7,
        "whole": 7,
        "big": -(2**60),
        "huge": 2**63,
        "ratio": 0.5,
        "exact": 1e300,
        "day": "1950-01-02",
        "moment": "2020-01-02T03:04:05.678Z",
        "words": ["a", "b"],
        "days": ["1950-01-02"],
        "numbers": [2**60, 1],
        "place": [0.5, 1.0],
    }
    columns = ", ".join(f"$t.{column}" for column in ("name", *full))
    text = f"query q($n: String) {{ match {{ $t: Thing {{ name: $n }} }} return {{ {columns} }} }}"
    with Graph.init(tmp_path / "all.omni", EVERYTHING) as graph:
        rows = [{"name": "full", **full}, {"name": "empty"}, {"name": "other", "small": 1}]
        graph.load([{"type": "Thing", "data": row} for row in rows])
        warm(graph, text, {"n": "other"})
        newest = in_memory(graph, text, {"n": name})
        wanted = graph.query(text, params={"n": name})
        assert newest is not None
        assert newest.result.envelope(form) == wanted.envelope(form)
        assert newest.result.to_arrow().equals(wanted.to_arrow(), check_metadata=True)


@pytest.mark.parametrize(
    "text",
    [
        "query q($n: String) { match { $p: Person { name: $n } } return { $p } limit 5 offset 1 }",
        "query q($n: String) { match { $p: Person { name: $n } } return { now() as t } }",
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
        assert in_memory(graph) is not None
    finally:
        leave.set()
        thread.join()


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
