"""What changed: between two states, commit by commit, and who changed a row last."""

from __future__ import annotations

import base64
import json

import pytest

from omnigraph import Graph
from omnigraph.commit.manifest import Manifest
from omnigraph.errors import EntityNotFound, HistoryGone, InputError, NotFound

pytestmark = pytest.mark.rotates(3)

SCHEMA = """
node P { name: String @key  age: I32?  photo: Blob?  seen: DateTime? }
node Q { note: String? }
edge K: P -> P { w: I32? }
"""


def person(name, **data):
    return {"type": "P", "data": {"name": name, **data}}


def knows(source, target, **data):
    return {"edge": "K", "from": source, "to": target, "data": data}


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        people = [person(name, age=30) for name in ("ana", "ben", "cy")]
        graph.load([*people, knows("ana", "ben", id="k1")], actor="first")
        yield graph


def shown(changes):
    return [(change.type_name, change.id, change.op.value) for change in changes]


def reported(events):
    return [event.describe() for event in events]


# -- two states -----------------------------------------------------------------------------------


def test_nothing_changed(graph):
    actual = graph.snapshot().diff(graph.snapshot())
    assert (actual.changes, actual.stats["types_affected"]) == ((), [])
    assert actual.to_arrow().num_rows == 0


def test_inserts_updates_and_deletes_have_both_images(graph):
    before = graph.snapshot()
    graph.load([person("ana", age=31, photo="base64:aGk="), person("dee"), knows("dee", "cy")])
    graph.mutate('query q() { delete P where name = "ben" }')
    actual = before.diff(graph.snapshot())
    changes = {(c.type_name, c.id if c.type_name == "P" else c.op.value): c for c in actual.changes}
    assert shown(actual.changes)[:3] == [
        ("P", "ana", "update"),
        ("P", "ben", "delete"),
        ("P", "dee", "insert"),
    ]
    update = changes["P", "ana"]
    assert update.properties == ("age", "photo")
    assert (update.before["age"], update.after["age"]) == (30, 31)
    assert update.after["photo"] == "base64:aGk="
    assert changes["P", "dee"].before is None
    # The edge went with its node, and is told with its ends.
    assert changes["K", "delete"].endpoints == {"src": "ana", "dst": "ben"}
    assert changes["K", "insert"].endpoints == {"src": "dee", "dst": "cy"}
    assert actual.stats == {
        "inserts": 2,
        "updates": 1,
        "deletes": 2,
        "types_affected": ["K", "P"],
    }
    assert json.loads(actual.to_arrow()["after"][0].as_py())["age"] == 31


def test_the_other_way_round_it_is_reversed(graph):
    before = graph.snapshot()
    graph.load([person("dee")])
    assert shown(graph.snapshot().diff(before).changes) == [("P", "dee", "delete")]


def test_filters_and_summaries(graph):
    before = graph.snapshot()
    graph.load([person("ana", age=31), person("dee"), knows("ana", "cy"), {"type": "Q"}])
    after = graph.snapshot()
    assert shown(before.diff(after, types=["P"], ops=["update"]).changes) == [
        ("P", "ana", "update")
    ]
    assert {change.kind for change in before.diff(after, kinds=["edge"]).changes} == {"edge"}
    summary = before.diff(after, summary=True, ops=["insert"])
    assert summary.changes == ()
    assert summary.stats["inserts"] == 3
    assert summary.stats["types_affected"] == ["K", "P", "Q"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"types": ["Zed"]}, InputError, "no type 'Zed'"),
        ({"kinds": ["thing"]}, InputError, "invalid kind 'thing'"),
        ({"ops": ["upsert"]}, InputError, "invalid operation 'upsert'"),
    ],
)
def test_filters_that_mean_nothing_are_refused(graph, options, error, message):
    with pytest.raises(error, match=message):
        graph.snapshot().diff(graph.snapshot(), **options)


