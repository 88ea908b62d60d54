"""Writes that wait on a branch share one publish, and each is what it would have been alone."""

from __future__ import annotations

import json
import signal
import threading
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.commit.group import MOST_MEMBERS
from omnigraph.commit.metadata import CommitMetadata
from omnigraph.commit.receipts import TableCounts
from omnigraph.commit.store import Timeouts
from omnigraph.errors import (
    BranchNotFound,
    CardinalityViolation,
    Closed,
    Conflict,
    InputError,
    KeyConflict,
    OrphanEdge,
    OutcomePending,
    StorageUnavailable,
    UniqueViolation,
    VersionMismatch,
)
from tests.commit.deaths import Died, move
from tests.commit.together import SCHEMA, Waiting, kept, rows_of, sizes, together, until
from tests.commit.world import at, manifest_rows, names, raising

ADD = "query add($n: String, $a: I32?) { insert Person { name: $n, age: $a } }"
KNOW = "query know($a: String, $b: String) { insert Knows { from: $a, to: $b } }"
WORK = "query work($a: String, $b: String) { insert WorksAt { from: $a, to: $b } }"
PERSON = "node:Person"


@pytest.fixture
def graph(path):
    with Graph.init(path, SCHEMA, durability="os") as graph:
        graph.append({"Person": pa.table({"name": ["Ada"]}), "Company": pa.table({"name": ["C"]})})
        yield graph


def adding(graph, name, **how):
    return lambda: graph.mutate(ADD, params={"n": name, "a": 1}, **how)


def knowing(graph, one, other):
    return lambda: graph.mutate(KNOW, params={"a": one, "b": other})


def working(graph, one):
    return lambda: graph.mutate(WORK, params={"a": one, "b": "C"})


def load_call(graph, *records, **how):
    return lambda: graph.load(list(records), **how)


def person(name, **data):
    return {"type": "Person", "data": {"name": name, **data}}


# -- one publish ----------------------------------------------------------------------------------


def test_a_lone_write_makes_the_commit_that_it_always_made(graph):
    receipt = adding(graph, "Bob", actor="ana")()
    (row,) = [row for row in rows_of(graph) if row.commit_id == receipt.commit_id]
    assert row.extra == {"writer": "Mutation"}
    assert graph.commit(receipt.commit_id).group is None


def test_a_group_is_one_version_of_each_table_and_a_commit_for_each_write(graph, path):
    before = graph.snapshot()
    start = len(rows_of(graph))
    receipts = together(
        graph,
        adding(graph, "Bob", actor="ana"),
        lambda: graph.append({"Person": pa.table({"name": ["Cy", "Di"]})}, actor="bea"),
        load_call(graph, person("Ada", age=9), person("Eve"), actor="cem"),
    )
    rows = rows_of(graph)[start:]
    assert [row.commit_id for row in rows] == [receipt.commit_id for receipt in receipts]
    assert [row.actor for row in rows] == ["ana", "bea", "cem"]
    assert [row.parent for row in rows] == [before.commit_id, *[r.commit_id for r in rows[:-1]]]
    assert [row.commit_id for row in rows] == sorted(row.commit_id for row in rows)
    assert len({row.created_at for row in rows}) == 3
    assert [row.created_at for row in rows] == sorted(row.created_at for row in rows)
    after = graph.snapshot()
    assert {receipt.version for receipt in receipts} == {before.version + 1} == {after.version}
    assert after.commit_id == receipts[-1].commit_id
    assert after.tables[PERSON]["version"] == before.tables[PERSON]["version"] + 1
    assert names(graph) == ["Ada", "Bob", "Cy", "Di", "Eve"]
    head = manifest_rows(path)["graph_head:main"]["metadata"]
    assert receipts[2].commit_id in head
    assert receipts[1].commit_id in head
    groups = [CommitMetadata.of(row).group for row in rows]
    assert [(g.id, g.index, g.size) for g in groups] == [
        (rows[-1].commit_id, i, 3) for i in (0, 1, 2)
    ]
    assert [dict(g.ids) for g in groups] == [
        {PERSON: ("Bob",)},
        {PERSON: ("Cy", "Di")},
        {PERSON: ("Ada", "Eve")},
    ]
    assert CommitMetadata.of(rows[2]).writer == "Load"


