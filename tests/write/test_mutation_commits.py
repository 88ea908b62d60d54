"""Mutations as commits: receipts, conditions, repeats, other writers, branches, Blobs."""

from __future__ import annotations

import threading

import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.errors import (
    BranchNotFound,
    CardinalityViolation,
    InputError,
    KeyConflict,
    OrphanEdge,
    PreconditionFailed,
    UniqueViolation,
    VersionMismatch,
)
from omnigraph.write.load.run import Load
from tests.commit.deaths import Died
from tests.commit.world import at, raising
from tests.write.world import ends, heads, meanwhile, names, rows, run, values, versions

pytestmark = pytest.mark.rotates(2)

ADD = 'insert Person { name: "Eve", age: 1 }'
AGE = 'update Person set { age: 40 } where name = "Ada"'
DROP = 'delete Person where name = "Ada"'


# -- receipts ---------------------------------------------------------------------------------


def test_the_receipt_names_the_commit_and_what_it_changed(people):
    """Exactly the commit that is there, by the actor who asked."""
    receipt = run(people, DROP, actor="ann")
    head = people.commits()[0]
    assert (receipt.commit_id, receipt.version) == (head.commit_id, people.snapshot().version)
    assert (receipt.actor, head.actor, receipt.branch) == ("ann", "ann", "main")
    assert receipt.to_json() == {
        "commit_id": head.commit_id,
        "version": head.version,
        "branch": "main",
        "actor": "ann",
        "affected_nodes": 1,
        "affected_edges": 5,
        "tables": {
            "edge:Knows": {"inserted": 0, "updated": 0, "deleted": 2},
            "edge:Likes": {"inserted": 0, "updated": 0, "deleted": 1},
            "edge:Owns": {"inserted": 0, "updated": 0, "deleted": 1},
            "edge:WorksAt": {"inserted": 0, "updated": 0, "deleted": 1},
            "node:Person": {"inserted": 0, "updated": 0, "deleted": 1},
        },
        "met": {
            "edge:Knows": 2,
            "edge:Likes": 1,
            "edge:Owns": 1,
            "edge:WorksAt": 1,
            "node:Person": 1,
        },
    }


def test_the_actor_of_the_handle_is_the_default(people):
    with Graph.open(people.uri, actor="bot", durability="os") as graph:
        assert run(graph, ADD).actor == "bot"
        run(graph, AGE, actor="ann")
        assert [commit.actor for commit in graph.commits()[:2]] == ["ann", "bot"]
        assert graph.branches.list() == ["main"]


def test_the_commit_shows_the_state_before_and_after(people):
    before = people.snapshot().commit_id
    after = run(people, AGE).commit_id
    run(people, DROP)
    assert dict(rows(people, "Person", "name", "age", commit=before))["Ada"] == 36
    assert dict(rows(people, "Person", "name", "age", commit=after))["Ada"] == 40
    assert "Ada" not in names(people)


# -- only on top of a commit ------------------------------------------------------------------


def test_a_conditional_mutation_happens_on_top_of_its_commit_only(people, other):
    first = run(people, ADD)
    moved = run(other, AGE, if_commit=first.commit_id)
    with pytest.raises(PreconditionFailed) as caught:
        run(people, DROP, if_commit=first.commit_id)
    assert caught.value.details == {"expected": first.commit_id, "actual": moved.commit_id}
    assert "Ada" in names(people)
    run(people, DROP, if_commit=moved.commit_id)
    assert "Ada" not in names(people)


@pytest.mark.parametrize("statement", [ADD, AGE])
def test_the_condition_is_judged_again_at_the_publish(people, other, statement):
    """Another table moves the branch too."""
    head = people.snapshot().commit_id
    with (
        at(Failpoint.WRITE_AFTER_TABLES, lambda: run(other, 'insert Note { text: "x" }')),
        pytest.raises(PreconditionFailed),
    ):
        run(people, statement, if_commit=head)
    assert values(people, "Ada", "age") == 36
    assert "Eve" not in names(people)
    run(people, statement)


