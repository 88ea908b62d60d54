"""Mutations: what statements do, alone and together, and what their receipts say."""

from __future__ import annotations

import datetime as dt

import pytest

from omnigraph import Graph
from omnigraph.errors import (
    CardinalityViolation,
    InputError,
    OrphanEdge,
    PlanError,
    QueryError,
    UniqueViolation,
    ValueConversionError,
    ValueViolation,
)
from tests.write.world import ends, files, names, rows, run, values, versions

# -- inserting --------------------------------------------------------------------------------


def test_nodes_and_edges_are_inserted_with_their_properties(people):
    """Alone, and an edge in the same query as its ends."""
    run(people, 'insert Person { name: "Eve", age: 5 }')
    run(people, 'insert Knows { from: "Eve", to: "Ada", since: date("2024-05-01") }')
    receipt = run(
        people,
        """insert Person { name: "Fay" }
           insert Knows { from: "Fay", to: "Eve" }
           insert Knows { from: "Fay", to: "Fay" }""",
    )
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 2)
    assert values(people, "Eve", "age") == 5
    assert {("Eve", "Ada"), ("Fay", "Eve"), ("Fay", "Fay")} <= set(ends(people, "Knows"))
    assert ("Eve", dt.date(2024, 5, 1)) in rows(people, "Knows", "src", "since")


def test_an_edge_may_come_before_the_node_it_needs(people):
    """The rules look at the final image."""
    run(people, 'insert Knows { from: "Eve", to: "Ada" } insert Person { name: "Eve" }')
    assert ("Eve", "Ada") in ends(people, "Knows")


def test_rows_without_a_key_are_always_new(people):
    """Each gets an id of its own."""
    for _ in range(2):
        run(people, 'insert Note { text: "x" } insert Note { text: "x", stars: 3 }')
    actual = rows(people, "Note", "id", "text", "stars")
    assert len({row_id for row_id, _, _ in actual}) == 4
    assert sorted(stars or 0 for _, _, stars in actual) == [0, 0, 3, 3]


def test_an_insert_of_a_known_key_replaces_the_whole_row(people):
    """One row, and what is not given is null."""
    receipt = run(people, 'insert Person { name: "Ada", age: 37 }')
    assert receipt.affected_nodes == 1
    assert receipt.tables["node:Person"].updated == 1
    assert values(people, "Ada", "age", "email", "score", "status") == (37, None, None, None)
    assert len(names(people)) == 4


def test_new_and_known_keys_may_be_inserted_together(people):
    receipt = run(people, 'insert Person { name: "Ada" } insert Person { name: "Eve" }')
    counts = receipt.tables["node:Person"]
    assert (counts.inserted, counts.updated) == (1, 1)
    assert names(people) == ["Ada", "Bob", "Cyd", "Dan", "Eve"]


def test_the_last_insert_of_a_key_wins(people):
    """Last write wins by id, within one query."""
    receipt = run(
        people,
        """insert Person { name: "Eve", age: 1 } insert Person { name: "Fay", age: 2 }
           insert Person { name: "Eve", email: "eve@x" }""",
    )
    assert receipt.affected_nodes == 3
    assert receipt.tables["node:Person"].inserted == 2
    assert values(people, "Eve", "age", "email") == (None, "eve@x")


KEYS = {
    "a whole float into an integer": ("I64", "F64", 5.0, "5"),
    "an integer": ("I64", "I64", 5, "5"),
    "a single": ("F32", "F64", 0.1, "0.10000000149011612"),
    "a double": ("F64", "F64", 0.1, "0.1"),
    "a moment": ("DateTime", "DateTime", "2024-05-01T10:00:00.123000Z", "2024-05-01T10:00:00.123Z"),
    "a day": ("Date", "Date", "2024-05-01", "2024-05-01"),
    "a truth": ("Bool", "Bool", True, "true"),
}


