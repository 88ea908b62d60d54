"""The task of a worker: read one split of a load, check each record, write the valid ones.

A split of an NDJSON file has the lines that begin between two offsets; a compressed file, or CSV
(whose quotes may contain line ends), is one split. A Parquet file is split between row groups. The
decoders and rules are those of a local load. Lines and records are counted from the start of the
split; the driver adds the offset of the split in its file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.errors import InputError, OmniGraphError
from omnigraph.lang.schema.catalog import Catalog, EntityType, catalog_of
from omnigraph.records import dataclass
from omnigraph.spark.session.failures import pack, unpack
from omnigraph.storage.tables.fragments import (
    FragmentTarget,
    StagedFragment,
    write_staged_fragments,
)
from omnigraph.write.load.csv_files import read_csv
from omnigraph.write.load.intake import Intake, Sink
from omnigraph.write.load.ndjson import Extent, read_records
from omnigraph.write.load.rejects import (
    CollectedRejects,
    Reject,
    Rejects,
    TooManyRejects,
    file_and_line,
)
from omnigraph.write.load.sources import LoadFile
from omnigraph.write.load.spool import SOURCE_LINE
from omnigraph.write.load.streams import as_bytes, opened, uncompressed
from omnigraph.write.load.tables import read_parquet
from omnigraph.write.validate import key_columns

SPLIT_BYTES = 32 << 20
_BUFFER_BYTES = 64 << 20
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Split:
    """A byte range of a text file, row groups of a Parquet file, or a whole file."""

    file: int
    """The number of the file in the load."""
    source: LoadFile
    start: int = 0
    end: int | None = None
    """``None`` for the end of the file."""
    first_row: int = 0
    """The number of rows of the Parquet file before the split."""

    def joined(self, other: Split) -> Split:
        """This split merged with a later one of the same file."""
        return Split(self.file, self.source, self.start, other.end, self.first_row)


def splits_of(files: Sequence[LoadFile], size: int = SPLIT_BYTES) -> list[Split]:
    """The splits of all files, in order."""
    return [split for number, file in enumerate(files) for split in _splits(number, file, size)]


def _splits(number: int, file: LoadFile, size: int) -> Iterator[Split]:
    with opened(file.path):
        # An unreadable file is an error before any task starts.
        pass
    if file.format == "parquet":
        yield from _row_groups(number, file, size)
    elif file.format == "csv" or uncompressed(file.path) != file.path:
        yield Split(number, file)
    else:
        yield from _ranges(number, file, size)


def _ranges(number: int, file: LoadFile, size: int) -> Iterator[Split]:
    total = os.path.getsize(file.path)
    count = max(1, -(-total // size))
    for index in range(count):
        end = None if index == count - 1 else (index + 1) * size
        yield Split(number, file, index * size, end)


def _row_groups(number: int, file: LoadFile, size: int) -> Iterator[Split]:
    try:
        metadata = pq.ParquetFile(file.path).metadata
    except (pa.ArrowException, OSError, ValueError):
        raise InputError(
            f"'{file.path}' cannot be read as Parquet", details={"file": file.path}
        ) from None
    start = rows = size_so_far = before = 0
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        size_so_far += row_group.total_byte_size
        rows += row_group.num_rows
        if size_so_far >= size or group == metadata.num_row_groups - 1:
            yield Split(number, file, start, group + 1, before)
            start, size_so_far, before = group + 1, 0, rows


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings shared by all splits of a load."""

    catalog: str
    targets: Mapping[str, FragmentTarget]
    """Where the rows of each table are written."""
    strict_properties: bool = False
    allowed: int = 0
    """The allowed number of rejected records in the whole load."""
    allow_local_files: bool = False
    """Whether a Blob may name a file on the machine of the worker."""

    def intake(self, sinks: Callable[[EntityType], Sink], rejects: Rejects) -> Intake:
        return Intake(
            cached_catalog(self.catalog),
            sinks,
            rejects,
            strict_properties=self.strict_properties,
            allow_local_files=self.allow_local_files,
        )


@dataclass(frozen=True, slots=True)
class ReadTask:
    settings: ReadSettings
    split: Split


@dataclass(frozen=True, slots=True)
class TableFragments:
    """The valid rows of one type in a split."""

    fragments: tuple[StagedFragment, ...]
    has_given_ids: bool
    key_bytes: int = 0
    """Bytes of the columns that rules about sets of rows need."""


@dataclass(frozen=True, slots=True)
class SplitResult:
    """The result of a split."""

    split: Split
    tables: Mapping[str, TableFragments]
    records: int
    """The number of converted records."""
    counted: int
    """The number of records, valid and invalid."""
    lines: int
    ignored: Mapping[str, int]
    rejects: tuple[Reject, ...]
    fatal: Reject | None = None
    """Ends the load regardless of the allowed number of rejects."""
    is_open: bool = False
    """Whether the last record continues in the next split: then both are read again as one."""


@dataclass(frozen=True, slots=True)
class SplitFailure:
    """The error of a split, and the fragments that were written before it."""

    packed: bytes
    written: Mapping[str, tuple[StagedFragment, ...]]

    def error(self) -> OmniGraphError:
        return unpack(self.packed)