def test_the_receipts_count_what_each_write_did(graph):
    mutation, addition, load = together(
        graph,
        adding(graph, "Bob"),
        lambda: graph.append({"Person": pa.table({"name": ["Cy", "Di"]})}),
        load_call(graph, person("Ada", age=9), person("Eve", nick="e")),
    )
    assert mutation.tables == {PERSON: TableCounts(1)}
    assert mutation.met == {PERSON: 1}
    assert addition.tables == {PERSON: TableCounts(2)}
    assert addition.met is None
    assert load.tables == {PERSON: TableCounts(1, 1)}
    assert load.records == 2
    assert load.ignored == {"Person.nick": 1}


def test_at_most_sixteen_writes_are_a_group(graph):
    start = len(rows_of(graph))
    together(graph, *(adding(graph, f"p{n}") for n in range(MOST_MEMBERS + 3)))
    actual = sizes(graph)[start:]
    assert actual[:MOST_MEMBERS] == [(n, MOST_MEMBERS) for n in range(MOST_MEMBERS)]
    assert actual[MOST_MEMBERS:] == [(0, 3), (1, 3), (2, 3)]


def test_who_comes_after_a_group_commits_as_if_there_was_none(graph):
    together(graph, adding(graph, "Bob"), adding(graph, "Cy"))
    adding(graph, "Di")()
    adding(graph, "Eve")()
    assert sizes(graph)[-4:] == [(0, 2), (1, 2), (0, 1), (0, 1)]
    assert rows_of(graph)[-1].extra == rows_of(graph)[-2].extra == {"writer": "Mutation"}


def test_who_may_not_be_a_member_does_not_wait(graph):
    rows = {"Person": pa.table({"name": [f"n{number}" for number in range(257)]})}
    head = graph.snapshot().commit_id
    with kept(graph):
        graph.mutate('query q() { update Person set { age: 3 } where name = "Ada" }')
        graph.append(rows)
        graph.mutate('query q() { delete Person where name = "n1" }')
        graph.load([person("n1")], mode="append", if_commit=graph.snapshot().commit_id)
        graph.load([person("Zed")], on_progress=lambda _: None)
        with pytest.raises(Conflict):
            adding(graph, "Bob", if_commit=head)()
    assert sizes(graph)[-5:] == [(0, 1)] * 5


def test_the_first_write_of_a_table_on_a_branch_is_committed_by_itself(graph):
    graph.branches.create("b")
    together(graph, *(adding(graph, n, branch="b") for n in ("Bob", "Cy", "Di")), branch="b")
    assert sorted(names(graph, "b")) == ["Ada", "Bob", "Cy", "Di"]
    start = len(rows_of(graph, "b"))
    together(graph, *(adding(graph, n, branch="b") for n in ("Eve", "Fay")), branch="b")
    assert sizes(graph, "b")[start:] == [(0, 2), (1, 2)]


# -- each on the ones before it -------------------------------------------------------------------


def test_a_member_may_use_what_an_earlier_one_inserts(graph):
    receipts = together(graph, adding(graph, "Bob"), knowing(graph, "Ada", "Bob"))
    assert sizes(graph)[-2:] == [(0, 2), (1, 2)]
    assert receipts[1].tables == {"edge:Knows": TableCounts(1)}


def test_one_that_fails_fails_alone_with_the_error_that_it_has_alone(graph):
    graph.load([person("Mia", email="m@x")])
    failing = (
        (knowing(graph, "Ada", "Nobody"), OrphanEdge),
        (load_call(graph, person("Ada"), mode="append"), KeyConflict),
        (load_call(graph, person("Max", email="m@x")), UniqueViolation),
    )
    alone = []
    for call, kind in failing:
        with pytest.raises(kind) as caught:
            call()
        alone.append(without_id(caught.value))
    start = len(rows_of(graph))
    calls = [call for call, _ in failing]
    good, *bad, last = together(graph, adding(graph, "Bob"), *calls, adding(graph, "Cy"))
    assert [without_id(error) for error in bad] == alone
    assert [type(error) for error in bad] == [kind for _, kind in failing]
    assert sizes(graph)[start:] == [(0, 2), (1, 2)]
    assert {good.version} == {last.version}


