"""Loads from frames of Spark: each is evaluated once, its partitions are written where they are.

Rows come through Java, which is the price of a frame; from there on everything is as in a load
from files. Tables and frames of other kinds may stand beside them: this process takes those in.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from omnigraph.commit.names import normal_branch
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.staging import marked
from omnigraph.commit.store import GraphStore
from omnigraph.errors import InputError, InternalError, RowLimitExceeded
from omnigraph.lang.schema import Catalog, text_of
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.lang.values.spelling import show
from omnigraph.progress import OnProgress, Progress
from omnigraph.spark.load.frame_rows import (
    ANSWER,
    DIGESTS,
    Answer,
    FrameTask,
    Partition,
    answer_for,
    read_partition,
)
from omnigraph.spark.load.joined_keys import KeyJoins
from omnigraph.spark.load.read_tasks import cached_catalog
from omnigraph.spark.load.run import Offset, SplitIntake, fragment_targets
from omnigraph.spark.session.connect import is_connect
from omnigraph.spark.session.jobs import Report, run_watched
from omnigraph.storage.tables.fragments import FragmentTarget
from omnigraph.write.column_names import first_repeated
from omnigraph.write.conform import find_type
from omnigraph.write.delta import Kind
from omnigraph.write.fragments import Runner
from omnigraph.write.load.intake import count_ignored
from omnigraph.write.load.job import LoadDestination, LoadJob
from omnigraph.write.load.rejects import Reject, Rejects, place
from omnigraph.write.load.rejects_file import open_rejects
from omnigraph.write.load.run import Load, Reader
from omnigraph.write.load.tables import frame_batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Ask = Callable[[Any, FrameTask], Sequence[Answer]]
"""Has a frame read; gives one answer for each of its partitions, in order."""

_READING = "reading"
_ENDS = {"from": "src", "to": "dst"}
FRAMES = "frames-"


def is_spark_frame(value: object) -> bool:
    """Whether something is a DataFrame of Spark; asked without importing it."""
    return type(value).__module__.startswith("pyspark.sql.") and hasattr(value, "mapInArrow")


def spark_frames(data: object) -> list[Any]:
    """The frames of Spark among the data of a load."""
    values = data.values() if isinstance(data, Mapping) else ()
    return [value for value in values if is_spark_frame(value)]


class FramesDigest:
    """What tells the rows of some frames from others, in whatever order they come."""

    def __init__(self) -> None:
        self._frames: dict[str, int] = {}

    def add(self, name: str, digest: int) -> None:
        self._frames[name] = (self._frames.get(name, 0) + digest) % DIGESTS

    def text(self) -> str:
        total = ";".join(f"{name}={self._frames[name]:x}" for name in sorted(self._frames))
        return f"{FRAMES}{total}"


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames by the names of their types, and who reads them."""

    data: Mapping[str, Any]
    ask: Ask
    most_rows: int | None = None
    """More than this are refused."""


class FrameIntake(SplitIntake):
    """What many processes took in from frames, as one."""

    def __init__(
        self,
        catalog: Catalog,
        frames: Frames,
        rejects: Rejects,
        run: Runner,
        places: Mapping[str, FragmentTarget],
        job: LoadJob,
        joins: KeyJoins | None = None,
        *,
        is_keyed: bool = False,
    ) -> None:
        super().__init__(catalog, [], rejects, run, places, joins=joins)
        self._frames = frames
        self._job = job
        self._text = text_of(catalog)
        self._numbers: list[np.ndarray | None] = []
        self.digest = FramesDigest() if is_keyed else None

    def read(self) -> None:
        """Have every frame read, once; what cannot be taken is refused here."""
        for name, value in self._frames.data.items():
            kind = find_type(self._catalog, str(name))
            reading = FrameTask(
                self._text,
                kind.table_key,
                len(self.files),
                f"<{name}>",
                self._places[kind.table_key],
                self._job.strict_properties,
                self._job.max_rejects,
                self.digest is not None,
            )
            self.files.append(reading.name)
            self._take(kind, self._frames.ask(value, reading))

    def _take(self, kind: Kind, answers: Sequence[Answer]) -> None:
        partitions = [answer.done() for answer in answers if not answer.failed]
        self._note(each.done for each in partitions)
        for answer in answers:
            if answer.failed:
                raise answer.error()
        lines = 0
        for each in partitions:
            done = each.done
            self.records += done.records
            for name, count in done.ignored.items():
                count_ignored(self.ignored, name, count)
            self._done.append(done)
            self._numbers.append(each.rows)
            self._offsets.append(Offset(lines, 0))
            if self.digest is not None:
                self.digest.add(kind.table_key, each.digest)
            for reject in done.rejects:
                self.rejects.add(reject.moved(reject.file, lines, 0))
            lines += done.lines
        most = self._frames.most_rows
        if most is not None and self.records > most:
            raise RowLimitExceeded(
                f"{self.records} rows are more than the {most} that are judged without Spark",
                hint="write them with omnigraph.spark.SparkGraph, or raise the option max_rows",
            )

    def _located(self, key: str, rows: Sequence[int]) -> list[int]:
        """Where rows stand, from what their partitions said: they are not evaluated again."""
        counts = [taken.rows if (taken := d.tables.get(key)) else 0 for d in self._done]
        ends = list(accumulate(counts))
        found = []
        for row, number in zip(rows, np.searchsorted(ends, rows, side="right"), strict=True):
            inside = row - (ends[number - 1] if number else 0)
            numbers = self._numbers[number]
            line = inside + 1 if numbers is None else int(numbers[inside])
            offset = self._offsets[number].lines
            found.append(place(self._done[number].split.file, line + offset))
        return found


