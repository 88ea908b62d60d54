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
from omnigraph.spark.load.frame_rows import Answer, FrameReading, answer_of, take_rows
from omnigraph.spark.load.frames import frame_reading
from omnigraph.spark.load.run import places_for
from omnigraph.spark.session.opening import opened
from omnigraph.storage.tables.fragments import FragmentTarget, discard_fragments
from omnigraph.write.conform import find_type
from omnigraph.write.load.run import LoadMode, LoadOptions
from omnigraph.write.load.target import LoadTarget, load_into

A = TypeVar("A")
R = TypeVar("R")

COMMIT_ROWS = 5_000_000
"""More rows than this are not judged without Spark, unless the caller says so."""


@dataclass(frozen=True, slots=True)
class TypeWrite:
    """Where rows of one type go and how. Made to be sent to other processes."""

    uri: str
    name: str
    mode: LoadMode
    options: LoadOptions
    target: LoadTarget
    reading: FrameReading
    most_rows: int
    marker: str | None = None
    storage: Mapping[str, str] | None = field(default=None, repr=False)

    def write(self, batches: Iterable[pa.RecordBatch]) -> Answer:
        """In a task: write the rows of a partition."""
        return answer_of(lambda: take_rows(self.reading, batches), f"writing {self.name}")

    def commit(self, answers: Sequence[Answer], key: str | None = None) -> None:
        """Judge what all tasks wrote and commit it; under a key only once."""
        here = opened(self.uri, self.storage, writable=True)
        try:
            if key is not None and _is_there(here.store, self.target.branch, key):
                self._discard(here.store, answers)
                return
            load_into(
                here.store,
                here.catalog,
                {self.name: None},
                self.mode,
                self.options,
                self.target if key is None else replace(self.target, idempotency_key=key),
                frame_reading(lambda _, now: self._answers(answers, now), _here, self.most_rows),
            )
        finally:
            self.end(here.store)

    def abort(self) -> None:
        """Only the marker goes: what lies beside the table may have been committed."""
        if self.marker is not None:
            self.end(opened(self.uri, self.storage).store)

    def end(self, store: GraphStore) -> None:
        if self.marker is not None:
            unmark(store, self.marker)

    def _answers(self, answers: Sequence[Answer], now: FrameReading) -> Sequence[Answer]:
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
    mode: LoadMode,
    options: LoadOptions,
    target: LoadTarget,
    *,
    most_rows: int = COMMIT_ROWS,
    is_marked: bool = False,
    storage: Mapping[str, str] | None = None,
) -> TypeWrite:
    """Find where the rows of a write go."""
    here = opened(uri, storage, writable=True)
    kind = find_type(here.catalog, name)
    branch = base = normal_branch(target.branch)
    if target.from_branch is not None and not _has_branch(here.store, branch):
        base = normal_branch(target.from_branch)
    seen = here.store.manifest(base).current()
    places = places_for(here.store, here.catalog, seen, branch)
    if kind.table_key not in places:
        raise InputError(f"'{kind.name}' is not on the branch '{branch_label(base)}'")
    reading = FrameReading(
        text_of(here.catalog),
        kind.table_key,
        0,
        f"<{name}>",
        places[kind.table_key],
        options.strict_properties,
        options.max_rejects,
        target.idempotency_key is not None,
    )
    marker = mark(here.store, branch, seen) if is_marked else None
    return TypeWrite(uri, name, mode, options, target, reading, most_rows, marker, storage)


def _form(place: FragmentTarget) -> tuple[Any, ...]:
    return place.uri, place.file_version, place.fields


def _has_branch(store: GraphStore, branch: str | None) -> bool:
    return branch_label(branch) in Branches(store).list()


def _is_there(store: GraphStore, name: str, key: str) -> bool:
    """Whether a commit of this key is on a branch."""
    branch = normal_branch(name)
    if not _has_branch(store, branch):
        return False
    scoped = (branch, key)
    found = store.manifest(branch).with_state(lambda state, _: state.repeats.get(scoped))
    return found is not None


def _here(work: Callable[[A], R], shares: Sequence[A], label: str) -> list[R]:
    """Runs shares one after the other: this process has no Spark."""
    return [work(share) for share in shares]
