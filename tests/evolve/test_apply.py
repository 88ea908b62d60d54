"""Applying a schema: what it keeps, adds and refuses, and what readers see meanwhile."""

from __future__ import annotations

import pytest

from omnigraph import Graph
from omnigraph.commit.names import SCHEMA_LEASE, SCHEMA_LOCK
from omnigraph.commit.schema.lock import MARK, lock_schema
from omnigraph.errors import (
    HistoryGone,
    InputError,
    ReadOnly,
    SchemaChangeRefused,
    SchemaChanging,
    SchemaDrift,
    SchemaError,
    ValueConversionError,
)
from tests.evolve.world import (
    AGES,
    KNOWS,
    RENAMED,
    SCHEMA,
    changed,
    fill,
    friends,
    rows,
    values,
)

CITY = changed(("age: I32?", "age: I32?  city: String?"))
NO_AGE = changed(("  age: I32?", ""))
NO_COMPANY = changed(
    ("node Company { name: String @key }\n", ""), ("edge WorksAt: Person -> Company\n", "")
)


def kinds(steps):
    return [step.kind for step in steps]


def version(graph):
    return graph.snapshot().version


# -- planning and refusing ------------------------------------------------------------------------


def test_d73_an_additive_change_is_supported(graph):
    plan = graph.schema.plan(CITY)
    assert (plan.supported, kinds(plan.steps)) == (True, ["add_property"])


def test_a_plan_comes_from_a_file_too(graph, tmp_path):
    file = tmp_path / "next.pg"
    file.write_text(CITY)
    assert graph.schema.plan(file) == graph.schema.plan(CITY)
    assert graph.schema.apply(file).applied
    assert graph.schema.text() == CITY


@pytest.mark.parametrize("act", ["plan", "apply"])
def test_d74_a_schema_file_that_was_edited_refuses_everything(graph, path, act):
    (path / "_schema.pg").write_text(CITY)
    with pytest.raises(SchemaDrift):
        getattr(graph.schema, act)(CITY)


def test_d75_the_same_schema_is_not_applied(graph):
    before = version(graph)
    for text in (SCHEMA, f"// a comment\n{SCHEMA}"):
        done = graph.schema.apply(text)
        assert (done.supported, done.applied, done.steps) == (True, False, ())
        assert done.manifest_version == before
        assert done.commit_id is None
    assert version(graph) == before
    assert graph.schema.text() == SCHEMA


def test_d76_any_branch_beside_main_blocks_an_apply_and_is_named(graph):
    graph.branches.create("review/x")
    graph.branches.create("feat")
    for dry_run in (False, True):
        with pytest.raises(SchemaChangeRefused) as refused:
            graph.schema.apply(CITY, dry_run=dry_run)
        assert refused.value.message == (
            "schema apply requires a graph with only main; found non-main branches: feat, review/x"
        )
        assert "delete the branches" in refused.value.hint
        assert refused.value.details == {"branches": ["feat", "review/x"]}
    assert graph.schema.plan(CITY).supported
    graph.append({})
    for name in ("feat", "review/x"):
        graph.branches.delete(name)
    assert graph.schema.apply(CITY).applied


def test_d77_an_unsupported_plan_changes_nothing(graph, path):
    before = version(graph), sorted(path.rglob("*.staging"))
    with pytest.raises(SchemaChangeRefused) as refused:
        graph.schema.apply(changed(("age: I32?", "age: String?")))
    assert refused.value.message == (
        "[OG-MF-106] changing the type of 'Person.age' from I32? to String? is not supported"
    )
    assert [step["entity"] for step in refused.value.details["refusals"]] == ["node:Person.age"]
    assert (version(graph), sorted(path.rglob("*.staging"))) == before
    assert graph.schema.text() == SCHEMA
    graph.mutate('query m() { insert Person { name: "Eve" } }')


def test_d83_a_required_property_needs_a_value(graph):
    wanted = changed(("age: I32?", "age: I32?  size: I32"))
    with pytest.raises(SchemaChangeRefused, match="OG-MF-103") as refused:
        graph.schema.apply(wanted)
    assert "give a value" in refused.value.hint


def test_a_text_that_is_wrong_is_told_as_such(graph):
    before = version(graph)
    with pytest.raises(SchemaError):
        graph.schema.apply("node Person { name: Strng }")
    assert version(graph) == before


