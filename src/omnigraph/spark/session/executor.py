"""Spark tasks as an ``Executor``, for loads, exports and maintenance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from omnigraph.storage.executor import TaskProgress

if TYPE_CHECKING:
    from omnigraph.spark.session.engine import SparkEngine

T = TypeVar("T")
R = TypeVar("R")

SEGMENT_ROWS = 1_000_000
"""A task of an optimize indexes about so many rows; the driver joins the segments."""


class SparkExecutor:
    """Runs each task as a task of Spark."""

    def __init__(self, engine: SparkEngine, on_progress: TaskProgress | None = None) -> None:
        self._engine = engine
        self._on_progress = on_progress

    def run(self, function: Callable[[T], R], tasks: Sequence[T], label: str = "") -> list[R]:
        """See ``Executor``."""
        report = None
        on_progress = self._on_progress
        if on_progress is not None:

            def report(done: int, total: int) -> None:
                on_progress(label, done, total)

        return self._engine.tasks(function, tasks, label, report=report)
