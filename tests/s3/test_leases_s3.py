"""Leases on S3: one holder, alive as long as it renews, replaced by the server's clock only."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import uuid
from contextlib import ExitStack
from datetime import timedelta

import pytest

from omnigraph.errors import Conflict, StorageUnavailable
from omnigraph.storage.leases import s3
from omnigraph.storage.leases.local import lease_path, open_leases
from omnigraph.storage.leases.s3 import S3Leases
from omnigraph.storage.objects import s3 as objects
from omnigraph.storage.objects.store import ObjectStore
from tests.fork_server import fork_context
from tests.s3 import lease_workers
from tests.s3.proxy import Action, Fault, Kind, S3Proxy

# The same tests as for local disk; they take the leases and the holder of this module.
from tests.storage.test_leases import (  # noqa: F401
    test_a_lease_has_one_holder_among_threads,
    test_a_lease_that_is_held_stays_ours,
    test_a_lease_that_is_not_free_in_time_is_a_typed_conflict,
    test_a_thread_that_gave_up_does_not_keep_the_others_waiting,
    test_nothing_is_held_when_one_of_several_is_taken,
)

pytestmark = pytest.mark.rotates(3)

NAME = "node:Person@main"
TTL = 1.0
PATIENCE = 60


@pytest.fixture
def root(s3_root):
    return s3_root("g.omni")


@pytest.fixture
def store(root):
    return ObjectStore(root)


@pytest.fixture
def leases(store):
    return S3Leases(store, TTL)


@pytest.fixture
def through(s3_root, proxy):
    """Leases of the same graph, reached through the proxy."""
    return S3Leases(ObjectStore(s3_root("g.omni", proxy.endpoint)), TTL)


@pytest.fixture
def spawned(root):
    """Start a process that works with leases; all are ended after the test."""
    with ExitStack() as stack:

        def start(target, *arguments, ttl=TTL):
            process = fork_context().Process(
                target=target, args=(root.uri, root.options, ttl, *arguments)
            )
            process.start()
            stack.callback(process.join, PATIENCE)
            stack.callback(process.kill)
            return process

        yield start


@pytest.fixture
def holder(spawned):
    ready = fork_context().Event()
    process = spawned(lease_workers.hold, NAME, ready)
    assert ready.wait(PATIENCE)
    return process


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def server_time(store):
    path = f"clock/{uuid.uuid4().hex}"
    store.write(path, "")
    return store.head(path).modified


def record(store):
    return json.loads(store.read(lease_path(NAME)))


# -- one holder -----------------------------------------------------------------------------------


def test_a_graph_on_s3_has_leases_of_s3(root, store):
    assert isinstance(open_leases(root, store), S3Leases)


def test_a_lease_says_who_holds_it(leases, store):
    with leases.acquire([NAME], timeout=1) as kept:
        said = record(store)
        assert (said["name"], said["token"], said["ttl_seconds"]) == (NAME, 1, TTL)
        assert kept.tokens == {NAME: 1}
    with leases.acquire([NAME], timeout=1):
        assert record(store)["owner"] != said["owner"]


def test_released_leases_leave_nothing(leases, store):
    with leases.acquire(["b", "a", "b"], timeout=1) as kept:
        assert not leases.is_free("a")
        assert len(store.list("__recovery")) == len(kept.tokens) == 2
    assert store.list("__recovery") == []


@pytest.mark.parametrize(("seconds", "remembered"), [(0.0, 1), (PATIENCE, 5)])
def test_waiters_are_remembered_for_some_seconds(leases, store, monkeypatch, seconds, remembered):
    """A handle that lives long keeps no name of every lease that was ever waited for."""
    monkeypatch.setattr(s3, "_BUSY_SECONDS", seconds)
    names = [f"node:Person@{branch}" for branch in range(5)]
    with S3Leases(store, PATIENCE).acquire(names, timeout=1):
        for name in names:
            with pytest.raises(Conflict), leases.acquire([name], timeout=0):
                pass
    assert len(leases._awaited) == remembered


def test_a_free_lease_costs_two_requests(s3_root, proxy):
    # It lives so long that no machine is too slow to give it back before it is renewed.
    through = S3Leases(ObjectStore(s3_root("g.omni", proxy.endpoint)), 30.0)
    with through.acquire([NAME], timeout=1):
        pass
    assert proxy.counts == {Kind.PUT: 1, Kind.DELETE: 1}


def test_no_two_processes_hold_a_lease_at_once(store, spawned):
    store.write("counter", "0")
    # Long enough for a machine that is busy: what expires is another test's matter.
    workers = [spawned(lease_workers.count_up, NAME, 6, ttl=30.0) for _ in range(3)]
    for worker in workers:
        worker.join(PATIENCE)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert store.read("counter") == "18"


# -- the queue ------------------------------------------------------------------------------------


def waiters(store):
    return record(store).get("waiters", [])


@pytest.fixture
def wait_in_line(store):
    """Start somebody who waits for the lease, and see it stand in line."""
    threads, served = [], []

    def start(label):
        count = len(waiters(store))

        def take():
            with S3Leases(store, TTL).acquire([NAME], timeout=PATIENCE):
                served.append(label)

        threads.append(threading.Thread(target=take))
        threads[-1].start()
        wait_until(lambda: len(waiters(store)) == count + 1)

    start.served = served
    yield start
    for thread in threads:
        thread.join()


def test_those_who_wait_are_served_in_the_order_in_which_they_came(leases, store, wait_in_line):
    with leases.acquire([NAME], timeout=1) as kept:
        for number in range(4):
            wait_in_line(number)
        kept.check()
    wait_until(lambda: len(wait_in_line.served) == 4)
    assert wait_in_line.served == [0, 1, 2, 3]
    wait_until(lambda: store.list("__recovery") == [])


def test_who_releases_a_lease_and_takes_it_again_stands_in_line(leases, wait_in_line):
    with leases.acquire([NAME], timeout=1) as kept:
        wait_in_line("other")
        kept.check()
    with leases.acquire([NAME], timeout=PATIENCE):
        assert wait_in_line.served == ["other"]


def test_a_holder_that_did_not_look_leaves_nobody_behind(leases, wait_in_line):
    """It deletes the object with the names in it; who waits enters its name again."""
    with leases.acquire([NAME], timeout=1):
        for number in range(3):
            wait_in_line(number)
    wait_until(lambda: sorted(wait_in_line.served) == [0, 1, 2])


def test_a_waiter_that_died_is_passed_over(leases, store, spawned, wait_in_line):
    with leases.acquire([NAME], timeout=1) as kept:
        never = fork_context().Event()
        dead = spawned(lease_workers.hold, NAME, never)
        wait_until(lambda: len(waiters(store)) == 1)
        wait_in_line("behind")
        dead.kill()
        dead.join(PATIENCE)
        kept.check()
    wait_until(lambda: wait_in_line.served == ["behind"])
    assert not never.is_set()


def test_a_waiter_that_is_stopped_is_passed_over(leases, store, spawned, wait_in_line):
    ready = fork_context().Event()
    with leases.acquire([NAME], timeout=1) as kept:
        stopped = spawned(lease_workers.hold, NAME, ready)
        wait_until(lambda: len(waiters(store)) == 1)
        os.kill(stopped.pid, signal.SIGSTOP)
        wait_in_line("behind")
        kept.check()
    wait_until(lambda: wait_in_line.served == ["behind"])
    os.kill(stopped.pid, signal.SIGCONT)
    assert ready.wait(PATIENCE)


def test_a_waiter_that_gives_up_leaves_the_line(leases, store):
    with leases.acquire([NAME], timeout=1) as kept:
        other = S3Leases(store, TTL)
        with (
            pytest.raises(Conflict, match="locked by another"),
            other.acquire([NAME], timeout=0.5),
        ):
            pass
        assert waiters(store) == []
        kept.check()
    assert store.list("__recovery") == []


def test_those_who_come_and_go_do_not_keep_a_dead_holder_alive(leases, store):
    dead = {"owner": "x", "token": 1, "name": NAME, "ttl_seconds": 3.0, "beat": 0}
    store.write(lease_path(NAME), json.dumps(dead))
    end = server_time(store) + timedelta(seconds=30)
    while True:
        try:
            with S3Leases(store, TTL).acquire([NAME], timeout=0.3) as kept:
                assert kept.tokens == {NAME: 2}
                break
        except Conflict:
            assert server_time(store) < end


@pytest.mark.parametrize("action", [Action.CUT_AFTER, Action.CUT_BEFORE, Action.PRECONDITION])
def test_a_lost_answer_to_a_handover_takes_the_lease_from_nobody(
    through, store, proxy, wait_in_line, action
):
    with through.acquire([NAME], timeout=1) as kept:
        wait_in_line("heir")
        kept.check()
        proxy.plan(Fault(action, kind=Kind.PUT, path=".lease"))
    wait_until(lambda: wait_in_line.served == ["heir"])


# -- life and death of a holder -------------------------------------------------------------------


def test_a_slow_holder_keeps_its_lease_by_renewing_it(leases, store):
    with leases.acquire([NAME], timeout=1) as kept:
        end = server_time(store) + timedelta(seconds=3 * TTL)
        other = S3Leases(store, TTL)
        wait_until(lambda: other.is_free(NAME) or server_time(store) > end)
        assert not other.is_free(NAME)
        kept.check()
        assert record(store)["beat"] > 0
    assert leases.is_free(NAME)


def test_the_lease_of_a_killed_holder_goes_to_the_next_with_a_higher_token(leases, store, holder):
    holder.kill()
    holder.join(PATIENCE)
    first = record(store)
    with pytest.raises(Conflict), leases.acquire([NAME], timeout=0):
        pass
    assert record(store) == first
    with leases.acquire([NAME], timeout=PATIENCE) as kept:
        assert kept.tokens == {NAME: first["token"] + 1}
        assert record(store)["owner"] != first["owner"]
        kept.check()
    assert store.list("__recovery") == []


def test_a_holder_that_was_stopped_too_long_finds_out_and_disturbs_nobody(leases, store, spawned):
    ready = fork_context().Event()
    ours, theirs = fork_context().Pipe()
    with ours, theirs:
        stopped = spawned(lease_workers.hold_and_check, NAME, ready, theirs)
        assert ready.wait(PATIENCE)
        os.kill(stopped.pid, signal.SIGSTOP)
        with leases.acquire([NAME], timeout=PATIENCE) as kept:
            os.kill(stopped.pid, signal.SIGCONT)
            ours.send("well?")
            assert ours.poll(PATIENCE)
            assert ours.recv() == NAME
            stopped.join(PATIENCE)
            assert stopped.exitcode == 0
            kept.check()
    assert store.list("__recovery") == []


def test_a_holder_that_cannot_renew_does_not_trust_its_lease(through, proxy):
    with through.acquire([NAME], timeout=1) as kept:
        kept.check()
        proxy.plan(Fault(Action.CUT_BEFORE, kind=Kind.PUT, times=float("inf")))
        wait_until(lambda: expired(kept))
        proxy.reset()
        wait_until(lambda: not expired(kept))


def expired(kept):
    try:
        kept.check()
    except Conflict:
        return True
    return False


def test_a_lease_that_somebody_removed_is_lost(leases, store):
    """A lease that was just taken cannot have expired, so it is not looked at yet."""
    with leases.acquire([NAME], timeout=1) as kept:
        store.delete(lease_path(NAME))
        kept.check()
        time.sleep(TTL / 3)
        with pytest.raises(Conflict, match="expired"):
            kept.check()


def test_a_lease_that_nobody_can_read_expires_like_any_other(leases, store):
    store.write(lease_path(NAME), "{}")
    assert not leases.is_free(NAME)
    assert not leases.is_disowned(NAME)
    with leases.acquire([NAME], timeout=PATIENCE) as kept:
        kept.check()


def test_only_the_clock_of_the_server_counts(leases, store, s3, s3_root):
    upstream = int(s3.endpoint.rpartition(":")[2])
    with ExitStack() as stack:
        skewed = []
        for minutes in (-10, 10):
            shifted = stack.enter_context(S3Proxy(upstream, timedelta(minutes=minutes)))
            skewed.append(S3Leases(ObjectStore(s3_root("g.omni", shifted.endpoint)), TTL))
        with leases.acquire([NAME], timeout=1):
            assert [other.is_free(NAME) for other in skewed] == [False, False]
        dead = {"owner": "x", "token": 6, "name": NAME, "ttl_seconds": TTL, "beat": 0}
        store.write(lease_path(NAME), json.dumps(dead))
        wait_until(lambda: leases.is_free(NAME))
        assert [other.is_free(NAME) for other in skewed] == [True, True]
        with skewed[0].acquire([NAME], timeout=0) as kept:
            assert kept.tokens == {NAME: 7}
            assert not skewed[1].is_free(NAME)


# -- answers that are lost ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "action", [Action.CUT_BEFORE, Action.CUT_AFTER, Action.UNAVAILABLE, Action.PRECONDITION]
)
def test_a_lease_is_taken_whatever_happens_to_the_first_request(through, store, proxy, action):
    proxy.plan(Fault(action, kind=Kind.PUT))
    with through.acquire([NAME], timeout=10) as kept:
        kept.check()
        assert kept.tokens == {NAME: 1}
    assert store.list("__recovery") == []


def test_a_lost_answer_to_a_takeover_is_settled_by_reading(through, leases, store, proxy):
    dead = {"owner": "x", "token": 1, "name": NAME, "ttl_seconds": -1.0, "beat": 0}
    store.write(lease_path(NAME), json.dumps(dead))
    proxy.plan(Fault(Action.CUT_AFTER, kind=Kind.PUT, path=".lease", at=2))
    with through.acquire([NAME], timeout=10) as kept:
        kept.check()
        assert kept.tokens == {NAME: 2}
        assert not leases.is_free(NAME)


def test_a_lost_answer_to_a_renewal_is_settled_by_reading(through, store, proxy):
    with through.acquire([NAME], timeout=1) as kept:
        fault = Fault(Action.CUT_AFTER, kind=Kind.PUT)
        proxy.plan(fault)
        assert fault.reached.wait(PATIENCE)
        wait_until(lambda: record(store)["beat"] > 1)
        kept.check()


def test_a_creation_that_arrives_late_is_recognised_as_our_own(
    through, store, proxy, s3_root, monkeypatch
):
    monkeypatch.setattr(objects, "_REQUEST_TIMEOUT", timedelta(milliseconds=200))
    impatient = S3Leases(ObjectStore(s3_root("g.omni", proxy.endpoint)))
    first = Fault(Action.DELAY, kind=Kind.PUT, path=".lease", seconds=PATIENCE)
    second = Fault(Action.DELAY, kind=Kind.PUT, path=".lease", seconds=PATIENCE, at=2)
    proxy.plan(first, second)
    tokens = []

    def take():
        with impatient.acquire([NAME], timeout=PATIENCE) as kept:
            kept.check()
            tokens.append(kept.tokens)

    taker = threading.Thread(target=take)
    taker.start()
    assert second.reached.wait(PATIENCE)
    first.released.set()
    wait_until(lambda: tokens)
    second.released.set()
    taker.join(PATIENCE)
    assert tokens == [{NAME: 1}]


def test_a_release_that_does_not_arrive_does_not_fail_what_was_done(through, leases, proxy):
    with through.acquire([NAME], timeout=1):
        proxy.plan(Fault(Action.CUT_BEFORE, kind=Kind.DELETE, times=float("inf")))
    proxy.reset()
    with leases.acquire([NAME], timeout=PATIENCE) as kept:
        assert kept.tokens == {NAME: 2}


REFUSED = Action.UNAVAILABLE, Action.CUT_BEFORE


@pytest.fixture
def lasting(s3_root, proxy):
    """Leases through the proxy that live so long that none expires during a test."""
    return S3Leases(ObjectStore(s3_root("g.omni", proxy.endpoint)), PATIENCE)


def refuse_deletes(proxy, action=Action.UNAVAILABLE):
    proxy.plan(Fault(action, kind=Kind.DELETE, times=float("inf")))


@pytest.mark.parametrize("action", REFUSED)
@pytest.mark.parametrize("is_old", [False, True], ids=["just renewed", "about to expire"])
def test_a_lease_that_cannot_be_deleted_says_that_nobody_holds_it(
    lasting, leases, store, proxy, monkeypatch, action, is_old
):
    if is_old:
        monkeypatch.setattr(s3._Lease, "_age", lambda lease: PATIENCE / 2)
    with lasting.acquire([NAME, "other"], timeout=1):
        assert not leases.is_disowned(NAME)
        refuse_deletes(proxy, action)
    for name in (NAME, "other"):
        assert leases.is_disowned(name)
        assert leases.is_free(name)
    # A publisher does not wait for as long as a lease lives.
    assert PATIENCE / 3 < record(store)["ttl_seconds"] <= PATIENCE * 2 / 3


def test_a_disowned_lease_is_taken_only_after_it_has_expired(leases, lasting, store, proxy):
    """A delete whose answer was lost may arrive later, and must not hit the next holder."""
    with lasting.acquire([NAME], timeout=1):
        refuse_deletes(proxy)
    proxy.reset()
    with pytest.raises(Conflict), leases.acquire([NAME], timeout=0.5):
        pass
    assert leases.is_disowned(NAME)
    store.write(lease_path(NAME), json.dumps(record(store) | {"ttl_seconds": TTL}))
    with leases.acquire([NAME], timeout=PATIENCE) as kept:
        assert kept.tokens == {NAME: 2}
        assert not leases.is_disowned(NAME)
    assert store.list("__recovery") == []


def test_a_lease_that_was_deleted_without_an_answer_leaves_nothing(lasting, leases, store, proxy):
    with lasting.acquire([NAME], timeout=1):
        proxy.plan(Fault(Action.CUT_AFTER, kind=Kind.DELETE, times=float("inf")))
    assert not leases.is_disowned(NAME)
    assert store.list("__recovery") == []


def test_nobody_disowns_the_lease_of_another(lasting, store, proxy):
    with lasting.acquire([NAME], timeout=1):
        taken = record(store) | {"owner": "another"}
        store.write(lease_path(NAME), json.dumps(taken))
        refuse_deletes(proxy)
    assert record(store) == taken


def test_a_lease_that_can_neither_be_deleted_nor_disowned_expires(lasting, leases, proxy):
    with lasting.acquire([NAME], timeout=1):
        refuse_deletes(proxy)
        proxy.plan(Fault(Action.UNAVAILABLE, kind=Kind.PUT, times=float("inf")))
    assert not leases.is_disowned(NAME)
    assert not leases.is_free(NAME)


def test_a_store_that_is_down_is_a_typed_error_and_nothing_is_held(through, leases, proxy):
    proxy.plan(Fault(Action.CUT_BEFORE, times=float("inf")))
    with pytest.raises(StorageUnavailable), through.acquire([NAME], timeout=1):
        pass
    assert leases.is_free(NAME)
