"""Small queries are admitted one at a time; no query waits long, and none keeps the gate."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue

import pytest

from omnigraph import Graph
from omnigraph.api.handle import Handle
from omnigraph.read import gate
from omnigraph.read.gate import GATE


def test_the_gate_is_free_after_its_block_whatever_happens():
    with GATE:
        assert not GATE.is_free
    assert GATE.is_free
    with pytest.raises(ValueError, match="wrong"), GATE:
        raise ValueError("wrong")
    assert GATE.is_free


def test_a_released_gate_is_not_released_again():
    entered, done = threading.Event(), threading.Event()

    def other():
        with GATE:
            entered.set()
            done.wait(10)

    thread = threading.Thread(target=other)
    with GATE:
        GATE.release()
        assert GATE.is_free
        thread.start()
        assert entered.wait(10)
        GATE.release()
        GATE.release_if_long()
        assert not GATE.is_free
    assert not GATE.is_free
    done.set()
    thread.join()
    assert GATE.is_free


def test_a_query_inside_of_a_query_has_the_same_admission():
    with GATE:
        with GATE:
            assert not GATE.is_free
        assert not GATE.is_free
    assert GATE.is_free


def test_a_long_query_releases_the_gate(monkeypatch):
    monkeypatch.setattr(gate, "_LONG", 0.0)
    with GATE:
        GATE.release_if_long()
        assert GATE.is_free


def test_a_query_that_waits_too_long_runs_without_the_gate(monkeypatch):
    monkeypatch.setattr(gate, "_PATIENCE", 0.0)
    done = []

    def other():
        with GATE:
            done.append("went on")

    with GATE:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert done == ["went on"]
        assert not GATE.is_free
    assert GATE.is_free


class Querying:
    """A thread that runs a query whenever it is told to, and lets it end when it is told to."""

    def __init__(self) -> None:
        self._tasks, self._ends = SimpleQueue(), SimpleQueue()
        self.admitted, self.ended = SimpleQueue(), SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while self._tasks.get():
            with GATE:
                self.admitted.put(True)
                self._ends.get()
            self.ended.put(True)

    def begin(self) -> None:
        self._tasks.put(True)

    def end(self) -> None:
        self._ends.put(True)
        self.ended.get(timeout=30)

    def query(self) -> None:
        self.begin()
        self.admitted.get(timeout=30)
        self.end()

    def close(self) -> None:
        self._tasks.put(False)

    @property
    def is_waiting(self) -> bool:
        return self.admitted.empty()


@pytest.fixture
def patient(monkeypatch):
    """Whoever waits, waits until it is its turn; every query of a thread follows the one before."""
    for name in ("_PATIENCE", "_PATIENCE_IN_A_ROW"):
        monkeypatch.setattr(gate, name, 1000.0)
    monkeypatch.setattr(gate, "_LONG", 1000.0)
    return monkeypatch


@pytest.fixture
def threads_with_queries():
    made = [Querying(), Querying()]
    for thread in made:
        thread.query()
    yield made
    for thread in made:
        thread.close()


def until(condition):
    while not condition():
        time.sleep(0.001)


def waiting():
    return len(GATE._urgent) + len(GATE._in_a_row)


def test_a_thread_keeps_the_gate_for_its_next_query_if_it_runs_them_in_a_row(
    patient, threads_with_queries
):
    for name in ("_RECENT", "_TURN", "_PAUSE"):
        patient.setattr(gate, name, 1000.0)
    first, second = threads_with_queries
    first.begin()
    first.admitted.get(timeout=30)
    second.begin()
    until(waiting)
    first.end()
    first.query()
    assert second.is_waiting
    assert not GATE.is_free
    patient.setattr(gate, "_TURN", 0.0)
    first.begin()  # its turn is over: now it waits for the other one
    second.admitted.get(timeout=30)
    assert first.is_waiting
    patient.setattr(gate, "_RECENT", 0.0)
    second.end()
    patient.setattr(gate, "_PAUSE", 0.0)
    first.admitted.get(timeout=30)
    first.end()
    assert GATE.is_free


def test_a_kept_gate_passes_on_if_no_query_follows(patient, threads_with_queries):
    for name in ("_RECENT", "_TURN"):
        patient.setattr(gate, name, 1000.0)
    first, second = threads_with_queries
    first.begin()
    first.admitted.get(timeout=30)
    second.begin()
    until(waiting)
    first.end()
    second.admitted.get(timeout=30)
    second.end()
    assert GATE.is_free


def test_a_kept_gate_passes_on_at_once_if_its_thread_ends(patient, threads_with_queries):
    for name in ("_RECENT", "_TURN", "_PAUSE"):
        patient.setattr(gate, name, 1000.0)
    first, second = threads_with_queries
    first.begin()
    first.admitted.get(timeout=30)
    second.begin()
    until(waiting)
    first.end()
    assert second.is_waiting
    first.close()
    second.admitted.get(timeout=30)
    second.end()
    assert GATE.is_free


def test_a_thread_with_one_query_is_admitted_before_those_with_many(patient, threads_with_queries):
    for name in ("_TURN", "_PAUSE"):
        patient.setattr(gate, name, 1000.0)
    first, second = threads_with_queries
    patient.setattr(gate, "_RECENT", 1000.0)
    first.begin()
    first.admitted.get(timeout=30)
    second.begin()
    until(waiting)
    patient.setattr(gate, "_RECENT", 0.0)
    third = Querying()
    third.begin()
    until(lambda: waiting() == 2)
    first.end()
    third.admitted.get(timeout=30)
    assert second.is_waiting
    third.end()
    second.admitted.get(timeout=30)
    second.end()
    third.close()
    patient.setattr(gate, "_PAUSE", 0.0)
    first.query()
    assert GATE.is_free


def test_as_many_large_queries_run_at_a_time_as_there_are_cores(patient):
    patient.setattr(GATE, "_slots", threading.Semaphore(1))
    running, done, order = threading.Event(), threading.Event(), []

    def large(name, event):
        with GATE:
            GATE.continue_as_large()
            GATE.continue_as_large()  # has its slot already
            order.append(name)
            running.set()
            assert event.wait(30)
            order.append(f"end of {name}")

    first = threading.Thread(target=large, args=("first", done))
    first.start()
    assert running.wait(30)
    assert GATE.is_free  # small queries do not wait for large ones
    second = threading.Thread(target=large, args=("second", done))
    second.start()
    with GATE:
        order.append("small")
    done.set()
    first.join()
    second.join()
    assert order == ["first", "small", "end of first", "second", "end of second"]
    GATE.continue_as_large()  # outside of a query it does nothing
    assert GATE._slots.acquire(blocking=False)


@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "s3"])
def test_nobody_waits_at_the_gate_for_the_network(tmp_path, s3_root, monkeypatch, is_remote):
    """The state of a local graph is resolved behind the gate, that of a remote one in front."""
    root = s3_root("g.omni")
    location, options = (root.uri, root.options) if is_remote else (tmp_path / "g.omni", None)
    resolve, seen = Handle.read, []

    def watched(handle, ref):
        seen.append(GATE.is_free)
        return resolve(handle, ref)

    with Graph.init(
        location, "node Person { name: String @key }", storage_options=options
    ) as graph:
        monkeypatch.setattr(Handle, "read", watched)
        count = "query q() { match { $p: Person } return { count($p) as people } }"
        assert graph.query(count).rows() == [{"people": 0}]
    assert seen == [is_remote]
    assert GATE.is_free


def test_a_thread_that_kept_the_gate_and_comes_back_late_is_admitted_at_once():
    """Its turn is over, but it does not run queries in a row any more: it needs no turn."""
    own, waiting = gate.QueryGate(), gate._Ticket()
    waiting.is_in_a_row = True
    ticket = own._own.ticket
    own._holder, own._idle, ticket.turn = ticket, 0.0, -1.0
    own._in_a_row.append(waiting)
    with own:
        assert own._holder is ticket
        assert list(own._in_a_row) == [waiting]
    assert own._holder is waiting
