"""The places that the version files of Lance name, read and replaced.

The file of a version of a branch says where the table lies that it was forked from, as a whole
address. A graph that was moved or copied has such files that name the place it came from: they
lead nowhere, or, which is worse, to the original. Here the address is replaced and every other
byte of a file stays what it is.

A version file is: sections that are found by their positions, the message with its length in
front, and a footer of sixteen bytes with the position of the message.
"""

from __future__ import annotations

import os
import re
import struct
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from omnigraph.errors import InputError, StorageCorrupt
from omnigraph.storage.lance_format.fields import _varint, _written
from omnigraph.storage.objects.graph_paths import is_copy, refused
from omnigraph.storage.objects.roots import Root, parse_root

Replace: TypeAlias = Callable[[str], str]

_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_MAGIC = b"LANC"
_BASES, _BASE_ID, _BASE_PATH = 18, 1, 4
_INDEXES = 6
_INDEX_UUID, _INDEX_FIELDS, _INDEX_NAME, _INDEX_BASE, _INDEX_FILES = 1, 2, 3, 9, 10
_VERSION, _TRANSACTION_FILE, _TRANSACTION_SECTION = 3, 12, 23
_UUID = 2
_LONG_FIELDS = frozenset({1 << 3 | 2, 2 << 3 | 2})
"""How the columns and the fragments of a version begin in its message, before all other fields."""
_SECTIONS = (_INDEXES, 21, _TRANSACTION_SECTION)
"""The fields of a message that are positions in its file: of indexes, of the transaction."""
_NUMBER, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_TABLE = re.compile(r"(.*?)/((?:(?:nodes|edges)/[^/]+|__manifest)(?:/tree/.+)?)", re.DOTALL)


class VersionFile(NamedTuple):
    """What a version file says about itself."""

    version: int
    transaction_file: str | None
    """The name of the file in ``_transactions``."""
    transaction: bytes | None
    """The same message as in that file, if the version file has a copy of it."""

    @property
    def files(self) -> list[str]:
        """The version file and the transaction file, relative to the table."""
        return [f"_versions/{2**64 - 1 - self.version:020d}.manifest"] + (
            [] if self.transaction_file is None else [f"_transactions/{self.transaction_file}"]
        )

    @property
    def transaction_id(self) -> str | None:
        """The id of the write that made the version, if that is said."""
        if self.transaction_file is None:
            return None
        return self.transaction_file.partition("-")[2].removesuffix(".txn")


class IndexEntry(NamedTuple):
    """What a version file says of one segment of an index."""

    name: str
    uuid: str
    fields: tuple[int, ...]
    """The numbers of the columns that it is on."""
    files: tuple[tuple[str, int | None], ...]
    """Its files with their sizes, if they are listed."""
    base: int | None
    """Which of the named places it lies in, if not beside the version."""


