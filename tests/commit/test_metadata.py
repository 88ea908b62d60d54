"""What a commit says beside its place: one form, which is documented, kept and read again."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.api.graph import Graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.metadata import CommitMetadata, Group, SchemaEvent
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.publisher import CommitIntent, Publication
from omnigraph.commit.rows import CommitRow, WriterKind, from_arrow, to_arrow
from omnigraph.commit.snapshot import ManifestState
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.commit.write_request import PreparedWrite, WriteRequest
from omnigraph.errors import StorageCorrupt
from tests.commit.deaths import Died
from tests.commit.world import SCHEMA, at, manifest_rows, people, raising

PAGE = Path(__file__).parents[2] / "docs" / "format.md"

FORMS = {
    "an ordinary write": CommitMetadata(writer="Mutation"),
    "a keyed load": CommitMetadata(
        writer="Load",
        idempotency_key="nightly-7",
        fingerprint="load:merge:2:sha256:ab",
        receipt={"branch": "main", "actor": None, "tables": {}, "met": {"node:Person": 2}},
        load={"records": 2, "ignored": {}, "rejected": 0},
        load_branch={"base_branch": None, "branch_created": False},
    ),
    "a merge": CommitMetadata(
        writer="BranchMerge", merge={"resolved": {"node:Person/Ada": "ours"}}
    ),
    "a revert": CommitMetadata(writer="Mutation", reverts="01B"),
    "a cherry-pick": CommitMetadata(writer="Mutation", picks="01B"),
    "a recovery": CommitMetadata(writer="Mutation", completes=("01A",)),
    "a recovery of a group": CommitMetadata(writer="Mutation", completes=("01A", "01B")),
    "a roll-back": CommitMetadata(rolled_back="01A"),
    "a member of a group": CommitMetadata(
        writer="Mutation",
        group=Group("01G", 1, 3, {"edge:Knows": ("e7",), "node:Person": ("Ada", "Bob")}),
    ),
    "a schema apply": CommitMetadata(
        writer="SchemaApply",
        schema_events=(
            SchemaEvent(
                {"kind": "rename_type", "type_kind": "node", "from": "Person", "to": "Human"}, 1
            ),
            SchemaEvent(
                {
                    "kind": "drop_property",
                    "type_kind": "node",
                    "type_name": "Human",
                    "property_name": "age",
                    "mode": "soft",
                },
                1,
                2,
            ),
        ),
    ),
}
GOLDEN = {
    "an ordinary write": '{"writer":"Mutation"}',
    "a keyed load": '{"writer":"Load","load":{"records":2,"ignored":{},"rejected":0},'
    '"load_branch":{"base_branch":null,"branch_created":false},"idempotency_key":"nightly-7",'
    '"fingerprint":"load:merge:2:sha256:ab","receipt":{"branch":"main","actor":null,"tables":{},'
    '"met":{"node:Person":2}}}',
    "a merge": '{"writer":"BranchMerge","merge":{"resolved":{"node:Person/Ada":"ours"}}}',
    "a revert": '{"writer":"Mutation","reverts":"01B"}',
    "a cherry-pick": '{"writer":"Mutation","picks":"01B"}',
    "a recovery": '{"writer":"Mutation","completes":"01A"}',
    "a recovery of a group": '{"writer":"Mutation","completes":["01A","01B"]}',
    "a roll-back": '{"rolled_back":"01A"}',
    "a member of a group": '{"writer":"Mutation","group":{"id":"01G","index":1,"size":3,'
    '"ids":{"edge:Knows":["e7"],"node:Person":["Ada","Bob"]}}}',
    "a schema apply": '{"writer":"SchemaApply","schema_events":[{"kind":"rename_type",'
    '"type_kind":"node","from":"Person","to":"Human","type_id":1},{"kind":"drop_property",'
    '"type_kind":"node","type_name":"Human","property_name":"age","mode":"soft","type_id":1,'
    '"property_id":2}]}',
}


@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_written_as_it_was_decided(name):
    written = FORMS[name].to_json()
    assert json.dumps(written, separators=(",", ":")) == GOLDEN[name]
    assert CommitMetadata.from_json(written) == FORMS[name]


@pytest.mark.parametrize("name", FORMS)
def test_each_form_comes_back_from_the_manifest(name):
    row = CommitRow("01C", 3, None, 5, "01A", None, "ana", FORMS[name].to_json())
    (again,) = from_arrow(to_arrow([row]))
    assert again == row
    assert CommitMetadata.of(again) == FORMS[name]


def test_the_page_about_the_format_shows_every_form():
    shown = re.findall(r"^\{.*\}$", PAGE.read_text(), re.MULTILINE)
    assert [json.loads(line) for line in shown] == [json.loads(GOLDEN[name]) for name in GOLDEN]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)


@given(st.sampled_from(sorted(FORMS)), st.dictionaries(st.text(min_size=12), _JSON, max_size=3))
def test_keys_of_a_newer_release_are_kept(name, newer):
    written = {**FORMS[name].to_json(), **newer}
    assert CommitMetadata.from_json(written).to_json() == written


def test_newer_keys_inside_a_group_or_an_event_are_kept():
    written = {
        "group": {"id": "01G", "index": 0, "size": 1, "ids": {}, "leader": "w1"},
        "schema_events": [{"kind": "merge_types", "into": 4, "type_id": 3}],
    }
    assert CommitMetadata.from_json(written).to_json() == written


@pytest.mark.parametrize(
    "broken",
    [
        {"writer": 1},
        {"receipt": []},
        {"completes": 7},
        {"completes": ["01A", None]},
        {"group": {"id": "01G", "index": 3, "size": 3, "ids": {}}},
        {"group": {"id": "01G", "index": True, "size": 3, "ids": {}}},
        {"group": {"id": "01G", "size": 3, "ids": {}}},
        {"group": {"id": "01G", "index": 0, "size": 1, "ids": {"node:A": [1]}}},
        {"schema_events": [{"kind": "add_type"}]},
        {"schema_events": [{"type_id": 1}]},
        {"schema_events": {"kind": "add_type", "type_id": 1}},
    ],
    ids=json.dumps,
)
def test_a_key_of_ours_that_says_something_else_is_damage(broken):
    with pytest.raises(StorageCorrupt, match=next(iter(broken))):
        CommitMetadata.from_json(broken)


def test_a_recovery_that_finished_several_is_found_by_each(graph):
    intent = CommitIntent(
        new_ulid(), None, now_micros(), extra=CommitMetadata(completes=("01A", "01B")).to_json()
    )
    store = graph._handle.store
    store.publisher.publish(store.manifest(None), Publication({}, commit=intent))
    for existing in (graph.commit("01A"), graph.commit("01B"), graph.commit(intent.commit_id)):
        assert (existing.commit_id, existing.completes) == (intent.commit_id, ("01A", "01B"))
        assert existing.kind == "recovery"
    state = ManifestState()
    state.add([CommitRow("01R", 2, None, 1, extra=intent.extra)])
    assert set(state.endings) == {"01A", "01B"}


# -- schema events ----------------------------------------------------------------------------

CHANGED = """\
node Human @rename_from("Person") {
  name: String @key
  years: I64? @rename_from("age")
  nick: String?
}
node City { name: String @key }
edge Knows: Human -> Human
"""


def events_of(path, commit_id):
    return json.loads(manifest_rows(path)[commit_id]["metadata"])["schema_events"]


def summary(events):
    return [
        (
            event["kind"],
            event.get("property_name", event.get("to", event.get("name"))),
            event["type_id"],
            event.get("property_id"),
        )
        for event in events
    ]


def ids_in(path):
    """The stable ids as the newest schema row has them."""
    rows = [row for row in manifest_rows(path).values() if row["object_type"] == "graph_schema"]
    newest = max(rows, key=lambda row: row["table_version"])
    return json.loads(newest["metadata"])["identity"]["types"]


def test_a_schema_apply_says_what_became_of_types_and_properties(graph, path):
    before = ids_in(path)
    person, company = before["node:Person"], before["node:Company"]
    applied = graph.schema.apply(CHANGED)
    after = ids_in(path)
    events = events_of(path, applied.commit_id)
    assert sorted(summary(events), key=str) == sorted(
        [
            ("rename_type", "Human", person["id"], None),
            ("rename_property", "years", person["id"], person["properties"]["age"]),
            ("widen_property", "years", person["id"], person["properties"]["age"]),
            ("add_property", "nick", person["id"], after["node:Human"]["properties"]["nick"]),
            ("add_type", "City", after["node:City"]["id"], None),
            ("drop_type", "Company", company["id"], None),
            ("drop_type", "WorksAt", before["edge:WorksAt"]["id"], None),
        ],
        key=str,
    )
    reported = [SchemaEvent.from_json(event).step for event in events]
    assert [dict(step.to_json()) for step in applied.steps] == [
        {key: value for key, value in step.items() if key != "properties"} for step in reported
    ]
    (city,) = (event for event in events if event["kind"] == "add_type")
    (name,) = city["properties"]
    assert (name["name"], name["property_id"]) == (
        "name",
        after["node:City"]["properties"]["name"],
    )


def test_a_property_that_is_dropped_is_named_by_the_id_it_had(graph, path):
    before = ids_in(path)["node:Person"]
    applied = graph.schema.apply(SCHEMA.replace("  age: I32?", ""))
    assert summary(events_of(path, applied.commit_id)) == [
        ("drop_property", "age", before["id"], before["properties"]["age"])
    ]


def test_an_apply_that_only_changes_rules_says_so(graph, path):
    before = ids_in(path)["node:Person"]
    applied = graph.schema.apply(SCHEMA.replace("age: I32?", 'age: I32? @description("years")'))
    assert summary(events_of(path, applied.commit_id)) == [
        ("update_property_metadata", "age", before["id"], before["properties"]["age"])
    ]


def test_the_value_for_existing_rows_is_part_of_the_event(graph, path):
    graph.append(people(Ada=36))
    wanted = SCHEMA.replace("age: I32?", "age: I32?  born: Date")
    applied = graph.schema.apply(wanted, values={"Person.born": "1990-02-28"})
    (event,) = events_of(path, applied.commit_id)
    assert event["value"] == "1990-02-28"


def test_a_recovery_that_finishes_an_apply_says_the_same(graph, path):
    graph.append(people(Ada=36))
    with at(Failpoint.PUBLISH_BEFORE, raising(Died())), pytest.raises(Died):
        graph.schema.apply(CHANGED)
    with Graph.open(path) as again:
        newest = again.commits()[0]
        assert newest.actor == "omnigraph:recovery"
        kinds = [event["kind"] for event in events_of(path, newest.commit_id)]
        assert kinds.count("rename_type") == 1


# -- what a write prepared ------------------------------------------------------------------------


def test_a_commit_says_what_the_last_attempt_to_prepare_it_found(graph):
    """Another commit comes between the first attempt and the leases, so there is a second."""
    reported = iter([{"merge": {"resolved": {"x": "ours"}}}, {"picks": "01B"}])

    def prepare(view):
        table = view.table("node:Person")
        row = pa.Table.from_pylist([{"id": "Zoe", "name": "Zoe"}], schema=table.schema)
        extra = next(reported)
        if "merge" in extra:
            graph.append(people(Between=1))
        staged = view.stage.stage_append(table, row)
        return PreparedWrite({"node:Person": (staged,)}, extra=extra)

    request = WriteRequest(WriterKind.MUTATION, None, frozenset({"node:Person"}), prepare)
    before = {field.name: getattr(request, field.name) for field in fields(request)}
    commit_write(graph._handle.store, request)
    said = CommitMetadata.of(graph._handle.store.manifest(None).current().head)
    assert said == CommitMetadata(writer="Mutation", picks="01B")
    assert {field.name: getattr(request, field.name) for field in fields(request)} == before


def test_a_request_holds_nothing_that_preparing_could_change():
    """What is known only when a write is prepared is part of what it prepared."""
    mutable = [field.name for field in fields(WriteRequest) if "Mapping" in str(field.type)]
    assert mutable == []