@pytest.mark.parametrize(("stored", "given", "value", "row_id"), KEYS.values(), ids=list(KEYS))
def test_the_id_is_spelled_from_the_stored_key(tmp_path, stored, given, value, row_id):
    """Whatever type the value was given in, and as a load spells it."""
    schema = f"node Thing {{ k: {stored} @key  n: I32? }}"
    with Graph.init(tmp_path / "g.omni", schema, durability="os") as graph:
        run(graph, "insert Thing { k: $k, n: 1 }", {"k": value}, declare=f"$k: {given}")
        assert rows(graph, "Thing", "id") == [row_id]
        graph.load([{"type": "Thing", "data": {"k": value, "n": 2}}])
        run(graph, "insert Thing { k: $k, n: 3 }", {"k": value}, declare=f"$k: {given}")
        assert rows(graph, "Thing", "id", "n") == [(row_id, 3)]


def test_a_composite_key_replaces_by_the_whole_tuple(tmp_path):
    schema = "node Pair { a: String  b: I32  n: I32?  @key(a, b) }"
    with Graph.init(tmp_path / "g.omni", schema, durability="os") as graph:
        for a, b, n in (("x", 1, 1), ("x", 2, 2), ("x,1", 1, 3), ("x", 1, 4)):
            given = {"a": a, "b": b, "n": n}
            run(
                graph,
                "insert Pair { a: $a, b: $b, n: $n }",
                given,
                declare="$a: String, $b: I32, $n: I32",
            )
        assert rows(graph, "Pair", "a", "b", "n") == [("x", 1, 4), ("x", 2, 2), ("x,1", 1, 3)]


# -- updating ---------------------------------------------------------------------------------


def test_an_update_changes_what_it_names_and_nothing_else(people):
    """Also by properties in camel case."""
    before = rows(people, "Person", "name", "email", "status", "score", "nickNames")
    receipt = run(people, 'update Person set { age: 21 } where nickNames contains "bobby"')
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 0)
    assert receipt.tables["node:Person"].updated == 1
    assert rows(people, "Person", "name", "age") == [
        ("Ada", 36),
        ("Bob", 21),
        ("Cyd", None),
        ("Dan", 50),
    ]
    assert rows(people, "Person", "name", "email", "status", "score", "nickNames") == before


def test_values_of_every_kind_can_be_set_and_taken_away(people):
    statement = """update Person set { age: $a, nickNames: $n, joined: $j, score: $s, status: $t }
                   where name = "Ada" """
    types = "$a: I32?, $n: [String]?, $j: DateTime?, $s: F64?, $t: String?"
    given = {"a": 1, "n": ["x", ""], "j": "2024-05-01T10:00:00.123Z", "s": 2, "t": "away"}
    run(people, statement, given, declare=types)
    assert values(people, "Ada", "age", "nickNames", "score", "status") == (1, ["x", ""], 2, "away")
    run(people, 'update Person set { age: 2 } where joined = datetime("2024-05-01T10:00:00.123Z")')
    assert values(people, "Ada", "age") == 2
    run(people, statement, {}, declare=types)
    assert values(people, "Ada", "age", "nickNames", "joined", "score") == (None, None, None, None)


def test_two_updates_of_one_row_one_after_the_other(people):
    for age in (40, 41):
        run(people, f'update Person set {{ age: {age} }} where name = "Ada"')
    assert values(people, "Ada", "age") == 41


def test_edges_are_updated_by_their_properties_and_ends(people):
    """Beyond the reference: edges can be updated."""
    receipt = run(people, 'update Knows set { strength: 1.0 } where from = "Ada" or to = "Ada"')
    assert (receipt.affected_nodes, receipt.affected_edges) == (0, 2)
    assert rows(people, "Knows", "src", "dst", "strength") == [
        ("Ada", "Bob", 1.0),
        ("Bob", "Cyd", 0.9),
        ("Cyd", "Ada", 1.0),
        ("Dan", "Dan", 0.1),
    ]
    run(people, 'update Knows set { since: date("2024-01-01") } where strength >= 1.0')
    assert [since for _, since in rows(people, "Knows", "src", "since")] == [
        dt.date(2024, 1, 1),
        None,
        dt.date(2024, 1, 1),
        None,
    ]


REFUSED = {
    "the key": ('update Person set { name: "X" } where name = "Ada"', "T33"),
    "an end of an edge": ('update Knows set { to: "Bob" } where from = "Ada"', "T16"),
    "an insert without its key": ("insert Person { age: 1 }", "T12"),
    "an insert without a required property": ("insert Note { stars: 1 }", "T12"),
    "an edge without an end": ('insert Knows { from: "Ada" }', "T12"),
    "an unknown type": ('insert Persn { name: "x" }', "T10"),
    "an unknown property": ('update Person set { agee: 1 } where name = "Ada"', "T11"),
    "a Blob in a condition": ('delete Doc where body = "x"', "T11"),
    "a bad second statement": ('insert Note { text: "x" } insert Note { text: 1 }', "T3"),
}