# -- only once --------------------------------------------------------------------------------


@pytest.mark.parametrize("statement", [ADD, AGE, DROP, 'insert Note { text: "x" }'])
def test_a_repeat_gets_the_first_receipt(people, other, statement):
    """Also from another handle, after reopening, and with a condition that no longer holds."""
    head = people.snapshot().commit_id
    first = run(people, statement, idempotency_key="k", actor="ann", if_commit=head)
    assert first.commit_id is not None
    after = heads(people)
    assert run(people, statement, idempotency_key="k") == first
    assert run(other, statement, idempotency_key="k", if_commit=head) == first
    with Graph.open(people.uri, durability="os") as reopened:
        assert run(reopened, statement, idempotency_key="k") == first
    assert heads(people) == after


def test_another_key_and_no_key_are_other_writes(people):
    first = run(people, 'insert Note { text: "a" }', idempotency_key="k")
    assert run(people, 'insert Note { text: "b" }', idempotency_key="l") != first
    run(people, 'insert Note { text: "c" }')
    assert rows(people, "Note", "text") == ["a", "b", "c"]


def test_a_key_belongs_to_its_branch(people):
    """Also where the branch was made after the key was used, and inherits its commit."""
    people.branches.create("before")
    first = run(people, 'insert Note { text: "a" }', idempotency_key="k")
    people.branches.create("after")
    reported = {"main": first}
    for branch, texts in (("before", ["a"]), ("after", ["a", "a"])):
        how = {"idempotency_key": "k", "branch": branch}
        reported[branch] = run(people, 'insert Note { text: "a" }', **how)
        assert run(people, 'insert Note { text: "a" }', **how) == reported[branch]
        assert rows(people, "Note", "text", branch=branch) == texts
    assert len({receipt.commit_id for receipt in reported.values()}) == 3
    assert run(people, 'insert Note { text: "a" }', idempotency_key="k") == first


def test_a_key_stands_for_one_write(people):
    """The same key with other values is a mistake of the caller, not a repeat."""
    add = ("insert Person { name: $n }", {"n": "Eve"})
    first = run(people, *add, declare="$n: String", idempotency_key="k")
    after = heads(people)
    with pytest.raises(InputError, match="'k' was used for another write") as caught:
        run(people, add[0], {"n": "Fay"}, declare="$n: String", idempotency_key="k")
    assert caught.value.details == {"commit_id": first.commit_id}
    assert heads(people) == after
    assert run(people, *add, declare="$n: String", idempotency_key="k") == first


def test_a_failed_call_does_not_use_its_key_up(people):
    with pytest.raises(OrphanEdge):
        run(people, 'insert Knows { from: "Eve", to: "Ada" }', idempotency_key="k")
    run(people, ADD)
    assert run(people, 'insert Knows { from: "Eve", to: "Ada" }', idempotency_key="k").commit_id


@pytest.mark.parametrize("statement", [ADD, AGE, DROP])
@pytest.mark.parametrize("reopen", [False, True])
def test_a_repeat_after_a_crash_gets_the_receipt_that_recovery_finished(people, statement, reopen):
    """The process died before the publish; recovery rolls forward, and the repeat finds it."""
    point = at(Failpoint.WRITE_AFTER_TABLES, raising(Died()))
    with point, pytest.raises(Died):
        run(people, statement, idempotency_key="k", actor="ann")
    (operation,) = people._handle.store.sidecars.list()
    graph = Graph.open(people.uri, durability="os") if reopen else people
    receipt = run(graph, statement, idempotency_key="k")
    assert (receipt.commit_id, receipt.actor) == (operation.removesuffix(".json"), "ann")
    assert graph.commit(receipt.commit_id).version == receipt.version
    assert receipt.affected_nodes == 1
    assert run(people, statement, idempotency_key="k") == receipt
    expected = {ADD: (36, True), AGE: (40, False), DROP: (None, False)}[statement]
    actual = dict(rows(people, "Person", "name", "age"))
    assert (actual.get("Ada"), "Eve" in actual) == expected