def test_states_are_found_by_branch_tag_and_commit(graph):
    first = graph.commits()[0].commit_id
    graph.tags.create("v1")
    graph.branches.create("work")
    graph.load([person("ana", age=99)], branch="work")
    for before in (graph.snapshot("main"), graph.snapshot(tag="v1"), graph.snapshot(commit=first)):
        assert shown(before.diff(graph.snapshot("work")).changes) == [("P", "ana", "update")]
    with pytest.raises(NotFound, match="branch 'none' not found"):
        graph.snapshot("none").diff(graph.snapshot())


def test_after_a_merge_only_what_really_changed_is_told(graph):
    graph.branches.create("work")
    graph.load([person("dee")], branch="work")
    graph.load([person("ben", age=1)])
    before = graph.snapshot()
    graph.merge("work")
    assert shown(before.diff(graph.snapshot()).changes) == [("P", "dee", "insert")]
    assert shown(graph.snapshot().diff(graph.snapshot("work")).changes) == [("P", "ben", "update")]


# -- the feed -------------------------------------------------------------------------------------


def follow(graph, cursor=None, **options):
    """Every page until there is nothing more."""
    pages = []
    while True:
        page = graph.changes.poll(cursor=cursor, **options)
        pages.append(page)
        cursor = page.cursor
        if page.caught_up:
            return pages


def test_whoever_follows_a_branch_reads_its_history_once(graph, monkeypatch):
    """The cost of a page does not grow with the commits before it."""
    calls = []
    read = Manifest.commits
    monkeypatch.setattr(Manifest, "commits", lambda self: calls.append(self) or read(self))
    read_versions = []
    open_at = Manifest._open_at
    monkeypatch.setattr(
        Manifest,
        "_open_at",
        lambda self, version: read_versions.append(version) or open_at(self, version),
    )
    cursor = graph.changes.poll(start="now").cursor
    for number in range(40):
        graph.load([person(f"new{number}")])
        page = graph.changes.poll(cursor=cursor)
        assert shown(page.changes) == [("P", f"new{number}", "insert")]
        assert page.caught_up
        cursor = page.cursor
    assert len(calls) <= 1
    # The state before a compaction of the manifest is read again.
    assert len(read_versions) <= 3


def test_the_feed_tells_every_commit_in_order(graph):
    graph.load([person("dee")], actor="second")
    graph.mutate('query q() { delete P where name = "dee" }')
    (page,) = follow(graph)
    assert [block.commit.actor for block in page.blocks] == [None, "first", "second", None]
    # The first commit made the types.
    assert reported(page.blocks[0].schema_events) == [
        "add node type 'P'",
        "add node type 'Q'",
        "add edge type 'K'",
    ]
    assert shown(page.blocks[2].changes) == [("P", "dee", "insert")]
    assert shown(page.blocks[3].changes) == [("P", "dee", "delete")]
    assert graph.changes.poll(cursor=page.cursor).blocks == ()
    graph.load([person("eve")])
    later = graph.changes.poll(cursor=page.cursor)
    assert shown(later.changes) == [("P", "eve", "insert")]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_are_bounded_and_put_together_they_are_everything(graph, limit):
    graph.load([person(f"p{n}") for n in range(5)])
    graph.load([person("p1", age=1), knows("p1", "p2")])
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I64?  more: Bool?"))
    whole = graph.changes.poll(limit=1_000)
    pages = follow(graph, limit=limit)
    assert [change for page in pages for change in page.changes] == list(whole.changes)
    assert [e for page in pages for e in page.schema_events] == list(whole.schema_events)
    assert len(whole.schema_events) == 5
    assert max(len(page.changes) + len(page.schema_events) for page in pages) <= limit
    complete = [block for page in pages for block in page.blocks if block.is_complete]
    assert len(complete) == 5


def test_the_feed_starts_where_it_is_told(graph):
    first = graph.commits()[0].commit_id
    graph.load([person("dee")])
    assert shown(graph.changes.poll(start=f"after:{first}").changes) == [("P", "dee", "insert")]
    now = graph.changes.poll(start="now")
    assert now.changes == ()
    graph.load([person("eve")])
    assert shown(graph.changes.poll(cursor=now.cursor).changes) == [("P", "eve", "insert")]
    with pytest.raises(InputError, match="invalid start"):
        graph.changes.poll(start="yesterday")


