"""Small queries are admitted one at a time; no query waits long, and none keeps the gate."""

from __future__ import annotations

import gc
import itertools
import opcode
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from operator import attrgetter
from queue import SimpleQueue

import pytest

from omnigraph import Graph
from omnigraph.api.handle import Handle
from omnigraph.read import gate, slots
from omnigraph.read.gate import GATE
from omnigraph.read.slots import QuerySlots, SlotUser


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
    monkeypatch.setattr(slots, "_PATIENCE", 0.0)
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
        self.is_large = False
        self._tasks, self._ends = SimpleQueue(), SimpleQueue()
        self.admitted, self.ended = SimpleQueue(), SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while self._tasks.get():
            with GATE:
                if self.is_large:
                    GATE.continue_as_large()
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
        monkeypatch.setattr(slots, name, 1000.0)
    monkeypatch.setattr(gate, "_LONG", 1000.0)
    monkeypatch.setattr(slots, "_FEW", 1)
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
    return len(GATE.small._urgent) + len(GATE.small._in_a_row)


def test_a_thread_keeps_the_gate_for_its_next_query_if_it_runs_them_in_a_row(
    patient, threads_with_queries
):
    patient.setattr(gate, "_RECENT", 1000.0)
    for name in ("_TURN", "_PAUSE"):
        patient.setattr(slots, name, 1000.0)
    first, second = threads_with_queries
    first.begin()
    first.admitted.get(timeout=30)
    second.begin()
    until(waiting)
    first.end()
    first.query()
    assert second.is_waiting
    assert not GATE.is_free
    patient.setattr(slots, "_TURN", 0.0)
    first.begin()  # its turn is over: now it waits for the other one
    second.admitted.get(timeout=30)
    assert first.is_waiting
    patient.setattr(gate, "_RECENT", 0.0)
    second.end()
    patient.setattr(slots, "_PAUSE", 0.0)
    first.admitted.get(timeout=30)
    first.end()
    assert GATE.is_free


def test_a_kept_gate_passes_on_if_no_query_follows(patient, threads_with_queries):
    patient.setattr(gate, "_RECENT", 1000.0)
    patient.setattr(slots, "_TURN", 1000.0)
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
    patient.setattr(gate, "_RECENT", 1000.0)
    for name in ("_TURN", "_PAUSE"):
        patient.setattr(slots, name, 1000.0)
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
        patient.setattr(slots, name, 1000.0)
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
    patient.setattr(slots, "_PAUSE", 0.0)
    first.query()
    assert GATE.is_free


def test_as_many_large_queries_run_at_a_time_as_there_are_cores(patient):
    patient.setattr(GATE, "large", QuerySlots(1))
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
    assert GATE.large.is_free


@pytest.fixture
def large_in_a_row(patient, threads_with_queries):
    """Of two threads that run large queries in a row, the first ended one and keeps the slot."""
    patient.setattr(GATE, "large", QuerySlots(1))
    patient.setattr(gate, "_RECENT", 1000.0)
    patient.setattr(gate, "_SOME", 1)
    for name in ("_TURN", "_PAUSE"):
        patient.setattr(slots, name, 1000.0)
    first, second = threads_with_queries
    first.is_large = second.is_large = True
    first.begin()
    first.admitted.get(timeout=30)
    second.begin()
    until(lambda: GATE.large._in_a_row)
    first.end()
    return first, second


def test_a_thread_keeps_its_slot_for_its_next_large_query(patient, large_in_a_row):
    first, second = large_in_a_row
    first.begin()
    first.admitted.get(timeout=30)
    assert second.is_waiting
    assert GATE.is_free  # small queries do not wait for it
    first.end()
    patient.setattr(slots, "_TURN", 0.0)
    first.begin()  # its turn is over: now it waits, from the beginning of its query
    second.admitted.get(timeout=30)
    assert first.is_waiting
    assert GATE.is_free
    second.end()
    patient.setattr(slots, "_PAUSE", 0.0)
    first.admitted.get(timeout=30)
    first.end()
    assert GATE.large.is_free


def test_a_thread_whose_query_was_small_does_not_keep_the_slot_of_large_ones(large_in_a_row):
    first, second = large_in_a_row
    first.is_large = False
    first.query()
    second.admitted.get(timeout=30)
    first.begin()
    first.admitted.get(timeout=30)
    assert not GATE.is_free
    first.end()
    second.end()
    assert GATE.is_free
    assert GATE.large.is_free