def test_a_repeat_after_a_crash_before_the_tables_does_the_work(people):
    """Rolled back is as if it had never been: the repeat is the first."""
    with at(Failpoint.WRITE_AFTER_SIDECAR, raising(Died())), pytest.raises(Died):
        run(people, ADD, idempotency_key="k")
    receipt = run(people, ADD, idempotency_key="k")
    assert (receipt.affected_nodes, names(people).count("Eve")) == (1, 1)
    assert run(people, ADD, idempotency_key="k") == receipt


@pytest.mark.parametrize("statement", [ADD, AGE, DROP, 'insert Note { text: "x" }'])
def test_two_handles_with_one_key_are_one_commit(people, other, statement):
    """The second is prepared already when the first one commits; it gets the same receipt."""
    reported = []
    head = people.snapshot().commit_id
    before = len(people.commits())
    with meanwhile(lambda: reported.append(run(other, statement, idempotency_key="k"))):
        receipt = run(people, statement, idempotency_key="k", if_commit=head)
    assert reported == [receipt]
    assert len(people.commits()) == before + 1


def test_two_handles_with_one_key_at_the_publish_are_one_commit(people, other, monkeypatch):
    """On different tables nothing but the publish can notice; they pass for the same write here."""
    monkeypatch.setattr(Load, "fingerprint", "same")
    reported = []

    def insist():
        reported.append(other.load([{"type": "Note", "data": {"text": "x"}}], idempotency_key="k"))

    with at(Failpoint.WRITE_AFTER_TABLES, insist):
        receipt = people.load([{"type": "Person", "data": {"name": "Eve"}}], idempotency_key="k")
    assert reported == [receipt]
    assert ("Eve" in names(people), rows(people, "Note", "text")) == (False, ["x"])
    assert people._handle.store.sidecars.list() == []
    run(people, ADD)


def test_another_write_with_the_same_key_is_refused_at_the_publish(people, other):
    def insist():
        run(other, 'insert Note { text: "x" }', idempotency_key="k")

    with (
        at(Failpoint.WRITE_AFTER_TABLES, insist),
        pytest.raises(InputError, match="'k' was used for another write"),
    ):
        run(people, ADD, idempotency_key="k")
    assert ("Eve" in names(people), rows(people, "Note", "text")) == (False, ["x"])
    assert people._handle.store.sidecars.list() == []
    run(people, ADD)


def test_a_repeated_append_is_no_conflict_with_itself(people, other):
    """A strict load would meet its own rows."""
    record = [{"type": "Company", "data": {"name": "Cog"}}]
    first = people.load(record, "append", idempotency_key="k")
    again = other.load(record, "append", idempotency_key="k")
    assert again.commit_id == first.commit_id
    with pytest.raises(KeyConflict):
        other.load(record, "append")


def test_threads_that_race_with_one_key_agree(people):
    reported, start = [], threading.Barrier(3)

    def insist():
        with Graph.open(people.uri, durability="os") as graph:
            start.wait()
            reported.append(run(graph, AGE, idempotency_key="k"))

    threads = [threading.Thread(target=insist) for _ in range(3)]
    before = len(people.commits())
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reported) == 3
    assert reported[0] == reported[1] == reported[2]
    assert len(people.commits()) == before + 1


# -- other writers ----------------------------------------------------------------------------