@pytest.mark.parametrize(("statements", "code"), REFUSED.values(), ids=list(REFUSED))
def test_what_can_never_be_run_is_refused_before_anything_is_read(people, statements, code):
    """Also on a branch that does not exist, since nobody looks for it."""
    with pytest.raises(QueryError) as caught:
        run(people, statements, branch="nowhere")
    assert code in [diagnostic.code for diagnostic in caught.value.diagnostics]


# -- deleting ---------------------------------------------------------------------------------


def test_deleting_a_node_deletes_its_edges_of_every_type(people):
    """As source, as target, and of types that join a type with itself."""
    receipt = run(people, 'delete Person where name = "Ada"')
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 5)
    assert names(people) == ["Bob", "Cyd", "Dan"]
    assert ends(people, "Knows") == [("Bob", "Cyd"), ("Dan", "Dan")]
    assert ends(people, "WorksAt") == [("Bob", "Acme")]
    assert ends(people, "Likes") == []
    assert ends(people, "Owns") == [("Brim", "Dan")]
    assert receipt.tables["edge:Knows"].deleted == 2


def test_an_edge_from_a_node_to_itself_is_one_edge(people):
    receipt = run(people, 'delete Person where name = "Dan"')
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 2)
    assert ("Dan", "Dan") not in ends(people, "Knows")


def test_deleting_all_nodes_leaves_no_edge(people):
    receipt = run(people, 'delete Person where name != ""')
    assert (receipt.affected_nodes, receipt.affected_edges) == (4, 9)
    for edge in ("Knows", "WorksAt", "Likes", "Owns"):
        assert ends(people, edge) == []
    assert rows(people, "Company", "name") == ["Acme", "Brim"]


def test_deleting_edges_leaves_the_nodes(people):
    receipt = run(people, 'delete Knows where from = "Ada" or strength > 0.8')
    assert (receipt.affected_nodes, receipt.affected_edges) == (0, 2)
    assert ends(people, "Knows") == [("Cyd", "Ada"), ("Dan", "Dan")]
    assert len(names(people)) == 4


def test_overlapping_deletes_count_each_row_once(people):
    """Of nodes and of edges; a null in one condition does not hide a row from another."""
    receipt = run(
        people,
        """delete Person where age > 30 delete Person where name = "Ada" or name = "Cyd"
           delete Person where score < 1.0""",
    )
    assert (receipt.affected_nodes, receipt.affected_edges) == (3, 8)
    assert names(people) == ["Bob"]
    assert ends(people, "Knows") == []


def test_a_cascade_and_a_delete_of_the_same_edges_are_one_commit(people):
    before = len(people.commits())
    receipt = run(
        people,
        """delete Person where name = "Ada" delete Knows where from = "Ada" or from = "Bob"
           delete Knows where strength = 0.9""",
    )
    assert (receipt.affected_nodes, receipt.affected_edges) == (1, 6)
    assert ends(people, "Knows") == [("Dan", "Dan")]
    assert len(people.commits()) == before + 1


def test_a_delete_without_edges_moves_no_edge_table(people):
    run(people, 'insert Person { name: "Eve" }')
    before = versions(people)
    run(people, 'delete Person where name = "Eve"')
    assert versions(people) == {**before, "node:Person": before["node:Person"] + 1}


# -- statements together ----------------------------------------------------------------------


def test_an_update_sees_what_was_inserted_before_it(people):
    """It counts twice, and the value of the update stays."""
    receipt = run(
        people,
        """insert Person { name: "Eve", age: 1, email: "eve@x" }
           update Person set { age: 2 } where name = "Eve" """,
    )
    assert receipt.affected_nodes == 2
    assert receipt.tables["node:Person"].affected == 1
    assert values(people, "Eve", "age", "email") == (2, "eve@x")


