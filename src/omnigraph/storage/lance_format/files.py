"""Completeness checks of files that Lance wrote.

Lance's local writer can swallow a disk error and give a truncated or empty file its final name. So
every new file is read back once before anything references it, or right afterwards where Lance
writes and commits in one call. One read yields both the digest and the verdict. Pure functions over
local files; the caller decides how to handle damage.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

from omnigraph.errors import (
    OmniGraphError,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageUnavailable,
)
from omnigraph.storage.checksums import FileSum, local_pieces, sum_and_tail, sum_of
from omnigraph.storage.lance_format.manifests import VersionFile, parse_transaction, parse_version

_PIECE = 1 << 20
_MAGIC = b"LANC"
# Offsets of the column metadata, of the column table and of the table of global buffers; their
# lengths; the format version; the magic.
_FOOTER = struct.Struct("<QQQIIHH4s")
_ENTRY = 16
_FIRST_WITH_TABLES = (0, 3)
"""Format 2.0, by the number in its files; older formats have another footer."""
# A disk with less free space than this counts as full: a new file and its name need a block each.
_LEAST_FREE = 64 << 10
_RUNS, _PLAIN = 0x303B, 0x303A
_ARRAY_MOST, _BITMAP_BYTES, _OFFSETS_FROM = 4096, 8192, 4


class NewFile(NamedTuple):
    """A file that a write added, relative to its table, and the facts the write states about it."""

    name: str
    """A directory followed by ``/*`` stands for all files in it."""
    size: int | None = None
    deleted: int | None = None
    """The number of rows that a deletion file marks."""


class Damaged(OmniGraphError):
    """A file that was not written completely.

    Caught by the caller that can undo the write, never shown to users. ``unreadable_version`` marks
    an unreadable version file, on which nothing can have been built.
    """

    def __init__(self, path: str, reason: str, *, unreadable_version: bool = False) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason
        self.unreadable_version = unreadable_version

    def error(self) -> StorageError:
        """The error of the failed write, of which nothing is visible."""
        text = f"'{self.path}' was not written completely ({self.reason})"
        if _is_full(self.path):
            return StorageFull(f"{text}: no space is left", hint="free space and repeat")
        return StorageUnavailable(
            f"{text}: the disk lost a write", hint="check the disk, then repeat"
        )


def _is_full(path: str) -> bool:
    try:
        stats = os.statvfs(os.path.dirname(path))
    except OSError:
        return False
    return stats.f_bavail * stats.f_frsize < _LEAST_FREE or stats.f_files > 0 == stats.f_favail


def check_new_file(top: str, file: NewFile) -> FileSum:
    """Read a new file of a local table once and return its sum, or raise ``Damaged``."""
    path = f"{top}/{file.name}"
    try:
        if file.name.startswith(("data/", "_indices/")):
            file_sum, tail = sum_and_tail(path)
            if file.size is not None and file_sum.size != file.size:
                raise Damaged(path, f"{file_sum.size} of {file.size} bytes")
            # A data file ends with a footer; blob files have no format of their own.
            if not file.name.endswith(".blob") and not _is_footer(tail, file_sum.size):
                raise Damaged(path, _extent(path))
            return file_sum
        raw = b"".join(local_pieces(path))
    except FileNotFoundError:
        raise Damaged(path, "it is missing") from None
    if file.name.startswith("_deletions/"):
        _check_deletions(path, raw, file.deleted)
    elif file.name.startswith("_refs/"):
        try:
            json.loads(raw)
        except ValueError:
            raise Damaged(path, _extent(path)) from None
    return sum_of(raw)


def check_column_tail(path: str) -> None:
    """Check only the footer of a large data file."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _FOOTER.size))
        if not _is_footer(file.read(), size):
            raise Damaged(path, _extent(path))


def check_version_file(path: str) -> tuple[VersionFile, FileSum]:
    """Read the file of a version and return its content and sum, or raise ``Damaged``.

    A file whose content has another version than its name is damaged: opening it would yield the
    wrong version.
    """
    try:
        raw = b"".join(local_pieces(path))
        content = parse_version(raw, path)
    except FileNotFoundError:
        raise Damaged(path, "it is missing") from None
    except StorageCorrupt:
        raise Damaged(path, _extent(path), unreadable_version=True) from None
    if not path.endswith(content.files[0]):
        raise Damaged(path, f"it claims version {content.version}")
    return content, sum_of(raw)


def check_transaction_file(path: str, expected: VersionFile) -> FileSum:
    """Read the transaction of a version and compare it with the copy inside the version file."""
    try:
        raw = b"".join(local_pieces(path))
    except FileNotFoundError:
        raise Damaged(path, "it is missing") from None
    if expected.transaction is not None:
        is_whole = raw == expected.transaction
    else:
        is_whole = parse_transaction(raw) == expected.transaction_id
    if not is_whole:
        raise Damaged(path, _extent(path))
    return sum_of(raw)


def check_blob_files(top: str, files: Iterable[tuple[str, int]]) -> None:
    """Compare the sizes of blob files with the bytes that rows refer to."""
    for name, size in files:
        path = f"{top}/{name}"
        try:
            actual = os.path.getsize(path)
        except FileNotFoundError:
            raise Damaged(path, "it is missing") from None
        if actual < size:
            raise Damaged(path, f"{actual} of {size} bytes")


# -- forms of files -------------------------------------------------------------------------------


def _is_footer(tail: bytes, size: int) -> bool:
    footer = tail[-_FOOTER.size :]
    if len(footer) < _FOOTER.size or footer[-4:] != _MAGIC:
        return False
    _, offsets, buffers, many_buffers, many_columns, major, minor, _ = _FOOTER.unpack(footer)
    if (major, minor) < _FIRST_WITH_TABLES:
        return True
    end = size - _FOOTER.size
    return bool(offsets + _ENTRY * many_columns <= end and buffers + _ENTRY * many_buffers <= end)


def _check_deletions(path: str, raw: bytes, expected: int | None) -> None:
    try:
        if path.endswith(".arrow"):
            with pa.ipc.open_file(pa.BufferReader(raw)) as reader:
                table = reader.read_all()
            table.validate(full=True)
            rows = int(table.num_rows)
        else:
            rows = _bitmap_rows(raw)
    except (pa.ArrowInvalid, OSError, struct.error, ValueError):
        raise Damaged(path, _extent(path)) from None
    if expected is not None and rows != expected:
        raise Damaged(path, f"it marks {rows} of {expected} rows")


def _bitmap_rows(raw: bytes) -> int:
    """The cardinality of a roaring bitmap; ``ValueError`` if the bitmap is incomplete."""
    (cookie,) = struct.unpack_from("<I", raw)
    has_runs = cookie & 0xFFFF == _RUNS
    at = 4
    if has_runs:
        count = (cookie >> 16) + 1
        runs = raw[at : at + (count + 7) // 8]
        at += len(runs)
    elif cookie == _PLAIN:
        (count,) = struct.unpack_from("<I", raw, at)
        runs = b""
        at += 4
    else:
        raise ValueError("not a bitmap")
    header = struct.unpack_from(f"<{2 * count}H", raw, at)
    at += 4 * count
    if not has_runs or count >= _OFFSETS_FROM:
        at += 4 * count
    rows = 0
    for number in range(count):
        many = header[2 * number + 1] + 1
        rows += many
        if runs and runs[number // 8] >> (number % 8) & 1:
            (pairs,) = struct.unpack_from("<H", raw, at)
            at += 2 + 4 * pairs
        else:
            at += 2 * many if many <= _ARRAY_MOST else _BITMAP_BYTES
    if at != len(raw):
        raise ValueError("unexpected length")
    return rows


def _extent(path: str) -> str:
    try:
        size = os.path.getsize(path)
    except OSError:
        return "it is missing"
    return "it is empty" if not size else f"it ends after {size} bytes"
