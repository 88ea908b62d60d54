"""Rows of one type that the data source ``omnigraph`` gets from Spark, as one commit.

Where rows go is found before the tasks start; the tasks write them there; a process without Spark
puts together what they say, judges all rows by the rules of the schema, and commits. It has no
Spark to help it, so there is a bound to how many rows that may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa

from omnigraph.commit.branches import Branches
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.staging import mark, unmark
from omnigraph.commit.store import GraphStore
from omnigraph.errors import Conflict, InputError, OmniGraphError
from omnigraph.lang.schema import text_of
from omnigraph.spark.load.frame_rows import Answer, FrameTask, answer_for, read_partition
from omnigraph.spark.load.frames import frame_reader
from omnigraph.spark.load.run import fragment_targets
from omnigraph.spark.session.opening import opened
from omnigraph.storage.tables.fragments import FragmentTarget, discard_fragments
from omnigraph.write.conform import find_type
from omnigraph.write.load.commit import load_into
from omnigraph.write.load.job import LoadDestination, LoadJob
from omnigraph.write.load.run import first_commit

A = TypeVar("A")
R = TypeVar("R")

COMMIT_ROWS = 5_000_000
"""More rows than this are not judged without Spark, unless the caller says so."""


@dataclass(frozen=True, slots=True)
class TypeWrite:
    """Where rows of one type go and how. Made to be sent to other processes."""

    uri: str
    name: str
    job: LoadJob
    destination: LoadDestination
    reading: FrameTask
    most_rows: int
    marker: str | None = None
    storage: Mapping[str, str] | None = field(default=None, repr=False)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Answer:
        """In a task: write the rows of a partition."""
        return answer_for(lambda: read_partition(self.reading, batches), f"writing {self.name}")

    def commit(self, answers: Sequence[Answer], key: str | None = None) -> None:
        """Judge what all tasks wrote and commit it; under a key only once."""
        here = opened(self.uri, self.storage, writable=True)
        destination = self.destination
        try:
            if key is not None:
                destination = replace(destination, idempotency_key=key)
                if _is_committed(here.store, destination):
                    self._discard(here.store, answers)
                    return
            reader = frame_reader(lambda _, now: self._answers(answers, now), _here, self.most_rows)
            load_into(here.store, here.catalog, self.job, destination, reader)
        finally:
            self.end(here.store)

    def abort(self) -> None:
        """Only the marker goes: what lies beside the table may have been committed."""
        if self.marker is not None:
            self.end(opened(self.uri, self.storage).store)

    def end(self, store: GraphStore) -> None:
        if self.marker is not None:
            unmark(store, self.marker)

    def _answers(self, answers: Sequence[Answer], now: FrameTask) -> Sequence[Answer]:
        if _form(now.place) != _form(self.reading.place):
            raise Conflict(
                f"{self.name} was changed while its rows were written", hint="write them again"
            )
        return answers

    def _discard(self, store: GraphStore, answers: Sequence[Answer]) -> None:
        with suppress(OmniGraphError):
            for answer in answers:
                for taken in () if answer.failed else answer.done().done.tables.values():
                    discard_fragments(store.datasets, self.reading.place, taken.parts)


def plan_write(
    uri: str,
    name: str,
    job: LoadJob,
    destination: LoadDestination,
    *,
    most_rows: int = COMMIT_ROWS,
    is_marked: bool = False,
    storage: Mapping[str, str] | None = None,
) -> TypeWrite:
    """Find where the rows of a write go."""
    here = opened(uri, storage, writable=True)
    kind = find_type(here.catalog, name)
    branch = base = normal_branch(destination.branch)
    if destination.from_branch is not None and not _has_branch(here.store, branch):
        base = normal_branch(destination.from_branch)
    seen = here.store.manifest(base).current()
    places = fragment_targets(here.store, here.catalog, seen, branch)
    if kind.table_key not in places:
        raise InputError(f"'{kind.name}' is not on the branch '{branch_label(base)}'")
    reading = FrameTask(
        text_of(here.catalog),
        kind.table_key,
        0,
        f"<{name}>",
        places[kind.table_key],
        job.strict_properties,
        job.max_rejects,
        destination.idempotency_key is not None,
    )
    marker = mark(here.store, branch, seen) if is_marked else None
    return TypeWrite(uri, name, job, destination, reading, most_rows, marker, storage)


def _form(place: FragmentTarget) -> tuple[Any, ...]:
    return place.uri, place.file_version, place.fields


def _has_branch(store: GraphStore, branch: str | None) -> bool:
    return branch_label(branch) in Branches(store).list()


def _is_committed(store: GraphStore, destination: LoadDestination) -> bool:
    """Whether the idempotency key of a write has a commit on its branch."""
    branch = normal_branch(destination.branch)
    return _has_branch(store, branch) and first_commit(store, destination, branch) is not None


def _here(work: Callable[[A], R], shares: Sequence[A], label: str) -> list[R]:
    """Runs shares one after the other: this process has no Spark."""
    return [work(share) for share in shares]
