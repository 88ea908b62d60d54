"""Every state of a graph is read under its own schema."""

from __future__ import annotations

from datetime import UTC, datetime

import lance
import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.schema_files import FILES, STAGED
from omnigraph.commit.schema_staging import SchemaStaging
from omnigraph.errors import QueryError
from omnigraph.lang.schema import compile_schema
from tests.commit.world import at
from tests.evolve.world import AGES, KNOWS, RENAMED, SCHEMA, changed, friends, rows, values

YEARS = changed(("age: I32?", 'years: I64? @rename_from("age")'))
FOUND = "query q() { match { $p: Person } return { $p.age } order { $p.age } }"


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
        assert rows(graph, FOUND, **named) == [(25,), (28,), (30,), (35,)]
        assert values(graph, "Person", "age", **named) == AGES
        assert graph.entity_at("Person", "Bob", **named)["age"] == 25
    assert rows(graph, FOUND, snapshot=before) == [(25,), (28,), (30,), (35,)]
    lines = list(graph.export(tag="v1", types=["Person"]))
    assert '"age":30' in lines[0].replace(" ", "")
    with Graph.open(path, "r") as reader:
        assert rows(reader, FOUND, tag="v1") == [(25,), (28,), (30,), (35,)]
        with pytest.raises(QueryError):
            reader.query(FOUND)


def test_each_of_several_schemas_has_its_time(graph):
    versions = [graph.snapshot().version]
    schemas = [SCHEMA]
    for number in range(3):
        more = "".join(f"  p{each}: I32?" for each in range(number + 1))
        schemas.append(changed(("age: I32?", f"age: I32?{more}")))
        graph.schema.apply(schemas[-1])
        graph.load([{"type": "Person", "data": {"name": f"n{number}", f"p{number}": number}}])
        versions.append(graph.snapshot().version)
    for number, version in enumerate(versions):
        names = graph.snapshot(version=version).read("Person").column_names
        assert names == ["id", "age", "name", *(f"p{each}" for each in range(number))]


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
    told = changed(("node Person {", 'node Person @description("d") {'))
    staging = SchemaStaging(graph._store.objects)
    staging.stage(compile_schema(told), told)
    staging.promote()
    assert graph.catalog.node("Person").annotations
    assert friends(graph) == KNOWS
    graph.schema.apply(changed(("age: I32?", "age: I32?  city: String?"), schema=told))
    assert graph.snapshot(version=before).read("Person").column_names == ["id", "age", "name"]
    assert values(graph, "Person", "city") == dict.fromkeys(AGES)


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
    found = {}

    def look():
        found.update({name: (path / STAGED[name]).read_text() for name in FILES})

    with at(Failpoint.SCHEMA_AFTER_STAGING, look):
        graph.schema.apply(YEARS)
    assert {name: (path / name).read_text() for name in FILES} == found
    assert found["_schema.pg"] == YEARS