@pytest.mark.parametrize("statement", [AGE, DROP])
def test_a_stale_strict_writer_is_refused_and_may_repeat(people, other, statement):
    pin = versions(people)["node:Person"]
    with (
        meanwhile(lambda: run(other, 'update Person set { age: 21 } where name = "Bob"')),
        pytest.raises(VersionMismatch) as caught,
    ):
        run(people, statement)
    assert caught.value.message == (
        f"stale view of 'node:Person': expected manifest table version {pin} "
        f"but current is {pin + 1} — refresh and retry"
    )
    assert caught.value.retryable
    assert (values(people, "Ada", "age"), values(people, "Bob", "age")) == (36, 21)
    people.refresh()
    run(people, statement)


@pytest.mark.parametrize(
    "statement", [ADD, 'insert Note { text: "x" }', 'insert Knows { from: "Ada", to: "Ada" }']
)
def test_a_stale_insert_is_staged_again(people, other, statement):
    others = """insert Person { name: "Fay" } insert Note { text: "y" }
                insert Knows { from: "Fay", to: "Ada" }"""
    with meanwhile(lambda: run(other, others)):
        run(people, statement)
    assert "Fay" in names(people)
    counts = [people.snapshot().count(kind) for kind in ("Person", "Note", "Knows")]
    assert sum(counts) == 4 + 0 + 4 + 3 + 1


def test_a_stale_insert_of_a_key_that_came_meanwhile_replaces_it(people, other):
    """What looked new is there now; one row stays."""
    with meanwhile(lambda: run(other, 'insert Person { name: "Eve", age: 99, score: 1.0 }')):
        receipt = run(people, ADD)
    assert receipt.tables["node:Person"].updated == 1
    assert values(people, "Eve", "age", "score") == (1, None)


def test_a_stale_insert_is_judged_again(people, other):
    """The rules look at what is there, not at what was."""
    with (
        meanwhile(lambda: run(other, 'insert Person { name: "Fay", email: "eve@x" }')),
        pytest.raises(UniqueViolation),
    ):
        run(people, 'insert Person { name: "Eve", email: "eve@x" }')


def test_a_stale_handle_counts_the_edges_that_are_there(people, other):
    assert other.snapshot().count("WorksAt") == 2
    run(people, 'insert WorksAt { from: "Ada", to: "Brim" }')
    with pytest.raises(CardinalityViolation):
        run(other, 'insert WorksAt { from: "Ada", to: "Brim" }')


def test_an_edge_whose_end_is_deleted_at_the_same_time_is_refused(people, other):
    """Decision 4"""
    with (
        meanwhile(lambda: run(other, 'delete Person where name = "Dan"')),
        pytest.raises(OrphanEdge, match="src 'Dan' not found in Person"),
    ):
        run(people, 'insert Likes { from: "Dan", to: "Acme" }')
    assert ("Dan", "Acme") not in ends(people, "Likes")
    assert "Dan" not in names(people)


def test_a_node_that_gets_an_edge_at_the_same_time_is_not_deleted(people, other):
    """The cascade would have missed it."""
    with (
        meanwhile(lambda: run(other, 'insert Likes { from: "Dan", to: "Acme" }')),
        pytest.raises(VersionMismatch),
    ):
        run(people, 'delete Person where name = "Dan"')
    assert ("Dan", "Acme") in ends(people, "Likes")
    assert run(people, 'delete Person where name = "Dan"').affected_edges == 3


def test_an_update_of_edges_does_not_care_about_new_nodes(people, other):
    """It moves no end, so nobody looks for them."""
    with meanwhile(lambda: run(other, ADD)):
        run(people, 'update Knows set { strength: 0.2 } where from = "Ada"')
    assert "Eve" in names(people)


def test_a_strict_write_is_judged_again_when_only_the_ends_of_its_edges_moved(people, other):
    """Decision 4: what was only looked at may move, if the write is still right."""
    both = """insert Knows { from: "Ada", to: "Dan" }
              update Knows set { strength: 0.2 } where from = "Ada\""""
    with meanwhile(lambda: run(other, ADD)):
        run(people, both)
    assert "Eve" in names(people)
    assert ("Ada", "Dan") in ends(people, "Knows")


