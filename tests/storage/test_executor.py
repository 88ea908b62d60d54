"""One function on many tasks: results in order, failures at once, progress as tasks finish."""

from __future__ import annotations

import threading

import pytest

from omnigraph.storage.executor import Executor, ThreadExecutor


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("tasks", [[], [3], [5, 1, 4, 2]])
def test_results_come_in_the_order_of_the_tasks(threads, tasks):
    reports: list[tuple[str, int, int]] = []
    executor: Executor = ThreadExecutor(threads, lambda *report: reports.append(report))
    assert executor.run(lambda task: task * task, tasks, "square") == [t * t for t in tasks]
    assert reports == [("square", done, len(tasks)) for done in range(1, len(tasks) + 1)]
    assert list(ThreadExecutor(threads).stream(str, tasks)) == list(map(str, tasks))


def test_tasks_run_side_by_side():
    together = threading.Barrier(3, timeout=30)
    assert ThreadExecutor(3).run(lambda _: together.wait() >= 0, [1, 2, 3]) == [True] * 3


@pytest.mark.parametrize("threads", [1, 2])
def test_a_failure_is_raised(threads):
    def fail(task: int) -> int:
        if task == 3:
            raise ValueError(task)
        return task

    with pytest.raises(ValueError, match="3"):
        ThreadExecutor(threads).run(fail, range(10))
    with pytest.raises(ValueError, match="3"):
        list(ThreadExecutor(threads).stream(fail, range(10)))


def test_a_closed_stream_starts_nothing_more():
    started: list[int] = []
    requested = threading.Event()

    def start(task: int) -> None:
        started.append(task)
        if task:
            requested.wait(30)

    results = ThreadExecutor(1).stream(start, range(1000))
    next(results)
    # Set once the close below has dropped what waits; it returns when the running task ends.
    threading.Timer(0.3, requested.set).start()
    results.close()
    assert 1 <= len(started) < 1000