def test_the_feed_of_a_branch_has_what_it_inherited_and_what_it_merged(graph):
    graph.branches.create("work")
    graph.load([person("dee")])
    graph.load([person("eve")], branch="work")
    graph.merge("main", "work")
    (page,) = follow(graph, branch="work", ops=["insert", "update", "delete"])
    assert [shown(block.changes)[-1][:2] for block in page.blocks][1:] == [
        ("P", "eve"),
        ("P", "dee"),
    ]


def test_filters_of_a_feed(graph):
    graph.load([person("dee"), {"type": "Q", "data": {"note": "x"}}])
    page = graph.changes.poll(types=["Q"])
    assert [change.type_name for change in page.changes] == ["Q"]
    assert page.caught_up


def test_a_feed_goes_on_after_the_tables_were_compacted(graph):
    page = graph.changes.poll()
    graph.load([person("dee")])
    graph.maintenance.optimize()
    later = graph.changes.poll(cursor=page.cursor)
    assert shown(later.changes) == [("P", "dee", "insert")]


@pytest.mark.parametrize("cursor", ["", "x", "eyJ9", "WzIsbnVsbCxudWxsLDAsIiJd", "é"])
def test_a_cursor_that_is_none_is_refused(graph, cursor):
    with pytest.raises(InputError, match="invalid cursor"):
        graph.changes.poll(cursor=cursor)


def test_a_cursor_of_another_branch_or_filter_is_refused(graph):
    graph.branches.create("work")
    inside = graph.changes.poll(limit=1).cursor
    with pytest.raises(InputError, match="branch 'main'"):
        graph.changes.poll("work", inside)
    with pytest.raises(InputError, match="a different filter"):
        graph.changes.poll(cursor=inside, types=["P"])
    with pytest.raises(InputError, match="at least one"):
        graph.changes.poll(limit=0)


def test_a_place_that_is_gone_says_where_to_go_on(graph):
    graph.branches.create("work")
    graph.load([person("dee")], branch="work")
    lost = graph.changes.poll("work").cursor
    graph.branches.delete("work")
    graph.branches.create("work")
    with pytest.raises(HistoryGone) as caught:
        graph.changes.poll("work", lost)
    oldest = caught.value.details["oldest_cursor"]
    assert graph.changes.poll("work", oldest).caught_up


