"""Deletion files as Lance writes them: the offsets of the deleted rows of a fragment, in Arrow."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal

import numpy as np
import pyarrow as pa
from lance.fragment import DeletionFile, FragmentMetadata

from omnigraph.errors import StorageCorrupt
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.storage.tables.types import TableRef

_ARRAY: Literal["array"] = "array"
DELETIONS_SUFFIX = ".arrow"
_ID_BITS = 63
_DELETED = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])

Put = Callable[[str, bytes], object]
"""Writes a new file, by its path relative to the root."""


def mark_deleted(
    put: Put, ref: TableRef, version: int, fragment: FragmentMetadata, offsets: Iterable[int]
) -> FragmentMetadata:
    """Write the deletion file of a fragment, in the form that Lance gives it; it is not synced."""
    rows = pa.array(offsets, pa.uint32())
    mark = DeletionFile(version, random.getrandbits(_ID_BITS), _ARRAY, len(rows), base_id=None)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, _DELETED) as file:
        file.write(pa.record_batch([rows], schema=_DELETED))
    put(f"{ref.path}/{mark.path(fragment.id)}", sink.getvalue().to_pybytes())
    return replace(fragment, deletion_file=mark)


def is_array(mark: DeletionFile) -> bool:
    """Whether a deletion file is in this form."""
    return mark.file_type == _ARRAY


def read_deletions(raw: bytes, path: str) -> np.ndarray:
    """The offsets that a deletion file of Arrow lists."""
    try:
        with pa.ipc.open_file(pa.BufferReader(raw)) as reader:
            offsets: np.ndarray = numpy_view(reader.read_all().column(0))
    except (pa.ArrowInvalid, OSError, ValueError) as error:
        raise StorageCorrupt(f"'{path}' is damaged", hint="restore it from a backup") from error
    return offsets
