"""What merging does beyond the pairs of the truth table."""

from __future__ import annotations

import json
import threading
from importlib import import_module

import pytest

from omnigraph import Graph
from omnigraph.commit.branches import Branches
from omnigraph.errors import BranchNotFound, InputError, MergeConflicts
from omnigraph.merge.run import Outcome

pytestmark = pytest.mark.rotates(6)

SCHEMA = """
node P {
    name: String @key
    age: I32?
    city: String?
    mail: String? @unique
    seen: DateTime?
    born: Date?
    tags: [String]?
    spot: Vector(2)?
    photo: Blob?
    @range(age, 0..150)
}
edge K: P -> P { w: I32? }
edge Once: P -> P { w: I32?  @unique(src, dst) }
edge Boss: P -> P @card(0..1)
"""
M, FF, UTD = Outcome.MERGED, Outcome.FAST_FORWARD, Outcome.UP_TO_DATE


def person(name, **data):
    return {"type": "P", "data": {"name": name, **data}}


def edge(kind, source, target, **data):
    return {"edge": kind, "from": source, "to": target, "data": data}


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="os") as graph:
        graph.load([person(name, age=30, city="Bern") for name in ("ana", "ben", "cy")])
        graph.branches.create("work")
        yield graph


def row(graph, name, branch="main"):
    return graph.snapshot(branch).entity("P", name)


def edit(graph, branch, name, **values):
    """Set properties of a person, leaving the others as they are."""
    existing = {k: v for k, v in row(graph, name, branch).items() if k not in ("id", "photo")}
    existing["seen"] = existing["seen"] and existing["seen"].isoformat()
    existing["born"] = existing["born"] and existing["born"].isoformat()
    return graph.load([person(**{**existing, **values})], branch=branch)


def conflicts(graph, **options):
    with pytest.raises(MergeConflicts) as caught:
        graph.merge("work", **options)
    return caught.value.details["conflicts"]


# -- properties -----------------------------------------------------------------------------------


def test_changes_of_different_properties_are_both_kept(graph):
    edit(graph, "work", "ana", city="Rome", tags=["x"])
    edit(graph, "main", "ana", age=31)
    assert graph.merge("work").outcome is M
    actual = row(graph, "ana")
    assert (actual["age"], actual["city"], actual["tags"]) == (31, "Rome", ["x"])


def test_a_conflict_names_the_properties_and_the_three_states(graph):
    edit(graph, "work", "ana", age=31, city="Rome")
    edit(graph, "main", "ana", age=32, tags=["x"])
    (actual,) = conflicts(graph)
    assert actual["properties"] == ["age"]
    assert [actual[side]["age"] for side in ("base", "ours", "theirs")] == [30, 32, 31]
    assert actual["conflict_id"] == "node:P/ana"


def test_null_is_not_an_empty_text_nor_an_empty_list(graph):
    edit(graph, "work", "ana", city="", tags=[])
    edit(graph, "main", "ana", city=None)
    (actual,) = conflicts(graph)
    assert actual["properties"] == ["city"]
    assert (actual["ours"]["city"], actual["theirs"]["city"]) == (None, "")


def test_moments_days_vectors_and_blobs_arrive_as_they_are(graph):
    values = {
        "seen": "2024-05-01T10:11:12.345Z",
        "born": "1990-02-03",
        "spot": [0.5, -1.5],
        "photo": "base64:aGk=",
    }
    graph.load([person("ana", age=30, city="Bern", **values)], branch="work")
    edit(graph, "main", "ben", age=1)
    assert graph.merge("work").outcome is M
    assert row(graph, "ana") == row(graph, "ana", "work")
    assert (
        row(graph, "ana")["seen"]
        .isoformat(timespec="milliseconds")
        .startswith("2024-05-01T10:11:12.345")
    )
    assert graph.snapshot().read_blob("P", "ana", "photo") == b"hi"


def test_rows_that_a_merge_does_not_touch_keep_their_stamps(graph):
    edit(graph, "work", "ana", age=31)
    edit(graph, "main", "ben", age=31)
    stamps = "_row_last_updated_at_version"
    before = dict(_stamps(graph, stamps))
    graph.merge("work")
    after = dict(_stamps(graph, stamps))
    assert after.pop("ana") > before.pop("ana")
    assert after == before


