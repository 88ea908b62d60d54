"""Events of the schema where they are not plain: after a crash, from another program, for blame."""

from __future__ import annotations

import json

import lance
import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.lifecycle import table_location
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.errors import SchemaChangeRefused
from omnigraph.lang.schema.compile import compile_schema
from tests.commit.deaths import Died
from tests.commit.world import at, foreign_upsert, raising
from tests.evolve.test_history import applied_elsewhere
from tests.evolve.world import AGES, RENAMED, SCHEMA, changed, fill


@pytest.fixture
def path(tmp_path):
    return tmp_path / "g.omni"


@pytest.fixture
def graph(path):
    with Graph.init(path, SCHEMA, durability="os") as graph:
        fill(graph)
        yield graph


def reported(page):
    return [[event.to_json() for event in block.schema_events] for block in page.blocks]


# -- recovery -------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [Failpoint.PUBLISH_BEFORE, Failpoint.PUBLISH_AFTER])
def test_an_apply_that_died_tells_the_same_events(graph, path, tmp_path, point):
    wanted = RENAMED.replace("age: I32?", 'years: I64 @rename_from("age")  city: String')
    values = {"Human.city": "Bern", "Human.years": 0}
    with Graph.init(tmp_path / "other.omni", SCHEMA, durability="os") as other:
        fill(other)
        other.schema.apply(wanted, values=values)
        expected = reported(other.changes.poll())[-1]
    assert {event["kind"] for event in expected} >= {"rename_type", "add_property"}
    start = graph.changes.poll(start="now").cursor
    with at(point, raising(Died())), pytest.raises(Died):
        graph.schema.apply(wanted, values=values)
    with Graph.open(path) as again:
        page = again.changes.poll(cursor=start)
        assert reported(page) == [expected]
        assert page.changes == ()


# -- another program ------------------------------------------------------------------------------


def apply_elsewhere(graph, path, wanted, old, new, columns):
    """As the reference changes a type: all rows written anew, under the path of its name."""
    catalog = compile_schema(wanted)
    kind = catalog.node_types[new]
    pin = graph.snapshot().tables[f"node:{old}"]
    rows = lance.dataset(str(path / pin["path"]), version=pin["version"]).to_table()
    rows = rows.rename_columns([columns.get(name, name) for name in rows.column_names])
    data = rows.select([n for n in kind.arrow_schema().names if n in rows.column_names])
    location = table_location(kind)
    table = lance.write_dataset(
        data, str(path / location), mode="overwrite", enable_stable_row_ids=True
    )
    if len(data.column_names) < len(kind.arrow_schema()):
        missing = [f for f in kind.arrow_schema() if f.name not in data.column_names]
        table.add_columns(missing)
    head = graph.commits()[0]
    commit = new_ulid()
    said = {"parent_commit_id": head.commit_id, "created_at": now_micros()}
    records = [
        {
            "object_id": f"node:{new}${table.version:020d}",
            "object_type": "table_version",
            "table_key": f"node:{new}",
            "table_version": table.version,
            "row_count": rows.num_rows,
        },
        {
            "object_id": commit,
            "object_type": "graph_commit",
            "table_version": graph.snapshot().version + 1,
            "metadata": json.dumps(said),
        },
        {
            "object_id": "graph_head:main",
            "object_type": "graph_head",
            "metadata": json.dumps({"head_commit_id": commit}),
        },
    ]
    if old != new:
        records += [
            {
                "object_id": f"node:{new}",
                "object_type": "table",
                "table_key": f"node:{new}",
                "location": location,
            },
            {
                "object_id": f"node:{old}$tombstone",
                "object_type": "table_tombstone",
                "table_key": f"node:{old}",
                "table_version": pin["version"] + 1,
            },
        ]
    foreign_upsert(path, *({"table_key": "", **record} for record in records))
    applied_elsewhere(graph, wanted)
    return commit