def without_id(error):
    """An error as data; the id of an edge that was inserted is another each time."""
    return {**error.to_json(), "details": {**error.details, "id": None}}


def test_a_bound_is_counted_over_the_members_before(graph):
    graph.append({"Person": pa.table({"name": ["Bob"]})})
    first, second, third = together(
        graph, working(graph, "Ada"), working(graph, "Ada"), working(graph, "Bob")
    )
    assert first.commit_id
    assert third.commit_id
    assert isinstance(second, CardinalityViolation)
    assert graph.snapshot().count("WorksAt") == 2


def test_members_with_the_same_id_are_committed_one_after_the_other(graph):
    start = len(rows_of(graph))
    together(
        graph,
        load_call(graph, person("Bob", age=1)),
        load_call(graph, person("Bob", age=2)),
        adding(graph, "Cy"),
        load_call(graph, person("Bob", age=3)),
    )
    assert sizes(graph)[start:] == [(0, 2), (1, 2), (0, 1), (0, 1)]
    ages = graph.snapshot().read("Person", ["name", "age"]).to_pylist()
    assert {row["name"]: row["age"] for row in ages}["Bob"] == 3


def test_members_with_the_same_unique_value_do_not_meet_in_one_group(graph):
    first, second = together(
        graph,
        load_call(graph, person("Bob", email="b@x")),
        load_call(graph, person("Cy", email="b@x")),
    )
    assert first.commit_id
    assert isinstance(second, UniqueViolation)
    assert names(graph) == ["Ada", "Bob"]


def test_a_value_that_an_earlier_member_gives_up_is_free(graph):
    graph.load([person("Ada", email="a@x")])
    together(graph, load_call(graph, person("Ada")), load_call(graph, person("Bob", email="a@x")))
    rows = {r["name"]: r["email"] for r in graph.snapshot().read("Person").to_pylist()}
    assert rows == {"Ada": None, "Bob": "a@x"}
    assert sizes(graph)[-2:] == [(0, 2), (1, 2)]


def test_members_may_have_blobs_and_vectors(tmp_path):
    schema = "node Doc { name: String @key  data: Blob?  v: Vector(2)?  tags: [String]? }"
    with Graph.init(tmp_path / "docs", schema, durability="os") as graph:
        params = "$n: String, $d: Blob?, $v: Vector(2)?"
        add = f"query q({params}) {{ insert Doc {{ name: $n, data: $d, v: $v }} }}"
        record = {"name": "b", "data": "base64:Qg==", "v": [2.0, 0.5], "tags": ["x", "y"]}
        together(
            graph,
            lambda: graph.mutate(add, params={"n": "a", "d": "base64:QQ==", "v": [1.0, 0.0]}),
            load_call(graph, {"type": "Doc", "data": record}),
            lambda: graph.append({"Doc": pa.table({"name": ["c"]})}),
        )
        assert sizes(graph)[-3:] == [(0, 3), (1, 3), (2, 3)]
        snapshot = graph.snapshot()
        assert [snapshot.read_blob("Doc", name, "data") for name in "ab"] == [b"A", b"B"]
        rows = snapshot.read("Doc", ["name", "v", "tags"]).to_pylist()
        assert {row["name"]: (row["v"], row["tags"]) for row in rows} == {
            "a": ([1.0, 0.0], None),
            "b": ([2.0, 0.5], ["x", "y"]),
            "c": (None, None),
        }


# -- idempotency keys -----------------------------------------------------------------------------


def test_a_repeat_in_the_same_group_gets_the_receipt_of_the_first(graph):
    call = adding(graph, "Bob", idempotency_key="once", actor="ana")
    first, second, other = together(graph, call, call, adding(graph, "Cy"))
    assert second == first
    again = call()
    assert again == first
    assert other.commit_id != first.commit_id
    assert names(graph) == ["Ada", "Bob", "Cy"]


