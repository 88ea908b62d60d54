"""What is cache of a table: shared between versions and branches, read once."""

from __future__ import annotations

import pytest

from omnigraph.storage.tables.table import Table
from omnigraph.topology.cache import TableCache
from omnigraph.topology.edges import EdgeIndex
from omnigraph.topology.nodes import Ids, NodeIndex
from tests.topology.conftest import add, join, table

PERSON, KNOWS = "node:Person", "edge:Knows"


@pytest.fixture
def read(monkeypatch):
    """Which columns of how many parts were read."""
    seen = []
    real = Table.read_fragments

    def counted(self, numbers, columns):
        seen.append((len(numbers), list(columns)))
        return real(self, numbers, columns)

    monkeypatch.setattr(Table, "read_fragments", counted)
    return seen


def test_a_column_is_read_once(graph, read):
    add(graph, "Ada", "Bob")
    cache = TableCache(table(graph, PERSON))
    assert cache.column("name").to_pylist() == ["Ada", "Bob"]
    assert cache.column("name").to_pylist() == ["Ada", "Bob"]
    assert len(cache.row_ids()) == cache.rows == 2
    assert read == [(1, ["name"])]


def test_after_a_commit_that_added_rows_only_those_are_read(graph, read):
    add(graph, "Ada", "Bob")
    before = TableCache(table(graph, PERSON))
    before.column("name")
    add(graph, "Eve")
    after = TableCache(table(graph, PERSON), before)
    assert after.column("name").to_pylist() == ["Ada", "Bob", "Eve"]
    assert before.column("name").to_pylist() == ["Ada", "Bob"]
    assert read == [(1, ["name"]), (1, ["name"])]


def test_a_branch_shares_what_it_inherited(graph, read):
    add(graph, "Ada", "Bob")
    graph.branches.create("b")
    add(graph, "Cy", branch="b")
    main = TableCache(table(graph, PERSON))
    main.column("name")
    branch = TableCache(table(graph, PERSON, "b"), main)
    assert branch.column("name").to_pylist() == ["Ada", "Bob", "Cy"]
    assert read == [(1, ["name"]), (1, ["name"])]


def test_rows_that_were_changed_or_deleted_are_read_again(graph):
    add(graph, "Ada", "Bob", "Eve")
    ids = Ids()
    before = NodeIndex(TableCache(table(graph, PERSON)), ids)
    before.values("age", before.numbers)
    text = """query q() { update Person set { age: 7 } where name = "Bob" }"""
    graph.mutate(text)
    graph.mutate("""query q() { delete Person where name = "Ada" }""")
    after = NodeIndex(TableCache(table(graph, PERSON), before.cache), ids)
    assert after.positions(before.numbers).tolist()[0] == -1
    assert after.values("age", before.numbers).to_pylist() == [None, 7, None]
    assert before.values("age", before.numbers).to_pylist() == [None, None, None]
    rows = after.row_ids(after.numbers)
    assert after.numbers_of_rows(rows).tolist() == after.numbers.tolist()


@pytest.mark.parametrize("direction", ["out", "in", "both"])
def test_an_adjacency_is_extended_by_new_edges(graph, direction):
    add(graph, "a", "b", "c")
    join(graph, ("a", "b"), ("b", "c"), ("a", "a"))
    ids = Ids()
    before = EdgeIndex(TableCache(table(graph, KNOWS)), ids, ids)
    before.adjacency(direction)
    join(graph, ("c", "a"), ("a", "b"))
    after = EdgeIndex(TableCache(table(graph, KNOWS), before.cache), ids, ids, before)
    assert direction in after._plain
    whole = EdgeIndex(TableCache(table(graph, KNOWS)), ids, ids)
    assert (
        after.adjacency(direction).targets.tolist() == whole.adjacency(direction).targets.tolist()
    )
    assert (
        after.edge_adjacency(direction).rows.tolist()
        == whole.edge_adjacency(direction).rows.tolist()
    )


def test_an_adjacency_is_made_anew_when_edges_went_away(graph):
    add(graph, "a", "b")
    join(graph, ("a", "b"), ("b", "a"))
    ids = Ids()
    before = EdgeIndex(TableCache(table(graph, KNOWS)), ids, ids)
    before.adjacency("out")
    graph.mutate("""query q() { delete Knows where from = "a" }""")
    after = EdgeIndex(TableCache(table(graph, KNOWS), before.cache), ids, ids, before)
    assert not after._plain
    assert after.adjacency("out").targets.tolist() == [ids.number("a")]
