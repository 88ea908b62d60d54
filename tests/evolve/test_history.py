"""Every state of a graph is read under its own schema."""

from __future__ import annotations

from datetime import UTC, datetime

import lance
import pytest

from omnigraph import Graph, cli
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.schema.files import FILES, STAGED
from omnigraph.commit.schema.staging import SchemaStaging
from omnigraph.errors import QueryError
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.spark.session.opening import opened
from tests.commit.deaths import Died
from tests.commit.world import at, foreign_upsert, raising
from tests.evolve.world import AGES, KNOWS, RENAMED, SCHEMA, changed, friends, rows, values

pytestmark = pytest.mark.rotates(2)

YEARS = changed(("age: I32?", 'years: I64? @rename_from("age")'))
DESCRIBED = changed(("node Person {", 'node Person @description("d") {'))
ACTUAL = "query q() { match { $p: Person } return { $p.age } order { $p.age } }"


def test_however_an_old_state_is_named_it_has_its_schema(graph, path):
    graph.tags.create("v1")
    before = graph.snapshot()
    moment = datetime.now(UTC)
    graph.schema.apply(YEARS)
    graph.schema.apply(RENAMED.replace("age: I32?", "years: I64?"))
    for named in (
        {"tag": "v1"},
        {"version": before.version},
        {"commit": before.commit_id},
        {"at": moment},
    ):
        assert rows(graph, ACTUAL, **named) == [(25,), (28,), (30,), (35,)]
        assert values(graph, "Person", "age", **named) == AGES
        assert graph.snapshot(**named).entity("Person", "Bob")["age"] == 25
    assert [tuple(row.values()) for row in graph.query(ACTUAL, snapshot=before)] == [
        (25,),
        (28,),
        (30,),
        (35,),
    ]
    lines = list(graph.snapshot(tag="v1").export(types=["Person"]))
    assert '"age":30' in lines[0].replace(" ", "")
    with Graph.open(path, "r") as reader:
        assert rows(reader, ACTUAL, tag="v1") == [(25,), (28,), (30,), (35,)]
        with pytest.raises(QueryError):
            reader.query(ACTUAL)


def test_each_of_several_schemas_has_its_time(graph):
    versions = [graph.snapshot().version]
    schemas = [SCHEMA]
    for number in range(3):
        more = "".join(f"  p{item}: I32?" for item in range(number + 1))
        schemas.append(changed(("age: I32?", f"age: I32?{more}")))
        graph.schema.apply(schemas[-1])
        graph.load([{"type": "Person", "data": {"name": f"n{number}", f"p{number}": number}}])
        versions.append(graph.snapshot().version)
    for number, version in enumerate(versions):
        names = graph.snapshot(version=version).read("Person").column_names
        assert names == ["id", "age", "name", *(f"p{item}" for item in range(number))]


# -- graphs that another program wrote ------------------------------------------------------------


def forget_schemas(path):
    """As the reference program would have written the manifest."""
    lance.dataset(str(path / "__manifest")).delete("object_type = 'graph_schema'")


def test_a_graph_of_another_program_remembers_from_the_first_apply_on(graph, path):
    forget_schemas(path)
    before = graph.snapshot()
    with Graph.open(path) as opened:
        opened.schema.apply(RENAMED)
        assert friends(opened, "Human") == KNOWS
        assert friends(opened, version=before.version) == KNOWS
        assert values(opened, "Person", "age", version=before.version) == AGES


def test_a_schema_that_another_program_changed_is_followed(graph, path):
    """It writes the files, and no row about them."""
    before = graph.snapshot().version
    reported = changed(("node Person {", 'node Person @description("d") {'))
    applied_elsewhere(graph, reported)
    assert graph.schema.text() == reported
    assert graph.catalog.node("Person").annotations
    assert friends(graph) == KNOWS
    graph.schema.apply(changed(("age: I32?", "age: I32?  city: String?"), schema=reported))
    assert graph.snapshot(version=before).read("Person").column_names == ["id", "age", "name"]
    assert values(graph, "Person", "city") == dict.fromkeys(AGES)


def applied_elsewhere(graph, source):
    """The files of another program's schema apply."""
    staging = SchemaStaging(graph._handle.store.objects)
    staging.stage(compile_schema(source), source)
    staging.promote()


def test_another_program_that_drops_what_was_added_here_is_followed(graph, path):
    added = SCHEMA + "node City { name: String @key }\n"
    graph.schema.apply(added)
    row = {
        "table_key": "node:City",
        "table_version": graph.snapshot().tables["node:City"]["version"],
    }
    foreign_upsert(path, {"object_id": "gone", "object_type": "table_tombstone", **row})
    applied_elsewhere(graph, SCHEMA)
    with Graph.open(path, "r") as reader:
        for item in (graph, reader):
            assert item.schema.text() == SCHEMA
            assert sorted(item.catalog.node_types) == ["Company", "Person"]


def test_another_program_that_takes_a_column_back_is_followed(graph, path):
    """The graph shows a table without the column that the newest schema row has."""
    pin = graph.snapshot().tables["node:Person"]
    graph.schema.apply(changed(("age: I32?", "age: I32?  city: String?")))
    table = lance.dataset(str(path / pin["path"]))
    table.drop_columns(["city"])
    version = {"table_key": "node:Person", "table_version": table.version, "row_count": 4}
    foreign_upsert(path, {"object_id": "new", "object_type": "table_version", **version})
    applied_elsewhere(graph, SCHEMA)
    with Graph.open(path, "r") as reader:
        for item in (graph, reader):
            assert item.schema.text() == SCHEMA
            assert values(item, "Person", "age") == AGES