def test_a_reader_cannot_apply_but_can_plan(graph, path):
    with Graph.open(path, "r") as reader:
        assert reader.schema.plan(CITY).supported
        assert reader.schema.apply(CITY, dry_run=True).steps
        with pytest.raises(ReadOnly):
            reader.schema.apply(CITY)


def test_a_dry_run_changes_nothing(graph, path):
    before = version(graph), graph.schema.text()
    done = graph.schema.apply(CITY, dry_run=True)
    assert (done.applied, kinds(done.steps), done.violations) == (False, ["add_property"], ())
    assert (version(graph), graph.schema.text()) == before
    assert not (path / MARK).exists()


# -- what an apply does ---------------------------------------------------------------------------


def test_an_apply_is_one_commit_with_its_actor(graph):
    before = graph.commits()
    done = graph.schema.apply(CITY, actor="ana")
    after = graph.commits()
    assert after[1:] == before
    assert (after[0].commit_id, after[0].version, after[0].actor) == (
        done.commit_id,
        done.manifest_version,
        "ana",
    )
    assert done.to_json()["steps"] == [step.to_json() for step in done.steps]


def test_d78_a_new_property_is_null_in_the_rows_that_are_there(graph):
    graph.schema.apply(CITY)
    assert values(graph, "Person", "age") == AGES
    assert values(graph, "Person", "city") == dict.fromkeys(AGES)
    assert friends(graph) == KNOWS
    graph.load([{"type": "Person", "data": {"name": "Eve", "city": "Rome"}}])
    graph.mutate('query m() { update Person set { city: "Oslo" } where name = "Bob" }')
    query = 'query q() { match { $p: Person { city: "Oslo" } } return { $p.name, $p.age } }'
    assert rows(graph, query) == [("Bob", 25)]
    assert values(graph, "Person", "city")["Eve"] == "Rome"


def test_d79_a_renamed_property_keeps_its_values(graph):
    graph.schema.apply(changed(("age: I32?", 'years: I32? @rename_from("age")')))
    assert values(graph, "Person", "years") == AGES
    with pytest.raises(InputError):
        graph.snapshot().read("Person", ["age"])
    assert rows(graph, "query q() { match { $p: Person $p.years > 29 } return { $p.name } }") == [
        ("Alice",),
        ("Charlie",),
    ]
    graph.mutate('query m() { update Person set { years: 31 } where name = "Alice" }')
    assert values(graph, "Person", "years")["Alice"] == 31


def test_d80_a_renamed_type_keeps_its_rows_and_the_old_name_stays_in_the_past(graph):
    before = graph.snapshot()
    files = graph._handle.store.manifest(None).current().pins["node:Person"].location
    graph.schema.apply(RENAMED)
    assert "node:Person" not in graph.snapshot().tables
    assert values(graph, "Human", "age") == AGES
    assert graph._handle.store.manifest(None).current().pins["node:Human"].location == files
    assert friends(graph, "Human") == KNOWS
    with pytest.raises(InputError):
        graph.snapshot().read("Person")
    assert values(graph, "Person", "age", version=before.version) == AGES
    assert friends(graph, version=before.version) == KNOWS
    assert friends(graph, commit=before.commit_id) == KNOWS
    assert before.count("Person") == 4
    graph.load(
        [
            {"type": "Human", "data": {"name": "Eve"}},
            {"edge": "Knows", "from": "Eve", "to": "Bob"},
        ]
    )
    assert friends(graph, "Human") == [*KNOWS, ("Eve", "Bob")]
    assert friends(graph, version=before.version) == KNOWS


def test_renames_move_no_data(graph, path):
    data = {p: p.stat().st_mtime_ns for p in path.rglob("data/*.lance") if "__" not in str(p)}
    both = changed(("age: I32?", 'years: I32? @rename_from("age")'), schema=RENAMED)
    graph.schema.apply(both)
    now = {p: p.stat().st_mtime_ns for p in path.rglob("data/*.lance") if "__" not in str(p)}
    assert now == data
    assert values(graph, "Human", "years") == AGES


def test_a_renamed_edge_type_keeps_its_edges(graph):
    before = version(graph)
    knows, likes = "edge Knows: Person -> Person", "edge Likes: Person -> Person"
    graph.schema.apply(changed((knows, f'{likes} @rename_from("Knows")')))
    query = "query q() { match { $a: Person $a likes $b } return { $a.name, $b.name } }"
    assert sorted(rows(graph, query)) == KNOWS
    assert friends(graph, version=before) == KNOWS


