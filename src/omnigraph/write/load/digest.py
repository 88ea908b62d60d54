"""Digests of loaded data, which tell different loads with one idempotency key apart.

Values are hashed column by column while they are read, so that the digest does not depend on
batches. Ids are hashed as given, because generated ones differ at every call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.write.load.streams import opened

_SIZE = 16


class Digest:
    """The digest of the values of a load, one hash per column."""

    def __init__(self) -> None:
        self._columns: dict[str, Any] = {}

    def add(self, name: str, column: pa.Array) -> None:
        """Add the next values of a column."""
        self._feed(f"{name}?", pc.is_valid(column).cast(pa.uint8()))
        kind = column.type
        if pa.types.is_fixed_size_list(kind):
            self.add(f"{name}[]", column.flatten())
        elif pa.types.is_list(kind):
            self._feed(f"{name}#", _filled(pc.list_value_length(column)))
            self.add(f"{name}[]", column.flatten())
        elif pa.types.is_string(kind) or pa.types.is_large_binary(kind):
            self._feed(f"{name}#", _filled(pc.binary_length(column)))
            self._hash(name).update(_joined(column))
        elif pa.types.is_boolean(kind):
            self._feed(name, _filled(column.cast(pa.uint8())))
        else:
            # As integers of the same width, which have one zero and no NaN.
            width = pa.int32() if kind.bit_width == 32 else pa.int64()
            self._feed(name, _filled(column.view(width)))

    def _feed(self, name: str, numbers: pa.Array) -> None:
        self._hash(name).update(numpy_view(numbers).tobytes())

    def _hash(self, name: str) -> Any:
        return self._columns.setdefault(name, hashlib.blake2b(digest_size=_SIZE))

    def text(self) -> str:
        """The digest of all added values."""
        all_of_it = hashlib.blake2b(digest_size=_SIZE)
        for name in sorted(self._columns):
            all_of_it.update(f"{name}={self._columns[name].hexdigest()};".encode())
        return all_of_it.hexdigest()


FILES = "files-"
_BLOCK = 1 << 20


class FilesDigest:
    """The digest of the bytes of files, for loads that many processes read."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)

    def text(self) -> str:
        """Read all files; returns their digest."""
        all_of_it = hashlib.blake2b(digest_size=_SIZE)
        for path in self._paths:
            one = hashlib.blake2b(digest_size=_SIZE)
            with opened(path, decompressed=False) as file:
                while block := file.read(_BLOCK):
                    one.update(block)
            all_of_it.update(one.digest())
        return f"{FILES}{all_of_it.hexdigest()}"


def _filled(numbers: pa.Array) -> pa.Array:
    return pc.fill_null(numbers, pa.scalar(0, numbers.type))


def _joined(column: pa.Array) -> Any:
    """The bytes of all strings, without nulls and without those outside of a slice."""
    plain = pa.concat_arrays([pc.drop_null(column)])
    if not len(plain):
        return b""
    first, last = plain.offset, plain.offset + len(plain)
    _, offsets, data = plain.buffers()
    width = pa.int64() if pa.types.is_large_binary(plain.type) else pa.int32()
    bounds = pa.Array.from_buffers(width, last + 1, [None, offsets])
    start, end = bounds[first].as_py(), bounds[last].as_py()
    return memoryview(data)[start:end] if end > start else b""
