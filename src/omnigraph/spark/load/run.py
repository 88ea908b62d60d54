"""A load whose files are read by many processes at once.

Each share is read, judged record by record and written beside its tables in one go; nothing moves.
What the shares found is put in order as if one process had read all of it, so rejects, messages
and the order of rows are those of any other load. The rules about all rows together, the staging
and the commit are those of ``write.load``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np

from omnigraph.commit.forks import clear_orphan
from omnigraph.commit.names import normal_branch
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.staging import marked
from omnigraph.commit.store import GraphStore
from omnigraph.errors import InputError, OmniGraphError
from omnigraph.lang.schema import Catalog, text_of
from omnigraph.progress import OnProgress, Progress
from omnigraph.spark.load.joined_keys import JoinedKeys, KeyJoins
from omnigraph.spark.load.read_tasks import (
    Done,
    Failed,
    Locating,
    Reading,
    Share,
    locate_rows,
    read_split,
)
from omnigraph.spark.load.splits import SPLIT_BYTES, Split, splits_of
from omnigraph.storage.tables.fragments import FragmentTarget, StagedFragment, fragment_target
from omnigraph.storage.tables.types import TableRef
from omnigraph.write.conform import find_type
from omnigraph.write.delta import Kind
from omnigraph.write.fragments import FragmentLedger, FragmentRows, Runner
from omnigraph.write.load.digest import FilesDigest
from omnigraph.write.load.files import SourceFile, Sources
from omnigraph.write.load.intake import count_ignored
from omnigraph.write.load.job import (
    LoadData,
    LoadDestination,
    LoadJob,
    LoadMode,
)
from omnigraph.write.load.rejects import Rejects, broken, file_and_line, place
from omnigraph.write.load.rejects_file import open_rejects
from omnigraph.write.load.run import (
    Fingerprint,
    Load,
    Reader,
    first_fingerprint,
    is_by_files,
    read_locally,
)
from omnigraph.write.validate.violations import Violation

if TYPE_CHECKING:
    from omnigraph.spark.session.engine import SparkEngine

_KEY_BYTES = 40
"""About what the id of a row takes."""


@dataclass(frozen=True, slots=True)
class Offset:
    """What of a file comes before a share."""

    lines: int
    records: int


class SplitIntake:
    """What many processes took in, as one."""

    def __init__(
        self,
        catalog: Catalog,
        files: Sequence[SourceFile],
        rejects: Rejects,
        run: Runner,
        places: Mapping[str, FragmentTarget],
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
        self._run = run
        self._places = places
        self._reading = Reading(
            text_of(catalog), places, strict_properties, allowed, allow_local_files
        )
        self._splits = splits_of(files, split_bytes)
        self._done: list[Done] = []
        self._offsets: list[Offset] = []
        self._ledger = FragmentLedger()
        self._joins = joins
        self._joined: JoinedKeys | None = None

    def read(self) -> None:
        """Have everything read; what cannot be taken is refused here."""
        self._done = self._whole(self._splits)
        self._offsets = _offsets(self._done)
        self._put_together()

    @contextmanager
    def discard_if_unused(self, store: GraphStore) -> Iterator[None]:
        """Remove in the end what was written and never staged."""
        try:
            yield
        except OmniGraphError:
            self._ledger.discard_unstaged(store.datasets)
            raise
        self._ledger.discard_unstaged(store.datasets)

    # -- reading -------------------------------------------------------------------------

    def _whole(self, splits: Sequence[Split]) -> list[Done]:
        """Read all shares; where a record goes on behind one, it is read again with the next."""
        done = self._read(splits)
        while True:
            groups: list[list[Done]] = []
            for each in done:
                before = groups[-1][-1] if groups else None
                if before is not None and before.is_open and before.split.file == each.split.file:
                    groups[-1].append(each)
                else:
                    groups.append([each])
            torn = [group for group in groups if len(group) > 1]
            if not torn:
                return done
            again = iter(self._read([_joined(group) for group in torn]))
            done = [next(again) if len(group) > 1 else group[0] for group in groups]

    def _read(self, splits: Sequence[Split]) -> list[Done]:
        shares = [Share(self._reading, split) for split in splits]
        answers = self._run(read_split, shares, "reading")
        self._note(answers)
        done = []
        for each in answers:
            if isinstance(each, Failed):
                raise each.error()
            done.append(each)
        return done

    def _note(self, answers: Iterable[Done | Failed]) -> None:
        """What was written, whether or not it will be used."""
        for each in answers:
            if isinstance(each, Failed):
                written = each.written
            else:
                written = {key: taken.parts for key, taken in each.tables.items()}
            for key, parts in written.items():
                self._ledger.write(self._places[key], parts)

    def _put_together(self) -> None:
        for each, offset in zip(self._done, self._offsets, strict=True):
            self.records += each.records
            for name, count in each.ignored.items():
                count_ignored(self.ignored, name, count)
            path = each.split.source.path
            for reject in each.rejects:
                self.rejects.add(reject.moved(path, offset.lines, offset.records))
            if each.last is not None:
                self.rejects.end(each.last.moved(path, offset.lines, offset.records))

    def load(
        self, store: GraphStore, base: Snapshot, job: LoadJob, digest: Fingerprint | None
    ) -> Load:
        """The rows that were read, as a load; keys beyond the memory limit are joined by Spark."""
        if self._joins is not None:
            size = self._key_bytes(base, job.mode)
            self._joined = self._joins.for_keys(size, store.datasets)
        return Load(store, self._catalog, job, self, self.spools(), digest, self._joined)

    def _key_bytes(self, base: Snapshot, mode: LoadMode) -> int:
        """What rules about sets have to look at; an overwrite also looks at what goes."""
        tables = [item for each in self._done for item in each.tables.items()]
        size = sum(taken.key_bytes for _, taken in tables)
        if mode is LoadMode.OVERWRITE:
            pins = (base.pin(key) for key in {key for key, _ in tables})
            size += sum(pin.row_count * _KEY_BYTES for pin in pins if pin is not None)
        return size

    # -- what a load asks for ------------------------------------------------------------

    @property
    def given_ids(self) -> set[str]:
        """The tables for which some record brought its own id."""
        tables = (item for each in self._done for item in each.tables.items())
        return {key for key, taken in tables if taken.has_given_ids}

    def spools(self) -> dict[str, FragmentRows]:
        """The rows of every type that had a record."""
        keys = sorted({key for each in self._done for key in each.tables})
        return {key: self._rows(key) for key in keys}

    def _rows(self, key: str) -> FragmentRows:
        parts = [part for each in self._done for part in _parts(each, key)]
        name = key.partition(":")[2]
        kind = self._catalog.node_types.get(name) if key.startswith("node:") else None
        return FragmentRows(
            kind or self._catalog.edge_types[name],
            self._places[key],
            parts,
            self._run,
            lambda rows: self._located(key, rows),
            self._ledger,
            self._joined,
        )

    def _located(self, key: str, rows: Sequence[int]) -> list[int]:
        """Where rows stand: their shares are read once more, which is rarely needed."""
        ends = list(accumulate(sum(p.rows for p in _parts(each, key)) for each in self._done))
        numbers = np.searchsorted(ends, rows, side="right").tolist()
        wanted: dict[int, list[int]] = {}
        for number, row in zip(numbers, rows, strict=True):
            wanted.setdefault(number, []).append(row - (ends[number - 1] if number else 0))
        shares = [
            Locating(Share(self._reading, self._done[number].split), key, tuple(some))
            for number, some in wanted.items()
        ]
        found = dict(zip(wanted, self._run(locate_rows, shares, "finding lines"), strict=True))
        lines = {number: iter(each) for number, each in found.items()}
        return [
            place(self._done[number].split.file, next(lines[number]) + self._offsets[number].lines)
            for number in numbers
        ]

    def refuse(self, violation: Violation, where: int) -> None:
        """A record that was good by itself, and breaks a rule among the others."""
        file, line = file_and_line(where)
        self.rejects.add(broken(self.files[file], line, violation))


def _joined(group: Sequence[Done]) -> Split:
    return group[0].split.joined(group[-1].split)


def _offsets(done: Sequence[Done]) -> list[Offset]:
    found: list[Offset] = []
    file, lines, records = -1, 0, 0
    for each in done:
        if each.split.file != file:
            file, lines, records = each.split.file, 0, 0
        found.append(Offset(lines, records))
        lines += each.lines
        records += each.counted
    return found


def _parts(done: Done, key: str) -> Sequence[StagedFragment]:
    taken = done.tables.get(key)
    return () if taken is None else taken.parts


def fragment_targets(
    store: GraphStore, catalog: Catalog, base: Snapshot, branch: str | None
) -> dict[str, FragmentTarget]:
    """Where rows of each type go that become part of a branch; it may not be there yet."""
    found = {}
    kinds: list[Kind] = [*catalog.node_types.values(), *catalog.edge_types.values()]
    for kind in kinds:
        pin = base.pin(kind.table_key)
        if pin is not None:
            clear_orphan(store, pin, branch)
            ref = TableRef(pin.location, branch)
            found[kind.table_key] = fragment_target(store.datasets, store.table(pin), ref)
    return found


def task_executor(engine: SparkEngine, on_progress: OnProgress | None = None) -> Runner:
    """Has the shares of a load worked on by tasks of Spark."""

    def run(work: Callable[[Any], Any], shares: Sequence[Any], label: str) -> list[Any]:
        report = None
        if on_progress is not None:

            def report(done: int, total: int) -> None:
                on_progress(Progress(label, done, total))

        return engine.tasks(work, shares, label, report=report)

    return run


def split_reader(
    run: Runner, split_bytes: int = SPLIT_BYTES, joins: KeyJoins | None = None
) -> Reader:
    """A reader of files whose splits are read by ``run``."""

    @contextmanager
    def read(
        store: GraphStore,
        catalog: Catalog,
        job: LoadJob,
        destination: LoadDestination,
        base: Snapshot,
    ) -> Iterator[Load]:
        first = first_fingerprint(store, destination, base.branch)
        if first is not None and not is_by_files(first):
            # The earlier load was identified by its values in their order.
            with read_locally(store, catalog, job, destination, base) as load:
                yield load
            return
        branch = normal_branch(destination.branch)
        with open_rejects(job.rejects, job.data) as rejects, marked(store, branch, base):
            sources = Sources(catalog, job.format, job.types, rejects)
            files = list_files(job.data, sources, catalog)
            intake = SplitIntake(
                catalog,
                files,
                Rejects(job.max_rejects, None if rejects is None else rejects.keep),
                run,
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


def list_files(data: LoadData, sources: Sources, catalog: Catalog) -> list[SourceFile]:
    """The files of a load; no other data can be read by several processes."""
    paths = [data] if isinstance(data, str | PathLike) else data
    if isinstance(paths, Mapping) or not isinstance(paths, Iterable):
        raise _no_files(data)
    files: list[SourceFile] = []
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
