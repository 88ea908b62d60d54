"""Commits, the states they lead to, and tags."""

from __future__ import annotations

import json
import threading

import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.history import History, first_parents, recent_first_parents
from omnigraph.commit.publisher import CommitIntent, Publication
from omnigraph.commit.ulid import now_micros
from omnigraph.errors import (
    AlreadyExists,
    CommitNotFound,
    HistoryGone,
    InputError,
    NotFound,
)
from omnigraph.storage.tables.ledger import Ledger
from omnigraph.storage.tables.ledger_reader import LedgerReader
from tests.commit.world import (
    at,
    foreign_upsert,
    fresh_state,
    manifest_of,
    manifest_rows,
    names,
    people,
    raising,
    state_of,
)


def ids(commits):
    return [commit.commit_id for commit in commits]


# -- the chain --------------------------------------------------------------------------------


def test_a_new_graph_has_one_commit_without_parent_and_actor(graph):
    (genesis,) = graph.commits()
    assert (genesis.parent, genesis.merged_parent, genesis.actor) == (None, None, None)
    assert (genesis.branch, genesis.version) == ("main", 1)
    assert graph.snapshot().commit_id == genesis.commit_id


def test_the_newest_commits_in_memory_are_the_end_of_the_chain(graph, other):
    """By whichever handle they were made, and after the manifest was compacted."""
    store = graph._handle.store
    for number in range(40):
        (graph if number % 3 else other).append(people(**{f"p{number}": number}))
    chain = first_parents(store, None, graph.snapshot().commit_id)
    assert len(chain) == 41
    for earlier in (0, 3, 50):
        for position, row in enumerate(chain):
            recent = recent_first_parents(store, None, row.commit_id, earlier)
            assert recent == chain[max(position - earlier, 0) :]
    assert recent_first_parents(store, None, "01ABSENT", 3) is None


def test_the_first_parents_of_a_branch_in_memory_lead_to_its_origin(graph):
    store = graph._handle.store
    graph.append(people(ada=1))
    graph.branches.create("side")
    graph.append(people(bob=2), branch="side")
    graph.append(people(cy=3))
    chain = first_parents(store, "side", graph.snapshot("side").commit_id)
    assert recent_first_parents(store, "side", chain[0].commit_id, 3) == chain
    only_on_main = graph.snapshot().commit_id
    assert recent_first_parents(store, "side", only_on_main, 3) is None


def test_a_state_of_a_deleted_branch_is_not_one_of_the_next_of_its_name(graph, other):
    graph.branches.create("side")
    before = graph.snapshot("side")
    other.branches.delete("side")
    other.branches.create("side")
    other.append(people(bob=2), branch="side")
    manifest = graph._handle.store.manifest("side")
    assert manifest.current().head.commit_id != before.commit_id
    assert all(kept.e_tag == manifest.current().e_tag for kept in manifest._history.values())


def test_commits_are_listed_newest_first_and_every_parent_is_known(graph, other):
    """By whichever handle they were made."""
    receipts = [
        handle.append(people(**{f"p{number}": number}), actor=f"actor{number}")
        for number, handle in enumerate([graph, other, graph, graph, other])
    ]
    commits = other.commits()
    made = ids(reversed(commits))
    assert made[1:] == [receipt.commit_id for receipt in receipts]
    assert [commit.parent for commit in reversed(commits)] == [None, *made[:-1]]
    assert [commit.version for commit in commits] == sorted(
        (commit.version for commit in commits), reverse=True
    )
    assert [commit.actor for commit in commits] == [
        *(f"actor{number}" for number in reversed(range(5))),
        None,
    ]


def test_the_actor_of_the_handle_is_the_default(path, graph):
    named = Graph.open(path, actor="ann", durability="os")
    by_handle = named.append(people(a=1))
    by_call = named.append(people(b=1), actor="bo")
    by_nobody = graph.append(people(c=1))
    assert (by_handle.actor, by_call.actor, by_nobody.actor) == ("ann", "bo", None)
    assert [commit.actor for commit in graph.commits()] == [None, "bo", "ann", None]


def test_the_moment_of_a_commit_is_in_microseconds(graph):
    before = now_micros()
    commit = graph.commit(graph.append(people(a=1)).commit_id)
    assert before <= commit.created_at <= now_micros()