def test_a_key_that_was_used_for_another_write_is_refused_beside_others(graph):
    adding(graph, "Bob", idempotency_key="once")()
    refused, good = together(
        graph, adding(graph, "Cy", idempotency_key="once"), adding(graph, "Di")
    )
    assert isinstance(refused, InputError)
    assert good.commit_id


def test_a_load_gets_its_counts_back_under_its_key(graph):
    call = load_call(graph, person("Bob", nick="b"), idempotency_key="load")
    first, _ = together(graph, call, adding(graph, "Cy"))
    assert call() == first


# -- when something goes wrong --------------------------------------------------------------------


def test_when_a_consulted_table_moved_each_commits_by_itself(graph, path):
    start, version = len(rows_of(graph)), graph.snapshot().tables["edge:Knows"]["version"]
    with Graph.open(path, durability="os") as other:
        moved = partial(other.append, {"Person": pa.table({"name": ["Moved"]})})
        with at(Failpoint.WRITE_AFTER_TABLES, moved):
            receipts = together(graph, *(knowing(graph, "Ada", "Ada") for _ in range(3)))
    assert [row.extra.get("group") for row in rows_of(graph)[start:]] == [None] * 4
    assert {r.commit_id for r in receipts} < {row.commit_id for row in rows_of(graph)}
    assert graph.snapshot().count("Knows") == 3
    # The move of the group, its undo, and one for each.
    assert graph.snapshot().tables["edge:Knows"]["version"] == version + 5
    assert not list((path / "__recovery").glob("*.json"))


def test_a_race_that_is_lost_is_the_conflict_of_those_who_write_the_table(graph, path):
    """Another program moves a table without a lease; who does not write it goes on."""
    foreign = partial(move, path, PERSON, "Foreign")
    with at(Failpoint.WRITE_AFTER_SIDECAR, foreign):
        lost, went_on, lost_too = together(
            graph, adding(graph, "Bob"),
            load_call(graph, {"type": "Company", "data": {"name": "D"}}),
            adding(graph, "Cy"),
        )  # fmt: skip
    for error in (lost, lost_too):
        assert type(error) is VersionMismatch
        assert set(error.details) == {"table_key", "expected", "actual"}
        assert error.details["table_key"] == PERSON
    assert lost is not lost_too
    assert went_on.commit_id
    assert names(graph) == ["Ada"]


def test_a_disk_that_fails_is_the_error_of_each_member(graph, path):
    failure = StorageUnavailable("the disk failed", hint="check it")
    with at(Failpoint.WRITE_AFTER_TABLES, raising(failure)):
        one, other, alone = together(
            graph, adding(graph, "Bob"), adding(graph, "Cy"), knowing(graph, "Ada", "Nobody")
        )
    assert one.to_json() == other.to_json() == failure.to_json()
    assert one is not other
    assert isinstance(alone, OrphanEdge)
    assert names(graph) == ["Ada"]
    assert not list((path / "__recovery").glob("*.json"))


def test_contention_leaves_each_with_its_own_pending_commit(graph, path, monkeypatch):
    store = graph._handle.store
    monkeypatch.setattr(store.publisher, "_limit", 0.05)
    from omnigraph.commit.names import publish_lease
    from tests.commit.world import store_at

    blocker = store_at(path)
    taken = blocker.leases.acquire([publish_lease(None)], 1.0)
    with at(Failpoint.WRITE_AFTER_TABLES, taken.__enter__):
        one, other = together(graph, adding(graph, "Bob"), adding(graph, "Cy"))
    taken.__exit__(None, None, None)
    assert type(one) is type(other) is OutcomePending
    ids = [error.details["commit_id"] for error in (one, other)]
    assert ids == sorted(set(ids))
    assert all(error.details["commit_id"] in error.message for error in (one, other))
    monkeypatch.setattr(store.publisher, "_limit", 15.0)
    adding(graph, "Di")()
    assert names(graph) == ["Ada", "Bob", "Cy", "Di"]
    assert [graph.commit(commit_id).commit_id for commit_id in ids] == ids
    assert rows_of(graph)[-2].extra["completes"] == ids


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a bug"), MemoryError()])
def test_when_the_leader_stops_before_anything_is_written_the_others_go_on(graph, error):
    with at(Failpoint.WRITE_AFTER_LEASES, raising(error)):
        stopped, *others = together(graph, *(adding(graph, n) for n in ("Bob", "Cy", "Di")))
    assert stopped is error
    assert all(receipt.commit_id for receipt in others)
    assert names(graph) == ["Ada", "Cy", "Di"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Died()])