def test_an_insert_after_an_update_of_the_same_row_wins(people):
    receipt = run(
        people,
        'update Person set { age: 1 } where name = "Ada" insert Person { name: "Ada", age: 2 }',
    )
    assert receipt.affected_nodes == 2
    assert values(people, "Ada", "age", "email") == (2, None)
    assert len(names(people)) == 4


def test_chained_updates_see_the_values_before_them(people):
    """Also where the first one took the row out of the second one's sight."""
    receipt = run(
        people,
        """update Person set { age: 60 } where name = "Ada"
           update Person set { status: "away" } where age > 55
           update Person set { score: 9.0 } where age = 36
           update Person set { email: "a@x" } where status = "away" and age > 55
           update Person set { nickNames: ["a"] } where email = "a@x" """,
    )
    assert receipt.affected_nodes == 4
    assert values(people, "Ada", "age", "status", "score", "email", "nickNames") == (
        60,
        "away",
        1.5,
        "a@x",
        ["a"],
    )
    assert receipt.tables["node:Person"].updated == 1


def test_an_update_of_many_meets_rows_that_are_there_and_pending_ones(people):
    receipt = run(
        people,
        """insert Person { name: "Eve", age: 1 }
           update Person set { status: "away" } where age < 40""",
    )
    assert receipt.affected_nodes == 4
    assert [n for n, s in rows(people, "Person", "name", "status") if s == "away"] == [
        "Ada",
        "Bob",
        "Eve",
    ]


def test_edges_that_were_inserted_are_updated_in_the_same_query(people):
    receipt = run(
        people,
        """insert Knows { from: "Ada", to: "Dan" }
           update Knows set { strength: 0.3 } where strength is null""",
    )
    assert receipt.affected_edges == 3
    assert (receipt.tables["edge:Knows"].inserted, receipt.tables["edge:Knows"].updated) == (1, 1)
    assert ("Ada", "Dan", 0.3) in rows(people, "Knows", "src", "dst", "strength")


def test_rows_without_a_key_are_updated_in_the_query_that_made_them(people):
    run(people, 'insert Note { text: "a" }')
    receipt = run(
        people, 'insert Note { text: "b" } update Note set { stars: 5 } where stars is null'
    )
    assert receipt.affected_nodes == 3
    assert rows(people, "Note", "text", "stars") == [("a", 5), ("b", 5)]


def test_several_statements_are_one_commit_and_one_version(people):
    before, commits = people.snapshot().version, len(people.commits())
    run(
        people,
        """insert Person { name: "Eve" } insert Company { name: "Cog" }
           insert Knows { from: "Eve", to: "Ada" } insert Knows { from: "Ada", to: "Eve" }
           insert WorksAt { from: "Eve", to: "Cog" }
           update Person set { age: 3 } where age is null""",
    )
    assert people.snapshot().version == before + 1
    assert len(people.commits()) == commits + 1


MIXED = (
    'insert Note { text: "x" } delete Note where text = "y"',
    'delete Person where name = "Ada" update Person set { age: 1 } where name = "Bob"',
    'insert Knows { from: "a", to: "b" } delete Company where name = "Acme"',
)


@pytest.mark.parametrize("statements", MIXED)
def test_inserts_and_deletes_do_not_mix(people, statements):
    """Refused before any look at the graph, with advice."""
    before = files(people)
    with pytest.raises(PlanError) as caught:
        run(people, statements, branch="nowhere")
    assert "mixes inserts/updates and deletes" in caught.value.render()
    assert "split into separate mutations" in caught.value.render()
    assert files(people) == before


def test_now_is_one_moment_for_the_whole_query(people):
    run(
        people,
        """insert Person { name: "Eve", joined: now() } insert Person { name: "Fay", joined: now() }
           update Person set { joined: now() } where name = "Ada"
           update Person set { age: 7 } where joined = now()""",
    )
    assert [n for n, age in rows(people, "Person", "name", "age") if age == 7] == [
        "Ada",
        "Eve",
        "Fay",
    ]
    run(people, "update Person set { age: 8 } where joined <= now()")
    assert [age for _, age in rows(people, "Person", "name", "age")].count(8) == 3


# -- nothing to do ----------------------------------------------------------------------------