def test_extra_keys_of_a_commit_survive_in_the_manifest(graph, path):
    """Receipts and the like ride in its metadata; other readers ignore them."""
    store = graph._handle.store
    intent = CommitIntent(
        "01J" + "0" * 23, None, now_micros(), extra={"job": "7", "completes": "x"}
    )
    store.publisher.publish(store.manifest(None), Publication({}, commit=intent))
    assert json.loads(manifest_rows(path)[intent.commit_id]["metadata"])["job"] == "7"
    assert graph.commit(intent.commit_id).completes == ("x",)


# -- looking one up ---------------------------------------------------------------------------


@pytest.fixture
def branched(graph):
    """Commits on main, on a branch, and on a branch of it, by a name for each."""
    made = {"main1": graph.append(people(main1=1)).commit_id}
    graph.branches.create("b")
    made["b1"] = graph.append(people(b1=1), branch="b").commit_id
    made["main2"] = graph.append(people(main2=1)).commit_id
    graph.branches.create("b2", from_branch="b")
    made["c1"] = graph.append(people(c1=1), branch="b2").commit_id
    made["b2"] = graph.append(people(b2=1), branch="b").commit_id
    return made


def test_a_branch_lists_what_it_inherited(graph, branched):
    """And nothing that happened elsewhere after the fork."""
    by_id = {commit_id: name for name, commit_id in branched.items()}
    listed = {
        branch: [by_id.get(commit.commit_id, "genesis") for commit in graph.commits(branch)]
        for branch in graph.branches.list()
    }
    assert listed == {
        "main": ["main2", "main1", "genesis"],
        "b": ["b2", "b1", "main1", "genesis"],
        "b2": ["c1", "b1", "main1", "genesis"],
    }


def test_a_commit_is_found_on_whatever_branch_it_is(graph, other, branched):
    """From any handle, with the branch that made it."""
    homes = {"main1": "main", "b1": "b", "main2": "main", "c1": "b2", "b2": "b"}
    for handle in (graph, other):
        for name, commit_id in branched.items():
            actual = handle.commit(commit_id)
            assert (actual.commit_id, actual.branch) == (commit_id, homes[name])


def test_the_newest_commits_are_looked_up_without_reading_the_manifest(
    graph, branched, monkeypatch
):
    def is_read(*_args, **_options):
        raise AssertionError("the manifest is read, or the branches are listed")

    monkeypatch.setattr(LedgerReader, "read", is_read)
    monkeypatch.setattr("omnigraph.commit.history.list_branches", is_read)
    own = list(branched.values())
    assert [graph.commit(commit_id).commit_id for commit_id in own] == own


def test_a_recent_commit_of_a_deleted_branch_is_not_found(graph):
    graph.branches.create("draft")
    commit_id = graph.append(people(zoe=1), branch="draft").commit_id
    assert graph.commit(commit_id).branch == "draft"
    graph.branches.delete("draft")
    with pytest.raises(CommitNotFound):
        graph.commit(commit_id)


def test_a_commit_leads_to_the_state_that_it_left(graph, other, branched):
    """Also one that another branch inherited, and from a cold handle."""
    states = {
        "main1": ["main1"],
        "main2": ["main1", "main2"],
        "b1": ["b1", "main1"],
        "b2": ["b1", "b2", "main1"],
        "c1": ["b1", "c1", "main1"],
    }
    for handle in (graph, other, Graph.open(graph.uri, "r")):
        for name, commit_id in branched.items():
            snapshot = handle.snapshot(commit=commit_id)
            assert sorted(snapshot.read("Person")["name"].to_pylist()) == states[name]
            assert (snapshot.commit_id, snapshot.branch) == (
                commit_id,
                handle.commit(commit_id).branch,
            )


def test_a_commit_of_a_deleted_branch_is_not_found(graph, branched):
    graph.branches.delete("b2")
    for call in (graph.commit, lambda commit: graph.snapshot(commit=commit)):
        with pytest.raises(CommitNotFound):
            call(branched["c1"])
    assert graph.commit(branched["b1"]).branch == "b"


