"""Runs one function on many tasks, in threads of this process or in another ``Executor``."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")

TaskProgress = Callable[[str, int, int], None]
"""Called with a label, the number of finished tasks and the total."""


class Executor(Protocol):
    """Runs a function on many tasks."""

    def run(self, function: Callable[[T], R], tasks: Sequence[T], label: str = "") -> list[R]:
        """The results in the order of the tasks; the first failure is raised.

        ``label`` names the work in progress reports and errors.
        """


class ThreadExecutor:
    """Threads of this process; a single thread or task runs in the caller's thread.

    >>> ThreadExecutor(4).run(str, [1, 2, 3])
    ['1', '2', '3']
    """

    def __init__(self, threads: int, on_progress: TaskProgress | None = None) -> None:
        self._threads = threads
        self._on_progress = on_progress or (lambda label, done, total: None)

    def run(self, function: Callable[[T], R], tasks: Sequence[T], label: str = "") -> list[R]:
        """See ``Executor``. After a failure, tasks that have not started are dropped."""
        if len(tasks) < 2 or self._threads < 2:
            results = []
            for done, task in enumerate(tasks, start=1):
                results.append(function(task))
                self._on_progress(label, done, len(tasks))
            return results
        with self._pool(len(tasks)) as pool:
            futures = [pool.submit(function, task) for task in tasks]
            try:
                for done, future in enumerate(as_completed(futures), start=1):
                    future.result()
                    self._on_progress(label, done, len(tasks))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            return [future.result() for future in futures]

    def stream(self, function: Callable[[T], R], tasks: Iterable[T]) -> Generator[R, None, None]:
        """The results in task order, each as soon as it and its predecessors are done.

        Closing the generator drops tasks that have not started.
        """
        with self._pool(self._threads) as pool:
            futures = [pool.submit(function, task) for task in tasks]
            try:
                for future in futures:
                    yield future.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _pool(self, tasks: int) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max(1, min(self._threads, tasks)), "omnigraph")
