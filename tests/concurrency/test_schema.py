"""Processes that change the schema, beside others that do, that write and that read."""

from __future__ import annotations

from tests.concurrency.test_processes import assert_recovered, chain

PERSON = "node Person { name: String @key }\nedge Knows: Person -> Person\n"
HUMAN = PERSON.replace("Person", "Human").replace(
    "node Human {", 'node Human @rename_from("Person") {'
)
BACK = PERSON.replace("node Person {", 'node Person @rename_from("Human") {')
KINDS = ["Person", "Human"]


def test_of_many_that_apply_one_schema_one_does(new_graph, processes):
    graph = new_graph(PERSON)
    wider = PERSON.replace("@key }", "@key  age: I32? }")
    reported = processes.run(*(("apply_schemas", {"schemas": [wider]}) for _ in range(4)))
    assert [item["done"] for item in reported] == [1] * 4
    assert sum(item["applied"] for item in reported) == 1
    refusals = {one["code"] for item in reported for one in item.get("refused", [])}
    assert refusals <= {"schema_changing"}
    assert len(chain(graph)) == 2
    assert "age" in graph.catalog.node("Person").properties
    assert_recovered(graph)


def test_applies_of_several_processes_follow_one_another(new_graph, processes):
    graph = new_graph(PERSON)
    reported = processes.run(
        *(
            (
                "apply_schemas",
                {"schemas": [f"{PERSON}node N{n} {{ name: String @key }}\n", PERSON] * 2},
            )
            for n in range(3)
        )
    )
    assert [item["done"] for item in reported] == [4] * 3, reported
    assert len(chain(graph)) == 1 + sum(item["applied"] for item in reported)
    assert_recovered(graph)
    with type(graph).open(graph.uri, storage_options=graph._handle.store.root.options) as again:
        assert again.snapshot().count("Person") == 0


def test_writers_and_readers_follow_a_schema_that_changes(new_graph, processes):
    graph = new_graph(PERSON)
    reported = processes.run(
        ("tag_when_done", {"schemas": [HUMAN, BACK], "tag": "over", "times": 4}),
        ("append_anyhow", {"kinds": KINDS, "name": "a", "times": 25}),
        ("append_anyhow", {"kinds": KINDS, "name": "b", "times": 25}),
        ("read_anyhow", {"kinds": KINDS, "until": "over"}),
    )
    assert all("failed" not in item for item in reported), reported
    assert reported[0]["done"] == 8
    assert reported[3]["reads"] > 0
    names = [name for item in reported[1:3] for name in item["names"]]
    assert sorted(graph.snapshot().read("Person", ["name"])["name"].to_pylist()) == sorted(names)
    refusals = {code for item in reported[1:3] for code in item.get("refused", [])}
    assert refusals <= {"schema_changing", "conflict", "version_mismatch"}
    chain(graph)
    assert_recovered(graph)
