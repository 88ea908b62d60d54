"""Arrow's types under the names that the schema has for them."""

from __future__ import annotations

import pyarrow as pa

_NAMES = {
    pa.bool_(): "Bool",
    pa.int8(): "I8",
    pa.int16(): "I16",
    pa.int32(): "I32",
    pa.int64(): "I64",
    pa.uint8(): "U8",
    pa.uint16(): "U16",
    pa.uint32(): "U32",
    pa.uint64(): "U64",
    pa.float16(): "F16",
    pa.float32(): "F32",
    pa.float64(): "F64",
    pa.string(): "String",
    pa.large_string(): "String",
    pa.string_view(): "String",
    pa.date32(): "Date",
    pa.date64(): "DateTime",
    pa.null(): "null",
}
_KINDS = (
    (pa.types.is_timestamp, "DateTime"),
    (pa.types.is_time, "times of day"),
    (pa.types.is_duration, "durations"),
    (pa.types.is_decimal, "decimals"),
    (pa.types.is_struct, "structs"),
    (pa.types.is_map, "maps"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
    (pa.types.is_binary_view, "bytes"),
    (pa.types.is_fixed_size_binary, "bytes"),
)


def type_name(given: pa.DataType) -> str:
    """What a message calls a type of Arrow.

    >>> type_name(pa.large_list(pa.int64())), type_name(pa.timestamp("us"))
    ('[I64]', 'DateTime')
    """
    if pa.types.is_dictionary(given):
        return type_name(given.value_type)
    if pa.types.is_fixed_size_list(given):
        return f"Vector({given.list_size})"
    if pa.types.is_list(given) or pa.types.is_large_list(given):
        return f"[{type_name(given.value_type)}]"
    found = _NAMES.get(given)
    if found is None:
        found = next((name for is_kind, name in _KINDS if is_kind(given)), "another type")
    return found
