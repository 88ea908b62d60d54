"""Leases: one holder in any thread or process; none left by the dead, none lost by sleepers."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time

import pytest

from omnigraph.errors import Conflict, StorageError
from omnigraph.storage.leases.local import LocalLeases, open_leases
from omnigraph.storage.objects.paths import parse_root
from omnigraph.storage.objects.store import ObjectStore
from tests.fork_server import fork_context

NAME = "node:Person@main"


@pytest.fixture
def leases(tmp_path):
    return LocalLeases(parse_root(str(tmp_path / "g.omni")))


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def hold(uri, ready):
    with LocalLeases(parse_root(uri)).acquire([NAME], timeout=10):
        ready.set()
        signal.pause()


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lease until it is killed."""
    ready = fork_context().Event()
    process = fork_context().Process(target=hold, args=(str(tmp_path / "g.omni"), ready))
    process.start()
    assert ready.wait(30)
    yield process
    process.kill()
    process.join(30)


def threads_queued(leases):
    """How many threads have the turn or queue for it."""
    return len(leases._threads._queues.get(NAME, ()))


def test_a_lease_has_one_holder_among_threads(leases):
    with leases.acquire([NAME], timeout=1):
        matches = []
        thread = threading.Thread(target=lambda: matches.append(leases.is_free(NAME)))
        thread.start()
        thread.join()
        assert matches == [False]
    assert leases.is_free(NAME)


def test_a_lease_that_is_not_free_in_time_is_a_typed_conflict(leases, holder):
    with (
        pytest.raises(Conflict, match=r"is locked by another writer \(waited 0.05 s\)") as caught,
        leases.acquire([NAME], 0.05),
    ):
        pass
    assert caught.value.details == {"lease": NAME}
    assert leases.is_free("node:Company@main")


def test_a_lease_that_is_held_stays_ours(leases):
    with leases.acquire([NAME], timeout=1) as kept:
        kept.check()


def test_a_graph_on_local_disk_has_local_leases(tmp_path):
    root = parse_root(str(tmp_path / "g.omni"))
    assert isinstance(open_leases(root, ObjectStore(root)), LocalLeases)


def test_threads_get_a_lease_in_the_order_in_which_they_came(leases):
    came: list[int] = []

    def take(number: int) -> None:
        with leases.acquire([NAME], timeout=30):
            came.append(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(5)]
    with leases.acquire([NAME], timeout=1):
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(lambda queued=number + 2: threads_queued(leases) == queued)
    for thread in threads:
        thread.join()
    assert came == [0, 1, 2, 3, 4]


def test_a_thread_that_gave_up_does_not_keep_the_others_waiting(leases):
    with leases.acquire([NAME], timeout=1):
        with pytest.raises(Conflict), leases.acquire([NAME], timeout=0.01):
            pass
        assert threads_queued(leases) == 1
    assert leases.is_free(NAME)


def test_a_killed_holder_leaves_its_lease_free(leases, holder):
    assert not leases.is_free(NAME)
    holder.kill()
    holder.join(30)
    assert leases.is_free(NAME)


def test_a_stopped_holder_keeps_its_lease(leases, holder):
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        assert not leases.is_free(NAME)
    finally:
        os.kill(holder.pid, signal.SIGCONT)


def test_nothing_is_held_when_one_of_several_is_taken(leases, holder):
    with pytest.raises(Conflict), leases.acquire(["a", NAME, "z"], timeout=0):
        pass
    assert leases.is_free("a")


def test_a_released_lease_leaves_no_file(leases, tmp_path):
    with leases.acquire(["a", "b"], timeout=1):
        assert len(os.listdir(tmp_path / "g.omni" / "__recovery")) == 2
    assert os.listdir(tmp_path / "g.omni" / "__recovery") == []


def count_up(uri, path, times):
    leases = LocalLeases(parse_root(uri))
    for _ in range(times):
        with leases.acquire([NAME], timeout=60):
            with open(path) as file:
                value = int(file.read())
            with open(path, "w") as file:
                file.write(str(value + 1))


def test_no_two_processes_hold_a_lease_at_once(tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")
    arguments = (str(tmp_path / "g.omni"), str(counter), 50)
    workers = [fork_context().Process(target=count_up, args=arguments) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert counter.read_text() == "200"


def test_a_directory_that_comes_and_goes_is_made_again(tmp_path, monkeypatch):
    """Whoever creates a graph removes the empty directory of the leases when it is done."""
    real, rounds = os.makedirs, iter(range(3))

    def vanishes(path, **how):
        if next(rounds, None) is not None:
            raise FileExistsError(path)
        real(path, **how)

    monkeypatch.setattr(os, "makedirs", vanishes)
    leases = LocalLeases(parse_root(str(tmp_path / "g.omni")))
    with leases.acquire(["a"], 0.0):
        assert not leases.is_free("a")


def test_a_lease_whose_file_cannot_be_looked_at_is_not_kept(leases, monkeypatch):
    real = os.stat

    def fail(path, *args, **options):
        if str(path).endswith(".lease"):
            raise OSError(errno.EIO, "broken")
        return real(path, *args, **options)

    with monkeypatch.context() as broken:
        broken.setattr(os, "stat", fail)
        with pytest.raises(StorageError), leases.acquire(["x"], timeout=0.0):
            pass
    with leases.acquire(["x"], timeout=0.0):
        pass
