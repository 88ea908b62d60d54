"""FNV-1a hashes: the ids of types and properties, and the directory names of tables.

They are part of the storage format, which other programs that open a graph rely on.
"""

from __future__ import annotations

from functools import lru_cache

_MASK_32 = 0xFFFFFFFF
_MASK_64 = 0xFFFFFFFFFFFFFFFF


def fnv1a_32(text: str) -> int:
    """The 32-bit FNV-1a hash of the UTF-8 bytes of a text.

    >>> hex(fnv1a_32("a"))
    '0xe40c292c'
    """
    value = 0x811C9DC5
    for byte in text.encode("utf-8"):
        value = ((value ^ byte) * 0x01000193) & _MASK_32
    return value


@lru_cache(maxsize=1024)
def fnv1a_64(text: str) -> int:
    """The 64-bit FNV-1a hash of the UTF-8 bytes of a text.

    >>> f"{fnv1a_64('Person'):016x}"
    '40d76f1f51639ec0'
    """
    value = 0xCBF29CE484222325
    for byte in text.encode("utf-8"):
        value = ((value ^ byte) * 0x100000001B3) & _MASK_64
    return value