def test_another_program_that_goes_back_to_earlier_rules_is_followed(graph, path):
    graph.schema.apply(DESCRIBED)
    foreign_upsert(path, {"object_id": "later", "object_type": "graph_note"})
    applied_elsewhere(graph, SCHEMA)
    with Graph.open(path, "r") as reader:
        assert reader.schema.text() == graph.schema.text() == SCHEMA
        assert not reader.catalog.node("Person").annotations


# -- between the publish and the files ------------------------------------------------------------


@pytest.mark.parametrize(
    "point", [Failpoint.STAGING_BEFORE_PROMOTE, Failpoint.STAGING_BETWEEN_RENAMES]
)
@pytest.mark.parametrize("wanted", [RENAMED, YEARS], ids=["type", "property"])
def test_a_reader_never_sees_tables_of_one_schema_under_another(graph, other, path, point, wanted):
    seen = []

    def look():
        with Graph.open(path, "r") as fresh:
            for reader in (other, fresh):
                name = "Human" if wanted is RENAMED else "Person"
                seen.append(friends(reader, name) == KNOWS)
                kind = reader.catalog.node(name)
                column = "age" if wanted is RENAMED else "years"
                seen.append(column in kind.properties)
                seen.append(values(reader, name, column) == AGES)
                reader.indexes.status()

    with at(point, look):
        graph.schema.apply(wanted)
    assert seen
    assert all(seen)


def assert_reads(reader, wanted):
    """Everything that a handle says of its schema is the schema of the newest state."""
    assert reader.schema.text() == wanted
    assert reader.catalog.schema_hash == compile_schema(wanted).schema_hash
    assert not reader.schema.plan(wanted).steps
    assert not reader.schema.apply(wanted, dry_run=True).steps
    name, column = (
        ("Human" if wanted is RENAMED else "Person"),
        "years" if wanted is YEARS else "age",
    )
    assert friends(reader, name) == KNOWS
    assert values(reader, name, column) == AGES
    exported = "\n".join(reader.snapshot().export(types=[name]))
    assert f'"{name}"' in exported
    assert f'"{column}"' in exported
    assert reader.changes.baseline().snapshot.read(name, [column]).num_rows == len(AGES)
    assert reader.changes.poll(types=[name]).changes


@pytest.mark.parametrize(
    "point",
    [
        Failpoint.PUBLISH_AFTER,
        Failpoint.STAGING_BETWEEN_RENAMES,
    ],
)
@pytest.mark.parametrize("wanted", [RENAMED, YEARS, DESCRIBED], ids=["type", "property", "rule"])
def test_after_an_apply_that_died_readers_have_its_schema(
    graph, other, path, capsys, point, wanted
):
    with Graph.open(path, "r") as earlier:
        assert earlier.schema.text() == SCHEMA
        with at(point, raising(Died())), pytest.raises(Died):
            graph.schema.apply(wanted)
        with Graph.open(path, "r") as fresh:
            for reader in (earlier, fresh, other):
                assert_reads(reader, wanted)
    assert opened(str(path)).catalog.schema_hash == compile_schema(wanted).schema_hash
    assert cli.main(["schema", "show", str(path)]) == 0
    assert capsys.readouterr().out.strip() == wanted.strip()
    with Graph.open(path) as recovered:
        assert_reads(recovered, wanted)
    assert (path / "_schema.pg").read_text() == wanted


@pytest.mark.parametrize("wanted", [RENAMED, YEARS, DESCRIBED], ids=["type", "property", "rule"])
def test_schema_files_that_were_left_behind_do_not_count(graph, other, path, wanted):
    """The staged ones went too, as after somebody removed them by hand."""
    with at(Failpoint.STAGING_BEFORE_PROMOTE, raising(Died())), pytest.raises(Died):
        graph.schema.apply(wanted)
    SchemaStaging(graph._handle.store.objects).discard()
    with Graph.open(path, "r") as reader:
        assert_reads(reader, wanted)
    assert_reads(other, wanted)


@pytest.mark.parametrize(
    "point",
    [Failpoint.SCHEMA_BEFORE_STAGING, Failpoint.SCHEMA_AFTER_STAGING, Failpoint.PUBLISH_BEFORE],
)
def test_before_the_publish_everybody_reads_the_old_schema(graph, other, path, point):
    seen = []

    def look():
        with Graph.open(path, "r") as fresh:
            for reader in (other, fresh):
                seen.append(friends(reader) == KNOWS and values(reader, "Person", "age") == AGES)

    with at(point, look):
        graph.schema.apply(RENAMED)
    assert seen
    assert all(seen)


def test_the_staged_files_are_the_ones_that_are_promoted(graph, path):
    matches = {}

    def look():
        matches.update({name: (path / STAGED[name]).read_text() for name in FILES})

    with at(Failpoint.SCHEMA_AFTER_STAGING, look):
        graph.schema.apply(YEARS)
    assert {name: (path / name).read_text() for name in FILES} == matches
    assert matches["_schema.pg"] == YEARS