class GraphAddresses:
    """Where a graph is, to tell an address under it from one at another place."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._known: dict[str, bool] = {root.uri: True}

    def localize(self, address: str, location: str) -> str:
        """The address of a table or branch as it is here; itself if it is of this place.

        ``location`` is that of the table whose file says so. ``StorageCorrupt`` for an address
        that is not that of a table: Lance would read whatever lies there.
        """
        root, path = parse_table_address(address, location)
        if self._is_here(root) and ".." not in address.split("/"):
            return address
        return self._root.path(path)

    def _is_here(self, place: str) -> bool:
        known = self._known.get(place)
        if known is None:
            known = self._known[place] = self._same_directory(place)
        return known

    def _same_directory(self, place: str) -> bool:
        """A directory has several names when there are links to it or above it."""
        if not self._root.is_local or place.startswith("s3://"):
            return False
        try:
            return os.path.samefile(place, self._root.uri)
        except OSError:
            return False


def split_address(address: str, location: str) -> tuple[str, str] | None:
    """The root of a graph and what is below it, of the address of a table in it."""
    try:
        uri = parse_root(address).uri
    except InputError:
        return None
    if uri.endswith(f"/{location}"):
        return uri.removesuffix(f"/{location}"), location
    root, middle, branch = uri.rpartition(f"/{location}/tree/")
    if middle:
        return root, f"{location}/tree/{branch}"
    found = _TABLE.fullmatch(uri)
    return None if found is None else (found[1], found[2])


def parse_table_address(address: str, location: str) -> tuple[str, str]:
    """The root and the path of a table in a graph; ``StorageCorrupt`` for any other address."""
    found = split_address(address, location)
    if found is None or not (is_copy(found[1]) or found[1] == location):
        raise refused(address, f"a version file of '{location}'")
    return found


def base_addresses(raw: bytes, name: str) -> list[str]:
    """The addresses that a version file names."""
    return [
        address
        for number, _, value in _entries(manifest_message(raw, name), name)
        if number == _BASES and isinstance(value, bytes)
        for address in _addresses(value, name)
    ]


def parse_version(raw: bytes, name: str) -> VersionFile:
    """Read a version file; ``StorageCorrupt`` when it is not all of one."""
    start, end = _span(raw, name)
    # Most of a version file are its fragments: they are stepped over, not taken apart.
    at = _after_fragments(raw, start, end, name)
    version, file, transaction = 0, None, None
    for number, _, value in _entries(raw[at:end], name):
        if number == _VERSION and isinstance(value, int):
            version = value
        elif number == _TRANSACTION_FILE and isinstance(value, bytes):
            file = _text(value, name)
        elif number == _TRANSACTION_SECTION and isinstance(value, int):
            transaction = _section(raw, value)
    if transaction is not None and (file is None or parse_transaction(transaction) not in file):
        # A copy that is not where it is said to be is no copy.
        transaction = None
    return VersionFile(version, file, transaction)


def _after_fragments(raw: bytes, at: int, end: int, name: str) -> int:
    """Where the fields of a message go on behind its columns and fragments."""
    try:
        while at < end and raw[at] in _LONG_FIELDS:
            length, shift, at = 0, 0, at + 1
            while True:
                byte = raw[at]
                at += 1
                length |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
            at += length
    except IndexError:
        raise _unknown_form(name) from None
    if at > end:
        raise _unknown_form(name)
    return at


def parse_transaction(raw: bytes) -> str:
    """The id of a transaction, or nothing when it is not the message of one."""
    found = ""
    try:
        for number, _, value in _entries(raw, ""):
            if number == _UUID and isinstance(value, bytes):
                found = _text(value, "")
    except StorageCorrupt:
        return ""
    return found


def index_entries(raw: bytes, name: str) -> list[IndexEntry]:
    """The indexes that a version file lists."""
    for number, _, value in _entries(manifest_message(raw, name), name) if raw else ():
        section = _section(raw, value) if number == _INDEXES and isinstance(value, int) else None
        if section is not None:
            entries = _entries(section, name)
            return [_index_entry(v, name) for _, _, v in entries if isinstance(v, bytes)]
    return []


def _section(raw: bytes, at: int) -> bytes | None:
    """A message with its length in front, at a position in a version file."""
    with suppress(struct.error, OverflowError):
        (length,) = _LENGTH.unpack_from(raw, at)
        first = at + _LENGTH.size
        return raw[first : first + length]
    return None


def _text(raw: bytes, name: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _unknown_form(name) from None


def _index_entry(raw: bytes, file: str) -> IndexEntry:
    name, number, base = "", "", None
    fields: list[int] = []
    files: list[tuple[str, int | None]] = []
    for field, _, value in _entries(raw, file):
        if field == _INDEX_BASE and isinstance(value, int):
            base = value
        elif field == _INDEX_FIELDS and isinstance(value, int):
            fields.append(value)
        elif not isinstance(value, bytes):
            continue
        elif field == _INDEX_FIELDS:
            fields += _numbers(value, file)
        elif field == _INDEX_NAME:
            name = _text(value, file)
        elif field == _INDEX_UUID:
            number = _uuid_text(value, file)
        elif field == _INDEX_FILES:
            known = {inner: v for inner, _, v in _entries(value, file)}
            path, size = known.get(1), known.get(2)
            if isinstance(path, bytes):
                files.append((_text(path, file), size if isinstance(size, int) else None))
    return IndexEntry(name, number, tuple(fields), tuple(files), base)


def _uuid_text(raw: bytes, name: str) -> str:
    for _, _, value in _entries(raw, name):
        if isinstance(value, bytes):
            try:
                return str(uuid.UUID(bytes=value))
            except ValueError:
                raise _unknown_form(name) from None
    return ""


def _numbers(raw: bytes, name: str) -> list[int]:
    numbers, at = [], 0
    try:
        while at < len(raw):
            number, at = _varint(raw, at)
            numbers.append(number)
    except IndexError:
        raise _unknown_form(name) from None
    return numbers


def base_paths(raw: bytes, name: str, location: str) -> Iterator[tuple[int, str]]:
    """The copies of tables that a version file names, by number, relative to the root."""
    for number, _, value in _entries(manifest_message(raw, name), name) if raw else ():
        if number == _BASES and isinstance(value, bytes):
            known = {inner: v for inner, _, v in _entries(value, name)}
            address, base = known.get(_BASE_PATH), known.get(_BASE_ID, 0)
            if isinstance(address, bytes) and isinstance(base, int):
                yield base, parse_table_address(_text(address, name), location)[1]


def without_indexes(raw: bytes, name: str) -> bytes:
    """The message of a version that has no indexes, and is the same otherwise."""
    return b"".join(part for number, part, _ in _entries(raw, name) if number != _INDEXES)


def manifest_message(raw: bytes, name: str) -> bytes:
    """What a version file says, without its sections and its footer."""
    start, end = _span(raw, name)
    return raw[start:end]


def replace_addresses(raw: bytes, name: str, replace: Replace) -> bytes:
    """A version file in which every address is what ``replace`` makes of it."""
    start, end = _span(raw, name)
    at = start - _LENGTH.size
    out = bytearray()
    for number, part, value in _entries(raw[start:end], name):
        if number in _SECTIONS and isinstance(value, int) and value >= at:
            # What follows the message would not be where the message says any more.
            raise _unknown_form(name)
        if number == _BASES and isinstance(value, bytes):
            out += _written(_BASES, _with_address(value, name, replace))
        else:
            out += part
    return raw[:at] + _LENGTH.pack(len(out)) + bytes(out) + raw[end:]


def _with_address(raw: bytes, name: str, replace: Replace) -> bytes:
    out = bytearray()
    for number, part, value in _entries(raw, name):
        if number == _BASE_PATH and isinstance(value, bytes):
            out += _written(_BASE_PATH, replace(_text(value, name)).encode())
        else:
            out += part
    return bytes(out)


def _addresses(raw: bytes, name: str) -> Iterator[str]:
    for number, _, value in _entries(raw, name):
        if number == _BASE_PATH and isinstance(value, bytes):
            yield _text(value, name)


def _span(raw: bytes, name: str) -> tuple[int, int]:
    """Where the message begins and ends."""
    with suppress(struct.error, OverflowError):
        position, _, _, magic = _FOOTER.unpack(raw[-_FOOTER.size :])
        (length,) = _LENGTH.unpack_from(raw, position)
        start = position + _LENGTH.size
        if magic == _MAGIC and start + length <= len(raw) - _FOOTER.size:
            return start, start + length
    raise _unknown_form(name)


def _entries(raw: bytes, name: str) -> Iterator[tuple[int, bytes, int | bytes]]:
    """The fields of a message in a file: number, all bytes of it, and its value."""
    at = 0
    try:
        while at < len(raw):
            start = at
            tag, at = _varint(raw, at)
            form, value = tag & 7, b""
            if form == _NUMBER:
                number, at = _varint(raw, at)
                yield tag >> 3, raw[start:at], number
                continue
            if form == _BYTES:
                length, at = _varint(raw, at)
            elif form in (_EIGHT, _FOUR):
                length = 8 if form == _EIGHT else 4
            else:
                raise ValueError
            value = raw[at : at + length]
            if len(value) != length:
                raise ValueError
            at += length
            yield tag >> 3, raw[start:at], value
    except (IndexError, ValueError):
        raise _unknown_form(name) from None


def _unknown_form(name: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"'{name}' is not a version file of Lance as this program knows them",
        hint="look whether the file is damaged",
        details={"path": name},
    )
