"""Readers with a processor each."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from omnigraph.server import processors
from omnigraph.server.processors import OwnProcessor, processor_of
from tests.server.processes import until
from tests.server.test_processes import small_server, writer_pid

USABLE = os.sched_getaffinity(0)
SEVERAL = pytest.mark.skipif(len(USABLE) == 1, reason="there is one processor")


@pytest.mark.parametrize(
    ("usable", "readers", "expected"),
    [
        ({0, 1}, 2, [0, 1]),
        ({5, 2}, 2, [2, 5]),
        ({0, 1}, 4, [0, 1, 0, 1]),
        ({0, 1}, 1, [None]),
        ({0, 1}, 3, [None, None, None]),
        ({0, 1, 2, 3}, 2, [None, None]),
        ({3}, 1, [None]),
    ],
)
def test_a_reader_has_a_processor_if_all_processors_have_equally_many(
    monkeypatch, usable, readers, expected
):
    monkeypatch.setattr(processors.os, "sched_getaffinity", lambda _: usable)
    assert [processor_of(reader, readers) for reader in range(readers)] == expected


def test_elsewhere_than_on_linux_nobody_has_one(monkeypatch):
    monkeypatch.delattr(processors.os, "sched_getaffinity")
    assert processor_of(0, 2) is None


def test_without_a_list_of_threads_nobody_has_one(monkeypatch, tmp_path):
    monkeypatch.setattr(processors.os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(processors, "_TASKS", str(tmp_path / "absent"))
    assert processor_of(0, 2) is None


@SEVERAL
def test_only_the_event_loop_stays_on_its_processor(monkeypatch):
    """Threads that it starts inherit it, and are set free."""
    monkeypatch.setattr(processors, "_SECONDS", 0.01)
    own = {min(USABLE)}
    seen: list[set[int]] = []

    async def serve() -> None:
        OwnProcessor(min(USABLE)).take(asyncio.get_running_loop())
        ended = threading.Event()
        thread = threading.Thread(target=ended.wait, daemon=True)
        thread.start()
        seen.append(os.sched_getaffinity(thread.native_id or 0))
        while os.sched_getaffinity(thread.native_id or 0) != USABLE:
            await asyncio.sleep(0.01)
        seen.append(os.sched_getaffinity(0))
        ended.set()

    loop = threading.Thread(target=asyncio.run, args=(asyncio.wait_for(serve(), 60),))
    loop.start()
    loop.join()
    assert seen == [own, own]
    assert os.sched_getaffinity(0) == USABLE


@SEVERAL
def test_a_processor_that_is_gone_is_not_waited_for():
    async def serve() -> set[int]:
        OwnProcessor(1023).take(asyncio.get_running_loop())
        return os.sched_getaffinity(0)

    assert asyncio.run(serve()) == USABLE


@SEVERAL
@pytest.mark.skipif(len(USABLE) > 4, reason="more readers than a test should start")
def test_each_reader_of_a_server_has_its_own_and_the_writer_has_all(tmp_path):
    with small_server(tmp_path, workers=len(USABLE)).await_listening() as server:
        writer = writer_pid(server)
        readers = set(server.children()) - {writer}
        until(
            lambda: (
                {tuple(os.sched_getaffinity(pid)) for pid in readers}
                == {(processor,) for processor in USABLE}
            )
        )
        assert os.sched_getaffinity(writer) == USABLE
        for pid in readers:
            others = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
            for thread in set(others) - {pid}:
                until(lambda thread=thread: os.sched_getaffinity(thread) == USABLE)
