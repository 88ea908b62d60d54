"""What a process does with one share of a load: read it, judge each record, write the good ones.

The same decoders and rules as in any other load. Lines and records are counted from the beginning
of the share; whoever put the shares in order moves them to where they stand in the file.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from omnigraph.errors import OmniGraphError
from omnigraph.lang.schema import Catalog, catalog_of
from omnigraph.spark.load.splits import Split
from omnigraph.spark.session.failures import pack, unpack
from omnigraph.storage.tables.fragments import (
    FragmentTarget,
    StagedFragment,
    write_staged_fragments,
)
from omnigraph.write.delta import Kind
from omnigraph.write.load.csv_files import read_csv
from omnigraph.write.load.intake import Intake, Sink
from omnigraph.write.load.ndjson import read_records
from omnigraph.write.load.rejects import (
    CollectedRejects,
    Reject,
    Rejects,
    TooManyRejects,
    file_and_line,
)
from omnigraph.write.load.spool import PLACE
from omnigraph.write.load.streams import opened
from omnigraph.write.load.tables import read_parquet
from omnigraph.write.validate import key_columns

_HELD = 64 << 20
_READ = 1 << 20


@dataclass(frozen=True, slots=True)
class Reading:
    """What all shares of a load have in common."""

    catalog: str
    places: Mapping[str, FragmentTarget]
    """Where the rows of each table go."""
    strict_properties: bool = False
    allowed: int = 0
    """How many records may be refused in the whole load."""
    allow_local_files: bool = False
    """Whether a Blob may name a file of the machine that reads the share."""

    def intake(self, sinks: Callable[[Kind], Sink], rejects: Rejects) -> Intake:
        """What takes the records of a share in."""
        return Intake(
            cached_catalog(self.catalog),
            sinks,
            rejects,
            strict_properties=self.strict_properties,
            allow_local_files=self.allow_local_files,
        )


@dataclass(frozen=True, slots=True)
class Share:
    reading: Reading
    split: Split


@dataclass(frozen=True, slots=True)
class Taken:
    """The good rows of one type in a share."""

    parts: tuple[StagedFragment, ...]
    has_given_ids: bool
    key_bytes: int = 0
    """How much memory the columns take that rules about sets look at."""

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a share."""

    split: Split
    tables: Mapping[str, Taken]
    records: int
    """How many were converted."""
    counted: int
    """How many there are, good and bad."""
    lines: int
    ignored: Mapping[str, int]
    rejects: tuple[Reject, ...]
    last: Reject | None = None
    """What ends the load however many records may be set aside."""
    is_open: bool = False
    """Whether the last record goes on behind the share: then the two have to be read as one."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a share could not be read or written, and what of it had been written by then."""

    packed: bytes
    written: Mapping[str, tuple[StagedFragment, ...]]

    def error(self) -> OmniGraphError:
        return unpack(self.packed)


def read_split(share: Share) -> Done | Failed:
    """Read a share and write what is good of it.

    An error that repeating may help is raised; another is an answer, so that whoever asked knows
    what all shares have written and can remove it.
    """
    sinks: dict[str, FragmentSink] = {}
    try:
        return _taken(share, sinks)
    except OmniGraphError as error:
        if error.retryable:
            raise
        return Failed(pack(error), {key: tuple(each.parts) for key, each in sinks.items()})


def _taken(share: Share, sinks: dict[str, FragmentSink]) -> Done:
    reading, split = share.reading, share.split

    def sink(kind: Kind) -> FragmentSink:
        found = sinks[kind.table_key] = FragmentSink(kind, reading.places[kind.table_key])
        return found

    rejects = CollectedRejects(reading.allowed)
    intake = reading.intake(sink, rejects)
    position = _read(intake, split)
    tables = {
        key: Taken(tuple(each.close()), key in intake.given_ids, each.key_bytes)
        for key, each in sinks.items()
    }
    return Done(
        split,
        tables,
        intake.records,
        position.records,
        position.lines,
        intake.ignored,
        tuple(rejects.found),
        rejects.last,
        position.is_open,
    )