def test_a_baseline_and_the_feed_behind_it_are_the_whole(graph, tmp_path):
    path = tmp_path / "base.jsonl"
    base = graph.changes.baseline(dest=path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert base.records == len(lines) - 1 == 4
    assert lines[-1] == {
        "baseline": {
            "snapshot_commit_id": graph.commits()[0].commit_id,
            "resume_cursor": base.cursor,
            "schema": base.schema,
        }
    }
    assert [entry["name"] for entry in base.schema["types"]] == ["P", "Q", "K"]
    assert base.schema["types"][2]["from_type"] == "P"
    properties = base.schema["types"][2]["properties"]
    assert [(item["name"], item["property_type"]["scalar"]) for item in properties] == [
        ("w", "I32")
    ]
    graph.load([person("dee")])
    assert shown(graph.changes.poll(cursor=base.cursor).changes) == [("P", "dee", "insert")]


# -- who ------------------------------------------------------------------------------------------


def test_blame_names_the_last_commit_of_a_row(graph):
    graph.load([person("ana", age=31)], actor="second")
    graph.load([person("cy", age=31)], actor="third")
    for n in range(4):
        graph.load([{"type": "Q", "data": {"note": str(n)}}])
    assert graph.changes.blame("P", "ana").commit.actor == "second"
    assert graph.changes.blame("P", "ben").commit.actor == "first"
    assert graph.changes.blame("P", "cy").commit.actor == "third"
    assert graph.changes.blame("K", "k1").commit.actor == "first"


def test_blame_of_what_was_deleted(graph):
    graph.mutate('query q() { delete P where name = "ben" }', actor="remover")
    graph.load([person("ana", age=1)])
    actual = graph.changes.blame("P", "ben")
    assert (actual.commit.actor, actual.op) == ("remover", "delete")
    with pytest.raises(EntityNotFound, match="no P 'zed'"):
        graph.changes.blame("P", "zed")


def test_blame_sees_through_a_merge(graph):
    graph.branches.create("work")
    graph.load([person("ana", age=31)], branch="work", actor="writer")
    graph.load([person("ben", age=31)], branch="work", actor="another")
    graph.load([person("cy", age=5)])
    graph.merge("work", actor="reviewer")
    actual = graph.changes.blame("P", "ana")
    assert (actual.commit.actor, actual.origin.actor) == ("reviewer", "writer")
    graph.maintenance.optimize()
    assert graph.changes.blame("P", "ana").commit.actor == "reviewer"


# -- other schemas --------------------------------------------------------------------------------


RENAMED = """
node Human @rename_from("P") {
    name: String @key
    years: I32? @rename_from("age")
    photo: Blob?
    seen: DateTime?
}
node Q { note: String? }
edge K: Human -> Human { w: I32? }
"""


def test_a_type_and_a_property_that_got_other_names(graph):
    before = graph.snapshot()
    graph.schema.apply(RENAMED)
    graph.load([{"type": "Human", "data": {"name": "ana", "years": 31}}])
    actual = before.diff(graph.snapshot())
    renames = ["rename node type 'P' -> 'Human'"]
    renames += ["rename property 'Human.age' -> 'Human.years' on node 'Human'"]
    assert reported(actual.schema_events) == renames
    assert shown(actual.changes) == [("Human", "ana", "update")]
    assert actual.changes[0].properties == ("years",)
    assert actual.changes[0].before["years"] == 30
    page = graph.changes.poll(start=f"after:{graph.commits()[-1].commit_id}")
    assert [len(block.changes) for block in page.blocks] == [4, 0, 1]
    assert [reported(block.schema_events) for block in page.blocks] == [[], renames, []]
    assert [change.type_name for change in page.changes] == ["P", "P", "P", "K", "Human"]
    assert graph.changes.blame("Human", "ben").commit.actor == "first"
    first = graph.commits()[-2].commit_id
    with pytest.raises(InputError, match="schema has changed"):
        graph.revert(first)
    only = graph.changes.poll(types=["Human"])
    assert [change.id for change in only.changes] == ["ana", "ben", "cy", "ana"]


def test_the_rows_of_a_type_that_was_dropped_go_with_one_event(graph):
    graph.load([{"type": "Q", "data": {"id": "q1"}}])
    before = graph.snapshot()
    start = graph.changes.poll(start="now").cursor
    graph.schema.apply(SCHEMA.replace("node Q { note: String? }\n", ""))
    actual = before.diff(graph.snapshot())
    assert (reported(actual.schema_events), actual.changes) == (["drop node type 'Q'"], ())
    (block,) = graph.changes.poll(cursor=start).blocks
    assert reported(block.schema_events) == ["drop node type 'Q' (soft mode)"]
    assert block.changes == ()
    # The other way round they come back.
    back = graph.snapshot().diff(before)
    assert reported(back.schema_events) == ["add node type 'Q'"]
    assert shown(back.changes) == [("Q", "q1", "insert")]


def test_wider_values_are_the_same_values(graph):
    before = graph.snapshot()
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I64?"))
    actual = before.diff(graph.snapshot())
    assert actual.changes == ()
    assert reported(actual.schema_events) == [
        "widen property 'P.age' of node 'P' from I32? to I64?"
    ]


def test_back_to_narrower_values_a_value_that_does_not_fit_is_shown_as_it_is(graph):
    before = graph.snapshot()
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: F64?"))
    graph.load([person("ana", age=2.5), person("ben", age=2**40)])
    actual = graph.snapshot().diff(before)
    assert [event.kind for event in actual.schema_events] == ["narrow_property"]
    assert [(c.id, c.before["age"], c.after["age"]) for c in actual.changes] == [
        ("ana", 2.5, 30),
        ("ben", float(2**40), 30),
    ]
    # Only what really differs is named.
    assert actual.changes[0].properties == ("age",)


def test_values_for_existing_rows_are_told_by_the_event_and_differ_in_a_diff(graph):
    before = graph.snapshot()
    start = graph.changes.poll(start="now").cursor
    graph.load([person("dee")])
    values = {"P.city": "Bern", "P.age": 7}
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32  city: String"), values=values)
    page = graph.changes.poll(cursor=start)
    assert [len(block.changes) for block in page.blocks] == [1, 0]
    assert {event.kind: event.step["value"] for event in page.schema_events} == {
        "add_property": "Bern",
        "change_nullability": 7,
    }
    actual = before.diff(graph.snapshot())
    assert [event.step.get("value") for event in actual.schema_events] == [None, None]
    assert [(c.id, c.op, c.properties) for c in actual.changes] == [
        ("ana", "update", ("city",)),
        ("ben", "update", ("city",)),
        ("cy", "update", ("city",)),
        ("dee", "insert", ()),
    ]
    assert actual.changes[-1].after["age"] == 7


def test_rules_are_told_too(graph):
    start = graph.changes.poll(start="now").cursor
    graph.schema.apply(SCHEMA.replace("age: I32?", 'age: I32? @description("in years")'))
    (event,) = graph.changes.poll(cursor=start).schema_events
    assert (event.kind, event.type_kind, event.type_name) == (
        "update_property_metadata",
        "node",
        "P",
    )


# -- a type that is followed ----------------------------------------------------------------------


def test_a_type_stays_followed_under_its_new_name_and_its_old_one(graph):
    start = graph.changes.poll(start="now", types=["P"]).cursor
    graph.schema.apply(RENAMED)
    graph.load([{"type": "Human", "data": {"name": "dee"}}, {"type": "Q"}])
    again = RENAMED.replace(' @rename_from("P")', "") + "node P { name: String @key }"
    graph.schema.apply(again)
    graph.load([{"type": "Human", "data": {"name": "eve"}}, {"type": "P", "data": {"name": "p"}}])
    base = graph.commits()[-1].commit_id
    for options in (
        {"cursor": start, "types": ["P"]},
        {"cursor": start, "types": ["Human"]},
        {"start": f"after:{base}", "types": ["P"]},
    ):
        page = graph.changes.poll(**options)
        assert {event.type_id for event in page.schema_events} == {1}
        assert [change.id for change in page.changes][-2:] == ["dee", "eve"]
        later = graph.changes.poll(cursor=page.cursor, types=options["types"])
        assert later.blocks == ()
    # From the beginning, a name is what it is today.
    assert [change.id for change in graph.changes.poll(types=["P"]).changes] == ["p"]
    # In the middle of a commit the type may be called by either name.
    inside = graph.changes.poll(start=f"after:{base}", types=["P"], limit=1).cursor
    assert graph.changes.poll(cursor=inside, types=["Human"], limit=1).changes[0].id == "ben"


def test_a_type_that_was_dropped_is_followed_to_its_end(graph):
    graph.load([{"type": "Q", "data": {"id": "q1"}}])
    start = graph.changes.poll(start="now", types=["Q"]).cursor
    graph.schema.apply(SCHEMA.replace("node Q { note: String? }\n", ""))
    page = graph.changes.poll(cursor=start, types=["Q"])
    assert [event.kind for event in page.schema_events] == ["drop_type"]
    assert graph.changes.poll(cursor=page.cursor, types=["Q"]).blocks == ()
    assert [event.kind for event in graph.changes.poll(types=["Q"]).schema_events] == [
        "add_type",
        "drop_type",
    ]


def test_kinds_and_operations_choose_events(graph):
    start = graph.changes.poll(start="now").cursor
    graph.schema.apply(SCHEMA.replace("w: I32?", "w: I64?").replace("age: I32?", "age: I64?"))
    graph.load([person("dee")])

    def chosen(**options):
        page = graph.changes.poll(cursor=start, **options)
        return [event.type_name for event in page.schema_events], len(page.changes)

    assert chosen() == (["P", "K"], 1)
    assert chosen(kinds=["edge"]) == (["K"], 0)
    assert chosen(ops=["schema"]) == (["P", "K"], 0)
    assert chosen(ops=["insert"]) == ([], 1)


def test_a_cursor_that_was_made_before_there_were_events_still_leads_on(graph):
    commit = graph.commits()[0].commit_id
    reported = json.dumps([1, None, commit, 0, ""], separators=(",", ":")).encode()
    old = base64.urlsafe_b64encode(reported).decode().rstrip("=")
    graph.load([person("dee")])
    assert shown(graph.changes.poll(cursor=old).changes) == [("P", "dee", "insert")]


# -- data that was dropped for good ---------------------------------------------------------------


@pytest.mark.parametrize("dropped", ["age: I32?", "node Q { note: String? }\n"])
def test_a_reader_that_was_up_to_date_is_led_through_a_hard_drop(graph, dropped):
    graph.load([{"type": "Q", "data": {"id": "q1"}}])
    earlier = graph.changes.poll(start=f"after:{graph.commits()[-1].commit_id}", limit=1).cursor
    start = graph.changes.poll(start="now").cursor
    graph.schema.apply(SCHEMA.replace(dropped, ""), allow_data_loss=True)
    graph.load([person("dee")])
    page = graph.changes.poll(cursor=start)
    assert [event.step["mode"] for event in page.schema_events] == ["hard"]
    assert shown(page.changes) == [("P", "dee", "insert")]
    with pytest.raises(HistoryGone) as caught:
        graph.changes.poll(cursor=earlier)
    resumed = graph.changes.poll(cursor=caught.value.details["oldest_cursor"])
    assert [event.kind for event in resumed.schema_events] == [page.schema_events[0].kind]


def test_a_type_that_came_back_is_another_one(graph):
    graph.load([{"type": "Q", "data": {"id": "q1", "note": "old"}}], actor="first life")
    before = graph.snapshot()
    graph.schema.apply(SCHEMA.replace("node Q { note: String? }\n", ""))
    graph.schema.apply(SCHEMA)
    graph.load([{"type": "Q", "data": {"id": "q1", "note": "old"}}, {"type": "Q"}])
    actual = before.diff(graph.snapshot())
    assert reported(actual.schema_events) == ["drop node type 'Q'", "add node type 'Q'"]
    assert [change.op for change in actual.changes] == ["insert", "insert"]
    assert graph.changes.blame("Q", "q1").commit.actor is None
    graph.schema.apply(SCHEMA.replace("node Q { note: String? }\n", ""))
    graph.schema.apply(SCHEMA)
    with pytest.raises(EntityNotFound):
        graph.changes.blame("Q", "q1")


def test_a_property_that_came_back_is_another_one(graph):
    before = graph.snapshot()
    graph.schema.apply(SCHEMA.replace("age: I32?  ", ""))
    graph.schema.apply(SCHEMA)
    actual = before.diff(graph.snapshot())
    assert [event.kind for event in actual.schema_events] == ["drop_property", "add_property"]
    assert actual.changes == ()
    back = graph.snapshot().diff(before)
    assert [(c.id, c.before["age"], c.after["age"]) for c in back.changes] == [
        (name, None, 30) for name in ("ana", "ben", "cy")
    ]


def test_two_properties_that_exchanged_their_names(graph):
    graph.schema.apply(SCHEMA.replace("w: I32?", "w: I32?  v: I32?"))
    graph.load([knows("ana", "ben", id="k1", w=1, v=2)])
    before = graph.snapshot()
    for one, other in (("w", "x"), ("v", "w"), ("x", "v")):
        fields = sorted(graph.catalog.edge("K").properties)
        body = "  ".join(
            f'{other}: I32? @rename_from("{one}")' if name == one else f"{name}: I32?"
            for name in fields
        )
        graph.schema.apply(SCHEMA.replace("w: I32?", body))
    actual = before.diff(graph.snapshot())
    assert sorted((event.step["from"], event.step["to"]) for event in actual.schema_events) == [
        ("v", "w"),
        ("w", "v"),
    ]
    assert actual.changes == ()