NOTHING = (
    'update Person set { age: 1 } where name = "Zoe"',
    'delete Person where name = "Zoe"',
    'delete Knows where from = "Zoe"',
    'delete Note where text = "x"',
    'update Note set { stars: 1 } where text = "x"',
    'update Doc set { title: "x" } where slug = "x"',
    "delete Person where age > 1000 delete Company where name in []",
)


@pytest.mark.parametrize("statements", NOTHING)
def test_what_matches_nothing_makes_no_commit(people, statements):
    """No version, no file."""
    before = files(people), people.snapshot().version
    receipt = run(people, statements)
    assert (receipt.commit_id, receipt.affected_nodes, receipt.affected_edges) == (None, 0, 0)
    assert (receipt.version, receipt.branch, dict(receipt.tables)) == (before[1], "main", {})
    assert (files(people), people.snapshot().version) == before


def test_a_zero_match_beside_a_match_is_no_obstacle(people):
    receipt = run(people, 'delete Person where name = "Zoe" delete Likes where from = "Ada"')
    assert (receipt.affected_nodes, receipt.affected_edges) == (0, 1)
    assert set(receipt.tables) == {"edge:Likes"}


# -- rules ------------------------------------------------------------------------------------

VIOLATIONS = {
    "range, insert": ('insert Person { name: "X", age: 151 }', ValueViolation),
    "range, update": ('update Person set { age: -1 } where name = "Ada"', ValueViolation),
    "check, insert": ('insert Person { name: "X", email: "none" }', ValueViolation),
    "check, update": ('update Person set { email: "none" } where name = "Ada"', ValueViolation),
    "unique, insert": ('insert Person { name: "X", email: "ada@x" }', UniqueViolation),
    "unique, update": ('update Person set { email: "ada@x" } where name = "Bob"', UniqueViolation),
    "unique, update of several": (
        'update Person set { email: "same@x" } where age > 0',
        UniqueViolation,
    ),
    "unique, two inserts": (
        'insert Person { name: "X", email: "x@x" } insert Person { name: "Y", email: "x@x" }',
        UniqueViolation,
    ),
    "no source": ('insert Knows { from: "X", to: "Ada" }', OrphanEdge),
    "no target": ('insert WorksAt { from: "Ada", to: "X" }', OrphanEdge),
    "a target of another type": ('insert WorksAt { from: "Ada", to: "Bob" }', OrphanEdge),
    "too many": (
        """insert WorksAt { from: "Ada", to: "Brim" } insert WorksAt { from: "Ada", to: "Brim" }""",
        CardinalityViolation,
    ),
}


@pytest.mark.parametrize(("statements", "error"), VIOLATIONS.values(), ids=list(VIOLATIONS))
def test_violations_are_refused_and_leave_nothing(people, statements, error):
    before = files(people)
    with pytest.raises(error):
        run(people, statements)
    assert files(people) == before
    run(people, 'insert Person { name: "Eve" }')
    assert "Eve" in names(people)


@pytest.mark.parametrize(
    "statements",
    [
        'insert Person { name: "X", status: $v }',
        'update Person set { status: $v } where name = "Ada"',
        'insert Knows { from: "Ada", to: "Ada", tone: $v }',
        'update Knows set { tone: $v } where from = "Ada"',
    ],
)
def test_enums_are_checked_on_parameters_too(people, statements):
    """On nodes and on edges."""
    with pytest.raises(ValueViolation, match="invalid enum value 'lost'"):
        run(people, statements, {"v": "lost"}, declare="$v: String")


def test_a_unique_value_is_refused_by_the_next_mutation_and_kept_by_its_own_row(people):
    run(people, 'insert Person { name: "Eve", email: "eve@x" }')
    with pytest.raises(UniqueViolation):
        run(people, 'insert Person { name: "Fay", email: "eve@x" }')
    run(people, 'insert Person { name: "Eve", email: "eve@x", age: 3 }')
    run(people, 'update Person set { email: "eve@x" } where name = "Eve"')
    assert values(people, "Eve", "email", "age") == ("eve@x", 3)


def test_a_value_that_a_query_frees_can_be_used_in_it(people):
    run(
        people,
        """update Person set { email: "new@x" } where name = "Ada"
           insert Person { name: "Eve", email: "ada@x" }""",
    )
    run(
        people,
        """insert Person { name: "Fay", email: "dan@x" }
           update Person set { email: $none } where name = "Dan" """,
        declare="$none: String?",
    )
    assert rows(people, "Person", "name", "email") == [
        ("Ada", "new@x"),
        ("Bob", None),
        ("Cyd", None),
        ("Dan", None),
        ("Eve", "ada@x"),
        ("Fay", "dan@x"),
    ]


