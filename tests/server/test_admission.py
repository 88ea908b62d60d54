"""What one actor, and one process, may have in flight."""

from __future__ import annotations

import asyncio
import threading

import pytest

from omnigraph.server.admission import (
    QUEUE_LENGTH,
    Admission,
    Overloaded,
    ReadAdmission,
    ReadCaps,
    TooMany,
    WriteCaps,
)


def test_of_32_simultaneous_writes_a_cap_of_16_admits_exactly_16():
    admission = Admission(WriteCaps(writes=16))
    start, admitted, refused = threading.Barrier(32), [], []

    def write() -> None:
        start.wait()
        try:
            admitted.append(admission.enter("ada", 1))
        except TooMany as error:
            refused.append(error)

    threads = [threading.Thread(target=write) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(admitted), len(refused), admission.refused) == (16, 16, 16)
    assert refused[0].message == "actor in-flight count cap 16 exceeded"
    assert refused[0].retry_after == 60
    for permit in admitted:
        permit.release()
    assert admission.in_flight == 0


def test_another_actor_is_not_affected():
    admission = Admission(WriteCaps(writes=1))
    with admission.enter("ada", 1):
        admission.enter("bo", 1).release()
        with pytest.raises(TooMany):
            admission.enter("ada", 1)


def test_the_byte_budget_says_what_would_be_used():
    admission = Admission(WriteCaps(size=100))
    with admission.enter(None, 60), pytest.raises(TooMany) as refused:
        admission.enter("anonymous", 50)
    assert refused.value.message == (
        "actor byte budget exceeded: would use 110 bytes against cap 100"
    )


def test_a_refused_write_leaves_no_trace():
    admission = Admission(WriteCaps(size=100))
    with pytest.raises(TooMany):
        admission.enter("ada", 101)
    admission.enter("ada", 100).release()
    assert admission.in_flight == 0


def test_a_permit_is_released_once():
    admission = Admission(WriteCaps(writes=2))
    first, second = admission.enter("ada", 1), admission.enter("ada", 1)
    first.release()
    first.release()
    assert admission.in_flight == 1
    second.release()


# -- reads ------------------------------------------------------------------------------------


def test_a_read_waits_for_a_full_process():
    async def scene() -> None:
        admission = ReadAdmission(ReadCaps(reads=1, actor_reads=9))
        first = await admission.enter("ada", 1)
        waiting = asyncio.create_task(admission.enter("bo", 1))
        await asyncio.sleep(0)
        assert admission.waiting == 1
        first.release()
        (await waiting).release()
        assert (admission.in_flight, admission.waiting) == (0, 0)

    asyncio.run(scene())


def test_a_read_that_waits_too_long_is_refused_as_retryable():
    async def scene() -> None:
        admission = ReadAdmission(ReadCaps(reads=1, actor_reads=9))
        permit = await admission.enter("ada", 1)
        with pytest.raises(Overloaded) as refused:
            await admission.enter("bo", 1)
        assert refused.value.retryable
        assert refused.value.retry_after == 1
        assert admission.waiting == 0
        permit.release()
        assert admission.in_flight == 0

    asyncio.run(scene())


def test_the_queue_of_reads_is_bounded():
    async def scene() -> None:
        admission = ReadAdmission(ReadCaps(reads=1, actor_reads=999))
        permit = await admission.enter("ada", 1)
        waiting = [asyncio.create_task(admission.enter("ada", 1)) for _ in range(QUEUE_LENGTH)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await admission.enter("ada", 1)
        permit.release()
        for task in waiting:
            (await task).release()

    asyncio.run(scene())


def test_one_actor_cannot_take_all_slots():
    async def scene() -> None:
        admission = ReadAdmission(ReadCaps(actor_reads=1, actor_size=10))
        permit = await admission.enter("ada", 1)
        with pytest.raises(TooMany, match="read cap 1 exceeded"):
            await admission.enter("ada", 1)
        (await admission.enter("bo", 1)).release()
        permit.release()
        with pytest.raises(TooMany, match="would use 11 bytes against cap 10"):
            await admission.enter("ada", 11)

    asyncio.run(scene())


def test_a_read_that_left_the_queue_takes_no_slot():
    async def scene() -> None:
        admission = ReadAdmission(ReadCaps(reads=1, actor_reads=9))
        permit = await admission.enter("ada", 1)
        waiting = asyncio.create_task(admission.enter("bo", 1))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        permit.release()
        assert (admission.in_flight, admission.waiting) == (0, 0)

    asyncio.run(scene())


def test_a_read_that_leaves_in_the_moment_of_its_admission_takes_no_slot():
    async def scene() -> None:
        admission = ReadAdmission(ReadCaps(reads=1, actor_reads=9))
        permit = await admission.enter("ada", 1)
        waiting = asyncio.create_task(admission.enter("bo", 1))
        await asyncio.sleep(0)
        permit.release()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert admission.in_flight == 0

    asyncio.run(scene())


def test_a_read_larger_than_the_budget_of_the_process_runs_alone():
    async def scene() -> None:
        admission = ReadAdmission(ReadCaps(size=10, actor_size=100))
        permit = await admission.enter("ada", 50)
        assert admission.in_flight == 1
        permit.release()

    asyncio.run(scene())