def test_a_kept_slot_of_large_queries_passes_on_if_its_thread_ends(large_in_a_row):
    first, second = large_in_a_row
    assert second.is_waiting
    first.close()
    second.admitted.get(timeout=30)
    second.end()
    assert GATE.large.is_free


def test_several_slots_are_kept_and_passed_on_each_by_itself():
    own, (first, second, third, late) = QuerySlots(2), [SlotUser() for _ in range(4)]
    for user in (first, second, third):
        user.in_a_row = 9
    assert own._join(first, 1.0) is own._join(second, 1.0) is None
    assert own._join(third, 1.0) is not None
    own.leave(first, may_keep=True)
    own.leave(second, may_keep=True)
    assert list(own._kept) == [first, second]
    assert own._join(second, 1.01) is None  # goes on in its slot
    assert own._join(late, 1.01) is None  # takes the one that nobody uses
    assert third not in own
    own.leave(late, may_keep=True)  # it runs queries now and then
    assert third in own
    own.leave(second, may_keep=True)
    own.leave(third, may_keep=True)
    assert own.is_free


def test_a_query_asks_for_a_large_slot_once(monkeypatch):
    """However many steps it has: each time it would wait as long as it is patient."""
    own, requested = gate.QueryGate(), []
    own.large = QuerySlots(1)
    own.large.enter(SlotUser(), 1.0)
    monkeypatch.setattr(slots, "_PATIENCE", 0.0)
    monkeypatch.setattr(gate, "_SOME", 1)
    enter = own.large.enter
    monkeypatch.setattr(own.large, "enter", lambda *given: requested.append(enter(*given)))
    for _ in range(2):  # the second is known to be large from its beginning
        with own:
            for _ in range(6):
                own.continue_as_large()
        assert requested == [False]
        requested.clear()
    assert own.is_free


def test_a_query_after_one_large_query_is_taken_for_small(monkeypatch):
    """It would wait for large queries of others."""
    monkeypatch.setattr(gate, "_RECENT", 1000.0)
    own = gate.QueryGate()
    requested = []
    for is_large in (True, False, True, True, True, False, False):
        with own:
            requested.append(own.is_free)
            if is_large:
                own.continue_as_large()
    assert requested == [False, False, False, False, True, True, False]


def test_a_thread_waits_shortly_while_no_query_ends(monkeypatch):
    """Turns are for queries that end; beside long ones a thread goes on without a slot."""
    own, waiting = QuerySlots(1), SlotUser()
    waiting.in_a_row = 9
    monkeypatch.setattr(slots, "_PATIENCE_IN_A_ROW", 1000.0)
    own.enter(SlotUser(), 1.0)
    assert not own.enter(waiting, time.perf_counter())
    assert not own._in_a_row


def test_a_thread_keeps_a_slot_only_after_some_queries_in_a_row():
    own, first, second = QuerySlots(1), SlotUser(), SlotUser()
    second.in_a_row = 1
    for in_a_row, keeps in ((slots._FEW - 1, False), (slots._FEW, True)):
        first.in_a_row = in_a_row
        assert own._join(first, 1.0) is None
        assert own._join(second, 1.0) is not None
        own.leave(first, may_keep=True)
        assert (first in own._kept) == keeps
        assert (second in own) != keeps
        own.drop(second)
    assert own._kept


def test_a_query_that_waits_for_something_else_leaves_both_slots():
    own = gate.QueryGate()
    with own:
        own.leave()
        assert own.small.is_free
    with own:
        own.continue_as_large()
        assert not own.large.is_free
        own.leave()
        assert own.large.is_free
        own.continue_as_large()  # once is enough
        assert own.large.is_free
    assert own.small.is_free


@pytest.mark.parametrize("is_large", [False, True])
def test_a_slot_that_an_interrupted_thread_still_has_is_used_by_its_next_query(is_large):
    own = gate.QueryGate()
    given, user = (own.large, own._own.large) if is_large else (own.small, own._own.small)
    given.enter(user, 1.0)
    with own:
        if is_large:
            own.continue_as_large()
        assert user in given
    assert given.is_free
    user_of = attrgetter("large" if is_large else "small")
    thread = threading.Thread(target=lambda: given.enter(user_of(own._own), 1.0))
    thread.start()
    thread.join()
    until(lambda: given.is_free)  # or is given back when its thread ends


