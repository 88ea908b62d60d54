"""One function on many tasks, one Spark task each: for loads, exports and maintenance.

Spark only assigns the tasks. Function and tasks travel inside the function that Spark ships, which
no plan and no log shows, and each task answers with one row. A typed error is such an answer too,
unless it is retryable: then it is raised, and Spark runs the task again.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from omnigraph.errors import InternalError
from omnigraph.spark.session.failures import Carried, pack, typed, unpack
from omnigraph.storage.executor import TaskProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.spark.session.engine import SparkEngine

A = TypeVar("A")
R = TypeVar("R")

_COLUMNS = "position long, failed boolean, answer binary"
_SCHEMA = pa.schema([("position", pa.int64()), ("failed", pa.bool_()), ("answer", pa.binary())])

_last: tuple[str, Any] = ("", None)
"""The work that this process unpacked last: a worker does many tasks of one job."""


class Tasks:
    """Sent to workers: the function and all tasks."""

    def __init__(self, job: str, packed: bytes, label: str) -> None:
        self.job = job
        self.packed = packed
        self.label = label

    def __call__(self, positions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in positions:
            for position in batch.column(0).to_pylist():
                yield self._answer(position)

    def _answer(self, position: int) -> pa.RecordBatch:
        failed = False
        try:
            work, tasks = self._unpacked()
            answer = pickle.dumps(work(tasks[position]))
        except Exception as error:
            failure = typed(error, self.label)
            if failure is not error or failure.retryable:
                raise Carried(failure) from None
            failed, answer = True, pack(failure)
        return pa.record_batch([[position], [failed], [answer]], schema=_SCHEMA)

    def _unpacked(self) -> Any:
        global _last
        job, work = _last
        if job != self.job:
            work = pickle.loads(self.packed)
            _last = (self.job, work)
        return work


def task_frame(
    session: SparkSession, work: Callable[[A], R], tasks: Sequence[A], label: str
) -> DataFrame:
    """The answers of the tasks; nothing runs before they are collected."""
    from pyspark import cloudpickle

    # Functions of modules go by their names, others with their code.
    packed: bytes = cloudpickle.dumps((work, list(tasks)))  # type: ignore[no-untyped-call]
    shipped = Tasks(uuid.uuid4().hex, packed, label)

    def answer(positions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return shipped(positions)

    count = len(tasks)
    return session.range(0, count, 1, count).mapInArrow(answer, _COLUMNS)


def results_of(table: pa.Table, count: int, label: str) -> list[Any]:
    """The results in the order of the tasks; the first error is raised."""
    rows = table.sort_by("position")
    if rows.column("position").to_pylist() != list(range(count)):
        raise InternalError(f"{label}: {count} tasks gave {rows.num_rows} answers")
    results = []
    for failed, answer in zip(rows.column("failed"), rows.column("answer"), strict=True):
        if failed.as_py():
            raise unpack(answer.as_py())
        results.append(pickle.loads(answer.as_py()))
    return results


SEGMENT_ROWS = 1_000_000
"""A task of an optimize indexes about so many rows; the driver joins the segments."""


class SparkExecutor:
    """Runs each task as a task of Spark."""

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
