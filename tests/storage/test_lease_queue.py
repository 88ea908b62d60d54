"""Processes get a lease in the order in which they came; nobody waits for the dead or stopped."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from omnigraph.errors import Conflict
from omnigraph.storage.leases import local as lease_queue
from omnigraph.storage.leases.local import (
    LEASE_SUFFIX,
    QUEUE_SUFFIX,
    LeaseQueue,
    LocalLeases,
    lease_path,
)
from omnigraph.storage.objects.paths import parse_root
from tests.fork_server import fork_context
from tests.storage import queue_workers

NAME = "node:Person@main"
PATIENCE = 60


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "g.omni")


@pytest.fixture
def leases(uri):
    return LocalLeases(parse_root(uri))


@pytest.fixture
def folder(uri):
    return Path(uri, lease_path(NAME).removesuffix(LEASE_SUFFIX) + QUEUE_SUFFIX)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def start(uri, log):
    """Start a process that works with the lease; all are ended after the test."""
    with ExitStack() as stack:

        def started(target, label=""):
            process = fork_context().Process(target=target, args=(uri, NAME, str(log), label))
            process.start()
            stack.callback(process.join, PATIENCE)
            stack.callback(process.kill)
            return process

        yield started


@pytest.fixture
def queued(start, folder):
    """Start a process and wait until it stands in the queue."""
    count = 0

    def started(target, label=""):
        nonlocal count
        process = start(target, label)
        count += 1
        wait_until(lambda: len(tickets(folder)) == count)
        return process

    return started


def tickets(folder):
    return os.listdir(folder) if folder.exists() else []


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def lines(log):
    return log.read_text().split() if log.exists() else []


def test_processes_get_a_lease_in_the_order_in_which_they_came(leases, folder, log, queued):
    with leases.acquire([NAME], timeout=1):
        workers = [queued(queue_workers.write_turn, str(number)) for number in range(4)]
        assert lines(log) == []
    for worker in workers:
        worker.join(PATIENCE)
    assert lines(log) == ["0", "1", "2", "3"]
    assert os.listdir(folder.parent) == []


def test_processes_that_take_a_lease_all_the_time_do_not_overtake(folder, log, start, monkeypatch):
    # However busy the machine is, nobody here is stopped.
    monkeypatch.setattr(lease_queue, "STOPPED_SECONDS", PATIENCE)
    files = [Path(f"{log}.{label}") for label in "ab"]
    busy = [start(queue_workers.take_again_and_again, label) for label in "ab"]
    wait_until(lambda: all(file.exists() and file.stat().st_size for file in files))
    for _ in range(10):
        with LeaseQueue(str(folder)).ticket() as mine:
            before = [file.stat().st_size for file in files]
            wait_until(mine.is_next)
            rounds = [file.stat().st_size - b for file, b in zip(files, before, strict=True)]
        # The turn that each may have begun, and one for which it came before us.
        assert max(rounds) <= 2
    log.touch()
    for worker in busy:
        worker.join(PATIENCE)
        assert worker.exitcode == 0


def test_a_waiter_that_was_killed_keeps_nobody_waiting(leases, folder, log, queued):
    with leases.acquire([NAME], timeout=1):
        dead = [queued(queue_workers.write_turn, "dead") for _ in range(2)]
        for process in dead:
            process.kill()
            process.join(PATIENCE)
        assert tickets(folder)
    with leases.acquire([NAME], timeout=10):
        pass
    assert os.listdir(folder.parent) == []


def test_a_waiter_that_is_killed_with_others_behind_it_is_passed_over(leases, log, queued, folder):
    with leases.acquire([NAME], timeout=1):
        first = queued(queue_workers.write_turn, "first")
        queued(queue_workers.write_turn, "second")
        first.kill()
        first.join(PATIENCE)
    wait_until(lambda: lines(log) == ["second"])


def test_a_holder_that_is_killed_hands_over_to_the_next(leases, log, queued):
    with leases.acquire([NAME], timeout=1):
        queued(queue_workers.die_in_turn)
        queued(queue_workers.write_turn, "next")
    wait_until(lambda: lines(log) == ["next"])


def test_a_waiter_that_is_stopped_is_passed_over_and_gets_its_turn_when_it_goes_on(
    leases, log, queued
):
    with leases.acquire([NAME], timeout=1):
        stopped = queued(queue_workers.write_turn, "stopped")
        queued(queue_workers.write_turn, "behind")
        os.kill(stopped.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: lines(log) == ["behind"])
        with leases.acquire([NAME], timeout=10):
            pass
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    wait_until(lambda: lines(log) == ["behind", "stopped"])


def test_a_waiter_that_gives_up_leaves_the_queue(leases, folder, uri):
    with leases.acquire([NAME], timeout=1):
        others = LocalLeases(parse_root(uri))
        with (
            pytest.raises(Conflict, match="locked by another"),
            others.acquire([NAME], timeout=0.05),
        ):
            pass
        assert not folder.exists()


def test_who_does_not_wait_takes_a_free_lease_past_the_queue(leases, folder):
    with LeaseQueue(str(folder)).ticket() as waiter:
        assert waiter.is_next()
        assert leases.is_free(NAME)
        with pytest.raises(Conflict), leases.acquire([NAME], timeout=0.05):
            pass


def test_a_ticket_that_was_removed_is_written_again_at_its_place(folder):
    queue = LeaseQueue(str(folder))
    with queue.ticket() as first, queue.ticket() as second:
        (folder / min(tickets(folder))).unlink()
        assert first.is_next()
        assert not second.is_next()
        assert len(tickets(folder)) == 2
    assert not folder.exists()


def test_a_queue_whose_folder_comes_and_goes_loses_nobody(folder):
    queue, done = LeaseQueue(str(folder)), threading.Event()

    def come_and_go():
        while not done.is_set():
            with queue.ticket():
                pass

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(200):
            with queue.ticket() as mine:
                mine.is_next()
                assert tickets(folder)
    finally:
        done.set()
        other.join()
    assert not folder.exists()