def test_when_the_leader_stops_later_each_has_a_pending_commit_that_is_found(graph, path, error):
    calls = [adding(graph, n, actor=f"by {n}", idempotency_key=n) for n in ("Bob", "Cy", "Di")]
    with at(Failpoint.WRITE_AFTER_TABLES, raising(error)):
        stopped, *others = together(graph, *calls)
    assert stopped is error
    assert {type(other) for other in others} == {OutcomePending}
    assert names(graph) == ["Ada"]
    adding(graph, "Eve")()
    assert names(graph) == ["Ada", "Bob", "Cy", "Di", "Eve"]
    rows = rows_of(graph)[-5:]
    assert [row.actor for row in rows] == ["by Bob", "by Cy", "by Di", "omnigraph:recovery", None]
    ids = [row.commit_id for row in rows[:3]]
    assert [other.details["commit_id"] for other in others] == ids[1:]
    assert rows[3].extra == {"writer": "Mutation", "completes": ids}
    assert [row.parent for row in rows[1:]] == [row.commit_id for row in rows[:-1]]
    assert [sizes(graph)[-5:-2]] == [[(0, 3), (1, 3), (2, 3)]]
    assert [call().commit_id for call in calls] == ids
    assert names(graph) == ["Ada", "Bob", "Cy", "Di", "Eve"]
    (audited,) = graph._handle.store.audit.rows()
    assert (audited.graph_commit_id, audited.operation_id) == (rows[3].commit_id, ids[-1])


def test_a_program_that_does_not_know_groups_completes_them_in_one_commit(graph, path):
    """As the reference does: the rows are there, the ids of the members are not."""
    with at(Failpoint.WRITE_AFTER_TABLES, raising(Died())):
        _, pending = together(
            graph, adding(graph, "Bob", actor="b"), adding(graph, "Cy", actor="c")
        )
    (file,) = (path / "__recovery").glob("*.json")
    plan = json.loads(file.read_text())
    assert [member["actor_id"] for member in plan.pop("members")] == ["b", "c"]
    assert (plan["operation_id"], plan["actor_id"]) == (pending.details["commit_id"], None)
    assert "intent" not in plan
    file.write_text(json.dumps(plan))
    start = len(rows_of(graph))
    with Graph.open(path, durability="os") as again:
        assert names(again) == ["Ada", "Bob", "Cy"]
        (row,) = rows_of(again)[start:]
    assert row.extra == {"completes": plan["operation_id"]}


def test_of_a_group_with_one_member_left_the_sidecar_names_its_writer(graph, path):
    refused = knowing(graph, "Ada", "Nobody")
    with at(Failpoint.WRITE_AFTER_TABLES, raising(Died())):
        together(graph, refused, load_call(graph, person("Bob"), actor="bea"), refused)
    with Graph.open(path, durability="os") as again:
        assert names(again) == ["Ada", "Bob"]
        (audited,) = again._handle.store.audit.rows()
        assert (audited.recovery_for_actor, audited.sidecar_writer_kind) == ("bea", "Load")
        assert rows_of(again)[-1].extra == {"writer": "Load", "completes": audited.operation_id}


def test_a_group_that_died_before_all_tables_moved_is_rolled_back(graph, path):
    calls = (adding(graph, "Bob"), load_call(graph, {"type": "Company", "data": {"name": "D"}}))
    with at(Failpoint.WRITE_BETWEEN_TABLES, raising(Died())):
        _, pending = together(graph, *calls)
    assert type(pending) is OutcomePending
    with Graph.open(path, durability="os") as again:
        assert names(again) == ["Ada"]
        assert again.snapshot().count("Company") == 1
    assert "rolled_back" in rows_of(graph)[-1].extra