@pytest.mark.parametrize("commit_id", ["", "nope", "graph_head:main", "node:Person", "0" * 26])
def test_an_unknown_commit_is_not_found(graph, commit_id):
    """Also when it is the key of another kind of row."""
    for call in (
        lambda: graph.commit(commit_id),
        lambda: graph.snapshot(commit=commit_id),
        lambda: graph.tags.create("t", commit_id),
    ):
        with pytest.raises(CommitNotFound) as caught:
            call()
        assert caught.value.message == f"commit '{commit_id}' not found"
        assert caught.value.details == {"commit_id": commit_id}


def test_only_one_way_to_choose_a_moment(graph):
    with pytest.raises(InputError, match="only one of"):
        graph.snapshot(version=1, commit="x")


def test_a_commit_that_landed_later_than_recorded_is_found_there(graph, path, monkeypatch):
    """Decision 3: a program that does not commit came between; also twice, also on a branch."""
    real = Ledger.upsert
    graph.branches.create("b")
    graph.append(people(first=1), branch="b")
    counter = iter(range(100))

    def late(ledger, rows, key, replaced=None):
        for _ in range(2):
            row = {"object_id": f"x:{next(counter)}", "object_type": "x"}
            foreign_upsert(path, row, branch=ledger.ref.branch)
        return real(ledger, rows, key, replaced)

    monkeypatch.setattr(Ledger, "upsert", late)
    receipts = {
        branch: [graph.append(people(**{f"{branch}{n}": n}), branch=branch) for n in range(2)]
        for branch in ("main", "b")
    }
    monkeypatch.undo()
    for branch, made in receipts.items():
        for number, receipt in enumerate(made):
            commit = graph.commit(receipt.commit_id)
            assert commit.version == receipt.version - 2
            for handle in (graph, Graph.open(path, "r")):
                snapshot = handle.snapshot(commit=receipt.commit_id)
                assert snapshot.version == receipt.version
                assert snapshot.commit_id == receipt.commit_id
                assert f"{branch}{number}" in snapshot.read("Person")["name"].to_pylist()
    assert len(graph.commits()) == 3


def test_a_foreign_compaction_hides_no_commit(graph, path):
    made = [graph.append(people(**{f"p{n}": n})).commit_id for n in range(5)]
    manifest_of(path).optimize.compact_files()
    made.append(graph.append(people(last=1)).commit_id)
    for number, commit_id in enumerate(made[:5]):
        assert names(graph, commit=commit_id) == [f"p{n}" for n in range(number + 1)]
    assert ids(reversed(graph.commits()))[1:] == made


def test_a_state_that_cleanup_removed_is_gone_while_its_commit_is_known(graph, path):
    first = graph.append(people(a=1)).commit_id
    graph.append(people(b=1))
    (path / "__manifest" / "_versions" / f"{2**64 - 1 - 2:020d}.manifest").unlink()
    cold = Graph.open(path, "r")
    assert cold.commit(first).version == 2
    with pytest.raises(HistoryGone):
        cold.snapshot(commit=first)


# -- tags -------------------------------------------------------------------------------------


def test_a_tag_names_the_newest_commit_or_a_given_one(graph, other):
    first = graph.append(people(a=1)).commit_id
    graph.append(people(b=1))
    newest = graph.tags.create("v2", actor="ann")
    given = graph.tags.create("release/v1", first)
    assert (newest.commit_id, newest.actor) == (graph.commits()[0].commit_id, "ann")
    assert (given.name, given.commit_id, given.actor) == ("release/v1", first, None)
    assert list(other.tags.list()) == [given, newest]
    assert names(other, tag="release/v1") == ["a"]
    assert names(other, tag="v2") == ["a", "b"]


def test_tags_are_seen_from_every_branch_and_name_commits_of_any(graph, branched):
    tag = graph.tags.create("b-head", branch="b")
    assert tag.commit_id == branched["b2"]
    assert graph.tags.create("c", branched["c1"]).commit_id == branched["c1"]
    assert names(graph, tag="c") == ["b1", "c1", "main1"]
    assert [tag.name for tag in graph.tags.list()] == ["b-head", "c"]