@pytest.mark.parametrize("is_admitted", [False, True])
@pytest.mark.parametrize("is_large", [False, True])
def test_a_thread_that_is_interrupted_while_it_waits_needs_no_slot(is_large, is_admitted):
    own = gate.QueryGate()
    own.large = QuerySlots(1)
    given = own.large if is_large else own.small
    holder = SlotUser()
    assert given.enter(holder, 1.0)
    thread = own._own
    thread.is_large, thread.until = is_large, time.perf_counter()
    thread.large_in_a_row = gate._SOME

    class Interrupted:
        def acquire(self, timeout):
            if is_admitted:
                given.leave(holder, may_keep=False)
            raise KeyboardInterrupt

        def locked(self):
            return False

    (thread.large if is_large else thread.small).wake = Interrupted()
    with pytest.raises(KeyboardInterrupt), own:
        pass
    if not is_admitted:
        given.leave(holder, may_keep=False)
    assert given.is_free
    with own:
        assert not own.is_free
    assert own.small.is_free
    assert own.large.is_free


class Interrupts:
    """Raises KeyboardInterrupt at the n-th moment at which CPython looks for signals.

    That is after a call and before a function begins, in the modules of the gate. Nothing can be
    done before ``__exit__`` begins.
    """

    def __init__(self, number: int) -> None:
        self._left = number
        self._after_call: dict[object, bool] = {}

    @property
    def came(self) -> bool:
        return self._left < 0

    def __enter__(self) -> None:
        gc.disable()  # deletes gates of before, in which an error is ignored
        sys.settrace(self._trace)

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)
        gc.enable()

    def _trace(self, frame, event, arg):
        code = frame.f_code
        if code.co_filename not in (gate.__file__, slots.__file__):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "call":
            if code.co_name != "__exit__":
                self._count()
        elif event == "opcode":
            if self._after_call.pop(frame, False):
                self._count()
            self._after_call[frame] = opcode.opname[code.co_code[frame.f_lasti]] == "CALL"
        elif event == "return":
            self._after_call.pop(frame, None)
        return self._trace

    def _count(self) -> None:
        self._left -= 1
        if self._left == -1:
            raise KeyboardInterrupt


@pytest.mark.parametrize("is_taken", [False, True], ids=["free", "taken"])
@pytest.mark.parametrize("kind", ["small", "in a row", "large"])
def test_an_interrupt_at_any_moment_keeps_no_slot(monkeypatch, kind, is_taken):
    for name in ("_PATIENCE", "_PATIENCE_IN_A_ROW", "_LOOK", "_LAST_LOOK"):
        monkeypatch.setattr(slots, name, 0.0001)
    for number in itertools.count():
        own, holder, interrupts = gate.QueryGate(), SlotUser(), Interrupts(number)
        own.large = QuerySlots(1)
        given = own.large if kind == "large" else own.small
        if is_taken:
            given.enter(holder, 1.0)
        if kind == "in a row":
            own._own.until = time.perf_counter() + 10
        with suppress(KeyboardInterrupt), interrupts, own:
            if kind == "large":
                own.continue_as_large()
        assert own._own.depth == 0
        if is_taken:
            given.leave(holder, may_keep=False)
        if not interrupts.came:
            break
        with own:
            own.continue_as_large()
        for queue in (own.small, own.large):
            assert queue.is_free
            assert not queue._urgent
            assert not queue._in_a_row
    assert number > 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_has_a_gate_of_its_own():
    code = """
import os, sys, threading
from omnigraph.read.gate import GATE
held, done = threading.Event(), threading.Event()
def hold():
    with GATE.small._mutex, GATE.large._mutex:
        held.set()
        done.wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
pid = os.fork()
if not pid:
    with GATE:
        GATE.continue_as_large()
    os._exit(0 if GATE.is_free else 1)
done.set()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


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
    own, waiting = gate.QueryGate(), SlotUser()
    waiting.in_a_row = 1
    user, small = own._own.small, own.small
    small._kept[user], user.turn = 0.0, -1.0
    small._in_a_row.append(waiting)
    with own:
        assert user in small
        assert list(small._in_a_row) == [waiting]
    assert waiting in small
