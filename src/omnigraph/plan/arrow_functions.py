"""Functions that Arrow lacks, registered under our own names so that expressions can use them.

They exist only in this process: storage cannot run them (see ``plan.arrow.pushable``).
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.values.numpy_view import arrow_view

# Registering a name twice fails, and also releases the registered function.
_lock = threading.Lock()
_registered: set[str] = set()


def contains_function(list_type: pa.DataType, item_type: pa.DataType) -> str:
    """The name of the function "list contains item" for a list type and an item type.

    The result is true if an item is equal, null if that is unknown (the list is null, or no item
    is equal and the searched item or one of the list is null), and false otherwise, including
    for an empty list.
    """
    name = f"omnigraph_contains_{list_type.value_type}_{item_type}"
    _register(name, _contains, {"list": list_type, "item": item_type})
    return name


def text_function(function: str) -> str:
    """The name of a text function whose pattern is a column: contains or starts with."""
    name = f"omnigraph_{function}"
    test = str.startswith if function == "starts_with" else operator.contains
    _register(name, _by_row(test), {"text": pa.string(), "pattern": pa.string()})
    return name


def _register(name: str, function: Callable[..., Any], types: dict[str, pa.DataType]) -> None:
    with _lock:
        if name in _registered or name in pc.list_functions():
            return
        doc = {"summary": name, "description": "See omnigraph.plan.arrow_functions."}
        pc.register_scalar_function(function, name, doc, types, pa.bool_())
        _registered.add(name)


def _contains(context: Any, lists: Any, item: Any) -> pa.Array:
    lists = _as_array(lists, context.batch_length)
    items = _as_array(item, context.batch_length)
    lengths = np.asarray(pc.list_value_length(lists).fill_null(0), dtype=np.int64)
    # Not `list_parent_indices`: it counts children that a null list may hide, flattening does not.
    parents = np.repeat(np.arange(len(lists)), lengths)
    flat = pc.list_flatten(lists)
    equal = _equal(flat, items.take(arrow_view(parents)))
    hit = np.zeros(len(lists), dtype=bool)
    hit[parents[np.asarray(equal.fill_null(False))]] = True
    unknown = np.asarray(lists.is_null()) | (np.asarray(items.is_null()) & (lengths > 0))
    unknown[parents[np.asarray(flat.is_null())]] = True
    return arrow_view(hit, unknown & ~hit)


def _equal(left: pa.Array, right: pa.Array) -> pa.Array:
    if left.type != right.type:
        floating = pa.types.is_floating(left.type) or pa.types.is_floating(right.type)
        common = pa.float64() if floating else pa.decimal128(20)
        left, right = left.cast(common, safe=not floating), right.cast(common, safe=not floating)
    return pc.equal(left, right)


def _as_array(value: Any, length: int) -> pa.Array:
    if isinstance(value, pa.Scalar):
        return pa.repeat(value, length)
    return value


def _by_row(test: Callable[[str, str], bool]) -> Callable[..., pa.Array]:
    def run(context: Any, text: Any, pattern: Any) -> pa.Array:
        texts = _as_array(text, context.batch_length).to_pylist()
        patterns = _as_array(pattern, context.batch_length).to_pylist()
        results = [
            None if a is None or b is None else test(a, b)
            for a, b in zip(texts, patterns, strict=True)
        ]
        return pa.array(results, pa.bool_())

    return run
