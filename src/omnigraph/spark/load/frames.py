"""Loads from Spark frames: each is evaluated once, and workers write its partitions.

Rows pass through the JVM; after that the load works like one from files. Tables and frames of other
libraries may be part of the same load: this process reads those.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from omnigraph.commit.names import normal_branch
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.staging import staging_marker
from omnigraph.commit.store import GraphStore
from omnigraph.errors import InputError, RowLimitExceeded
from omnigraph.lang.schema.catalog import Catalog, EdgeType, EntityType, text_of
from omnigraph.lang.values.spelling import show
from omnigraph.progress import OnProgress, Progress
from omnigraph.spark.load.frame_rows import (
    DIGESTS,
    FrameResult,
    FrameTask,
    Partition,
    read_partition,
)
from omnigraph.spark.load.joined_keys import KeyJoins
from omnigraph.spark.load.read_tasks import cached_catalog
from omnigraph.spark.load.run import Offset, SplitIntake, fragment_targets, rows_in
from omnigraph.spark.session.connect import is_connect
from omnigraph.spark.session.failures import unpack
from omnigraph.spark.session.jobs import Report, run_watched
from omnigraph.spark.session.tasks import ANSWER, TaskAnswer, answer_for, in_task_order
from omnigraph.storage.executor import Executor
from omnigraph.storage.tables.fragments import FragmentTarget
from omnigraph.write.conform import find_type, first_repeated
from omnigraph.write.load.job import LoadDestination, LoadJob
from omnigraph.write.load.rejects import Reject, Rejects, open_rejects, source_line
from omnigraph.write.load.run import Load, LoadReader
from omnigraph.write.load.tables import frame_batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

FrameEvaluator = Callable[[Any, FrameTask], Sequence[TaskAnswer]]
"""Evaluates a frame; returns one answer per partition, in order."""

_READING = "reading"
_ENDS = {"from": "src", "to": "dst"}
FRAMES = "frames-"


def is_spark_frame(value: object) -> bool:
    """Whether a value is a Spark DataFrame; does not import PySpark."""
    return type(value).__module__.startswith("pyspark.sql.") and hasattr(value, "mapInArrow")


def spark_frames(data: object) -> list[Any]:
    """The Spark frames among the data of a load."""
    values = data.values() if isinstance(data, Mapping) else ()
    return [value for value in values if is_spark_frame(value)]


class FramesDigest:
    """Identifies the rows of frames, independent of their order."""

    def __init__(self) -> None:
        self._frames: dict[str, int] = {}

    def add(self, name: str, digest: int) -> None:
        self._frames[name] = (self._frames.get(name, 0) + digest) % DIGESTS

    def text(self) -> str:
        total = ";".join(f"{name}={self._frames[name]:x}" for name in sorted(self._frames))
        return f"{FRAMES}{total}"


class FrameIntake(SplitIntake):
    """The combined intake of the partitions of frames."""

    def __init__(
        self,
        catalog: Catalog,
        evaluate: FrameEvaluator,
        rejects: Rejects,
        executor: Executor,
        targets: Mapping[str, FragmentTarget],
        job: LoadJob,
        joins: KeyJoins | None = None,
        *,
        max_rows: int | None = None,
        is_keyed: bool = False,
    ) -> None:
        super().__init__(catalog, [], rejects, executor, targets, joins=joins)
        self._evaluate = evaluate
        self._max_rows = max_rows
        self._job = job
        self._text = text_of(catalog)
        self._numbers: list[np.ndarray | None] = []
        self.digest = FramesDigest() if is_keyed else None

    def read(self) -> None:
        """Evaluate every frame once, and reject invalid rows in their order."""
        for name, value in self._job.data.items():
            entity_type = find_type(self._catalog, str(name))
            task = FrameTask(
                self._text,
                entity_type.table_key,
                len(self.files),
                f"<{name}>",
                self._targets[entity_type.table_key],
                self._job.strict_properties,
                self._job.max_rejects,
                self.digest is not None,
            )
            self.files.append(task.name)
            self._add_partitions(entity_type, self._evaluate(value, task))

    def _add_partitions(self, entity_type: EntityType, outcomes: Sequence[TaskAnswer]) -> None:
        partitions: list[FrameResult] = [
            answer.result() for answer in outcomes if not answer.failed
        ]
        for partition in partitions:
            self._record_result(partition.split)
        for answer in outcomes:
            if answer.failed:
                raise unpack(answer.packed)
        lines = 0
        for partition in partitions:
            result, offset = partition.split, Offset(lines, 0)
            self._results.append(result)
            self._numbers.append(partition.rows)
            self._offsets.append(offset)
            if self.digest is not None:
                self.digest.add(entity_type.table_key, partition.digest)
            self._add(result, offset)
            lines += result.lines
        if self._max_rows is not None and self.records > self._max_rows:
            raise RowLimitExceeded(
                f"{self.records} rows exceed the limit of {self._max_rows} for a check without "
                "Spark",
                hint="write them with omnigraph.spark.SparkGraph, or raise the option max_rows",
            )

    def _located(self, key: str, rows: Sequence[int]) -> list[int]:
        """The source lines of rows; their frames are not evaluated again."""
        ends = list(accumulate(rows_in(result, key) for result in self._results))
        located = []
        for row, number in zip(rows, np.searchsorted(ends, rows, side="right"), strict=True):
            inside = row - (ends[number - 1] if number else 0)
            numbers = self._numbers[number]
            line = inside + 1 if numbers is None else int(numbers[inside])
            offset = self._offsets[number].lines
            located.append(source_line(self._results[number].split.file, line + offset))
        return located


def frame_reader(
    evaluate: FrameEvaluator,
    executor: Executor,
    max_rows: int | None = None,
    joins: KeyJoins | None = None,
) -> LoadReader:
    """A reader of frames that are evaluated by ``evaluate``."""

    @contextmanager
    def read(
        store: GraphStore,
        catalog: Catalog,
        job: LoadJob,
        destination: LoadDestination,
        base: Snapshot,
    ) -> Iterator[Load]:
        branch = normal_branch(destination.branch)
        with open_rejects(job.rejects, job.data) as rejects, staging_marker(store, branch, base):
            intake = FrameIntake(
                catalog,
                evaluate,
                Rejects(job.max_rejects, None if rejects is None else rejects.keep),
                executor,
                fragment_targets(store, catalog, base, branch),
                job,
                joins,
                max_rows=max_rows,
                is_keyed=destination.idempotency_key is not None,
            )
            with intake.discard_if_unused(store):
                intake.read()
                yield intake.load(store, base, job, intake.digest)

    return read


# -- evaluation -----------------------------------------------------------------------------------


def frame_evaluator(on_progress: OnProgress | None = None) -> FrameEvaluator:
    """Evaluates a Spark frame by tasks of its session, any other table in this process."""

    def report(done: int, total: int) -> None:
        assert on_progress is not None
        on_progress(Progress(_READING, done, total))

    def evaluate(value: Any, task: FrameTask) -> Sequence[TaskAnswer]:
        entity_type = find_type(cached_catalog(task.catalog), task.table_key)
        if is_spark_frame(value):
            _refuse_repeated(value, entity_type, task.name)
            return _evaluate(value, task, report if on_progress is not None else None)
        batches = frame_batches(value, entity_type, task.name)
        if batches is None:
            raise InputError(
                f"the rows of '{entity_type.name}' are {type(value).__name__}",
                hint="pass a DataFrame of Spark, an Arrow table or a frame of pandas or polars",
            )
        return [answer_for(lambda: read_partition(task, batches), _READING)]

    return evaluate


def _evaluate(frame: DataFrame, task: FrameTask, report: Report | None) -> list[TaskAnswer]:
    partition = Partition(pickle.dumps(task), f"reading {task.name}")

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return partition(batches)

    def action() -> pa.Table:
        return frame.mapInArrow(answer, ANSWER).toArrow()

    session = frame.sparkSession
    label = f"reading {task.name}"
    table = run_watched(session, is_connect(session), action, label, report=report)
    return in_task_order(table, label)


def _refuse_repeated(frame: DataFrame, entity_type: EntityType, name: str) -> None:
    """Refuse a frame with two columns of one name, which Spark cannot convert to Arrow."""
    names = list(frame.columns)
    if isinstance(entity_type, EdgeType):
        names = [_ENDS.get(name, name) for name in names]
    repeated = first_repeated(names)
    if repeated is not None:
        shown = show(repeated)
        raise Reject(name, 1, f"the column '{shown}' is given twice", shown).error()
