"""Converts Arrow arrays of numbers to NumPy arrays and back, without ``pyarrow``'s conversions.

Those import pandas, if it is installed, and ``numpy.ma``. Either costs more than most queries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_DTYPES: dict[pa.DataType, np.dtype[Any]] = {
    getattr(pa, name)(): np.dtype(name)
    for name in (
        *("int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    )
}

_ARROW_TYPES = {dtype: type_ for type_, dtype in _DTYPES.items()}


def numpy_view(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """The values of an array without nulls; shares its memory if it is one chunk of numbers.

    Booleans are copied, and the copy may be changed. Nulls and other types are converted by
    pyarrow.

    >>> numpy_view(pa.array([1, 2, 3], pa.int16())[1:])
    array([2, 3], dtype=int16)
    >>> numpy_view(pa.chunked_array([pa.array([True], pa.bool_()), pa.array([False], pa.bool_())]))
    array([ True, False])
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    if values.null_count:
        return _converted(values)
    size, start = len(values), values.offset
    if pa.types.is_boolean(values.type):
        if not size:
            return np.empty(0, np.bool_)
        bits = np.frombuffer(values.buffers()[1], np.uint8)[start // 8 : (start + size + 7) // 8]
        first = start % 8
        return np.unpackbits(bits, bitorder="little")[first : first + size].view(np.bool_)
    dtype = _DTYPES.get(values.type)
    if dtype is None:
        return _converted(values)
    if not size:
        return np.empty(0, dtype)
    return np.frombuffer(values.buffers()[1], dtype, size, start * dtype.itemsize)


def arrow_view(values: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Numbers or booleans as an Arrow array that shares their memory; null where masked.

    >>> arrow_view(np.array([1, 2], np.int32), np.array([True, False])).to_pylist()
    [None, 2]
    >>> arrow_view(np.array([True, False])).type
    DataType(bool)
    """
    valid = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    if values.dtype == np.bool_:
        bits = pa.py_buffer(np.packbits(values, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(values), [valid, bits])
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(_ARROW_TYPES[values.dtype], len(values), [valid, data])


def _converted(values: pa.Array) -> npt.NDArray[Any]:
    converted: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return converted
