"""The protobuf wire format, as far as Lance messages use it: fields in, fields out.

Other fields keep their bytes, so a message can be changed without knowing all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

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
    """The fields of a message in their order; ``WireError`` when it is cut off or malformed.

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
    """The integer at a position, and the position behind it."""
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
    """The integers of a packed repeated field."""
    integers, at = [], 0
    while at < len(raw):
        integer, at = read_varint(raw, at)
        integers.append(integer)
    return integers


def write_varint(value: int) -> bytes:
    """The encoding of a non-negative integer."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_fields(raw: bytes, at: int, end: int, numbers: Collection[int]) -> int:
    """The position behind leading length-delimited fields with some numbers below 16."""
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
