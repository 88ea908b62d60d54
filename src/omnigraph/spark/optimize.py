"""The tasks of an optimize on Spark: fragments are rewritten and indexed in executors.

The driver commits, through the same steps as always; the plan, and so the statistics, are those of
any other optimize. A large index is built in segments, one task each, which the driver joins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from omnigraph.storage.executor import TaskProgress

if TYPE_CHECKING:
    from omnigraph.spark.session.engine import SparkEngine

T = TypeVar("T")
R = TypeVar("R")

SEGMENT_ROWS = 1_000_000
"""A task indexes about so many rows."""


class SparkTaskExecutor:
    """The executors of Spark as an ``Executor``."""

    def __init__(self, engine: SparkEngine, on_progress: TaskProgress | None = None) -> None:
        self._engine = engine
        self._on_progress = on_progress or (lambda label, done, total: None)

    def run(self, function: Callable[[T], R], tasks: Sequence[T], label: str = "") -> list[R]:
        def report(done: int, total: int) -> None:
            self._on_progress(label, done, total)

        return self._engine.tasks(function, tasks, label, report=report)
