"""Cache files: arrays computed from the tables. They may be removed at any time.

A file is one Arrow table of one row whose columns are the arrays, with a checksum over all of
them. It is read, not mapped: the checksum needs every byte anyway, and a process that has a file
mapped is killed when the file is truncated. A missing, truncated or changed file is treated as
absent: the caller computes it again.
"""

from __future__ import annotations

import json
import os
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from omnigraph.errors import OmniGraphError
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.storage.objects.store import ObjectStore

FOLDER = "__topology"
_META = b"omnigraph"


class Derived(NamedTuple):
    """The arrays of a file by name, and the metadata written with them."""

    arrays: Mapping[str, pa.Array]
    about: Mapping[str, Any]


class DerivedFiles:
    """The derived files of one graph. No method raises: the files are only a cache."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self.is_local = objects.root.is_local

    def list(self) -> list[str]:
        try:
            return self._objects.list(FOLDER)
        except OmniGraphError:
            return []

    def read(self, name: str) -> Derived | None:
        """The content of a file; ``None`` if it is missing or damaged."""
        try:
            with suppress(OmniGraphError):
                table = self._open(name)
                about = json.loads((table.schema.metadata or {})[_META])
                arrays = {n: table[n].chunk(0).values for n in table.column_names}
                if _checksum(arrays, about) == about.pop("checksum"):
                    return Derived(arrays, about)
        except (pa.ArrowException, OSError, KeyError, ValueError, IndexError, AttributeError):
            pass
        return None

    def _open(self, name: str) -> pa.Table:
        if self.is_local:
            with pa.OSFile(self._objects.address(f"{FOLDER}/{name}")) as source:
                return pa.ipc.open_file(source).read_all()
        data = self._objects.read_bytes(f"{FOLDER}/{name}")
        return pa.ipc.open_file(pa.py_buffer(data)).read_all()

    def write(self, name: str, arrays: Mapping[str, pa.Array], about: Mapping[str, Any]) -> None:
        """Write a file atomically."""
        text = json.dumps({**about, "checksum": _checksum(arrays, about)})
        columns = [
            pa.LargeListArray.from_arrays(pa.array([0, len(array)], pa.int64()), array)
            for array in arrays.values()
        ]
        fields = [pa.field(n, c.type) for n, c in zip(arrays, columns, strict=True)]
        table = pa.Table.from_arrays(columns, schema=pa.schema(fields, {_META: text.encode()}))
        with suppress(OSError, OmniGraphError, pa.ArrowException):
            if self.is_local:
                self._write_local(name, table)
                return
            sink = pa.BufferOutputStream()
            with pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            self._objects.write_bytes(f"{FOLDER}/{name}", sink.getvalue().to_pybytes())

    def _write_local(self, name: str, table: pa.Table) -> None:
        folder = self._objects.address(FOLDER)
        os.makedirs(folder, exist_ok=True)
        temporary = f"{folder}/.tmp~{uuid.uuid4().hex}"
        try:
            with pa.OSFile(temporary, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            os.replace(temporary, f"{folder}/{name}")
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def remove(self, name: str) -> None:
        with suppress(OmniGraphError):
            self._objects.delete(f"{FOLDER}/{name}")


def _checksum(arrays: Mapping[str, pa.Array], about: Mapping[str, Any]) -> int:
    """The CRC over names, types, lengths and bytes of the arrays, and the metadata."""
    metadata = {key: value for key, value in about.items() if key != "checksum"}
    total = zlib.crc32(json.dumps(metadata, sort_keys=True).encode())
    for name, array in arrays.items():
        total = zlib.crc32(f"{name} {array.type} {len(array)}".encode(), total)
        for piece in _bytes_of(array):
            total = zlib.crc32(piece, total)
    return total


def _bytes_of(array: pa.Array) -> Iterator[memoryview]:
    if not pa.types.is_string(array.type):
        yield memoryview(np.ascontiguousarray(numpy_view(array)).data).cast("B")
        return
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    yield memoryview(np.diff(ends).data).cast("B")
    if len(array) and data is not None:
        yield memoryview(data)[ends[0] : ends[-1]]
