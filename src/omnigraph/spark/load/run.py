"""A load whose files are read by many processes at once.

A task reads a split, checks it record by record and writes fragments of the tables. The results
are combined in the order of the input, so rejects, messages and the order of rows are those of a
local load. Rules about sets of rows, staging and the commit are those of ``write.load``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from os import PathLike, fspath

import numpy as np

from omnigraph.commit.branches import clear_orphan
from omnigraph.commit.names import normal_branch
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.staging import staging_marker
from omnigraph.commit.store import GraphStore
from omnigraph.errors import InputError, OmniGraphError
from omnigraph.lang.schema.catalog import Catalog, entity_types, text_of
from omnigraph.records import dataclass
from omnigraph.spark.load.joined_keys import JoinedKeys, KeyJoins
from omnigraph.spark.load.read_tasks import (
    SPLIT_BYTES,
    LocateTask,
    ReadSettings,
    ReadTask,
    Split,
    SplitFailure,
    SplitResult,
    locate_rows,
    read_split,
    splits_of,
)
from omnigraph.storage.executor import Executor
from omnigraph.storage.tables.fragments import FragmentTarget, StagedFragment, fragment_target
from omnigraph.storage.tables.types import TableRef
from omnigraph.write.conform import find_type
from omnigraph.write.fragments import FragmentLedger, FragmentRows
from omnigraph.write.load.digest import FilesDigest
from omnigraph.write.load.intake import count_ignored
from omnigraph.write.load.job import LoadData, LoadDestination, LoadJob, LoadMode
from omnigraph.write.load.rejects import (
    Rejects,
    open_rejects,
    source_line,
)
from omnigraph.write.load.run import Fingerprint, Load, LoadReader, first_was_by_files, read_locally
from omnigraph.write.load.sources import LoadFile, Sources

_KEY_BYTES = 40
"""The approximate size of the id of a row."""


@dataclass(frozen=True, slots=True)
class Offset:
    """The lines and records of a file before a split."""

    lines: int
    records: int


class SplitIntake:
    """The combined intake of many tasks."""

    def __init__(
        self,
        catalog: Catalog,
        files: Sequence[LoadFile],
        rejects: Rejects,
        executor: Executor,
        targets: Mapping[str, FragmentTarget],
        *,
        strict_properties: bool = False,
        allowed: int = 0,
        allow_local_files: bool = False,
        split_bytes: int = SPLIT_BYTES,
        joins: KeyJoins | None = None,
    ) -> None:
        self.files = [file.path for file in files]
        self.rejects = rejects
        self.ignored: dict[str, int] = {}
        self.records = 0
        self._catalog = catalog
        self._executor = executor
        self._targets = targets
        self._settings = ReadSettings(
            text_of(catalog), targets, strict_properties, allowed, allow_local_files
        )
        self._splits = splits_of(files, split_bytes)
        self._results: list[SplitResult] = []
        self._offsets: list[Offset] = []
        self._ledger = FragmentLedger()
        self._joins = joins
        self._joined: JoinedKeys | None = None

    def read(self) -> None:
        """Read all splits, and reject invalid records in their order."""
        self._results = self._read_whole(self._splits)
        self._offsets = _offsets(self._results)
        for result, offset in zip(self._results, self._offsets, strict=True):
            self._add(result, offset)

    @contextmanager
    def discard_if_unused(self, store: GraphStore) -> Iterator[None]:
        """Delete fragments that were not staged, at the end of the block."""
        try:
            yield
        except OmniGraphError:
            self._ledger.discard_unstaged(store.datasets)
            raise
        self._ledger.discard_unstaged(store.datasets)

    # -- reading -------------------------------------------------------------------------

    def _read_whole(self, splits: Sequence[Split]) -> list[SplitResult]:
        """Read all splits; one whose last record is cut off is read again with the next."""
        results = self._read(splits)
        while True:
            groups: list[list[SplitResult]] = []
            for result in results:
                last = groups[-1][-1] if groups else None
                if last is not None and last.is_open and last.split.file == result.split.file:
                    groups[-1].append(result)
                else:
                    groups.append([result])
            torn = [group for group in groups if len(group) > 1]
            if not torn:
                return results
            joined = self._read([group[0].split.joined(group[-1].split) for group in torn])
            again = iter(joined)
            results = [next(again) if len(group) > 1 else group[0] for group in groups]

    def _read(self, splits: Sequence[Split]) -> list[SplitResult]:
        tasks = [ReadTask(self._settings, split) for split in splits]
        results: list[SplitResult] = []
        failures: list[SplitFailure] = []
        for result in self._executor.run(read_split, tasks, "reading"):
            if isinstance(result, SplitFailure):
                self._record(result.written)
                failures.append(result)
            else:
                self._record_result(result)
                results.append(result)
        if failures:
            raise failures[0].error()
        return results

    def _record_result(self, result: SplitResult) -> None:
        self._record({key: table.fragments for key, table in result.tables.items()})

    def _record(self, written: Mapping[str, Iterable[StagedFragment]]) -> None:
        """Remember fragments, to delete those that are never staged."""
        for key, fragments in written.items():
            self._ledger.write(self._targets[key], fragments)

    def _add(self, result: SplitResult, offset: Offset) -> None:
        """Add the counts and rejects of a split."""
        self.records += result.records
        for name, count in result.ignored.items():
            count_ignored(self.ignored, name, count)
        path = result.split.source.path
        for reject in result.rejects:
            self.rejects.add(reject.shifted(path, offset.lines, offset.records))
        if result.fatal is not None:
            self.rejects.end(result.fatal.shifted(path, offset.lines, offset.records))

    def load(
        self, store: GraphStore, base: Snapshot, job: LoadJob, digest: Fingerprint | None
    ) -> Load:
        """The rows that were read, as a load; keys beyond the memory limit are joined by Spark."""
        if self._joins is not None:
            size = self._key_bytes(base, job.mode)
            self._joined = self._joins.for_keys(size, store.datasets)
        return Load(store, self._catalog, job, self, self.spools(), digest, self._joined)

    def _key_bytes(self, base: Snapshot, mode: LoadMode) -> int:
        """Bytes of keys that rules about sets need; an overwrite also reads the deleted rows."""
        tables = [item for result in self._results for item in result.tables.items()]
        size = sum(table.key_bytes for _, table in tables)
        if mode is LoadMode.OVERWRITE:
            pins = (base.pin(key) for key in {key for key, _ in tables})
            size += sum(pin.row_count * _KEY_BYTES for pin in pins if pin is not None)
        return size

    # -- for the load --------------------------------------------------------------------

    @property
    def given_ids(self) -> set[str]:
        """The tables for which some record has its own id."""
        tables = (item for result in self._results for item in result.tables.items())
        return {key for key, table in tables if table.has_given_ids}

    def spools(self) -> dict[str, FragmentRows]:
        """The rows of every type that had a record."""
        keys = sorted({key for result in self._results for key in result.tables})
        return {key: self._rows(key) for key in keys}

    def _rows(self, key: str) -> FragmentRows:
        return FragmentRows(
            find_type(self._catalog, key),
            self._targets[key],
            [f for result in self._results for f in _fragments(result, key)],
            self._executor,
            lambda rows: self._located(key, rows),
            self._ledger,
            self._joined,
        )

    def _located(self, key: str, rows: Sequence[int]) -> list[int]:
        """The source lines of rows; their splits are read again, which is rarely needed."""
        ends = list(accumulate(rows_in(result, key) for result in self._results))
        numbers = np.searchsorted(ends, rows, side="right").tolist()
        wanted: dict[int, list[int]] = {}
        for number, row in zip(numbers, rows, strict=True):
            wanted.setdefault(number, []).append(row - (ends[number - 1] if number else 0))
        tasks = [
            LocateTask(ReadTask(self._settings, self._results[number].split), key, tuple(inside))
            for number, inside in wanted.items()
        ]
        located = self._executor.run(locate_rows, tasks, "locating rows")
        lines = {number: iter(of_split) for number, of_split in zip(wanted, located, strict=True)}
        return [
            source_line(
                self._results[number].split.file, next(lines[number]) + self._offsets[number].lines
            )
            for number in numbers
        ]


def _offsets(results: Sequence[SplitResult]) -> list[Offset]:
    offsets: list[Offset] = []
    file, lines, records = -1, 0, 0
    for result in results:
        if result.split.file != file:
            file, lines, records = result.split.file, 0, 0
        offsets.append(Offset(lines, records))
        lines += result.lines
        records += result.counted
    return offsets


def _fragments(result: SplitResult, key: str) -> Sequence[StagedFragment]:
    table = result.tables.get(key)
    return () if table is None else table.fragments


def rows_in(result: SplitResult, key: str) -> int:
    """The number of rows of a table in a split."""
    return sum(fragment.rows for fragment in _fragments(result, key))


def fragment_targets(
    store: GraphStore, catalog: Catalog, base: Snapshot, branch: str | None
) -> dict[str, FragmentTarget]:
    """The target of new rows of each type, for a branch that may not exist yet."""
    targets = {}
    for entity_type in entity_types(catalog):
        pin = base.pin(entity_type.table_key)
        if pin is not None:
            clear_orphan(store, pin, branch)
            ref = TableRef(pin.location, branch)
            targets[entity_type.table_key] = fragment_target(store.datasets, store.table(pin), ref)
    return targets


def split_reader(
    executor: Executor, split_bytes: int = SPLIT_BYTES, joins: KeyJoins | None = None
) -> LoadReader:
    """A reader of files whose splits are read by ``executor``."""

    @contextmanager
    def read(
        store: GraphStore,
        catalog: Catalog,
        job: LoadJob,
        destination: LoadDestination,
        base: Snapshot,
    ) -> Iterator[Load]:
        if first_was_by_files(store, destination, base.branch) is False:
            # The earlier load was identified by its values in their order.
            with read_locally(store, catalog, job, destination, base) as load:
                yield load
            return
        branch = normal_branch(destination.branch)
        with open_rejects(job.rejects, job.data) as rejects, staging_marker(store, branch, base):
            sources = Sources(catalog, job.format, job.types, rejects, local_files=job.local_files)
            files = list_files(job.data, sources, catalog)
            intake = SplitIntake(
                catalog,
                files,
                Rejects(job.max_rejects, None if rejects is None else rejects.keep),
                executor,
                fragment_targets(store, catalog, base, branch),
                strict_properties=job.strict_properties,
                allowed=job.max_rejects,
                allow_local_files=job.allow_local_files,
                split_bytes=split_bytes,
                joins=joins,
            )
            with intake.discard_if_unused(store):
                intake.read()
                is_keyed = destination.idempotency_key is not None
                digest = FilesDigest(intake.files) if is_keyed else None
                yield intake.load(store, base, job, digest)

    return read


def list_files(data: LoadData, sources: Sources, catalog: Catalog) -> list[LoadFile]:
    """The files of a load; no other data can be read by several processes."""
    paths = [data] if isinstance(data, str | PathLike) else data
    if isinstance(paths, Mapping) or not isinstance(paths, Iterable):
        raise _no_files(data)
    files: list[LoadFile] = []
    for path in paths:
        if not isinstance(path, str | PathLike):
            raise _no_files(path)
        files += sources.files(fspath(path))
    for name in sources.types.values():
        find_type(catalog, name)
    sources.check_used()
    return files


def _no_files(data: object) -> InputError:
    return InputError(
        f"Spark reads files and its own frames, not {type(data).__name__}",
        hint="pass paths, or use engine='local'",
    )
