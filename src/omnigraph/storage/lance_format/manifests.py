"""Version files of Lance, which Lance calls manifests: parsing, and replacing addresses.

A version file consists of sections addressed by offset, the length-prefixed message, and a footer
of sixteen bytes with the offset of the message. Replacing an address changes no other byte of the
file. Messages are in the protobuf wire format; only the parts of it that Lance uses are
implemented.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypeAlias

from omnigraph.errors import StorageCorrupt
from omnigraph.storage.lance_format.addresses import parse_table_address
from omnigraph.storage.objects.paths import version_file

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}


class WireError(ValueError):
    """Bytes that are not a protobuf message."""


class WireField(NamedTuple):
    """One field of a message: its number, its value and its complete encoding."""

    number: int
    value: int | bytes
    """An integer for a varint, bytes for everything else."""
    raw: bytes


def read_fields(raw: bytes) -> Iterator[WireField]:
    """The fields of a message in order; ``WireError`` if it is truncated or malformed.

    >>> [(field.number, field.value) for field in read_fields(bytes.fromhex("0896011202686f"))]
    [(1, 150), (2, b'ho')]
    """
    at = 0
    while at < len(raw):
        start = at
        tag, at = read_varint(raw, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            integer, at = read_varint(raw, at)
            yield WireField(number, integer, raw[start:at])
            continue
        if wire_type == _BYTES:
            length, at = read_varint(raw, at)
        elif wire_type in _FIXED:
            length = _FIXED[wire_type]
        else:
            raise WireError(f"unsupported wire type {wire_type}")
        value = raw[at : at + length]
        if len(value) != length:
            raise WireError("a field is cut off")
        at += length
        yield WireField(number, value, raw[start:at])


def write_field(number: int, value: int | bytes) -> WireField:
    """A field with its encoding.

    >>> write_field(1, 150).raw.hex(), write_field(2, b"ho").raw.hex()
    ('089601', '1202686f')
    """
    if isinstance(value, int):
        return WireField(number, value, write_varint(number << 3 | _VARINT) + write_varint(value))
    head = write_varint(number << 3 | _BYTES) + write_varint(len(value))
    return WireField(number, value, head + value)


def read_varint(raw: bytes, at: int) -> tuple[int, int]:
    """The integer at a position, and the position after it."""
    value = shift = 0
    try:
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
    except IndexError:
        raise WireError("an integer is cut off") from None


def read_packed(raw: bytes) -> list[int]:
    integers, at = [], 0
    while at < len(raw):
        integer, at = read_varint(raw, at)
        integers.append(integer)
    return integers


def write_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_fields(raw: bytes, at: int, end: int, numbers: Collection[int]) -> int:
    """The position after leading length-delimited fields with these numbers, all below 16."""
    tags = {number << 3 | _BYTES for number in numbers}
    try:
        while at < end and raw[at] in tags:
            # Not by read_varint: a version may have thousands of fragments.
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
        raise WireError("a field is cut off") from None
    if at > end:
        raise WireError("a field is cut off")
    return at


Replace: TypeAlias = Callable[[str], str]

_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_MAGIC = b"LANC"
_COLUMNS, _FRAGMENTS = 1, 2
"""The fields at the start of a message that make up most of it."""
VERSION, _INDEXES, _TRANSACTION_FILE, _BASES, _TRANSACTION_SECTION = 3, 6, 12, 18, 23
_SECTIONS = (_INDEXES, 21, _TRANSACTION_SECTION)
"""The fields of a message that are offsets in its file: indexes and transaction."""
_BASE_ID, _BASE_PATH = 1, 4
_INDEX_UUID, _INDEX_FIELDS, _INDEX_NAME, _INDEX_BASE, _INDEX_FILES = 1, 2, 3, 9, 10
_FILE_PATH, _FILE_SIZE = 1, 2
_TRANSACTION_UUID = 2


class VersionFile(NamedTuple):
    """The facts of a version file."""

    version: int
    transaction_file: str | None
    """The name of the file in ``_transactions``."""
    transaction: bytes | None
    """The message of that file, if the version file has a copy of it."""

    @property
    def files(self) -> list[str]:
        """The version file and the transaction file, relative to the table."""
        return [f"{version_file(self.version)}"] + (
            [] if self.transaction_file is None else [f"_transactions/{self.transaction_file}"]
        )

    @property
    def transaction_id(self) -> str | None:
        """The id of the transaction that created the version, if recorded."""
        if self.transaction_file is None:
            return None
        return self.transaction_file.partition("-")[2].removesuffix(".txn")


class IndexEntry(NamedTuple):
    """One segment of an index in a version file."""

    name: str
    uuid: str
    fields: tuple[int, ...]
    """The field ids of the indexed columns."""
    files: tuple[tuple[str, int | None], ...]
    """Its files with their sizes, if they are listed."""
    base: int | None
    """The id of the base path that holds its files, if not that of the version."""


# -- reading --------------------------------------------------------------------------------------


def parse_version(raw: bytes, name: str) -> VersionFile:
    """Parse a version file; ``StorageCorrupt`` if it is incomplete."""
    start, end = message_span(raw, name)
    version, file, transaction = 0, None, None
    with _parsing(name):
        at = skip_fields(raw, start, end, (_COLUMNS, _FRAGMENTS))
        for number, value, _ in read_fields(raw[at:end]):
            if number == VERSION and isinstance(value, int):
                version = value
            elif number == _TRANSACTION_FILE and isinstance(value, bytes):
                file = value.decode()
            elif number == _TRANSACTION_SECTION and isinstance(value, int):
                transaction = _section(raw, value)
    if transaction is not None and (file is None or parse_transaction(transaction) not in file):
        # The offset does not lead to a copy of the transaction.
        transaction = None
    return VersionFile(version, file, transaction)


def parse_transaction(raw: bytes) -> str:
    """The id in a transaction message; empty if the bytes are not one."""
    try:
        return _get_text(raw, _TRANSACTION_UUID) or ""
    except ValueError:
        return ""


def index_entries(raw: bytes, name: str) -> list[IndexEntry]:
    with _parsing(name):
        for number, value, _ in read_fields(manifest_message(raw, name)) if raw else ():
            if number == _INDEXES and isinstance(value, int):
                section = _section(raw, value)
                if section is not None:
                    return [_index_entry(entry) for entry in _messages(section)]
    return []


def _index_entry(raw: bytes) -> IndexEntry:
    name, segment, base = "", "", None
    fields: list[int] = []
    files: list[tuple[str, int | None]] = []
    for number, value, _ in read_fields(raw):
        if number == _INDEX_BASE and isinstance(value, int):
            base = value
        elif number == _INDEX_FIELDS:
            fields += [value] if isinstance(value, int) else read_packed(value)
        elif not isinstance(value, bytes):
            continue
        elif number == _INDEX_NAME:
            name = value.decode()
        elif number == _INDEX_UUID:
            segment = next((str(uuid.UUID(bytes=u)) for u in _messages(value)), "")
        elif number == _INDEX_FILES:
            path, size = _get_text(value, _FILE_PATH), _get(value, _FILE_SIZE)
            if path is not None:
                files.append((path, size if isinstance(size, int) else None))
    return IndexEntry(name, segment, tuple(fields), tuple(files), base)


def base_addresses(raw: bytes, name: str) -> list[str]:
    with _parsing(name):
        addresses = [_get_text(base, _BASE_PATH) for base in _bases(raw, name)]
    return [address for address in addresses if address is not None]


def base_paths(raw: bytes, name: str, location: str) -> dict[int, str]:
    """The copies of tables that a version file references, by base id, relative to the root."""
    paths = {}
    with _parsing(name):
        for base in _bases(raw, name) if raw else ():
            address, number = _get_text(base, _BASE_PATH), _get(base, _BASE_ID) or 0
            if address is not None and isinstance(number, int):
                paths[number] = parse_table_address(address, location)[1]
    return paths


def _bases(raw: bytes, name: str) -> list[bytes]:
    fields = read_fields(manifest_message(raw, name))
    return [v for number, v, _ in fields if number == _BASES and isinstance(v, bytes)]


# -- writing --------------------------------------------------------------------------------------


def without_indexes(raw: bytes, name: str) -> bytes:
    """The message of a version without its indexes."""
    with _parsing(name):
        return b"".join(field.raw for field in read_fields(raw) if field.number != _INDEXES)


def replace_addresses(raw: bytes, name: str, replace: Replace) -> bytes:
    """A version file with ``replace`` applied to every address."""
    start, end = message_span(raw, name)
    at = start - _LENGTH.size
    out = bytearray()
    with _parsing(name):
        for field in read_fields(raw[start:end]):
            if field.number in _SECTIONS and isinstance(field.value, int) and field.value >= at:
                # Sections after the message would no longer be at the offsets in it.
                raise WireError("a section follows the message")
            out += _with_address(field, replace) if field.number == _BASES else field.raw
    return raw[:at] + _LENGTH.pack(len(out)) + bytes(out) + raw[end:]


def _with_address(base: WireField, replace: Replace) -> bytes:
    if not isinstance(base.value, bytes):
        return base.raw
    out = bytearray()
    for field in read_fields(base.value):
        if field.number == _BASE_PATH and isinstance(field.value, bytes):
            field = write_field(_BASE_PATH, replace(field.value.decode()).encode())
        out += field.raw
    return write_field(base.number, bytes(out)).raw


# -- the parts of a file --------------------------------------------------------------------------


def manifest_message(raw: bytes, name: str) -> bytes:
    """The message of a version file, without sections and footer."""
    start, end = message_span(raw, name)
    return raw[start:end]


def message_span(raw: bytes, name: str) -> tuple[int, int]:
    """The start and end of the message in a version file."""
    with suppress(struct.error, OverflowError):
        position, _, _, magic = _FOOTER.unpack(raw[-_FOOTER.size :])
        (length,) = _LENGTH.unpack_from(raw, position)
        start = position + _LENGTH.size
        if magic == _MAGIC and start + length <= len(raw) - _FOOTER.size:
            return start, start + length
    raise _unknown_format(name)


def _section(raw: bytes, at: int) -> bytes | None:
    """The length-prefixed message at an offset of a version file."""
    with suppress(struct.error, OverflowError):
        (length,) = _LENGTH.unpack_from(raw, at)
        first = at + _LENGTH.size
        return raw[first : first + length]
    return None


def _messages(raw: bytes) -> Iterator[bytes]:
    return (value for _, value, _ in read_fields(raw) if isinstance(value, bytes))


def _get(raw: bytes, number: int) -> int | bytes | None:
    """The last value of a field."""
    values = [field.value for field in read_fields(raw) if field.number == number]
    return values[-1] if values else None


def _get_text(raw: bytes, number: int) -> str | None:
    value = _get(raw, number)
    return value.decode() if isinstance(value, bytes) else None


@contextmanager
def _parsing(name: str) -> Iterator[None]:
    """Raise ``StorageCorrupt`` for bytes that are not the expected message."""
    try:
        yield
    except ValueError:
        raise _unknown_format(name) from None


def _unknown_format(name: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"'{name}' is not a Lance version file in a format known to this program",
        hint="check whether the file is damaged",
        details={"path": name},
    )
