"""What changed: between two states, commit by commit, and who changed a row last."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph
from omnigraph.errors import EntityNotFound, HistoryGone, InputError, NotFound

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


# -- two states -----------------------------------------------------------------------------------


def test_nothing_changed(graph):
    found = graph.changes.diff("main", "main")
    assert (found.changes, found.stats["types_affected"]) == ((), [])
    assert found.to_arrow().num_rows == 0


def test_inserts_updates_and_deletes_have_both_images(graph):
    before = graph.snapshot()
    graph.load([person("ana", age=31, photo="base64:aGk="), person("dee"), knows("dee", "cy")])
    graph.mutate('query q() { delete P where name = "ben" }')
    found = graph.changes.diff(before)
    changes = {(c.type_name, c.id if c.type_name == "P" else c.op.value): c for c in found.changes}
    assert shown(found.changes)[:3] == [
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
    assert found.stats == {
        "inserts": 2,
        "updates": 1,
        "deletes": 2,
        "types_affected": ["K", "P"],
    }
    assert json.loads(found.to_arrow()["after"][0].as_py())["age"] == 31


def test_the_other_way_round_it_is_reversed(graph):
    before = graph.snapshot()
    graph.load([person("dee")])
    assert shown(graph.changes.diff("main", before).changes) == [("P", "dee", "delete")]


def test_filters_and_summaries(graph):
    before = graph.snapshot()
    graph.load([person("ana", age=31), person("dee"), knows("ana", "cy"), {"type": "Q"}])
    diff = graph.changes.diff
    assert shown(diff(before, types=["P"], ops=["update"]).changes) == [("P", "ana", "update")]
    assert {change.kind for change in diff(before, kinds=["edge"]).changes} == {"edge"}
    summary = diff(before, summary=True, ops=["insert"])
    assert summary.changes == ()
    assert summary.stats["inserts"] == 3
    assert summary.stats["types_affected"] == ["K", "P", "Q"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"types": ["Zed"]}, InputError, "no type 'Zed'"),
        ({"kinds": ["thing"]}, InputError, "'thing' is no kind"),
        ({"ops": ["upsert"]}, InputError, "'upsert' is no operation"),
    ],
)
def test_filters_that_mean_nothing_are_refused(graph, options, error, message):
    with pytest.raises(error, match=message):
        graph.changes.diff("main", **options)


def test_states_are_found_by_branch_tag_and_commit(graph):
    first = graph.commits()[0].commit_id
    graph.tags.create("v1")
    graph.branches.create("work")
    graph.load([person("ana", age=99)], branch="work")
    for before in ("main", "v1", first):
        assert shown(graph.changes.diff(before, "work").changes) == [("P", "ana", "update")]
    with pytest.raises(NotFound, match="no branch, tag or commit 'none'"):
        graph.changes.diff("none")


def test_after_a_merge_only_what_really_changed_is_told(graph):
    graph.branches.create("work")
    graph.load([person("dee")], branch="work")
    graph.load([person("ben", age=1)])
    before = graph.snapshot()
    graph.branches.merge("work")
    assert shown(graph.changes.diff(before).changes) == [("P", "dee", "insert")]
    assert shown(graph.changes.diff("main", "work").changes) == [("P", "ben", "update")]


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


def test_the_feed_tells_every_commit_in_order(graph):
    graph.load([person("dee")], actor="second")
    graph.mutate('query q() { delete P where name = "dee" }')
    (page,) = follow(graph)
    assert [block.commit.actor for block in page.blocks] == ["first", "second", None]
    assert shown(page.blocks[1].changes) == [("P", "dee", "insert")]
    assert shown(page.blocks[2].changes) == [("P", "dee", "delete")]
    assert graph.changes.poll(cursor=page.cursor).blocks == ()
    graph.load([person("eve")])
    later = graph.changes.poll(cursor=page.cursor)
    assert shown(later.changes) == [("P", "eve", "insert")]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_are_bounded_and_put_together_they_are_everything(graph, limit):
    graph.load([person(f"p{n}") for n in range(5)])
    graph.load([person("p1", age=1), knows("p1", "p2")])
    whole = graph.changes.poll(limit=1_000).changes
    pages = follow(graph, limit=limit)
    assert [change for page in pages for change in page.changes] == list(whole)
    assert max(len(page.changes) for page in pages) <= limit
    complete = [block for page in pages for block in page.blocks if block.is_complete]
    assert len(complete) == 3


def test_the_feed_starts_where_it_is_told(graph):
    first = graph.commits()[0].commit_id
    graph.load([person("dee")])
    assert shown(graph.changes.poll(start=f"after:{first}").changes) == [("P", "dee", "insert")]
    now = graph.changes.poll(start="now")
    assert now.changes == ()
    graph.load([person("eve")])
    assert shown(graph.changes.poll(cursor=now.cursor).changes) == [("P", "eve", "insert")]
    with pytest.raises(InputError, match="no start"):
        graph.changes.poll(start="yesterday")


def test_the_feed_of_a_branch_has_what_it_inherited_and_what_it_merged(graph):
    graph.branches.create("work")
    graph.load([person("dee")])
    graph.load([person("eve")], branch="work")
    graph.branches.merge("main", "work")
    (page,) = follow(graph, branch="work")
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
    with pytest.raises(InputError, match="no cursor"):
        graph.changes.poll(cursor=cursor)


def test_a_cursor_of_another_branch_or_filter_is_refused(graph):
    graph.branches.create("work")
    inside = graph.changes.poll(limit=1).cursor
    with pytest.raises(InputError, match="branch 'main'"):
        graph.changes.poll("work", inside)
    with pytest.raises(InputError, match="another filter"):
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
        }
    }
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
    found = graph.changes.blame("P", "ben")
    assert (found.commit.actor, found.op) == ("remover", "delete")
    with pytest.raises(EntityNotFound, match="no P 'zed'"):
        graph.changes.blame("P", "zed")


def test_blame_sees_through_a_merge(graph):
    graph.branches.create("work")
    graph.load([person("ana", age=31)], branch="work", actor="writer")
    graph.load([person("ben", age=31)], branch="work", actor="another")
    graph.load([person("cy", age=5)])
    graph.branches.merge("work", actor="reviewer")
    found = graph.changes.blame("P", "ana")
    assert (found.commit.actor, found.origin.actor) == ("reviewer", "writer")
    graph.maintenance.optimize()
    assert graph.changes.blame("P", "ana").commit.actor == "reviewer"


# -- other schemas --------------------------------------------------------------------------------


def test_a_type_and_a_property_that_got_other_names(graph):
    before = graph.snapshot()
    graph.schema.apply(
        """
        node Human @rename_from("P") {
            name: String @key
            years: I64? @rename_from("age")
            photo: Blob?
            seen: DateTime?
        }
        node Q { note: String? }
        edge K: Human -> Human { w: I32? }
        """.replace("I64", "I32")
    )
    graph.load([{"type": "Human", "data": {"name": "ana", "years": 31}}])
    found = graph.changes.diff(before)
    assert shown(found.changes) == [("Human", "ana", "update")]
    assert found.changes[0].properties == ("years",)
    assert found.changes[0].before["years"] == 30
    (page,) = follow(graph)
    assert [len(block.changes) for block in page.blocks] == [4, 1]
    assert [change.type_name for change in page.changes] == ["P", "P", "P", "K", "Human"]
    assert graph.changes.blame("Human", "ben").commit.actor == "first"
    first = graph.commits()[-2].commit_id
    with pytest.raises(InputError, match="schema has changed"):
        graph.branches.revert(first)
    only = graph.changes.poll(types=["Human"])
    assert [change.id for change in only.changes] == ["ana", "ben", "cy", "ana"]


def test_a_type_that_was_dropped_is_told_as_deletes(graph):
    graph.load([{"type": "Q", "data": {"id": "q1"}}])
    before = graph.snapshot()
    graph.schema.apply(SCHEMA.replace("node Q { note: String? }\n", ""))
    assert shown(graph.changes.diff(before).changes) == [("Q", "q1", "delete")]
    assert [block.commit.commit_id for block in follow(graph)[-1].blocks][-1] == (
        graph.commits()[0].commit_id
    )


def test_wider_values_are_the_same_values(graph):
    before = graph.snapshot()
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I64?"))
    assert graph.changes.diff(before).changes == ()
