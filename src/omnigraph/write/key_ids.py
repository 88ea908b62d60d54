"""Ids from key columns, many at once where Arrow spells values as ids are spelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# What JSON does not write as it is.
_ESCAPED = r'["\\\x00-\x1f]'


def spelled_keys(columns: Sequence[Any]) -> Any | None:
    """The ids of rows by their key columns, null where a part is; none for kinds of another hand.

    They are those of ``key_id``, value by value.

    >>> spelled_keys([pa.array([7, None])]).to_pylist()
    ['7', None]
    >>> spelled_keys([pa.array(["a,b", "c"]), pa.array([7, 8])]).to_pylist()
    ['["a,b","7"]', '["c","8"]']
    """
    if not all(_is_spelled_so(column.type) for column in columns):
        return None
    texts = [column.cast(pa.string()) for column in columns]
    if len(texts) == 1:
        return texts[0]
    for text in texts:
        if pc.any(pc.match_substring_regex(text, _ESCAPED)).as_py():
            return None
    parts = [part for text in texts for part in ('","', text)][1:]
    return pc.binary_join_element_wise('["', *parts, '"]', "")


def _is_spelled_so(given: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(given) or types.is_integer(given) or types.is_boolean(given))