def _stamps(graph, name):
    pin = graph._handle.store.manifest(None).current().pin("node:P")
    table = graph._handle.store.table(pin).read(["id", name])
    return zip(table["id"].to_pylist(), table[name].to_pylist(), strict=True)


# -- edges ----------------------------------------------------------------------------------------


def test_the_same_edge_from_both_sides_is_one_where_only_one_may_be(graph):
    for branch in ("main", "work"):
        graph.load([edge("Once", "ana", "ben", w=1), edge("K", "ana", "ben")], branch=branch)
    graph.merge("work")
    snapshot = graph.snapshot()
    assert snapshot.read("Once").num_rows == 1
    assert snapshot.read("K").num_rows == 2


def test_an_edge_that_differs_is_a_conflict_where_only_one_may_be(graph):
    graph.load([edge("Once", "ana", "ben", w=1)])
    graph.load([edge("Once", "ana", "ben", w=2)], branch="work")
    (actual,) = conflicts(graph)
    assert actual["kind"] == "unique_violation"


# -- rules ----------------------------------------------------------------------------------------


def test_everything_that_is_wrong_is_said_at_once_and_in_order(graph):
    edit(graph, "work", "ana", age=31)
    edit(graph, "main", "ana", age=32)
    graph.load([person("new", mail="m@"), edge("Boss", "ben", "cy")], branch="work")
    graph.load([person("other", mail="m@"), edge("Boss", "ben", "ana")])
    graph.load([edge("K", "cy", "ben")])
    graph.mutate('query q() { delete P where name = "cy" }', branch="work")
    actual = [(conflict["table_key"], conflict["kind"]) for conflict in conflicts(graph)]
    assert actual == [
        ("edge:K", "orphan_edge"),
        ("node:P", "divergent_update"),
        ("node:P", "unique_violation"),
    ]
    preview = graph.merge("work", dry_run=True)
    assert [(conflict.table_key, conflict.kind) for conflict in preview.conflicts] == actual
    assert preview.conflicts.to_arrow().num_rows == 3


def test_too_many_edges_from_both_sides_are_a_conflict(graph):
    graph.load([edge("Boss", "ben", "cy")], branch="work")
    graph.load([edge("Boss", "ben", "ana")])
    (actual,) = conflicts(graph)
    assert (actual["kind"], actual["row_id"]) == ("cardinality_violation", "ben")


# -- resolutions ----------------------------------------------------------------------------------


def clash(graph):
    edit(graph, "work", "ana", age=31, city="Rome")
    edit(graph, "main", "ana", age=32)
    graph.mutate('query q() { delete P where name = "ben" }')
    edit(graph, "work", "ben", age=77)


@pytest.mark.parametrize(
    ("choice", "age", "ben"), [("ours", 32, None), ("theirs", 31, 77)], ids=["ours", "theirs"]
)
def test_one_side_for_all_conflicts(graph, choice, age, ben):
    clash(graph)
    report = graph.merge("work", resolve=choice)
    assert set(report.resolved.values()) == {choice}
    # What only one side changed is kept whoever wins.
    assert (row(graph, "ana")["age"], row(graph, "ana")["city"]) == (age, "Rome")
    assert (row(graph, "ben") or {}).get("age") == ben


def test_a_choice_for_each_conflict_or_values(graph):
    clash(graph)
    choices = {"node:P/ana": {"age": 40, "tags": ["both"]}, "node:P/ben": "theirs"}
    report = graph.merge("work", resolve=choices)
    actual = row(graph, "ana")
    assert (actual["age"], actual["city"], actual["tags"]) == (40, "Rome", ["both"])
    assert row(graph, "ben")["age"] == 77
    assert report.resolved == choices
    extra = graph._handle.store.manifest(None).current().head.extra
    assert extra["merge"]["resolved"] == choices


def test_choices_come_from_a_file_that_a_preview_wrote(graph, tmp_path):
    clash(graph)
    preview = graph.merge("work", dry_run=True)
    path = tmp_path / "conflicts.jsonl"
    preview.conflicts.write(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["conflict_id"] for line in lines] == ["node:P/ana", "node:P/ben"]
    path.write_text("\n".join(json.dumps({**line, "choice": "theirs"}) for line in lines))
    graph.merge("work", resolve=path)
    assert row(graph, "ana")["age"] == 31