def test_d81_a_soft_drop_keeps_the_column_in_earlier_versions(graph):
    before = graph.snapshot()
    done = graph.schema.apply(NO_AGE)
    assert [step.to_json()["mode"] for step in done.steps] == ["soft"]
    assert graph.snapshot().read("Person").column_names == ["id", "name"]
    assert graph.snapshot().count("Person") == 4
    assert friends(graph) == KNOWS
    assert values(graph, "Person", "age", commit=before.commit_id) == AGES
    old = "query q() { match { $p: Person } return { $p.age } order { $p.age } }"
    assert rows(graph, old, version=before.version) == [(25,), (28,), (30,), (35,)]


def test_d82_soft_type_drops_stay_in_earlier_versions(graph):
    before = graph.snapshot()
    tables = graph.snapshot().tables
    graph.schema.apply(NO_COMPANY)
    assert graph.snapshot().tables == {
        key: table for key, table in tables.items() if key in ("node:Person", "edge:Knows")
    }
    assert graph.snapshot(version=before.version).tables == tables
    query = "query q() { match { $p: Person $p worksAt $c } return { $p.name, $c.name } }"
    assert sorted(rows(graph, query, version=before.version)) == [
        ("Alice", "Acme"),
        ("Bob", "Globex"),
    ]


def test_d84_allowed_data_loss_makes_every_drop_hard(graph):
    wanted = NO_COMPANY.replace("  age: I32?", "")
    plan = graph.schema.plan(wanted, allow_data_loss=True)
    assert [step.to_json()["mode"] for step in plan.steps] == ["hard"] * 3


def test_d85_a_hard_property_drop_takes_the_past_with_it(graph, path):
    before = graph.snapshot()
    done = graph.schema.apply(NO_AGE, allow_data_loss=True)
    assert done.cleared == ("node:Person",)
    assert graph.snapshot().count("Person") == 4
    assert sorted(graph.snapshot().read("Person", ["name"])["name"].to_pylist()) == sorted(AGES)
    assert friends(graph) == KNOWS
    old = graph.snapshot(version=before.version)
    with pytest.raises(HistoryGone):
        old.read("Person")
    assert old.count("Company") == old.read("Company").num_rows == 2
    folder = path / graph._handle.store.manifest(None).current().pins["node:Person"].location
    assert len(list((folder / "_versions").glob("*.manifest"))) == 1


def test_d86_a_hard_type_drop_removes_entries_and_rows(graph, path):
    before = graph.snapshot()
    directory = path / graph._handle.store.manifest(None).current().pins["node:Company"].location
    done = graph.schema.apply(NO_COMPANY, allow_data_loss=True)
    assert set(done.cleared) == {"node:Company", "edge:WorksAt"}
    assert sorted(graph.snapshot().tables) == ["edge:Knows", "node:Person"]
    assert directory.is_dir()
    assert list(directory.rglob("data/*.lance")) == []
    with pytest.raises(HistoryGone):
        graph.snapshot(version=before.version).read("Company")
    assert graph.snapshot(version=before.version).read("Person").num_rows == 4


# -- indexes --------------------------------------------------------------------------------------


def pending(graph):
    return {f"{item.table_key}.{item.column}" for item in graph.indexes.status().pending}


def test_d87_an_index_beside_one_that_cannot_be_built_yet(path):
    first = "node Doc { title: String @key  vec: Vector(2)? @index }"
    with Graph.init(path, first, durability="os") as graph:
        graph.load([{"type": "Doc", "data": {"title": "a"}}])
        graph.indexes.ensure()
        assert pending(graph) == {"node:Doc.vec"}
        graph.schema.apply(
            "node Doc { title: String @key  vec: Vector(2)? @index  year: I32? @index }"
        )
        graph.load([{"type": "Doc", "data": {"title": "b", "vec": [1.0, 0.0], "year": 1}}])
        graph.indexes.ensure()
        assert pending(graph) == set()


def test_d88_an_index_declaration_moves_no_table(graph):
    tables = graph.snapshot().tables
    done = graph.schema.apply(changed(("age: I32?", "age: I32? @index")))
    assert kinds(done.steps) == ["add_constraint"]
    assert graph.snapshot().tables == tables
    assert "node:Person.age" in pending(graph)


