"""Every other step: rules added and dropped, enums, nullability, numbers, interfaces."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.write_request import PreparedWrite, WriteRequest
from omnigraph.errors import (
    CardinalityViolation,
    IntegrityError,
    SchemaChangeRefused,
    UniqueViolation,
    ValueViolation,
)
from tests.evolve.world import AGES, KNOWS, changed, friends, rows, values


def refused(graph, schema, **options):
    """What an apply is refused for, told the same way by a dry run; nothing has changed."""
    before = graph.snapshot().tables, graph.snapshot().version, graph.schema.text()
    dry = graph.schema.apply(schema, dry_run=True, **options)
    with pytest.raises(SchemaChangeRefused) as error:
        graph.schema.apply(schema, **options)
    assert (graph.snapshot().tables, graph.snapshot().version, graph.schema.text()) == before
    actual = error.value.details["violations"]
    assert dry.to_json()["violations"] == actual
    return error.value, actual


# -- rules about values ---------------------------------------------------------------------------


def test_a_range_is_added_when_all_rows_keep_it(graph):
    ranged = changed(("age: I32?", "age: I32?  @range(age, 0..35)"))
    graph.schema.apply(ranged)
    with pytest.raises(ValueViolation):
        graph.mutate('query m() { insert Person { name: "Eve", age: 36 } }')
    graph.schema.apply(changed())
    graph.mutate('query m() { insert Person { name: "Eve", age: 36 } }')


def test_a_range_that_rows_break_is_refused_and_they_are_listed(graph):
    error, actual = refused(graph, changed(("age: I32?", "age: I32?  @range(age, 26..30)")))
    assert error.message == (
        "the data does not fit the new schema: "
        "@range violation on Person.age: value 25 < min 26 (2 violations)"
    )
    assert [(item["code"], item["table_key"], item["id"]) for item in actual] == [
        ("value_violation", "node:Person", "Bob"),
        ("value_violation", "node:Person", "Charlie"),
    ]


def test_only_what_is_new_is_judged(graph):
    ranged = changed(("age: I32?", "age: I32?  @range(age, 0..100)"))
    graph.schema.apply(ranged)
    # Rows of another program, which does not look.
    store = graph._handle.store
    table = store.table(store.manifest(None).current().pins["node:Person"])
    bad = pa.Table.from_pylist([{"id": "X", "name": "X", "age": 999}], schema=table.schema)
    staged = store.tables.stage_append(table, bad)
    commit_write(
        store,
        WriteRequest(
            WriterKind.LOAD,
            None,
            frozenset({"node:Person"}),
            lambda view: PreparedWrite({"node:Person": (staged,)}),
        ),
    )
    checked = ranged.replace("@range(", '@check(name, "^[A-Z]") @range(')
    assert graph.schema.apply(checked).applied


def test_a_check_is_added_or_refused(graph):
    graph.schema.apply(changed(("age: I32?", 'age: I32?  @check(name, "^[A-Z]")')))
    with pytest.raises(ValueViolation):
        graph.mutate('query m() { insert Person { name: "eve" } }')
    _, actual = refused(graph, changed(("age: I32?", 'age: I32?  @check(name, "^[ABC]")')))
    assert [item["id"] for item in actual] == ["Diana"]


def test_many_violations_are_cut_short(path):
    with Graph.init(path, "node N { name: String @key  n: I32 }", durability="os") as graph:
        numbers = list(range(250))
        graph.append({"N": pa.table({"name": [str(n) for n in numbers], "n": numbers})})
        with pytest.raises(SchemaChangeRefused) as error:
            graph.schema.apply("node N { name: String @key  n: I32  @range(n, ..9) }")
        assert (len(error.value.details["violations"]), error.value.details["more"]) == (100, True)
        assert "(100 or more violations)" in error.value.message


# -- rules about sets -----------------------------------------------------------------------------


def test_a_unique_rule_is_added_when_no_two_rows_share_a_value(graph):
    graph.schema.apply(changed(("age: I32?", "age: I32? @unique")))
    with pytest.raises(UniqueViolation):
        graph.mutate('query m() { insert Person { name: "Eve", age: 30 } }')
    graph.schema.apply(changed())
    graph.mutate('query m() { insert Person { name: "Eve", age: 30 } }')
    error, actual = refused(graph, changed(("age: I32?", "age: I32? @unique")))
    assert error.message.startswith(
        "the data does not fit the new schema: @unique violation on Person.age: value '30'"
    )
    assert [item["code"] for item in actual] == ["unique_violation"]


def test_the_ends_of_edges_can_become_unique(graph):
    pairs = changed(("{ since: Date? }", "{ since: Date?  @unique(src, dst) }"))
    graph.schema.apply(pairs)
    with pytest.raises(UniqueViolation):
        graph.load([{"edge": "Knows", "from": "Alice", "to": "Bob"}])


def test_cardinality_is_tightened_when_the_edges_keep_it(graph):
    one = changed(("Person -> Company", "Person -> Company @card(0..1)"))
    graph.schema.apply(one)
    with pytest.raises(CardinalityViolation):
        graph.load([{"edge": "WorksAt", "from": "Alice", "to": "Globex"}])
    _, actual = refused(graph, one.replace("Person -> Person", "Person -> Person @card(0..1)"))
    assert [(item["code"], item["source"], item["count"]) for item in actual] == [
        ("cardinality_violation", "Alice", 2)
    ]
    graph.schema.apply(changed())
    graph.load([{"edge": "WorksAt", "from": "Alice", "to": "Globex"}])


def test_a_key_is_added_when_the_ids_are_those_of_the_key(path):
    with Graph.init(path, "node N { name: String } edge E: N -> N", durability="os") as graph:
        graph.load(
            [{"type": "N", "data": {"id": name, "name": name}} for name in ("a", "b")]
            + [{"edge": "E", "from": "a", "to": "b"}]
        )
        keyed = "node N { name: String @key } edge E: N -> N"
        graph.schema.apply(keyed)
        graph.load([{"type": "N", "data": {"name": "b"}}, {"type": "N", "data": {"name": "c"}}])
        assert graph.snapshot().count("N") == 3
        graph.schema.apply("node N { name: String } edge E: N -> N")
        graph.mutate('query m() { insert N { name: "d" } }')
        _, actual = refused(graph, keyed)
        assert [item["value"] for item in actual] == ["d"]


COMPOSITE = "node C { a: I32  b: String  n: I32?  @key(a, b) } edge E: C -> C"


def composite(path):
    graph = Graph.init(path, COMPOSITE, durability="os")
    rows = [{"type": "C", "data": {"a": a, "b": b}} for a, b in ((1, "x"), (2, "y"))]
    graph.load([*rows, {"edge": "E", "from": '["1","x"]', "to": '["2","y"]'}])
    return graph


def test_a_part_of_a_key_is_renamed_when_the_ids_stay_those_of_the_key(path):
    with composite(path) as graph:
        kept = COMPOSITE.replace("a: I32", 'aa: I64 @rename_from("a")').replace("(a,", "(aa,")
        graph.schema.apply(kept)
        graph.load([{"type": "C", "data": {"aa": 1, "b": "x", "n": 7}}])
        assert values(graph, "C", "n") == {'["1","x"]': 7, '["2","y"]': None}
        query = "query q() { match { $a: C $a e $b } return { $a.aa, $b.b } }"
        assert rows(graph, query) == [(1, "y")]


def test_a_rename_that_would_spell_the_ids_of_a_composite_key_anew_is_refused(path):
    """The parts of an id are in the order of their names, and edges name rows by their ids."""
    moved = COMPOSITE.replace("a: I32", 'z: I32 @rename_from("a")').replace("(a,", "(z,")
    with composite(path) as graph:
        error, actual = refused(graph, moved)
        assert error.message.startswith("the data does not fit the new schema: @key(b, z) on C")
        assert [(item["id"], item["value"]) for item in actual] == [
            ('["1","x"]', '["x","1"]'),
            ('["2","y"]', '["y","2"]'),
        ]
        graph.mutate("query m() { delete C where a > 0 }")
        graph.schema.apply(moved)
        graph.load([{"type": "C", "data": {"z": 1, "b": "x"}}])
        assert list(values(graph, "C", "z")) == ['["x","1"]']


# -- enums ----------------------------------------------------------------------------------------


@pytest.fixture
def tickets(path):
    with Graph.init(
        path, "node T { name: String @key  state: enum(open, closed) }", durability="os"
    ) as graph:
        graph.load(
            [
                {"type": "T", "data": {"name": "a", "state": "open"}},
                {"type": "T", "data": {"name": "b", "state": "closed"}},
            ]
        )
        yield graph


def test_an_enum_grows_without_moving_a_table(tickets):
    tables = tickets.snapshot().tables
    tickets.schema.apply("node T { name: String @key  state: enum(open, closed, blocked) }")
    assert tickets.snapshot().tables == tables
    tickets.mutate('query m() { insert T { name: "c", state: "blocked" } }')
    assert values(tickets, "T", "state") == {"a": "open", "b": "closed", "c": "blocked"}


def test_an_enum_shrinks_when_no_row_holds_what_goes(tickets):
    fewer = "node T { name: String @key  state: enum(open) }"
    _, actual = refused(tickets, fewer)
    assert [(item["id"], item["value"]) for item in actual] == [("b", "closed")]
    tickets.mutate('query m() { delete T where name = "b" }')
    tickets.schema.apply(fewer)
    with pytest.raises(IntegrityError):
        tickets.load([{"type": "T", "data": {"name": "c", "state": "closed"}}])


# -- nullability ----------------------------------------------------------------------------------


REQUIRED = changed(("age: I32?", "age: I32"))


def test_a_property_becomes_required_when_no_row_lacks_it(graph):
    graph.schema.apply(REQUIRED)
    assert values(graph, "Person", "age") == AGES
    with pytest.raises(Exception, match="age"):
        graph.load([{"type": "Person", "data": {"name": "Eve"}}])
    graph.schema.apply(changed())
    graph.load([{"type": "Person", "data": {"name": "Eve"}}])
    assert values(graph, "Person", "age") == {**AGES, "Eve": None}


def test_a_property_that_some_row_lacks_needs_a_value_to_become_required(graph):
    graph.load([{"type": "Person", "data": {"name": "Eve"}}])
    before = graph.snapshot()
    error, actual = refused(graph, REQUIRED)
    assert error.message == (
        "[OG-MF-104] the data does not fit the new schema: Person.age of 'Eve' has no value"
    )
    assert error.hint == "give a value for 'Person.age'"
    assert [item["id"] for item in actual] == ["Eve"]
    graph.schema.apply(REQUIRED, values={"Person.age": 0})
    assert values(graph, "Person", "age") == {**AGES, "Eve": 0}
    assert values(graph, "Person", "age", version=before.version)["Eve"] is None
    assert friends(graph) == KNOWS


def test_a_required_property_is_added_with_a_value(graph):
    more = changed(
        ("age: I32?", "age: I32?  tags: [String]  vec: Vector(2)  kind: enum(a, b)  day: Date")
    )
    given = {
        "Person.tags": ["x", "y"],
        "Person.vec": [1.0, 0.0],
        "Person.kind": "b",
        "Person.day": "2024-05-01",
    }
    with pytest.raises(SchemaChangeRefused, match="OG-MF-103"):
        graph.schema.apply(more, values={"Person.kind": "b"})
    graph.schema.apply(more, values=given)
    for row in graph.snapshot().read("Person").to_pylist():
        assert (row["tags"], row["vec"], row["kind"]) == (["x", "y"], [1.0, 0.0], "b")
        assert str(row["day"]) == "2024-05-01"
    assert values(graph, "Person", "age") == AGES


def test_a_value_given_must_keep_the_rules_too(graph):
    graph.load([{"type": "Person", "data": {"name": name}} for name in ("Eve", "Fred")])
    ranged = changed(("age: I32?", "age: I32  @range(age, 1..)"))
    _, actual = refused(graph, ranged, values={"Person.age": 0})
    assert [item["id"] for item in actual] == ["Eve", "Fred"]
    unique = changed(("age: I32?", "age: I32?  code: String @unique"))
    _, actual = refused(graph, unique, values={"Person.code": "same"})
    assert len(actual) == 5
    enums = changed(("age: I32?", "age: I32?  kind: enum(a, b)"))
    _, actual = refused(graph, enums, values={"Person.kind": "c"})
    assert len(actual) == 6


def test_an_optional_property_can_begin_with_a_value(graph):
    graph.schema.apply(changed(("age: I32?", "age: I32?  n: I64?")), values={"Person.n": 2**40})
    assert set(values(graph, "Person", "n").values()) == {2**40}


def test_on_an_empty_type_a_required_property_still_needs_a_value(path):
    with Graph.init(path, "node N { name: String @key }", durability="os") as graph:
        wider = "node N { name: String @key  n: I32 }"
        with pytest.raises(SchemaChangeRefused, match="OG-MF-103"):
            graph.schema.apply(wider)
        graph.schema.apply(wider, values={"N.n": 1})
        graph.load([{"type": "N", "data": {"name": "a", "n": 5}}])
        assert values(graph, "N", "n") == {"a": 5}


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        ("age: I32  city: String?", {}),
        ("age: I32  city: String", {"Person.city": "Rome"}),
        ("age: I32  born: Date? @index", {}),
    ],
)
def test_nullability_changes_together_with_other_columns(graph, wanted, given):
    tables, before = graph.snapshot().tables, graph.snapshot()
    both = changed(("age: I32?", wanted))
    graph.schema.apply(both, values=given)
    assert values(graph, "Person", "age") == AGES
    assert graph.snapshot().tables["node:Person"]["version"] == (
        tables["node:Person"]["version"] + 2
    )
    # And back.
    graph.schema.apply(changed(("age: I32?", f"{wanted.replace('I32', 'I32?', 1)}  x: I64?")))
    graph.load([{"type": "Person", "data": {"name": "Eve", **_only_required(wanted)}}])
    assert values(graph, "Person", "age") == {**AGES, "Eve": None}
    assert values(graph, "Person", "age", version=before.version) == AGES


def _only_required(wanted):
    return {"city": "Rome"} if wanted.endswith("String") else {}


def test_a_value_for_a_required_text_is_there_for_deleted_rows_too(path):
    """Beside a Blob an update reads whole fragments, deleted rows and all."""
    first = "node N { name: String @key  n: I32  file: Blob? }"
    with Graph.init(path, first, durability="os") as graph:
        graph.load([{"type": "N", "data": {"name": name, "n": n}} for n, name in enumerate("abc")])
        graph.indexes.ensure()
        graph.mutate("query m() { delete N where n = 2 }")
        more = first.replace("n: I32", "n: I32  text: String  tags: [String]")
        graph.schema.apply(more, values={"N.text": "t", "N.tags": ["x"]})
        graph.mutate("query m() { update N set { n: 9 } where n = 0 }")
        assert values(graph, "N", "n") == {"a": 9, "b": 1}
        assert values(graph, "N", "text") == {"a": "t", "b": "t"}


# -- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("I32", "I64", -(2**31)),
        ("I32", "F64", 2**31 - 1),
        ("U32", "U64", 2**32 - 1),
        ("U32", "I64", 2**32 - 1),
        ("U32", "F64", 2**32 - 1),
        ("F32", "F64", 0.10000000149011612),
    ],
)
def test_numbers_are_widened_exactly(path, old, new, value):
    def schema(number):
        return (
            f"node N {{ name: String @key  n: {number}  o: {number}?  l: [{number}]? }} "
            f"edge E: N -> N {{ w: {number}? }}"
        )

    with Graph.init(path, schema(old), durability="os") as graph:
        graph.load(
            [
                {"type": "N", "data": {"name": "a", "n": value, "l": [value, 1]}},
                {"edge": "E", "from": "a", "to": "a", "data": {"w": value}},
            ]
        )
        before = graph.snapshot().version
        graph.schema.apply(schema(new))
        (row,) = graph.snapshot().read("N").to_pylist()
        assert (row["n"], row["o"], row["l"]) == (value, None, [value, 1])
        assert list(values(graph, "E", "w").values()) == [value]
        assert rows(graph, "query q() { match { $n: N } return { $n.n } }") == [(value,)]
        assert values(graph, "N", "n", version=before) == {"a": value}
        graph.load([{"type": "N", "data": {"name": "b", "n": 7}}])
        assert values(graph, "N", "n") == {"a": value, "b": 7}


def test_a_bound_that_only_the_narrow_type_kept_is_told(path):
    """The number nearest to 0.1 that an F32 can be is a little greater."""
    ranged = "node N {{ name: String @key  n: {0}  @range(n, 0.0..0.1) }}"
    with Graph.init(path, ranged.format("F32"), durability="os") as graph:
        graph.load([{"type": "N", "data": {"name": "a", "n": 0.1}}])
        _, actual = refused(graph, ranged.format("F64"))
        assert [item["id"] for item in actual] == ["a"]


def test_a_whole_number_key_is_widened_and_keeps_its_ids(path):
    with Graph.init(path, "node N { n: I32 @key } edge E: N -> N", durability="os") as graph:
        graph.append({"N": pa.table({"n": pa.array([1, 2], pa.int32())})})
        graph.load([{"edge": "E", "from": "1", "to": "2"}])
        graph.schema.apply("node N { n: I64 @key } edge E: N -> N")
        graph.append({"N": pa.table({"n": pa.array([2**40], pa.int64())})})
        query = "query q() { match { $a: N $a e $b } return { $a.n, $b.n } }"
        assert rows(graph, query) == [(1, 2)]


# -- metadata and interfaces ----------------------------------------------------------------------


def test_descriptions_move_no_table(graph):
    tables = graph.snapshot().tables
    reported = changed(
        ("node Person {", 'node Person @description("somebody") {'),
        ("age: I32?", 'age: I32? @description("in years")'),
    )
    done = graph.schema.apply(reported)
    assert [step.kind for step in done.steps] == [
        "update_type_metadata",
        "update_property_metadata",
    ]
    assert graph.snapshot().tables == tables
    annotation = graph.catalog.node("Person").annotations[0]
    assert (annotation.name, annotation.value) == ("description", "somebody")


def test_interfaces_follow_their_nodes(path):
    first = "interface Named { name: String @key } node A implements Named { }"
    with Graph.init(path, first, durability="os") as graph:
        graph.load([{"type": "A", "data": {"name": "a"}}])
        tables = graph.snapshot().tables
        graph.schema.apply(f"interface Sized {{ size: I32? }} {first}")
        assert graph.snapshot().tables == tables
        second = (
            "interface Sized { size: I32? } interface Named { title: String @key "
            '@rename_from("name")  note: String? } node A implements Named { }'
        )
        done = graph.schema.apply(second)
        assert {step.kind for step in done.steps} == {"rename_property", "add_property"}
        assert graph.snapshot().read("A").to_pylist() == [{"id": "a", "note": None, "title": "a"}]
        graph.load([{"type": "A", "data": {"title": "b", "note": "n"}}])
        assert values(graph, "A", "note") == {"a": None, "b": "n"}


def test_many_changes_at_once_are_one_commit(graph):
    before = graph.commits()
    done = graph.schema.apply(
        """
        node Human @rename_from("Person") {
          name: String @key
          years: I64? @rename_from("age")
          email: String? @unique
          @range(years, 0..)
        }
        node City { name: String @key }
        edge Knows: Human -> Human @card(0..2)
        edge LivesIn: Human -> City
        """
    )
    assert len(done.steps) == 12
    assert len(graph.commits()) == len(before) + 1
    assert sorted(graph.snapshot().tables) == [
        "edge:Knows",
        "edge:LivesIn",
        "node:City",
        "node:Human",
    ]
    assert values(graph, "Human", "years") == AGES
    graph.load(
        [
            {"type": "City", "data": {"name": "Rome"}},
            {"edge": "LivesIn", "from": "Bob", "to": "Rome"},
        ]
    )
    query = "query q() { match { $h: Human $h livesIn $c $h knows $k } return { $k.name } }"
    assert rows(graph, query) == [("Diana",)]


# -- blobs ----------------------------------------------------------------------------------------


def test_blobs_are_added_renamed_and_survive_a_hard_drop(path):
    with Graph.init(path, "node D { name: String @key  x: I32? }", durability="os") as graph:
        graph.load([{"type": "D", "data": {"name": "a", "x": 1}}])
        graph.schema.apply("node D { name: String @key  x: I32?  file: Blob? }")
        assert graph.snapshot().read_blob("D", "a", "file") is None
        graph.load([{"type": "D", "data": {"name": "b", "file": "base64:aGVsbG8="}}])
        renamed = 'node D { name: String @key  x: I32?  data: Blob? @rename_from("file") }'
        graph.schema.apply(renamed)
        assert graph.snapshot().read_blob("D", "b", "data") == b"hello"
        graph.schema.apply(renamed.replace("  x: I32?", ""), allow_data_loss=True)
        assert graph.snapshot().read_blob("D", "b", "data") == b"hello"
        assert graph.snapshot().read_blob("D", "a", "data") is None
