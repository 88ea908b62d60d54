"""Prepared statements: compiled once, run many times, right under every schema."""

from __future__ import annotations

import threading

import pytest

from omnigraph import Graph, InputError, NotFound, QueryError
from omnigraph.errors import Closed, ParameterError, ReadOnly

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
AGE = "query age($n: String, $least: I32?) { match { $p: Person { name: $n } } return { $p.age } }"
ADD = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA) as graph:
        graph.load(
            [
                {"type": "Person", "data": {"name": n, "age": a}}
                for n, a in (("Ada", 36), ("Bob", 7))
            ]
        )
        yield graph


def test_a_read_says_what_it_takes_and_returns(graph):
    age = graph.prepare(AGE)
    assert (age.name, age.params, age.columns) == (
        "age",
        {"n": "String", "least": "I32?"},
        ("p.age",),
    )
    assert repr(age) == "<PreparedRead age>"


def test_a_read_is_that_of_query(graph):
    age = graph.prepare(AGE)
    for name in ("Ada", "Bob", "nobody"):
        result = age({"n": name})
        expected = graph.query(AGE, params={"n": name})
        assert result.rows() == expected.rows()
        assert (result.query_name, result.columns, result.target) == (
            expected.query_name,
            expected.columns,
            expected.target,
        )


def test_a_read_of_a_branch_a_snapshot_and_a_moment(graph):
    age, before = graph.prepare(AGE), graph.snapshot()
    graph.branches.create("b")
    graph.mutate('query q() { update Person set { age: 1 } where name = "Ada" }', branch="b")
    assert age({"n": "Ada"}, "b").rows() == [{"p.age": 1}]
    assert age({"n": "Ada"}, snapshot=before).rows() == [{"p.age": 36}]
    assert age({"n": "Ada"}, at=before.commit_id).rows() == [{"p.age": 36}]
    with pytest.raises(InputError, match="only one of"):
        age({"n": "Ada"}, "b", before)
    with pytest.raises(NotFound):
        age({"n": "Ada"}, "nowhere")


def test_a_mutation_is_that_of_mutate(graph):
    add = graph.prepare_mutation(ADD)
    assert (add.name, add.params, repr(add)) == (
        "add",
        {"n": "String", "a": "I32?"},
        "<PreparedMutation add>",
    )
    receipt = add({"n": "Cem", "a": 3}, actor="ana", idempotency_key="once")
    assert (receipt.affected_nodes, receipt.actor) == (1, "ana")
    assert add({"n": "Cem", "a": 3}, actor="ana", idempotency_key="once") == receipt
    assert graph.snapshot().count("Person") == 3


def test_what_is_wrong_is_said_when_it_is_prepared(graph):
    with pytest.raises(QueryError):
        graph.prepare("query q() { match { $p: Nobody } return { $p.name } }")
    with pytest.raises(InputError):
        graph.prepare(ADD)
    with pytest.raises(InputError):
        graph.prepare_mutation(AGE)
    with pytest.raises(NotFound):
        graph.prepare(AGE, "other")


def test_parameters_are_checked_with_each_call(graph):
    age = graph.prepare(AGE)
    with pytest.raises(ParameterError, match="'n' not provided"):
        age()
    with pytest.raises(ParameterError):
        age({"n": 5})
    assert age({"n": "Ada"}).rows() == [{"p.age": 36}]


def test_a_statement_follows_the_schema(graph):
    age, add = graph.prepare(AGE), graph.prepare_mutation(ADD)
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  city: String?"))
    assert add({"n": "Cem", "a": 3}).affected_nodes == 1
    assert age({"n": "Cem"}).rows() == [{"p.age": 3}]
    graph.schema.apply(
        "node Person { name: String @key  city: String? }\nedge Knows: Person -> Person",
        allow_data_loss=True,
    )
    with pytest.raises(QueryError, match="age"):
        age({"n": "Cem"})


def test_a_statement_ends_with_its_graph(graph, tmp_path):
    age = graph.prepare(AGE)
    with Graph.open(tmp_path / "g.omni", mode="r") as reader, pytest.raises(ReadOnly):
        reader.prepare_mutation(ADD)({"n": "x"})
    graph.close()
    with pytest.raises(Closed):
        age({"n": "Ada"})


def test_threads_share_a_statement(graph):
    age = graph.prepare(AGE)
    rows: list[list[dict[str, object]]] = []

    def read() -> None:
        for _ in range(50):
            rows.append(age({"n": "Ada"}).rows())

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows == [[{"p.age": 36}]] * 200