@pytest.mark.parametrize(
    ("resolve", "message"),
    [
        ({"node:P/zed": "ours"}, "no conflict 'node:P/zed'"),
        ({"node:P/ana": "mine"}, "the choice for 'node:P/ana' is 'mine'"),
        ({"node:P/ana": {"height": 1}}, "which is not a property of P"),
        ({"node:P/ana": {"name": "eve"}}, "which is its key"),
        ({"node:P/ana": {"age": "old"}}, "is not an I32"),
        ("both", "neither 'ours' nor 'theirs'"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused(graph, resolve, message):
    clash(graph)
    before = graph.commits()
    choices = {"node:P/ben": "ours", **resolve} if isinstance(resolve, dict) else resolve
    with pytest.raises(Exception, match=message):
        graph.merge("work", resolve=choices)
    assert graph.commits() == before


# -- histories ------------------------------------------------------------------------------------


def test_merges_that_cross_find_what_both_have_in_common(graph):
    edit(graph, "work", "ana", age=31)
    edit(graph, "main", "ben", age=31)
    graph.branches.create("kept", "work")
    graph.merge("main", "work")
    graph.merge("kept", "main")
    edit(graph, "work", "cy", age=33)
    edit(graph, "main", "cy", city="Oslo")
    assert graph.merge("work", "main").outcome is M
    assert [row(graph, name)["age"] for name in ("ana", "ben", "cy")] == [31, 31, 33]
    assert row(graph, "cy")["city"] == "Oslo"
    assert graph.merge("main", "work").outcome is FF


def cross(graph):
    """Each side merges what the other was before: two states that both have, neither newer."""
    graph.branches.create("kept", "work")
    graph.merge("main", "work")
    graph.merge("kept", "main")


@pytest.mark.parametrize(("source", "target"), [("work", "main"), ("main", "work")])
@pytest.mark.parametrize("branch", ["main", "work"])
def test_what_is_taken_back_after_merges_that_crossed_stays_so(graph, branch, source, target):
    """One of the two states alone would say that only the other side has changed it."""
    edit(graph, "main", "ana", age=31)
    edit(graph, "work", "ben", age=31)
    cross(graph)
    edit(graph, branch, "ana", age=30)
    edit(graph, branch, "ben", age=30)
    graph.merge(source, target)
    assert [row(graph, name, target)["age"] for name in ("ana", "ben")] == [30, 30]


def test_what_was_deleted_after_merges_that_crossed_does_not_come_back(graph):
    graph.load([person("eve", age=1)])
    edit(graph, "work", "ben", age=31)
    cross(graph)
    graph.mutate('query q() { delete P where name = "eve" }')
    graph.merge("work")
    assert row(graph, "eve") is None
    graph.merge("main", "work")
    assert row(graph, "eve", "work") is None


def test_two_sides_that_settled_a_conflict_differently_have_one_again(graph):
    edit(graph, "main", "ana", age=31)
    edit(graph, "work", "ana", age=32)
    graph.branches.create("kept", "work")
    graph.merge("main", "work", resolve="ours")
    graph.merge("kept", "main", resolve="ours")
    (actual,) = conflicts(graph)
    assert (actual["kind"], actual["properties"], actual["base"]) == (
        "divergent_update",
        ["age"],
        None,
    )
    assert (actual["ours"]["age"], actual["theirs"]["age"]) == (31, 32)
    graph.merge("work", resolve="theirs")
    assert row(graph, "ana")["age"] == 32


def test_the_newest_common_state_counts_not_the_one_that_is_fewest_steps_away(graph):
    """Both have merged a young branch of the old state, from which it is two steps to there."""
    edit(graph, "main", "ana", age=31)
    for name in ("one", "other"):
        graph.branches.create(name, "work")
        graph.load([person(name)], branch=name)
    graph.branches.create("late")
    for age in range(40, 45):
        edit(graph, "main", "ben", age=age)
        edit(graph, "late", "cy", age=age)
    graph.merge("one", "main")
    graph.merge("other", "late")
    edit(graph, "late", "ana", age=30)
    graph.merge("late")
    assert [row(graph, name)["age"] for name in ("ana", "ben", "cy")] == [30, 44, 44]


def test_two_branches_that_merged_the_same_third_one(graph):
    graph.branches.create("other")
    graph.branches.create("third")
    graph.load([person("dee", age=1)], branch="third")
    graph.merge("third", "work")
    graph.merge("third", "other")
    edit(graph, "work", "dee", age=2)
    edit(graph, "other", "dee", city="Oslo")
    graph.merge("work", "other")
    assert (row(graph, "dee", "other")["age"], row(graph, "dee", "other")["city"]) == (2, "Oslo")


def test_where_the_common_state_is_gone_nothing_is_guessed(graph):
    graph.branches.create("other")
    graph.branches.create("third")
    graph.load([person("dee", age=1)], branch="third")
    for branch in ("work", "other"):
        graph.merge("third", branch)
    graph.branches.delete("third")
    edit(graph, "work", "dee", age=2)
    edit(graph, "other", "dee", city="Oslo")
    (actual,) = conflicts(graph, into="other")
    assert (actual["kind"], actual["properties"]) == ("divergent_insert", ["age", "city"])


# -- different commits of a branch that is gone ---------------------------------------------------

every_way = pytest.mark.parametrize(("source", "target"), [("work", "other"), ("other", "work")])


@pytest.fixture
def third(graph):
    """Work has merged an early commit of a third branch and other a late one; it is gone."""
    graph.branches.create("other")
    graph.branches.create("third")
    edit(graph, "third", "ana", age=31)
    graph.mutate('query q() { delete P where name = "cy" }', branch="third")
    graph.load([person("dee", age=1)], branch="third")
    graph.merge("third", "work")
    edit(graph, "third", "ana", age=30)
    graph.load([person("cy", age=30, city="Bern")], branch="third")
    graph.mutate('query q() { delete P where name = "dee" }', branch="third")
    edit(graph, "third", "ben", age=77)
    graph.merge("third", "other")
    graph.branches.delete("third")
    return graph


def conflict_ids(graph, source, target):
    return [conflict.row_id for conflict in graph.merge(source, target, dry_run=True).conflicts]


@every_way
def test_a_row_that_a_branch_set_back_before_it_was_deleted_is_not_lost(third, source, target):
    assert conflict_ids(third, source, target) == ["ana", "cy", "dee"]
    side = "theirs" if source == "other" else "ours"
    third.merge(source, target, resolve=side)
    assert row(third, "ana", target)["age"] == 30
    assert row(third, "cy", target)["age"] == 30
    assert row(third, "dee", target) is None
    # What only the late commit changed is no conflict.
    assert row(third, "ben", target)["age"] == 77


@every_way
def test_what_was_written_after_the_early_merge_is_no_conflict(third, source, target):
    third.load([person("eve", age=5)], branch="work")
    edit(third, "work", "ben", city="Rome")
    assert conflict_ids(third, source, target) == ["ana", "cy", "dee"]
    third.merge(source, target, resolve="theirs" if source == "other" else "ours")
    assert row(third, "eve", target)["age"] == 5
    assert (row(third, "ben", target)["city"], row(third, "ben", target)["age"]) == ("Rome", 77)


def test_a_table_that_only_the_target_has_changed_is_looked_at_too(graph):
    """All that the late commit brought was back to what it had been: other's table did not move."""
    graph.branches.create("other")
    graph.branches.create("third")
    edit(graph, "third", "ana", age=31)
    graph.merge("third", "work")
    edit(graph, "third", "ana", age=30)
    graph.merge("third", "other")
    graph.branches.delete("third")
    assert conflict_ids(graph, "other", "work") == ["ana"]
    graph.merge("other", "work", resolve="theirs")
    assert row(graph, "ana", "work")["age"] == 30


@every_way
def test_a_deleted_branch_is_seen_through_another_that_had_merged_it(graph, source, target):
    for name in ("other", "third", "between"):
        graph.branches.create(name)
    edit(graph, "third", "ana", age=31)
    graph.merge("third", "work")
    edit(graph, "third", "ana", age=30)
    graph.merge("third", "between")
    graph.load([person("dee")], branch="between")
    graph.merge("between", "other")
    graph.branches.delete("third")
    graph.branches.delete("between")
    assert conflict_ids(graph, source, target) == ["ana"]


def test_a_delete_is_not_undone_by_a_branch_that_was_deleted(graph):
    """What it had brought was deleted again, by a branch that another one followed."""
    for name in ("third", "follower"):
        graph.branches.create(name)
    graph.load([person("dee", age=1)], branch="third")
    graph.merge("third", "main")
    edit(graph, "work", "ana", age=31)
    graph.merge("third", "work")
    graph.mutate('query q() { delete P where name = "dee" }')
    graph.merge("main", "follower")
    graph.branches.delete("third")
    assert conflict_ids(graph, "follower", "work") == ["dee"]
    graph.merge("follower", "work", resolve="theirs")
    assert row(graph, "dee", "work") is None


@every_way
def test_a_conflict_that_was_resolved_in_two_ways_is_one_again(graph, source, target):
    for name in ("other", "third", "fourth"):
        graph.branches.create(name)
    edit(graph, "third", "ana", age=31)
    graph.mutate('query q() { delete P where name = "ana" }', branch="fourth")
    edit(graph, "work", "ben", age=40)
    edit(graph, "other", "cy", age=41)
    for branch, side in (("work", "theirs"), ("other", "ours")):
        graph.merge("third", branch)
        graph.merge("fourth", branch, resolve=side)
    graph.branches.delete("third")
    assert conflict_ids(graph, source, target) == ["ana"]


def test_a_living_branch_is_found_behind_a_deleted_one(graph):
    """What main had when the deleted branch merged it is known: nothing is in doubt."""
    graph.branches.create("third")
    edit(graph, "main", "ana", age=31)
    graph.merge("main", "third")
    graph.load([person("dee")], branch="third")
    graph.merge("third", "work")
    graph.branches.delete("third")
    edit(graph, "work", "ana", age=30)
    edit(graph, "main", "ben", age=44)
    report = graph.merge("work")
    assert report.outcome is M
    assert (row(graph, "ana")["age"], row(graph, "ben")["age"]) == (30, 44)


def test_deleted_branches_that_had_nothing_to_do_with_each_other_leave_no_doubt(graph):
    for name in ("other", "left", "right"):
        graph.branches.create(name)
    edit(graph, "left", "ana", age=31)
    edit(graph, "right", "ben", age=32)
    graph.merge("left", "work", delete_branch=True)
    graph.merge("right", "other", delete_branch=True)
    assert graph.merge("work", "other").outcome is M
    assert [row(graph, name, "other")["age"] for name in ("ana", "ben")] == [31, 32]


def test_a_name_that_was_used_again_is_another_branch(graph):
    graph.branches.create("other")
    for name, into in (("ana", "work"), ("ben", "other")):
        graph.branches.create("third")
        edit(graph, "third", name, age=33)
        graph.merge("third", into, delete_branch=True)
    assert graph.merge("work", "other").outcome is M
    assert [row(graph, name, "other")["age"] for name in ("ana", "ben")] == [33, 33]


def test_merges_that_do_not_say_what_they_brought_are_doubted(graph, monkeypatch):
    """Another program records nothing: where both sides merged something unknown, all is open."""
    from omnigraph.merge.bases import Ancestry

    monkeypatch.setattr(Ancestry, "lineage", lambda *_: None)
    graph.branches.create("other")
    graph.branches.create("third")
    edit(graph, "third", "ana", age=31)
    graph.merge("third", "work")
    edit(graph, "third", "ana", age=30)
    graph.merge("third", "other")
    graph.branches.delete("third")
    assert conflict_ids(graph, "other", "work") == conflict_ids(graph, "work", "other") == ["ana"]


@pytest.mark.parametrize(("source", "target"), [("work", "other"), ("other", "work")])
def test_what_was_taken_back_to_an_earlier_state_is_a_conflict_then(graph, source, target):
    """It could as well be the other side that made the change."""
    graph.branches.create("other")
    graph.branches.create("third")
    edit(graph, "third", "ana", age=31)
    graph.mutate('query q() { delete P where name = "cy" }', branch="third")
    for branch in ("work", "other"):
        graph.merge("third", branch)
    graph.branches.delete("third")
    edit(graph, "work", "ana", age=30)
    graph.load([person("cy", age=30, city="Bern")], branch="work")
    edit(graph, "other", "ben", age=33)
    with pytest.raises(MergeConflicts) as caught:
        graph.merge(source, target)
    actual = [(detail["row_id"], detail["kind"]) for detail in caught.value.details["conflicts"]]
    assert actual == [("ana", "divergent_update"), ("cy", "delete_vs_update")]
    side = "theirs" if source == "work" else "ours"
    graph.merge(source, target, resolve=side)
    assert [row(graph, name, target)["age"] for name in ("ana", "cy")] == [30, 30]


def test_changes_since_the_last_merge_are_merged_again(graph):
    for age in (31, 32, 33):
        edit(graph, "work", "ana", age=age)
        edit(graph, "main", "ben", age=age)
        assert graph.merge("work").outcome is M
        assert (row(graph, "ana")["age"], row(graph, "ben")["age"]) == (age, age)


def test_the_same_change_on_both_sides_is_a_merge_that_changes_nothing(graph):
    edit(graph, "work", "ana", age=31)
    edit(graph, "main", "ana", age=31)
    before = graph.snapshot()
    report = graph.merge("work")
    assert (report.outcome, report.tables) == (M, {})
    commit = graph.commits()[0]
    assert (commit.commit_id, commit.merged_parent) == (
        report.commit_id,
        graph.commits("work")[0].commit_id,
    )
    assert graph.snapshot().read("P").equals(before.read("P"))


def test_a_merge_after_the_table_was_compacted(graph):
    edit(graph, "work", "ana", age=31)
    edit(graph, "main", "ben", age=31)
    for branch in (None, "work"):
        pin = graph._handle.store.manifest(branch).current().pin("node:P")
        assert pin is not None
    graph.maintenance.optimize()
    graph.merge("work")
    assert [row(graph, name)["age"] for name in ("ana", "ben")] == [31, 31]


def test_a_row_that_the_target_made_again_is_replaced_all_the_same(graph):
    """It has another row id since, with the values that it had."""
    edit(graph, "work", "ana", age=31)
    graph.mutate('query q() { delete P where name = "ana" }')
    graph.load([person("ana", age=30, city="Bern")])
    assert graph.merge("work").outcome is M
    assert graph.snapshot().read("P")["age"].to_pylist().count(31) == 1
    assert graph.snapshot().count("P") == 3


def test_many_rows_are_merged_by_their_keys(graph, monkeypatch):
    from omnigraph.merge import plan

    edit(graph, "work", "ana", age=31)
    graph.load([person("eve")], branch="work")
    graph.mutate('query q() { delete P where name = "cy" }', branch="work")
    edit(graph, "main", "ben", age=31)
    monkeypatch.setattr(plan, "_MOST_ROWS", 1)
    graph.merge("work")
    ages = {item["name"]: item["age"] for item in graph.snapshot().read("P").to_pylist()}
    assert ages == {"ana": 31, "ben": 31, "eve": None}


def test_only_branches_that_count_are_looked_at(graph, monkeypatch):
    """Old merges of branches that are gone lead nowhere, and nobody follows them."""
    from omnigraph.commit.manifest import Manifest

    edit(graph, "work", "ana", age=31)
    graph.merge("work", delete_branch=True)
    for name in ("one", "two", "other"):
        graph.branches.create(name)
    edit(graph, "one", "ben", age=31)
    edit(graph, "main", "cy", age=31)
    read = []
    commits = Manifest.commits
    monkeypatch.setattr(
        Manifest, "commits", lambda self: (read.append(self.branch), commits(self))[1]
    )
    graph.merge("one")
    assert read == ["one", None]


def test_the_merged_branch_goes_when_asked(graph):
    edit(graph, "work", "ana", age=31)
    report = graph.merge("work", delete_branch=True, actor="rev")
    assert graph.branches.list() == ["main"]
    commit = graph.commit(report.commit_id)
    assert (commit.actor, commit.merged_parent is not None) == ("rev", True)


@pytest.mark.parametrize("has_changes", [True, False])
def test_a_branch_that_got_a_commit_after_the_merge_is_not_deleted(graph, monkeypatch, has_changes):
    """The commit was acknowledged and is in no other branch."""
    if has_changes:
        edit(graph, "work", "ana", age=31)
    delete = Branches.delete

    def late(self, name, **given):
        with Graph.open(graph.uri, durability="os") as other:
            other.load([person("eve")], branch="work")
        delete(self, name, **given)

    monkeypatch.setattr(Branches, "delete", late)
    report = graph.merge("work", delete_branch=True)
    assert report.branch_deleted is False
    monkeypatch.undo()
    assert graph.snapshot("work").entity("P", "eve") is not None
    assert graph.merge("work", delete_branch=True).branch_deleted
    assert graph.snapshot().entity("P", "eve") is not None


def test_a_preview_writes_nothing(graph, tmp_path):
    edit(graph, "work", "ana", age=31)
    graph.load([person("eve")], branch="work")
    files = {path for path in tmp_path.rglob("*") if path.is_file()}
    report = graph.merge("work", dry_run=True)
    assert (report.outcome, report.commit_id, report.is_clean) == (FF, None, True)
    counts = report.tables["node:P"]
    assert (counts.inserted, counts.updated, counts.deleted) == (1, 1, 0)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == files


@pytest.mark.parametrize(
    ("source", "target", "error", "message"),
    [
        ("work", "work", InputError, "requires distinct source and target"),
        ("main", "main", InputError, "requires distinct source and target"),
        ("none", "main", BranchNotFound, "none"),
        ("work", "none", BranchNotFound, "none"),
        ("__x", "main", Exception, "__x"),
    ],
)
def test_branches_that_cannot_be_merged(graph, source, target, error, message):
    with pytest.raises(error, match=message):
        graph.merge(source, target)


@pytest.fixture
def meanwhile(monkeypatch):
    """Have something done between the plan of a merge and its leases."""
    from omnigraph.merge import run

    def arrange(work):
        plan, calls = run.plan_merge, []

        def and_somebody_works(*arguments):
            actual = plan(*arguments)
            calls.append(actual)
            if len(calls) == 1:
                work()
            return actual

        monkeypatch.setattr(run, "plan_merge", and_somebody_works)
        return calls

    return arrange


def test_a_target_that_moved_meanwhile_is_merged_as_it_is_then(graph, meanwhile):
    edit(graph, "work", "ana", age=31)
    plans = meanwhile(lambda: edit(graph, "main", "ben", age=44))
    assert graph.merge("work").outcome is M
    assert (row(graph, "ana")["age"], row(graph, "ben")["age"]) == (31, 44)
    assert len(plans) == 2


def test_a_row_that_the_target_changed_meanwhile_is_a_conflict(graph, meanwhile):
    edit(graph, "work", "ana", age=31)
    meanwhile(lambda: edit(graph, "main", "ana", age=32))
    with pytest.raises(MergeConflicts) as caught:
        graph.merge("work")
    (conflict,) = caught.value.details["conflicts"]
    assert (conflict["kind"], conflict["ours"]["age"]) == ("divergent_update", 32)
    assert row(graph, "ana")["age"] == 32


def test_what_was_settled_before_the_target_moved_is_not_recorded(graph, meanwhile):
    edit(graph, "work", "ana", age=31)
    edit(graph, "main", "ana", age=32)
    meanwhile(lambda: edit(graph, "main", "ana", age=31))
    report = graph.merge("work", resolve="theirs")
    assert (report.outcome, report.resolved) == (M, {})
    assert "resolved" not in graph._handle.store.manifest(None).current().head.extra.get(
        "merge", {}
    )


def test_a_revert_beside_a_writer_keeps_what_that_one_wrote(graph, meanwhile):
    wrong = edit(graph, "main", "ana", age=31).commit_id
    meanwhile(lambda: edit(graph, "main", "ben", age=44))
    assert graph.revert(wrong).outcome is M
    assert (row(graph, "ana")["age"], row(graph, "ben")["age"]) == (30, 44)


def test_a_merge_that_others_were_faster_with_does_not_undo_what_they_did_then(graph, monkeypatch):
    from omnigraph.merge import run

    edit(graph, "work", "ana", age=31)
    commit, calls = run.commit_write, []

    def after_somebody(store, request):
        if not calls:
            calls.append(1)
            run._merge(store, graph.catalog, "work", None, run.MergeOptions())
            edit(graph, "main", "ana", age=30)
        return commit(store, request)

    monkeypatch.setattr(run, "commit_write", after_somebody)
    newest = graph.merge("work")
    assert (newest.outcome, newest.commit_id) == (UTD, None)
    assert row(graph, "ana")["age"] == 30


def test_merges_of_two_graphs_in_one_process_do_not_wait_for_each_other(tmp_path, meanwhile):
    schema = "node P { name: String @key  age: I32? }"
    graphs = [Graph.init(tmp_path / f"{n}.omni", schema, durability="os") for n in "ab"]
    for item in graphs:
        item.branches.create("work")
        item.load([{"type": "P", "data": {"name": "eve"}}], branch="work")
    outcomes = []

    def merge_the_other():
        thread = threading.Thread(target=lambda: outcomes.append(graphs[1].merge("work").outcome))
        thread.start()
        thread.join(30)

    meanwhile(merge_the_other)
    assert graphs[0].merge("work").outcome is FF
    assert outcomes == [FF]
    for item in graphs:
        item.close()


# -- one commit -----------------------------------------------------------------------------------


def test_a_commit_is_taken_back_and_what_came_after_stays(graph):
    edit(graph, "main", "ana", age=31)
    wrong = graph.load([person("eve"), person("ben", age=99, city="Bern")]).commit_id
    edit(graph, "main", "cy", age=33)
    report = graph.revert(wrong)
    assert report.outcome is M
    assert row(graph, "eve") is None
    assert [row(graph, name)["age"] for name in ("ana", "ben", "cy")] == [31, 30, 33]
    assert graph._handle.store.manifest(None).current().head.extra["reverts"] == wrong
    assert graph.revert(wrong).outcome is UTD


def test_what_was_changed_again_is_a_conflict_of_a_revert(graph):
    wrong = graph.load([person("ben", age=99, city="Bern")]).commit_id
    edit(graph, "main", "ben", age=50)
    with pytest.raises(MergeConflicts):
        graph.revert(wrong)
    graph.revert(wrong, resolve="theirs")
    assert row(graph, "ben")["age"] == 30


def test_a_commit_of_another_branch_is_taken_over(graph):
    first = graph.load([person("eve", age=1)], branch="work").commit_id
    graph.load([person("fay", age=2)], branch="work")
    report = graph.cherry_pick(first)
    assert report.tables["node:P"].inserted == 1
    assert row(graph, "eve")["age"] == 1
    assert row(graph, "fay") is None
    # A later merge of the branch brings the rest.
    graph.merge("work")
    assert row(graph, "fay")["age"] == 2


def test_the_first_commit_cannot_be_taken_back(graph):
    with pytest.raises(InputError, match="first of the graph"):
        graph.revert(graph.commits()[-1].commit_id)


@pytest.mark.parametrize(
    ("module", "function", "call"),
    [
        ("run", "plan_merge", lambda graph: graph.merge("work")),
        ("run", "plan_merge", lambda graph: graph.merge("work", dry_run=True)),
        ("run", "plan_merge", lambda graph: graph.merge("main", "work")),
        ("feed", "table_changes", lambda graph: graph.changes.poll("work")),
    ],
)
def test_a_branch_that_is_deleted_during_a_call_is_not_found(
    graph, monkeypatch, module, function, call
):
    edit(graph, "work", "ana", age=31)
    edit(graph, "main", "ben", age=31)
    room = import_module(f"omnigraph.merge.{module}")
    work = getattr(room, function)

    def after_deletion(*arguments):
        if "work" in graph.branches.list():
            graph.branches.delete("work")
        return work(*arguments)

    monkeypatch.setattr(room, function, after_deletion)
    with pytest.raises(BranchNotFound, match="branch 'work' not found"):
        call(graph)
