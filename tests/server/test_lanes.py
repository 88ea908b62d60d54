"""Short reads, long reads, and writes that nobody waits for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from omnigraph.errors import Cancelled
from omnigraph.read.gate import GATE
from omnigraph.read.limits import Cancel
from omnigraph.server.admission import Admission, Draining, WriteCaps
from omnigraph.server.lanes import Lanes, ReadCancel, _nothing


class Seen:
    """Counts what the lanes report."""

    def __init__(self) -> None:
        self.lanes: list[str] = []
        self.moves = 0

    def waited(self, lane: str, seconds: float) -> None:
        self.lanes.append(lane)

    def moved(self) -> None:
        self.moves += 1


@contextmanager
def lanes(**options: Any) -> Iterator[Lanes]:
    created = Lanes(**options)
    try:
        yield created
    finally:
        created.close()


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 30))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_a_read_returns_its_result_or_raises_its_error():
    async def scene() -> None:
        with lanes() as own:
            assert await own.read(lambda: 42) == 42
            with pytest.raises(ZeroDivisionError):
                await own.read(lambda: 1 // 0)

    run(scene)


def test_short_reads_run_one_after_the_other_on_one_thread():
    async def scene() -> None:
        with lanes() as own:
            threads = await asyncio.gather(*(own.read(threading.get_ident) for _ in range(50)))
            assert len(set(threads)) == 1
            assert threading.get_ident() not in threads

    run(scene)


def test_a_read_that_takes_long_does_not_delay_short_ones():
    async def scene() -> None:
        seen, end = Seen(), threading.Event()
        with lanes(observer=seen) as own:
            slow = asyncio.create_task(own.read(end.wait))
            await asyncio.sleep(0)
            assert await own.read(lambda: "short") == "short"
            assert not slow.done()
            assert seen.moves == 1
            end.set()
            assert await slow

    run(scene)


def test_a_kind_of_read_that_took_long_starts_in_the_long_lane():
    async def scene() -> None:
        seen, gate = Seen(), threading.Event()
        with lanes(observer=seen) as own:
            slow = asyncio.create_task(own.read(gate.wait, key="q"))
            await until(lambda: seen.moves == 1)
            gate.set()
            await slow
            await until(lambda: bool(own._estimates))
            await own.read(lambda: None, key="q")
            await own.read(lambda: None, key="other")
            assert seen.lanes == ["short", "long", "short"]

    run(scene)


def test_a_moved_read_continues_when_the_long_lane_has_a_slot():
    """It waits at its next check, so that no more than the slots of the lane compute."""

    async def scene() -> None:
        seen, first, go = Seen(), threading.Event(), threading.Event()
        cancel, passed = ReadCancel(), threading.Event()

        def moved() -> str:
            go.wait()
            assert not cancel.is_set  # the check of a running query
            passed.set()
            return "moved"

        with lanes(long_threads=1, observer=seen) as own:
            occupied = asyncio.create_task(own.read(first.wait, is_long=True))
            slow = asyncio.create_task(own.read(moved, cancel))
            await until(lambda: seen.moves == 1 and seen.lanes.count("long") == 1)
            go.set()
            await until(lambda: cancel._move is _nothing)
            assert not passed.is_set()
            first.set()
            assert await slow == "moved"
            await occupied
            # The slot is free again.
            assert await own.read(lambda: 1, is_long=True) == 1

    run(scene)


def test_a_moved_read_is_next_however_many_long_reads_are_queued():
    async def scene() -> None:
        seen, first, go = Seen(), threading.Event(), threading.Event()
        cancel, later = ReadCancel(), []

        def moved() -> int:
            go.wait()
            assert not cancel.is_set  # the check of a running query
            return len(later)

        with lanes(long_threads=1, observer=seen) as own:
            occupied = asyncio.create_task(own.read(first.wait, is_long=True))
            slow = asyncio.create_task(own.read(moved, cancel))
            await until(lambda: seen.moves == 1 and seen.lanes.count("long") == 1)
            go.set()
            await until(lambda: bool(own._slots._waiting))
            queued = [
                asyncio.create_task(own.read(lambda: later.append(1), is_long=True))
                for _ in range(2_000)
            ]
            await asyncio.sleep(0)
            first.set()
            assert await slow == 0
            await asyncio.gather(occupied, *queued)
            await until(lambda: own._slots._free == 1)

    run(scene)


def test_a_moved_read_that_waits_does_not_keep_the_gate_of_small_queries():
    async def scene() -> None:
        seen, end, go = Seen(), threading.Event(), threading.Event()
        cancel = ReadCancel()

        def moved() -> None:
            go.wait()
            with GATE:
                assert not cancel.is_set

        with lanes(long_threads=1, observer=seen) as own:
            occupied = asyncio.create_task(own.read(end.wait, is_long=True))
            slow = asyncio.create_task(own.read(moved, cancel))
            await until(lambda: seen.moves == 1 and seen.lanes.count("long") == 1)
            go.set()
            await until(lambda: cancel._move is _nothing and GATE.is_free)
            end.set()
            await asyncio.gather(occupied, slow)

    run(scene)


def test_a_moved_read_that_waits_for_a_slot_can_be_cancelled():
    async def scene() -> None:
        seen, end, go = Seen(), threading.Event(), threading.Event()
        cancel = ReadCancel()

        def moved() -> None:
            go.wait()
            if cancel.is_set:
                raise Cancelled("the query was cancelled")

        with lanes(long_threads=1, observer=seen) as own:
            occupied = asyncio.create_task(own.read(end.wait, is_long=True))
            slow = asyncio.create_task(own.read(moved, cancel))
            await until(lambda: seen.moves == 1 and seen.lanes.count("long") == 1)
            go.set()
            cancel.set()
            with pytest.raises(Cancelled):
                await slow
            end.set()
            await occupied

    run(scene)


def test_a_helper_thread_of_a_moved_read_never_waits():
    async def scene() -> None:
        seen, end, go = Seen(), threading.Event(), threading.Event()
        cancel, checked = ReadCancel(), []

        def moved() -> None:
            go.wait()
            helper = threading.Thread(target=lambda: checked.append(cancel.is_set))
            helper.start()
            helper.join()

        with lanes(long_threads=1, observer=seen) as own:
            occupied = asyncio.create_task(own.read(end.wait, is_long=True))
            slow = asyncio.create_task(own.read(moved, cancel))
            await until(lambda: seen.moves == 1 and seen.lanes.count("long") == 1)
            go.set()
            await slow
            assert checked == [False]
            end.set()
            await occupied

    run(scene)


def test_a_read_is_cancelled_with_its_caller_and_keeps_its_permit_until_it_ends():
    async def scene() -> None:
        cancel, running, admission = Cancel(), threading.Event(), Admission(WriteCaps())
        go = threading.Event()

        def query() -> None:
            running.set()
            go.wait()
            assert cancel.is_set

        with lanes() as own:
            task = asyncio.create_task(own.read(query, cancel, permit=admission.enter("ada", 1)))
            await asyncio.to_thread(running.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert cancel.is_set
            assert admission.in_flight == 1
            go.set()
            await until(lambda: admission.in_flight == 0)

    run(scene)


def test_a_cancelled_read_that_still_waits_is_not_started():
    async def scene() -> None:
        end, cancel, started = threading.Event(), Cancel(), []
        with lanes(long_threads=1) as own:
            first = asyncio.create_task(own.read(end.wait, is_long=True))
            second = asyncio.create_task(own.read(lambda: started.append(1), cancel, is_long=True))
            await asyncio.sleep(0)
            cancel.set()
            end.set()
            await first
            with pytest.raises(Cancelled):
                await second
            assert not started

    run(scene)


# -- writes -----------------------------------------------------------------------------------


def test_a_write_runs_to_its_end_though_its_caller_left():
    async def scene() -> None:
        running, go, done = threading.Event(), threading.Event(), threading.Event()
        admission = Admission(WriteCaps())

        def write() -> None:
            running.set()
            go.wait()
            done.set()

        with lanes() as own:
            task = asyncio.create_task(own.write(write, permit=admission.enter("ada", 1)))
            await asyncio.to_thread(running.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (own.running_writes, admission.in_flight) == (1, 1)
            drained = asyncio.create_task(own.drain())
            await asyncio.sleep(0)
            assert not drained.done()
            go.set()
            await drained
            assert done.is_set()
            assert admission.in_flight == 0

    run(scene)


def test_a_write_that_fails_after_its_caller_left_is_forgotten_quietly():
    async def scene() -> None:
        go = threading.Event()

        def write() -> None:
            go.wait()
            raise ValueError

        with lanes() as own:
            task = asyncio.create_task(own.write(write))
            await asyncio.sleep(0)
            task.cancel()
            go.set()
            await own.drain()

    run(scene)


def test_writes_run_beside_each_other():
    async def scene() -> None:
        both = threading.Barrier(8)
        with lanes() as own:
            await asyncio.gather(*(own.write(both.wait) for _ in range(8)))

    run(scene)


def test_a_draining_server_refuses_new_writes():
    async def scene() -> None:
        admission = Admission(WriteCaps())
        with lanes() as own:
            await own.drain()
            with pytest.raises(Draining):
                await own.write(lambda: None, permit=admission.enter("ada", 1))
            assert admission.in_flight == 0

    run(scene)