@dataclass(frozen=True, slots=True)
class Locating:
    """Rows of one type in a share whose lines are wanted, by their numbers among the good ones."""

    share: Share
    table_key: str
    rows: tuple[int, ...]


def locate_rows(locating: Locating) -> list[int]:
    """Read a share once more, to see on which lines some rows stand."""
    reading = locating.share.reading
    found: dict[str, list[np.ndarray]] = {}

    class Places:
        def __init__(self, kind: Kind) -> None:
            self._kept = found.setdefault(kind.table_key, [])

        def add(self, batch: pa.RecordBatch) -> None:
            self._kept.append(batch.column(PLACE).to_numpy())

    intake = reading.intake(Places, CollectedRejects(reading.allowed))
    _read(intake, locating.share.split)
    places = np.concatenate(found[locating.table_key])
    return [file_and_line(int(places[row]))[1] for row in locating.rows]


@lru_cache(maxsize=4)
def cached_catalog(text: str) -> Catalog:
    """A process reads many shares of one load."""
    return catalog_of(text)


@dataclass(slots=True)
class _Position:
    """How far a reading came."""

    lines: int = 0
    records: int = 0
    is_open: bool = False


def _read(intake: Intake, split: Split) -> _Position:
    source, position = split.source, _Position()
    try:
        if source.type_name is None:
            with _lines_of(split) as stream:
                end = read_records(
                    stream,
                    intake,
                    source.path,
                    is_first=not split.start,
                    is_last=split.end is None,
                )
            position = _Position(end.lines, end.records, end.is_open)
        elif source.format == "csv":
            with opened(source.path) as stream:
                read_csv(stream, intake.find(source.type_name), intake, source.path)
        else:
            groups = None if split.end is None else range(split.start, split.end)
            kind = intake.find(source.type_name)
            read_parquet(source.path, kind, intake, groups, split.first_row)
        intake.settle()
    except TooManyRejects:
        pass
    return position


@contextmanager
def _lines_of(split: Split) -> Iterator[BinaryIO]:
    """The lines of a file that begin in a share."""
    with opened(split.source.path) as stream:
        if not split.start and split.end is None:
            yield stream
            return
    with open(split.source.path, "rb") as file:
        start = split.start
        if start:
            # The line that the place before belongs to begins in the share before.
            file.seek(start - 1)
            start += _line_length(file) - 1
        yield io.BufferedReader(_Range(file, start, split.end), _READ)


def _line_length(file: BinaryIO) -> int:
    """How long the rest of a line is; it is read in pieces, so that its length costs no memory."""
    length = 0
    while piece := file.readline(_READ):
        length += len(piece)
        if piece.endswith(b"\n"):
            break
    return length


class _Range(io.RawIOBase):
    """A file from one place on, up to the end of the line that holds another."""

    def __init__(self, file: BinaryIO, start: int, end: int | None) -> None:
        self._file = file
        self._left = None if end is None else max(end - start, 0)
        self._is_done = self._left == 0
        self._is_last_line = False
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._rest or self._next(len(buffer))
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        self._rest = data[count:]
        return count

    def _next(self, size: int) -> bytes:
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
    """Rows of one type on their way to storage, some at a time."""

    def __init__(self, kind: Kind, place: FragmentTarget) -> None:
        self._schema = kind.arrow_schema()
        self._place = place
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0
        self.parts: list[StagedFragment] = []
        self._keys = key_columns(kind)
        self.key_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch.select(self._schema.names))
        self._size += batch.nbytes
        self.key_bytes += sum(batch.column(name).nbytes for name in self._keys)
        if self._size > _HELD:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            batches = [
                pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
                for batch in self._waiting
            ]
            self.parts += write_staged_fragments(self._place, self._schema, batches)
        self._waiting, self._size = [], 0

    def close(self) -> list[StagedFragment]:
        self._write()
        return self.parts
