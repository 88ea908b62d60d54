"""Splits of the files of a load, for workers to read independently.

A split of an NDJSON file has the lines that begin between two offsets; a compressed file, or CSV
(whose quotes may contain line ends), is one split. A Parquet file is split between row groups.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.errors import InputError
from omnigraph.write.load.files import LoadFile
from omnigraph.write.load.streams import opened, uncompressed

SPLIT_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Split:
    """A byte range of a text file, row groups of a Parquet file, or a whole file."""

    file: int
    """The number of the file in the load."""
    source: LoadFile
    start: int = 0
    end: int | None = None
    """None for the end of the file."""
    first_row: int = 0
    """How many rows of a Parquet file come before."""

    def joined(self, other: Split) -> Split:
        """This split and a later one of the same file as one."""
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