def read_split(task: ReadTask) -> SplitResult | SplitFailure:
    """Read a split and write its valid rows.

    A retryable error is raised; any other is returned, so that the driver knows the fragments of
    all splits and can delete them.
    """
    sinks: dict[str, FragmentSink] = {}
    try:
        return _read_split(task, sinks)
    except OmniGraphError as error:
        if error.retryable:
            raise
        written = {key: tuple(sink.fragments) for key, sink in sinks.items()}
        return SplitFailure(pack(error), written)


def _read_split(task: ReadTask, sinks: dict[str, FragmentSink]) -> SplitResult:
    settings, split = task.settings, task.split

    def open_sink(entity_type: EntityType) -> FragmentSink:
        sink = sinks[entity_type.table_key] = FragmentSink(
            entity_type, settings.targets[entity_type.table_key]
        )
        return sink

    rejects = CollectedRejects(settings.allowed)
    intake = settings.intake(open_sink, rejects)
    extent = _read(intake, split)
    tables = {
        key: TableFragments(tuple(sink.close()), key in intake.given_ids, sink.key_bytes)
        for key, sink in sinks.items()
    }
    return SplitResult(
        split,
        tables,
        intake.records,
        extent.records,
        extent.lines,
        intake.ignored,
        tuple(rejects.collected),
        rejects.fatal,
        extent.is_open,
    )


@dataclass(frozen=True, slots=True)
class LocateTask:
    """Rows of one type in a split whose lines are needed, by their numbers among the valid ones."""

    task: ReadTask
    table_key: str
    rows: tuple[int, ...]


def locate_rows(locate: LocateTask) -> list[int]:
    """Read a split again, to find the lines of some rows."""
    settings = locate.task.settings
    lines: dict[str, list[np.ndarray]] = {}

    class LineSink:
        def __init__(self, entity_type: EntityType) -> None:
            self._lines = lines.setdefault(entity_type.table_key, [])

        def add(self, batch: pa.RecordBatch) -> None:
            self._lines.append(batch.column(SOURCE_LINE).to_numpy())

    intake = settings.intake(LineSink, CollectedRejects(settings.allowed))
    _read(intake, locate.task.split)
    source_lines = np.concatenate(lines[locate.table_key])
    return [file_and_line(int(source_lines[row]))[1] for row in locate.rows]


@lru_cache(maxsize=4)
def cached_catalog(text: str) -> Catalog:
    """The catalog of a schema; cached, since a process reads many splits of one load."""
    return catalog_of(text)


def _read(intake: Intake, split: Split) -> Extent:
    source, extent = split.source, Extent(0, 0)
    try:
        if source.type_name is None:
            with _lines_of(split) as stream:
                extent = read_records(
                    stream, intake, source.path, is_first=not split.start, is_last=split.end is None
                )
        elif source.format == "csv":
            with opened(source.path) as stream:
                read_csv(stream, intake.find(source.type_name), intake, source.path)
        else:
            groups = None if split.end is None else range(split.start, split.end)
            entity_type = intake.find(source.type_name)
            read_parquet(source.path, entity_type, intake, groups, split.first_row)
        intake.flush()
    except TooManyRejects:
        pass
    return extent


@contextmanager
def _lines_of(split: Split) -> Iterator[BinaryIO]:
    """The lines of a file that begin in a split."""
    with opened(split.source.path) as stream:
        if not split.start and split.end is None:
            yield stream
            return
    with open(split.source.path, "rb") as file:
        start = split.start
        if start:
            # A line that begins before the split belongs to the previous one.
            file.seek(start - 1)
            start += _line_length(file) - 1
        yield as_bytes(_Range(file, start, split.end).read, split.source.path)


def _line_length(file: BinaryIO) -> int:
    """The length of the rest of a line, read in pieces to bound memory."""
    length = 0
    while piece := file.readline(_READ_BYTES):
        length += len(piece)
        if piece.endswith(b"\n"):
            break
    return length


class _Range:
    """A file from one offset to the end of the line at another."""

    def __init__(self, file: BinaryIO, start: int, end: int | None) -> None:
        self._file = file
        self._left = None if end is None else max(end - start, 0)
        self._is_done = self._left == 0
        self._is_last_line = False

    def read(self, size: int) -> bytes:
        if self._is_done:
            return b""
        if self._left is None:
            return self._file.read(size)
        if self._is_last_line:
            data = self._file.readline(size)
        else:
            data = self._file.read(min(size, self._left))
            self._left -= len(data)
            self._is_last_line = not self._left
        self._is_done = self._is_last_line and (not data or data.endswith(b"\n"))
        return data


class FragmentSink:
    """Writes rows of one type as fragments, some at a time."""

    def __init__(self, entity_type: EntityType, target: FragmentTarget) -> None:
        self._schema = entity_type.arrow_schema()
        self._target = target
        self._buffered: list[pa.RecordBatch] = []
        self._size = 0
        self.fragments: list[StagedFragment] = []
        self._keys = key_columns(entity_type)
        self.key_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._buffered.append(batch.select(self._schema.names))
        self._size += batch.nbytes
        self.key_bytes += sum(batch.column(name).nbytes for name in self._keys)
        if self._size > _BUFFER_BYTES:
            self._write()

    def _write(self) -> None:
        if self._buffered:
            batches = [
                pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
                for batch in self._buffered
            ]
            self.fragments += write_staged_fragments(self._target, self._schema, batches)
        self._buffered, self._size = [], 0

    def close(self) -> list[StagedFragment]:
        self._write()
        return self.fragments