def test_a_tag_is_moved_only_when_asked_for(graph, other):
    first = graph.tags.create("t")
    second = graph.append(people(a=1)).commit_id
    with pytest.raises(AlreadyExists) as caught:
        other.tags.create("t")
    assert (caught.value.message, caught.value.hint) == ("tag 't' exists already", "pass move=True")
    assert caught.value.details == {"tag": "t"}
    assert list(graph.tags.list()) == [first]
    moved = other.tags.create("t", move=True)
    assert moved.commit_id == second
    assert list(graph.tags.list()) == [moved]
    assert names(graph, tag="t") == ["a"]


def test_of_two_who_make_one_tag_at_once_one_is_refused(graph, other):
    """Between the look for the name and the write nobody else gets in."""
    second = graph.append(people(a=1)).commit_id
    reported = []

    def race():
        try:
            other.tags.create("t")
        except AlreadyExists as error:
            reported.append(error.message)

    rival = threading.Thread(target=race)
    with at(Failpoint.TAG_BEFORE_WRITE, rival.start):
        made = graph.tags.create("t", second)
    rival.join(60)
    assert reported == ["tag 't' exists already"]
    assert list(other.tags.list()) == [made]


def test_a_deleted_tag_is_gone_and_its_name_free(graph, other, path):
    graph.tags.create("t")
    graph.tags.create("u")
    with pytest.raises(NotFound, match="tag ' t ' not found"):
        graph.tags.delete(" t ")
    graph.tags.delete("t")
    assert [tag.name for tag in other.tags.list()] == ["u"]
    with pytest.raises(NotFound, match="tag 't' not found") as error:
        graph.snapshot(tag="t")
    assert error.value.hint == "known: u"
    graph.append(people(a=1))
    graph.tags.create("t")
    assert [tag.name for tag in Graph.open(path, "r").tags.list()] == ["t", "u"]
    assert names(other, tag="t") == ["a"]


def test_unknown_tags_are_not_found(graph):
    graph.tags.create("t")
    graph.tags.delete("t")
    for name in ("t", "nope"):
        for call in (graph.tags.delete, lambda name: graph.snapshot(tag=name)):
            with pytest.raises(NotFound) as caught:
                call(name)
            assert caught.value.details == {"tag": name}


@pytest.mark.parametrize("name", ["", "  ", "a b", "/a", "a//b", "..", "x" * 201, "ü"])
def test_names_that_a_tag_cannot_have(graph, name):
    with pytest.raises(InputError, match="tag"):
        graph.tags.create(name)
    assert list(graph.tags.list()) == []


def test_tags_do_not_disturb_the_chain(graph, path):
    """A tag makes a version of the manifest and no commit of the graph."""
    first = graph.append(people(a=1))
    before = graph.commits()
    graph.tags.create("t")
    graph.tags.create("t", before[-1].commit_id, move=True)
    graph.tags.delete("t")
    assert graph.commits() == before
    snapshot = graph.snapshot()
    assert (snapshot.version, snapshot.commit_id) == (first.version + 3, first.commit_id)
    second = graph.append(people(b=1))
    assert second.version == first.version + 4
    assert graph.commit(second.commit_id).parent == first.commit_id
    assert names(graph, commit=first.commit_id) == ["a"]
    assert {row["object_type"] for row in manifest_rows(path).values()} >= {"graph_tag"}
    assert state_of(graph._handle.store.manifest(None)) == fresh_state(graph._handle.store)


def test_a_tag_that_could_not_be_written_is_not_there(graph):
    interrupted = at(Failpoint.TAG_BEFORE_WRITE, raising(KeyboardInterrupt()))
    with interrupted, pytest.raises(KeyboardInterrupt):
        graph.tags.create("t")
    assert list(graph.tags.list()) == []
    graph.tags.create("t")


def test_tags_survive_the_compaction_of_the_manifest(graph, path):
    for number in range(20):
        graph.append(people(**{f"p{number}": number}))
        graph.tags.create(f"t{number:02}")
    for handle in (graph, Graph.open(path, "r")):
        assert [tag.name for tag in handle.tags.list()] == [f"t{n:02}" for n in range(20)]
        assert len(names(handle, tag="t07")) == 8
    assert len(History(graph._handle.store).commits(None)) == 21