@pytest.mark.parametrize("later", [False, True], ids=["newest", "before an apply of ours"])
def test_the_events_of_another_program_are_derived_at_its_commit(graph, path, later):
    before = graph.changes.baseline()
    type_id = before.schema["types"][1]["type_id"]
    assert before.schema["types"][1]["name"] == "Person"
    wanted = RENAMED.replace("age: I32?", 'years: I32? @rename_from("age")  city: String?')
    graph.load([{"type": "Person", "data": {"name": "Eve", "age": 1}}])
    commit = apply_elsewhere(graph, path, wanted, "Person", "Human", {"age": "years"})
    with Graph.open(path) as again:
        again.load([{"type": "Human", "data": {"name": "Fay", "years": 2}}])
        if later:
            again.schema.apply(wanted.replace("city: String?", "city: String?  more: Bool?"))
            again.load([{"type": "Human", "data": {"name": "Gus", "years": 3}}])
        page = again.changes.poll(cursor=before.cursor)
        blocks = {block.commit.commit_id: block for block in page.blocks}
        events = blocks[commit].schema_events
        assert [(event.kind, event.type_id) for event in events] == [
            ("rename_type", type_id),
            ("rename_property", type_id),
            ("add_property", type_id),
        ]
        assert blocks[commit].changes == ()
        assert page.blocks[0].changes[0].type_name == "Person"
        assert [change.type_name for change in page.changes][1:] == ["Human"] * (1 + later)
        if later:
            more = [event for event in page.schema_events if event.kind == "add_property"][-1]
            # No id that was ever given out stands for something else now.
            assert more.type_id == type_id
            assert more.property_id > max(event.property_id or 0 for event in events)
        actual = before.snapshot.diff(again.snapshot())
        assert actual.schema_events[0].to_json() == events[0].to_json()
        assert {change.op for change in actual.changes} == {"insert"}


def test_a_table_that_another_program_wrote_anew_has_the_rows_it_had(graph, path):
    before = graph.changes.baseline()
    wanted = changed(("age: I32?", "age: I64?  city: String?"))
    commit = apply_elsewhere(graph, path, wanted, "Person", "Person", {})
    with Graph.open(path, "r") as again:
        (block,) = again.changes.poll(cursor=before.cursor).blocks
        assert block.commit.commit_id == commit
        assert [event.kind for event in block.schema_events] == ["add_property", "widen_property"]
        assert block.changes == ()


# -- blame ----------------------------------------------------------------------------------------


def test_an_apply_is_blamed_for_what_it_changed_and_nothing_else(graph):
    graph.load([{"type": "Person", "data": {"name": "Eve"}}], actor="eve")
    graph.schema.apply(RENAMED, actor="renames")
    graph.schema.apply(RENAMED.replace("age: I32?", "age: I64?"), actor="widens")
    assert graph.changes.blame("Human", "Eve").commit.actor == "eve"
    assert graph.changes.blame("Human", "Bob").commit.actor is None
    wanted = RENAMED.replace("age: I32?", "age: I64")
    graph.schema.apply(wanted, values={"Human.age": 5}, actor="fills")
    assert graph.changes.blame("Human", "Eve").commit.actor == "fills"
    assert graph.changes.blame("Human", "Bob").commit.actor is None
    graph.schema.apply(
        wanted.replace("age: I64", "age: I64  city: String"),
        values={"Human.city": "x"},
        actor="adds",
    )
    assert {graph.changes.blame("Human", name).commit.actor for name in AGES} == {"adds"}


# -- keys of several columns ----------------------------------------------------------------------


def test_a_rename_that_would_spell_ids_in_another_order_is_refused(tmp_path):
    with Graph.init(
        tmp_path / "seats.omni", "node S { k: String  l: String  @key(k, l) }", durability="os"
    ) as graph:
        wanted = 'node S { m: String @rename_from("k")  l: String  @key(m, l) }'
        graph.load([{"type": "S", "data": {"k": "a", "l": "b"}}])
        with pytest.raises(SchemaChangeRefused, match=r"does not match its key"):
            graph.schema.apply(wanted)
        graph.schema.apply('node S { j: String @rename_from("k")  l: String  @key(j, l) }')
        graph.load([{"type": "S", "data": {"j": "a", "l": "b"}}], mode="merge")
        assert graph.snapshot().count("S") == 1
