"""Arrow arrays of numbers as NumPy arrays, without ``pyarrow``'s own conversion.

That conversion loads pandas where it is installed, which costs more than any query that only reads.
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


def numpy_view(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """The values of an array without nulls; shares its memory where there is one chunk of numbers.

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


def _converted(values: pa.Array) -> npt.NDArray[Any]:
    converted: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return converted
