"""What tells the data of one load from that of another that comes under the same idempotency key.

Values are hashed column by column as they pass, so that it does not matter in which pieces they
come. Ids count as they were given: new ones differ at every call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.write.load.streams import opened_as_it_is

_SIZE = 16


class Digest:
    """The values of a load, one hash for each column."""

    def __init__(self) -> None:
        self._columns: dict[str, Any] = {}

    def add(self, name: str, column: pa.Array) -> None:
        """The next values of a column."""
        self._feed(f"{name}?", pc.is_valid(column).cast(pa.uint8()))
        kind = column.type
        if pa.types.is_fixed_size_list(kind):
            self.add(f"{name}[]", column.flatten())
        elif pa.types.is_list(kind):
            self._feed(f"{name}#", pc.fill_null(pc.list_value_length(column), 0))
            self.add(f"{name}[]", column.flatten())
        elif pa.types.is_string(kind) or pa.types.is_large_binary(kind):
            self._feed(f"{name}#", pc.fill_null(pc.binary_length(column), 0))
            self._hash(name).update(_joined(column))
        else:
            self._feed(name, pc.fill_null(_as_integers(column), 0))

    def _feed(self, name: str, numbers: pa.Array) -> None:
        self._hash(name).update(numbers.to_numpy(zero_copy_only=False).tobytes())

    def _hash(self, name: str) -> Any:
        return self._columns.setdefault(name, hashlib.blake2b(digest_size=_SIZE))

    def text(self) -> str:
        """The digest of everything that was added."""
        all_of_it = hashlib.blake2b(digest_size=_SIZE)
        for name in sorted(self._columns):
            all_of_it.update(f"{name}={self._columns[name].hexdigest()};".encode())
        return all_of_it.hexdigest()


FILES = "files-"
_BLOCK = 1 << 20


class FilesDigest:
    """The bytes of files: for loads that are read in no order."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)

    def text(self) -> str:
        """The digest of all files in their order; each is read for it."""
        all_of_it = hashlib.blake2b(digest_size=_SIZE)
        for path in self._paths:
            one = hashlib.blake2b(digest_size=_SIZE)
            with opened_as_it_is(path) as file:
                while block := file.read(_BLOCK):
                    one.update(block)
            all_of_it.update(one.digest())
        return f"{FILES}{all_of_it.hexdigest()}"


def _joined(column: pa.Array) -> Any:
    """The texts one after the other, without what nulls and a slice leave between them."""
    plain = pa.concat_arrays([pc.drop_null(column)])
    if not len(plain):
        return b""
    first, last = plain.offset, plain.offset + len(plain)
    _, offsets, data = plain.buffers()
    width = pa.int64() if pa.types.is_large_binary(plain.type) else pa.int32()
    bounds = pa.Array.from_buffers(width, last + 1, [None, offsets])
    start, end = bounds[first].as_py(), bounds[last].as_py()
    return memoryview(data)[start:end] if end > start else b""


def _as_integers(column: pa.Array) -> pa.Array:
    """Numbers, days and truths as integers of their width: they have one zero, and no NaN."""
    if pa.types.is_boolean(column.type):
        return column.cast(pa.uint8())
    return column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
