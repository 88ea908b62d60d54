"""Runs one function on many tasks, one Spark task each: for loads, exports and maintenance.

Spark only schedules the tasks. Function and tasks are sent inside the function that Spark ships, so
that no plan and no log shows them, and each task answers with one row. A typed error is an answer
too, unless it is retryable: then it is raised, and Spark retries the task.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from omnigraph.errors import InternalError
from omnigraph.records import dataclass
from omnigraph.spark.session.failures import Carried, pack, typed, unpack
from omnigraph.storage.executor import TaskProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.spark.session.engine import SparkEngine

A = TypeVar("A")
R = TypeVar("R")

ANSWER = "position long, failed boolean, answer binary"
_SCHEMA = pa.schema([("position", pa.int64()), ("failed", pa.bool_()), ("answer", pa.binary())])

_last: tuple[str, Any] = ("", None)
"""The last work that this process unpacked: a worker runs many tasks of one job."""
SEGMENT_ROWS = 1_000_000
"""The approximate number of rows that one task of an optimize indexes."""


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """The pickled result of a task, or its error."""

    failed: bool
    packed: bytes

    def result(self) -> Any:
        """The result; an error is raised."""
        if self.failed:
            raise unpack(self.packed)
        return pickle.loads(self.packed)

    def row(self, position: int) -> pa.RecordBatch:
        return pa.record_batch([[position], [self.failed], [self.packed]], schema=_SCHEMA)


def answer_for(work: Callable[[], object], label: str) -> TaskAnswer:
    """Run the work; only retryable errors are raised, for Spark to retry."""
    try:
        return TaskAnswer(False, pickle.dumps(work()))
    except Exception as error:
        failure = typed(error, label)
        if failure is not error or failure.retryable:
            raise Carried(failure) from None
        return TaskAnswer(True, pack(failure))


def in_task_order(table: pa.Table, label: str, count: int | None = None) -> list[TaskAnswer]:
    """One answer per task; checked against ``count`` if it is given."""
    rows = table.sort_by("position")
    if rows["position"].to_pylist() != list(range(rows.num_rows if count is None else count)):
        raise InternalError(f"{label}: {rows.num_rows} answers are not one for each task")
    columns = (rows["failed"].to_pylist(), rows["answer"].to_pylist())
    return [TaskAnswer(failed, packed) for failed, packed in zip(*columns, strict=True)]


class Tasks:
    """Sent to workers: the function and all tasks."""

    def __init__(self, job: str, packed: bytes, label: str) -> None:
        self.job = job
        self.packed = packed
        self.label = label

    def __call__(self, positions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in positions:
            for position in batch.column(0).to_pylist():
                yield answer_for(partial(self._run, position), self.label).row(position)

    def _run(self, position: int) -> object:
        global _last
        if _last[0] != self.job:
            _last = (self.job, pickle.loads(self.packed))
        work, tasks = _last[1]
        return work(tasks[position])


def task_frame(
    session: SparkSession, work: Callable[[A], R], tasks: Sequence[A], label: str
) -> DataFrame:
    """The answers of the tasks; nothing runs before they are collected."""
    from pyspark import cloudpickle

    # Functions of modules are pickled by name, others with their code.
    packed: bytes = cloudpickle.dumps((work, list(tasks)))  # type: ignore[no-untyped-call]
    shipped = Tasks(uuid.uuid4().hex, packed, label)

    def answer(positions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return shipped(positions)

    count = len(tasks)
    return session.range(0, count, 1, count).mapInArrow(answer, ANSWER)


class SparkExecutor:
    """Runs each task as a Spark task."""

    def __init__(self, engine: SparkEngine, on_progress: TaskProgress | None = None) -> None:
        self._engine = engine
        self._on_progress = on_progress

    def run(self, function: Callable[[A], R], tasks: Sequence[A], label: str = "") -> list[R]:
        """See ``Executor``."""
        report = None
        on_progress = self._on_progress
        if on_progress is not None:

            def report(done: int, total: int) -> None:
                on_progress(label, done, total)

        return self._engine.tasks(function, tasks, label, report=report)