def test_d89_declared_indexes_are_built_later_also_after_a_rename_or_a_rewrite(graph):
    indexed = changed(("age: I32?", "age: I32? @index"))
    graph.schema.apply(indexed)
    graph.indexes.ensure()
    assert pending(graph) == set()
    renamed = changed(
        ("node Person {", 'node Human @rename_from("Person") {'),
        ("Person -> Person", "Human -> Human"),
        ("Person -> Company", "Human -> Company"),
        ("age: I32? @index", 'years: I32? @rename_from("age") @index'),
        schema=indexed,
    )
    graph.schema.apply(renamed)
    assert pending(graph) == set()
    query = "query q() { match { $p: Human { years: 30 } } return { $p.name } }"
    assert rows(graph, query) == [("Alice",)]
    widened = renamed.replace("years: I32?", "years: I64?")
    graph.schema.apply(widened)
    assert pending(graph) == {"node:Human.years"}
    graph.indexes.ensure()
    assert pending(graph) == set()
    assert rows(graph, query) == [("Alice",)]


def test_an_index_never_answers_for_another_property_of_its_name(graph):
    graph.schema.apply(changed(("age: I32?", "age: I32? @index")))
    graph.indexes.ensure()
    graph.schema.apply(changed(("age: I32?", 'years: I32? @rename_from("age") @index')))
    both = changed(("age: I32?", "years: I32? @index  age: I32? @index"))
    graph.schema.apply(both)
    graph.mutate('query m() { update Person set { age: 99 } where name = "Bob" }')
    query = "query q() { match { $p: Person { age: 99 } } return { $p.name, $p.years } }"
    assert rows(graph, query) == [("Bob", 25)]
    graph.indexes.ensure()
    assert pending(graph) == set()
    assert rows(graph, query) == [("Bob", 25)]


# -- the lock -------------------------------------------------------------------------------------


def test_d90_nobody_writes_while_a_schema_is_applied(graph, other):
    with lock_schema(other._handle.store):
        for act, said in (
            (lambda: graph.mutate('query m() { insert Person { name: "Eve" } }'), "write"),
            (lambda: graph.branches.create("feat"), "write"),
        ):
            with pytest.raises(SchemaChanging) as refused:
                act()
            assert refused.value.message == (
                f"{said} is unavailable while schema apply is in progress"
            )
        assert graph.branches.list() == ["main"]
        assert friends(graph) == KNOWS
        with pytest.raises(SchemaChanging, match="schema apply is already in progress"):
            graph.schema.apply(CITY)
    assert graph.schema.apply(CITY).applied


def test_of_two_applies_one_is_told_that_the_other_is_under_way(graph, other):
    reported = pytest.raises(SchemaChanging, match="schema apply is already in progress")
    with other._handle.store.leases.acquire([SCHEMA_LEASE], timeout=0.0), reported:
        graph.schema.apply(CITY)
    assert graph.schema.apply(CITY).applied


def test_an_apply_leaves_nothing_behind(graph, path):
    graph.schema.apply(CITY)
    assert not (path / MARK).exists()
    assert not list(path.rglob(f"*{SCHEMA_LOCK}*"))
    assert list((path / "__recovery").glob("*.json")) == []
    assert list(path.glob("*.staging")) == []
    assert graph.branches.list() == ["main"]


def test_d91_schemas_are_applied_after_loads_again_and_again(graph):
    for number in range(3):
        wider = "".join(f"  p{n}: I32?" for n in range(number + 1))
        graph.schema.apply(changed(("age: I32?", f"age: I32?{wider}")))
        fill(graph)
        assert graph.snapshot().count("Person") == 4
    assert graph.branches.list() == ["main"]


def test_d92_a_stale_handle_follows(graph, other):
    graph.schema.apply(RENAMED)
    assert friends(other, "Human") == KNOWS
    other.branches.create("feat")
    other.mutate('query m() { insert Human { name: "Eve" } }', branch="feat")
    assert other.snapshot("feat").count("Human") == 5
    assert sorted(other.catalog.node_types) == ["Company", "Human"]
    assert other.schema.text() == RENAMED
    other.branches.delete("feat")
    assert other.schema.apply(
        SCHEMA.replace("node Person {", 'node Person @rename_from("Human") {')
    ).applied
    assert friends(graph) == KNOWS


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"Person.size": "tall"}, ValueConversionError),
        ({"Person.size": None}, InputError),
        ({"Person.size": 1, "Person.age": 2}, InputError),
        ({"Person.size": 1, "Nobody.x": 2}, InputError),
    ],
)
def test_a_value_must_fit_and_have_a_use(graph, values, error):
    before = version(graph)
    with pytest.raises(error):
        graph.schema.apply(changed(("age: I32?", "age: I32?  size: I32")), values=values)
    assert version(graph) == before