def frame_reader(
    ask: Ask, run: Runner, most_rows: int | None = None, joins: KeyJoins | None = None
) -> Reader:
    """A reader of frames, each of which is read by ``ask``."""

    @contextmanager
    def read(
        store: GraphStore,
        catalog: Catalog,
        job: LoadJob,
        destination: LoadDestination,
        base: Snapshot,
    ) -> Iterator[Load]:
        branch = normal_branch(destination.branch)
        with open_rejects(job.rejects, job.data) as rejects, marked(store, branch, base):
            intake = FrameIntake(
                catalog,
                Frames(job.data, ask, most_rows),
                Rejects(job.max_rejects, None if rejects is None else rejects.keep),
                run,
                fragment_targets(store, catalog, base, branch),
                job,
                joins,
                is_keyed=destination.idempotency_key is not None,
            )
            with intake.discard_if_unused(store):
                intake.read()
                yield intake.load(store, base, job, intake.digest)

    return read


# -- evaluation -----------------------------------------------------------------------------------


def frame_evaluator(on_progress: OnProgress | None = None) -> Ask:
    """Reads a frame by the tasks of its own session; any other table in this process."""

    def report(done: int, total: int) -> None:
        assert on_progress is not None
        on_progress(Progress(_READING, done, total))

    def ask(value: Any, reading: FrameTask) -> Sequence[Answer]:
        if is_spark_frame(value):
            return _ask_spark(value, reading, report if on_progress is not None else None)
        kind = _kind(reading)
        batches = frame_batches(value, kind, reading.name)
        if batches is None:
            raise InputError(
                f"the rows of '{kind.name}' are {type(value).__name__}",
                hint="pass a DataFrame of Spark, an Arrow table or a frame of pandas or polars",
            )
        return [answer_for(lambda: read_partition(reading, batches), _READING)]

    return ask


def _ask_spark(frame: DataFrame, reading: FrameTask, report: Report | None) -> list[Answer]:
    kind = _kind(reading)
    _refuse_repeated(frame, kind, reading.name)
    partition = Partition(pickle.dumps(reading), f"reading {reading.name}")

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return partition(batches)

    def action() -> pa.Table:
        return frame.mapInArrow(answer, ANSWER).toArrow()

    session = frame.sparkSession
    label = f"reading {reading.name}"
    table = run_watched(session, is_connect(session), action, label, report=report)
    rows = table.sort_by("position")
    if rows["position"].to_pylist() != list(range(rows.num_rows)):
        raise InternalError(f"{label}: {rows.num_rows} partitions answered out of turn")
    return [
        Answer(failed, packed)
        for failed, packed in zip(
            rows["failed"].to_pylist(), rows["answer"].to_pylist(), strict=True
        )
    ]


def _kind(reading: FrameTask) -> Kind:
    return find_type(cached_catalog(reading.catalog), reading.table_key)


def _refuse_repeated(frame: DataFrame, kind: Kind, name: str) -> None:
    """Arrow frames may have two columns of one name, those of Spark cannot leave it so."""
    names = list(frame.columns)
    if isinstance(kind, EdgeType):
        names = [_ENDS.get(each, each) for each in names]
    repeated = first_repeated(names)
    if repeated is not None:
        shown = show(repeated)
        raise Reject(name, 1, f"the column '{shown}' is given twice", shown).error()
