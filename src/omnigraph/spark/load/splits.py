"""The files of a load cut into shares that processes can read each by itself.

A share of an NDJSON file has the lines that begin between two places; what is compressed, or CSV
(whose quotes may hold line ends), is one share. A Parquet file is cut between its row groups.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.errors import InputError
from omnigraph.write.load.files import SourceFile
from omnigraph.write.load.streams import opened, uncompressed

SPLIT_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Split:
    """A share of one file: bytes of a text, row groups of a Parquet file, or all of it."""

    file: int
    """The number of the file in the load."""
    source: SourceFile
    start: int = 0
    end: int | None = None
    """None for the end of the file."""
    first_row: int = 0
    """How many rows of a Parquet file come before."""

    def joined(self, other: Split) -> Split:
        """This share and the next one of the same file as one."""
        return Split(self.file, self.source, self.start, other.end, self.first_row)


def splits_of(files: Sequence[SourceFile], size: int = SPLIT_BYTES) -> list[Split]:
    """The shares of all files, in order."""
    return [split for number, file in enumerate(files) for split in _splits(number, file, size)]


def _splits(number: int, file: SourceFile, size: int) -> Iterator[Split]:
    with opened(file.path):
        # A file that cannot be read is known before anything starts.
        pass
    if file.format == "parquet":
        yield from _row_groups(number, file, size)
    elif file.format == "csv" or uncompressed(file.path) != file.path:
        yield Split(number, file)
    else:
        yield from _ranges(number, file, size)


def _ranges(number: int, file: SourceFile, size: int) -> Iterator[Split]:
    total = os.path.getsize(file.path)
    count = max(1, -(-total // size))
    for part in range(count):
        end = None if part == count - 1 else (part + 1) * size
        yield Split(number, file, part * size, end)


def _row_groups(number: int, file: SourceFile, size: int) -> Iterator[Split]:
    try:
        about = pq.ParquetFile(file.path).metadata
    except (pa.ArrowException, OSError, ValueError):
        raise InputError(
            f"'{file.path}' cannot be read as Parquet", details={"file": file.path}
        ) from None
    start = rows = held = before = 0
    for group in range(about.num_row_groups):
        known = about.row_group(group)
        held += known.total_byte_size
        rows += known.num_rows
        if held >= size or group == about.num_row_groups - 1:
            yield Split(number, file, start, group + 1, before)
            start, held, before = group + 1, 0, rows