def test_a_member_that_waits_too_long_is_refused_and_forgotten(graph):
    store = graph._handle.store
    store.timeouts = Timeouts(lease=0.05)
    with kept(graph) as queue:
        with pytest.raises(Conflict, match=r"branch 'main' is locked by another writer \(waited"):
            adding(graph, "Bob")()
        assert len(queue) == 0
    assert adding(graph, "Cy")().commit_id
    assert names(graph) == ["Ada", "Cy"]


def test_a_locked_table_refuses_only_those_who_write_it(graph, path):
    from omnigraph.commit.names import table_lease
    from tests.commit.world import store_at

    graph._handle.store.timeouts = replace(graph._handle.store.timeouts, lease=0.2)
    with store_at(path).leases.acquire([table_lease(PERSON, None)], 1.0):
        one, other = together(
            graph,
            adding(graph, "Bob"),
            load_call(graph, {"type": "Company", "data": {"name": "D"}}),
        )
    assert type(one) is Conflict
    assert "locked by another writer" in one.message
    assert other.commit_id


def test_whoever_waits_when_the_graph_is_closed_is_refused(graph):
    waiting = Waiting([adding(graph, "Bob"), adding(graph, "Cy")])
    with kept(graph) as queue:
        waiting.start(queue)
        graph.close()
        assert {type(outcome) for outcome in waiting.join()} == {Closed}


def test_an_interrupt_reaches_a_thread_that_waits(graph):
    """Only the main thread gets signals; it leaves the queue and nothing of it is written."""

    def interrupt():
        until(lambda: len(queue) == 1)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with kept(graph) as queue:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            adding(graph, "Bob")()
        thread.join()
        assert len(queue) == 0
    assert adding(graph, "Cy")().commit_id
    assert names(graph) == ["Ada", "Cy"]


def test_who_was_interrupted_while_a_leader_had_it_never_leads(graph):
    """It overlaps with the leader's write, so it is put back into a queue that it has left."""

    def leave():
        queue.leave(entry)
        assert entry.is_abandoned

    waiting = Waiting([adding(graph, "Bob"), adding(graph, "Bob"), adding(graph, "Cy")])
    with at(Failpoint.WRITE_AFTER_SIDECAR, leave), kept(graph) as queue:
        waiting.start(queue)
        entry = queue._waiting[1]
    until(lambda: not queue.is_led and not len(queue))
    assert adding(graph, "Di")().commit_id


def test_a_write_inside_another_does_not_wait_for_it(graph):
    with at(Failpoint.WRITE_AFTER_SIDECAR, adding(graph, "Inner", branch="main")):
        graph.append({"Company": pa.table({"name": ["D"]})})
    assert names(graph) == ["Ada", "Inner"]
    assert graph.snapshot().count("Company") == 2


def test_queues_of_branches_that_nobody_writes_are_dropped(graph):
    queues = graph._handle.store.queues
    for number in range(200):
        with pytest.raises(BranchNotFound):
            adding(graph, "Bob", branch=f"nowhere-{number}")()
    assert len(queues._queues) <= 64
    assert adding(graph, "Cy")().commit_id


def test_many_threads_lose_nothing(graph):
    start = len(rows_of(graph))
    waiting = Waiting(
        [
            lambda t=t: [adding(graph, f"{t}-{n}", actor=f"t{t}")() for n in range(6)]
            for t in range(8)
        ]
    )
    for thread in waiting.threads:
        thread.start()
    receipts = [receipt for own in waiting.join() for receipt in own]
    rows = rows_of(graph)[start:]
    assert {r.commit_id for r in receipts} == {row.commit_id for row in rows}
    assert len(names(graph)) == 1 + 48 == 1 + len(rows)
    assert [row.parent for row in rows[1:]] == [row.commit_id for row in rows[:-1]]
    actors = {row.commit_id: row.actor for row in rows}
    assert all(actors[receipt.commit_id] == receipt.actor for receipt in receipts)
    assert any(size > 1 for _, size in sizes(graph))