def test_commits_of_two_handles_form_one_line(people, other):
    for number in range(3):
        run(people, f'insert Note {{ text: "{number}" }}')
        run(other, f'update Person set {{ age: {number} }} where name = "Ada"')
    commits = people.commits()
    assert [c.parent for c in commits[:-1]] == [c.commit_id for c in commits[1:]]


@pytest.mark.parametrize("statement", [ADD, AGE, DROP])
def test_an_interrupted_mutation_leaves_no_graph_state(people, statement):
    """Ctrl-C while nothing has moved."""
    before = heads(people)
    point = at(Failpoint.WRITE_AFTER_LEASES, raising(KeyboardInterrupt()))
    with point, pytest.raises(KeyboardInterrupt):
        run(people, statement)
    assert heads(people) == before
    assert people._handle.store.sidecars.list() == []
    run(people, statement)


# -- branches ---------------------------------------------------------------------------------


def test_a_mutation_of_a_branch_stays_there_and_forks_what_it_touches(people):
    people.branches.create("b")
    receipt = run(people, 'insert Knows { from: "Ada", to: "Dan" }', branch="b")
    assert receipt.branch == "b"
    assert ("Ada", "Dan") in ends(people, "Knows", "b")
    assert ("Ada", "Dan") not in ends(people, "Knows")
    owners = {key: table["branch"] for key, table in people.snapshot("b").tables.items()}
    assert [key for key, owner in owners.items() if owner == "b"] == ["edge:Knows"]


def test_a_cascade_as_the_first_write_forks_what_loses_rows(people):
    run(people, 'delete Likes where from = "Ada"')
    people.branches.create("b")
    run(people, DROP, branch="b")
    owners = {key: table["branch"] for key, table in people.snapshot("b").tables.items()}
    assert [key for key, owner in owners.items() if owner == "b"] == [
        "edge:Knows",
        "edge:Owns",
        "edge:WorksAt",
        "node:Person",
    ]
    assert ("Ada" in names(people), "Ada" in names(people, "b")) == (True, False)
    assert len(ends(people, "Knows")) == 4


def test_rules_are_judged_on_the_branch(people):
    people.branches.create("b")
    run(people, 'insert Person { name: "Eve", email: "eve@x" }', branch="b")
    run(people, 'insert Person { name: "Fay", email: "eve@x" }')
    with pytest.raises(UniqueViolation):
        run(people, 'insert Person { name: "Fay", email: "eve@x" }', branch="b")
    with pytest.raises(OrphanEdge):
        run(people, 'insert Knows { from: "Fay", to: "Ada" }', branch="b")


def test_what_matches_nothing_on_a_branch_forks_nothing(people):
    people.branches.create("b")
    before = people.snapshot("b").tables
    assert run(people, 'delete Person where name = "Zoe"', branch="b").commit_id is None
    assert people.snapshot("b").tables == before


def test_branches_that_cannot_be_written(people):
    """Internal and unknown names; others are ordinary."""
    with pytest.raises(InputError):
        run(people, ADD, branch="__schema_apply_lock__")
    with pytest.raises(InputError):
        people.branches.create("__schema_apply_lock__")
    with pytest.raises(BranchNotFound):
        run(people, ADD, branch="nowhere")
    people.branches.create("__run__x")
    run(people, ADD, branch="__run__x")
    assert "Eve" in names(people, "__run__x")


# -- Blobs ------------------------------------------------------------------------------------


def blobs(graph, slug):
    return tuple(graph.snapshot().read_blob("Doc", slug, name) for name in ("body", "cover"))


