"""Names that come back: dropped and added again, renamed away and taken by another."""

from __future__ import annotations

import pytest

from omnigraph import Graph, verify_graph
from omnigraph.errors import InputError
from omnigraph.lang.schema.identity import SchemaIdentity
from tests.evolve.world import AGES, KNOWS, RENAMED, SCHEMA, changed, fill, friends, values

WITHOUT = changed(
    ("node Company { name: String @key }\n", ""), ("edge WorksAt: Person -> Company\n", "")
)
NO_EDGES = "node Company { name: String @key }\n"
BACK = changed(
    ("node Person {", 'node Person @rename_from("Human") {'),
)


def pins(graph):
    return graph._handle.store.manifest(None).current().pins


def tombstones(graph):
    return graph._handle.store.manifest(None).with_state(lambda state, _: dict(state.tombstones))


def identity(graph):
    return SchemaIdentity.from_json(
        dict(graph._handle.store.manifest(None).current().schema.identity)
    )


@pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
def test_a_dropped_type_comes_back_empty_and_counts_on(graph, path, hard):
    before = graph.snapshot()
    graph.schema.apply(WITHOUT, allow_data_loss=hard)
    graph.schema.apply(SCHEMA)
    assert graph.snapshot().count("Company") == 0
    assert graph.snapshot().read("WorksAt").num_rows == 0
    for key in ("node:Company", "edge:WorksAt"):
        assert pins(graph)[key].version > tombstones(graph)[key]
    fill(graph)
    assert graph.snapshot().count("Company") == 2
    if not hard:
        assert before.count("Company") == before.read("Company").num_rows == 2
    with Graph.open(path) as again:
        assert again.snapshot().count("Company") == 2


def test_a_name_can_come_and_go_many_times(graph):
    for _ in range(3):
        graph.schema.apply(WITHOUT)
        graph.schema.apply(SCHEMA)
        graph.load([{"type": "Company", "data": {"name": "Acme"}}])
        assert graph.snapshot().count("Company") == 1


def test_a_returning_name_may_have_other_columns(graph):
    graph.schema.apply(WITHOUT)
    graph.schema.apply(f"{WITHOUT}node Company {{ vat: I64 @key  note: String? }}\n")
    graph.load([{"type": "Company", "data": {"vat": 7, "note": "n"}}])
    assert values(graph, "Company", "note") == {"7": "n"}


def test_a_name_that_was_renamed_away_is_free_for_another_type(graph):
    before = graph.snapshot().version
    graph.schema.apply(RENAMED)
    both = RENAMED + "node Person { name: String @key }\n"
    both = both.replace(' @rename_from("Person")', "")
    graph.schema.apply(both)
    assert graph.snapshot().count("Person") == 0
    assert pins(graph)["node:Person"].location != pins(graph)["node:Human"].location
    assert pins(graph)["node:Person"].version > tombstones(graph)["node:Person"]
    graph.load([{"type": "Person", "data": {"name": "Zoe"}}])
    assert values(graph, "Human", "age") == AGES
    assert list(values(graph, "Person", "name")) == ["Zoe"]
    assert friends(graph, "Human") == KNOWS
    assert values(graph, "Person", "age", version=before) == AGES
    assert verify_graph(graph.uri).problems == ()


@pytest.mark.parametrize("gone", ["Human", "Person"])
def test_a_type_goes_for_good_beside_one_that_took_its_name(graph, gone):
    """The second counts its versions on from the first, and shares none of its files."""
    graph.schema.apply(RENAMED)
    both = f"{NO_EDGES}node Human {{ name: String @key }}\nnode Person {{ name: String @key }}\n"
    graph.schema.apply(both)
    graph.load([{"type": "Person", "data": {"name": "Zoe"}}])
    left = both.replace(f"node {gone} {{ name: String @key }}\n", "")
    assert graph.schema.apply(left, allow_data_loss=True).cleared == (f"node:{gone}",)
    assert verify_graph(graph.uri).problems == ()
    graph.schema.apply(both)
    graph.load([{"type": gone, "data": {"name": "Abe"}}])
    rest = {"Human": AGES, "Person": ["Zoe"]}
    for name, rows in rest.items():
        assert sorted(values(graph, name, "name")) == (["Abe"] if name == gone else sorted(rows))
    assert verify_graph(graph.uri).problems == ()


def test_a_type_is_renamed_there_and_back(graph):
    first = graph.snapshot().version
    graph.schema.apply(RENAMED)
    second = graph.snapshot().version
    graph.mutate('query m() { insert Human { name: "Eve", age: 1 } }')
    graph.schema.apply(BACK)
    assert values(graph, "Person", "age") == {**AGES, "Eve": 1}
    assert pins(graph)["node:Person"].version > tombstones(graph)["node:Person"]
    graph.mutate('query m() { insert Person { name: "Fred", age: 2 } }')
    assert friends(graph) == KNOWS
    assert values(graph, "Person", "age", version=first) == AGES
    assert values(graph, "Human", "age", version=second) == AGES


def test_a_type_takes_a_name_that_another_had_for_longer(graph):
    for number in range(6):
        graph.load([{"type": "Person", "data": {"name": f"p{number}"}}])
    gone = "node Company { name: String @key }\n"
    graph.schema.apply(gone)
    graph.schema.apply('node Person @rename_from("Company") { name: String @key }\n')
    assert sorted(values(graph, "Person", "name")) == ["Acme", "Globex"]
    assert pins(graph)["node:Person"].version > tombstones(graph)["node:Person"]
    graph.load([{"type": "Person", "data": {"name": "Zoe"}}])
    assert sorted(values(graph, "Person", "name")) == ["Acme", "Globex", "Zoe"]


def test_a_dropped_property_comes_back_empty(graph):
    graph.schema.apply(changed(("  age: I32?", "")))
    graph.schema.apply(SCHEMA)
    assert values(graph, "Person", "age") == dict.fromkeys(AGES)


def test_a_new_property_may_have_the_name_of_a_renamed_one(graph):
    query_text = "query q() { match { $p: Person $p.age >= 0 } return { $p.name } }"
    assert graph.query(query_text).row_count == 4
    graph.schema.apply(changed(("age: I32?", 'years: I32? @rename_from("age")')))
    graph.schema.apply(changed(("age: I32?", "years: I32?  age: I32?")))
    assert values(graph, "Person", "years") == AGES
    assert values(graph, "Person", "age") == dict.fromkeys(AGES)
    assert graph.query(query_text).row_count == 0
    with pytest.raises(InputError):
        graph.snapshot(version=2).read("Person", ["years"])


def test_identities_survive_renames_and_begin_anew_with_a_new_life(graph):
    first = identity(graph).type("node", "Person")
    graph.schema.apply(RENAMED)
    assert identity(graph).type("node", "Human").id == first.id
    assert identity(graph).type("node", "Human").properties == first.properties
    company = identity(graph).type("node", "Company")
    graph.schema.apply(
        RENAMED.replace("node Company { name: String @key }\n", "").replace(
            "edge WorksAt: Human -> Company\n", ""
        )
    )
    graph.schema.apply(RENAMED)
    again = identity(graph).type("node", "Company")
    assert again.id > company.id
    assert again.incarnation == company.incarnation + 1
