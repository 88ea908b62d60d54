"""Writes of one type through the data source ``omnigraph``, as one commit.

The target is resolved before the tasks start; tasks write fragments; a process without Spark
combines their results, validates all rows and commits. It validates in memory, so the number of
rows is limited.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

import pyarrow as pa

from omnigraph.commit.branches import Branches
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.staging import delete_staging_marker, write_staging_marker
from omnigraph.commit.store import GraphStore
from omnigraph.errors import Conflict, InputError, OmniGraphError
from omnigraph.lang.schema.catalog import text_of
from omnigraph.records import dataclass
from omnigraph.spark.load.frame_rows import FrameTask, read_partition
from omnigraph.spark.load.frames import frame_reader
from omnigraph.spark.load.run import fragment_targets
from omnigraph.spark.session.opening import opened
from omnigraph.spark.session.tasks import TaskAnswer, answer_for
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.storage.tables.fragments import FragmentTarget, discard_fragments
from omnigraph.write.conform import find_type
from omnigraph.write.load.job import LoadDestination, LoadJob
from omnigraph.write.load.run import first_commit, load_into

COMMIT_ROWS = 5_000_000
"""The default limit of rows that are validated without Spark."""


@dataclass(frozen=True, slots=True)
class TypeWrite:
    """A planned write of one type. Pickled for other processes."""

    uri: str
    name: str
    job: LoadJob
    destination: LoadDestination
    task: FrameTask
    max_rows: int
    marker: str | None = None
    storage: Mapping[str, str] | None = field(default=None, repr=False)

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskAnswer:
        """In a task: write the rows of a partition."""
        return answer_for(lambda: read_partition(self.task, batches), f"writing {self.name}")

    def commit(self, outcomes: Sequence[TaskAnswer], key: str | None = None) -> None:
        """Validate and commit the rows of all tasks; with a key only once."""
        here = opened(self.uri, self.storage, writable=True)
        destination = self.destination
        try:
            if key is not None:
                destination = replace(destination, idempotency_key=key)
                if _is_committed(here.store, destination):
                    self._discard(here.store, outcomes)
                    return

            def evaluate(_: object, current: FrameTask) -> Sequence[TaskAnswer]:
                if _layout(current.target) != _layout(self.task.target):
                    text = f"{self.name} was changed while its rows were written"
                    raise Conflict(text, hint="write them again")
                return outcomes

            reader = frame_reader(evaluate, ThreadExecutor(1), self.max_rows)
            load_into(here.store, here.catalog, self.job, destination, reader)
        finally:
            self.end(here.store)

    def abort(self) -> None:
        """Remove only the marker: the fragments may have been committed."""
        if self.marker is not None:
            self.end(opened(self.uri, self.storage).store)

    def end(self, store: GraphStore) -> None:
        if self.marker is not None:
            delete_staging_marker(store, self.marker)

    def _discard(self, store: GraphStore, outcomes: Sequence[TaskAnswer]) -> None:
        with suppress(OmniGraphError):
            for answer in outcomes:
                for table in () if answer.failed else answer.result().split.tables.values():
                    discard_fragments(store.datasets, self.task.target.path, table.fragments)


def plan_write(
    uri: str,
    name: str,
    job: LoadJob,
    destination: LoadDestination,
    *,
    max_rows: int = COMMIT_ROWS,
    is_marked: bool = False,
    storage: Mapping[str, str] | None = None,
) -> TypeWrite:
    """Resolve the target of a write."""
    here = opened(uri, storage, writable=True)
    entity_type = find_type(here.catalog, name)
    branch = base = normal_branch(destination.branch)
    if destination.from_branch is not None and not _has_branch(here.store, branch):
        base = normal_branch(destination.from_branch)
    snapshot = here.store.manifest(base).current()
    targets = fragment_targets(here.store, here.catalog, snapshot, branch)
    if entity_type.table_key not in targets:
        raise InputError(f"'{entity_type.name}' is not on the branch '{branch_label(base)}'")
    task = FrameTask(
        text_of(here.catalog),
        entity_type.table_key,
        0,
        f"<{name}>",
        targets[entity_type.table_key],
        job.strict_properties,
        job.max_rejects,
        destination.idempotency_key is not None,
    )
    marker = write_staging_marker(here.store, branch, snapshot) if is_marked else None
    return TypeWrite(uri, name, job, destination, task, max_rows, marker, storage)


def _layout(target: FragmentTarget) -> tuple[Any, ...]:
    return target.uri, target.file_version, target.fields


def _has_branch(store: GraphStore, branch: str | None) -> bool:
    return branch_label(branch) in Branches(store).list()


def _is_committed(store: GraphStore, destination: LoadDestination) -> bool:
    """Whether the idempotency key of a write has a commit on its branch."""
    branch = normal_branch(destination.branch)
    return _has_branch(store, branch) and first_commit(store, destination, branch) is not None