def test_blobs_are_inserted_changed_and_left_alone(people):
    """Null to value, value to null, and one that is not assigned in the middle."""
    run(
        people,
        """insert Doc { slug: "a", body: "base64:aGk=", title: "t" }
           insert Doc { slug: "b", cover: "base64:Yg==" }""",
    )
    assert (blobs(people, "a"), blobs(people, "b")) == ((b"hi", None), (None, b"b"))
    run(people, 'update Doc set { title: "u" } where slug != ""')
    assert (blobs(people, "a"), blobs(people, "b")) == ((b"hi", None), (None, b"b"))
    run(people, 'update Doc set { cover: "base64:Yw==" } where slug = "a"')
    assert blobs(people, "a") == (b"hi", b"c")
    run(people, 'update Doc set { body: $none } where slug = "a"', declare="$none: Blob?")
    assert blobs(people, "a") == (None, b"c")
    assert rows(people, "Doc", "slug", "title") == [("a", "u"), ("b", "u")]
    run(people, 'insert Doc { slug: "a" }')
    assert blobs(people, "a") == (None, None)


def test_blobs_of_edges_too(people):
    run(people, 'insert Doc { slug: "a" } insert Cites { from: "a", to: "a", scan: "base64:aGk=" }')
    run(people, 'update Cites set { page: 4 } where from = "a"')
    (edge,) = rows(people, "Cites", "id", "page")
    assert (people.snapshot().read_blob("Cites", edge[0], "scan"), edge[1]) == (b"hi", 4)


def test_updates_of_the_same_blobs_go_together(people):
    run(people, 'insert Doc { slug: "a" } insert Doc { slug: "b", body: "base64:aGk=" }')
    receipt = run(
        people,
        """update Doc set { cover: "base64:Yw==", title: "x" } where slug = "a"
           update Doc set { cover: "base64:ZA==" } where title = "x" or slug = "b" """,
    )
    assert receipt.affected_nodes == 3
    assert (blobs(people, "a"), blobs(people, "b")) == ((None, b"d"), (b"hi", b"d"))
    receipt = run(
        people,
        """update Doc set { title: "y" } where slug = "a"
           update Doc set { title: "z" } where title = "y" or title is null""",
    )
    assert receipt.affected_nodes == 3
    assert rows(people, "Doc", "slug", "title") == [("a", "z"), ("b", "z")]


@pytest.mark.parametrize("first", ["insert", "update"])
def test_an_insert_and_an_update_of_all_blobs_go_together(people, first):
    run(people, 'insert Doc { slug: "a", title: "t" }')
    insert = 'insert Doc { slug: "b", body: "base64:aGk=" }'
    update = 'update Doc set { body: "base64:Yg==", cover: "base64:Yw==" } where slug = "a"'
    run(people, f"{insert} {update}" if first == "insert" else f"{update} {insert}")
    assert (blobs(people, "a"), blobs(people, "b")) == ((b"b", b"c"), (b"hi", None))
    assert rows(people, "Doc", "slug", "title") == [("a", "t"), ("b", None)]


SPLIT = {
    "an insert and an update of no Blob": (
        'insert Doc { slug: "a" } update Doc set { title: "t" } where slug = "a"'
    ),
    "an update of one Blob and an insert": (
        'update Doc set { body: "base64:" } where slug = "a" insert Doc { slug: "b" }'
    ),
    "updates of different Blobs": (
        """update Doc set { body: "base64:" } where slug = "a"
           update Doc set { cover: "base64:" } where slug = "b" """
    ),
    "updates with and without a Blob": (
        """update Doc set { title: "x" } where slug = "a"
           update Doc set { body: "base64:" } where slug = "a" """
    ),
    "the same on edges": (
        """insert Cites { from: "a", to: "a" } update Cites set { page: 1 } where from = "a" """
    ),
}


@pytest.mark.parametrize("statements", SPLIT.values(), ids=list(SPLIT))
def test_rows_with_and_without_a_blob_do_not_mix(people, statements):
    """Refused early, with advice."""
    with pytest.raises(InputError) as caught:
        run(people, statements, branch="nowhere")
    assert caught.value.hint == "Split the mutation"