def test_the_last_edges_below_a_minimum_stay(tmp_path):
    schema = "node A { k: String @key }\nnode B { k: String @key }\nedge Needs: A -> B @card(1..2)"
    with Graph.init(tmp_path / "g.omni", schema, durability="os") as graph:
        run(graph, 'insert A { k: "a" } insert A { k: "free" } insert B { k: "b" }')
        run(graph, 'insert Needs { from: "a", to: "b" }')
        for statement in ('delete Needs where from = "a"', 'delete B where k = "b"'):
            with pytest.raises(CardinalityViolation, match=r"'a' has 0 edges \(min 1\)"):
                run(graph, statement)
        assert ends(graph, "Needs") == [("a", "b")]
        run(graph, 'insert Needs { from: "a", to: "b" }')
        with pytest.raises(CardinalityViolation, match=r"'a' has 3 edges \(max 2\)"):
            run(graph, 'insert Needs { from: "a", to: "b" }')
        assert run(graph, 'delete A where k = "a"').affected_edges == 2
        assert ends(graph, "Needs") == []


VALUES = {
    "a fraction into an integer": ("I32", "F64", 1.5),
    "an integer that is too great": ("I32", "I64", 2**31),
    "a negative into an unsigned": ("U32", "I64", -1),
    "a float beyond the single ones": ("F32", "F64", 1e300),
    "such a float in a list": ("[F32]", "[F64]", [1.0, -1e300]),
    "an integer in a list": ("[I32]", "[I64]", [1, 2**40]),
    "a vector without direction": ("Vector(2)", "Vector(2)", [0, 0]),
    "text that is no base64": ("Blob", "String", "base64:!"),
    "a link": ("Blob", "String", "https://example.org/x"),
}


@pytest.mark.parametrize(("stored", "given", "value"), VALUES.values(), ids=list(VALUES))
def test_values_that_would_be_changed_are_refused(tmp_path, stored, given, value):
    """The error names property and value; inserts and updates alike."""
    schema = f"node T {{ k: String @key  v: {stored}? }}"
    with Graph.init(tmp_path / "g.omni", schema, durability="os") as graph:
        run(graph, 'insert T { k: "a" }')
        for statement in ('insert T { k: "b", v: $v }', 'update T set { v: $v } where k = "a"'):
            with pytest.raises(ValueConversionError) as caught:
                run(graph, statement, {"v": value}, declare=f"$v: {given}")
            assert caught.value.message.startswith("T.v: ")
            assert caught.value.details["property"] == "v"
        assert rows(graph, "T", "k") == ["a"]


@pytest.mark.parametrize(
    ("stored", "given", "value", "expected"),
    [
        ("F64", "I64", 3, 3.0),
        ("F32", "I64", 2**24, 2.0**24),
        ("I32", "F64", 3.0, 3),
        ("U64", "I64", 7, 7),
        ("Vector(2)", "Vector(2)", [1, 0], [1.0, 0.0]),
        ("[F64]", "[I64]", [1, 2], [1.0, 2.0]),
        ("[DateTime]", "[DateTime]", ["2024-05-01"], [dt.date(2024, 5, 1)]),
    ],
)
def test_values_that_fit_are_stored_in_the_type_of_the_property(
    tmp_path, stored, given, value, expected
):
    with Graph.init(
        tmp_path / "g.omni", f"node T {{ k: String @key  v: {stored}? }}", durability="os"
    ) as graph:
        run(graph, 'insert T { k: "a", v: $v }', {"v": value}, declare=f"$v: {given}")
        run(graph, 'insert T { k: "b" }')
        run(graph, 'update T set { v: $v } where k = "b"', {"v": value}, declare=f"$v: {given}")
        assert [row[1] for row in rows(graph, "T", "k", "v")] == [expected, expected]


def test_a_missing_parameter_is_an_input_error(people):
    with pytest.raises(InputError, match="'a'"):
        run(people, "delete Person where age = $a", {}, declare="$a: I32")
