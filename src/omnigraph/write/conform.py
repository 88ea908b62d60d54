"""Converts Arrow rows to the exact columns of a type, or reports what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError, ValueConversionError
from omnigraph.lang.closest import closest
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.values.arrow import to_timestamp, type_name
from omnigraph.lang.values.columns import flaw
from omnigraph.lang.values.spelling import BASE64, key_id
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.wide_columns import null_column
from omnigraph.write.blobs import blob_bytes
from omnigraph.write.delta import refuse_wide
from omnigraph.write.ids import new_ids, spelled_keys

_Family: TypeAlias = tuple[Callable[[pa.DataType], bool], ...]
_LISTS: _Family = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_NUMBERS: _Family = (pa.types.is_integer, pa.types.is_floating)
_TEXTS: _Family = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES: _Family = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)
# Above it several integers are rounded to the same float.
_EXACT_FLOATS = {pa.float16(): 2**11 - 1, pa.float32(): 2**24 - 1, pa.float64(): 2**53 - 1}


def find_type(catalog: Catalog, name: str) -> NodeType | EdgeType:
    """A type by its name or its table key (``node:Person``)."""
    kind, _, bare = name.rpartition(":")
    if kind in ("", "node") and (node := catalog.node_types.get(bare)) is not None:
        return node
    if kind in ("", "edge") and (edge := catalog.edge_types.get(bare)) is not None:
        return edge
    names = [*catalog.node_types, *catalog.edge_types]
    raise InputError(
        f"there is no type '{name}' in the schema",
        hint=_suggestion(bare, names),
        details={"type": name},
    )


def conform(
    catalog: Catalog, name: str, rows: pa.Table | pa.RecordBatch
) -> tuple[NodeType | EdgeType, pa.Table]:
    """Rows in the columns of their type, with ids derived from keys or generated."""
    entity_type = find_type(catalog, name)
    refuse_wide(entity_type)
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    if not isinstance(table, pa.Table):
        raise InputError(
            f"the rows of '{name}' are not an Arrow table",
            hint="pass a pyarrow.Table or a pyarrow.RecordBatch",
            details={"table_key": entity_type.table_key},
        )
    schema = entity_type.arrow_schema()
    repeated = first_repeated(table.column_names)
    if repeated is not None:
        raise InputError(
            f"{entity_type.table_key}: the column '{repeated}' is given twice",
            details={"table_key": entity_type.table_key, "property": repeated},
        )
    unknown = [column for column in table.column_names if column not in schema.names]
    if unknown:
        raise InputError(
            f"{entity_type.table_key} has no property '{unknown[0]}'",
            hint=_suggestion(unknown[0], schema.names),
            details={"table_key": entity_type.table_key, "property": unknown[0]},
        )
    columns = [_column(entity_type, table, field) for field in schema]
    return entity_type, pa.Table.from_arrays(columns, schema=schema)


def _column(entity_type: NodeType | EdgeType, table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name == KEY:
        return _ids(entity_type, table)
    if field.name not in table.column_names:
        if not field.nullable and table.num_rows:
            raise InputError(
                f"{entity_type.table_key}: the required property '{field.name}' is missing",
                details={"table_key": entity_type.table_key, "property": field.name},
            )
        return null_column(table.num_rows, field.type)
    column = _cast(entity_type, table[field.name], field)
    if not field.nullable and column.null_count:
        raise ValueConversionError(
            f"{entity_type.table_key}: the required property '{field.name}' has null values",
            details={"table_key": entity_type.table_key, "property": field.name},
        )
    prop = entity_type.properties.get(field.name)
    flaws = () if prop is None else (flaw(prop.type, chunk) for chunk in column.chunks)
    for problem in flaws:
        if problem is not None:
            raise ValueConversionError(
                f"{entity_type.table_key}: '{field.name}' {problem}",
                details={"table_key": entity_type.table_key, "property": field.name},
            )
    return column


def _cast(
    entity_type: NodeType | EdgeType, column: pa.ChunkedArray, field: pa.Field
) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    if _is_kindred(column.type, field.type):
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return _converted(column, field.type)
    if pa.types.is_large_binary(field.type) and _is(_TEXTS, column.type):
        with suppress(ValueConversionError):
            return _from_base64(column)
    prop = entity_type.properties.get(field.name)
    raise ValueConversionError(
        f"{entity_type.table_key}: values of '{field.name}' ({type_name(column.type)}) "
        f"do not fit {type_name(field.type) if prop is None else prop.type}",
        details={"table_key": entity_type.table_key, "property": field.name},
    )


def _from_base64(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode Blobs given as text; files are not read here, since their size is not limited."""
    if pc.all(pc.starts_with(column, BASE64)).as_py() is False:
        raise ValueConversionError("a Blob is bytes, or text that starts with 'base64:'")
    blobs = [blob_bytes(value) for value in column.to_pylist()]
    return pa.chunked_array([pa.array(blobs, pa.large_binary())])


def _is_kindred(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast preserves the meaning of values; Arrow would also cast text to numbers."""
    if pa.types.is_dictionary(given):
        given = given.value_type
    if pa.types.is_null(given) or given == wanted:
        return True
    if _is(_LISTS, given) and _is(_LISTS, wanted):
        return _is_kindred(given.value_type, wanted.value_type)
    if pa.types.is_date64(wanted):
        return bool(pa.types.is_timestamp(given))
    if pa.types.is_decimal(given):
        # Spark has no unsigned integers.
        return bool(given.scale == 0 and pa.types.is_uint64(wanted))
    if pa.types.is_date32(wanted):
        # Frames store dates as midnight timestamps; with a time zone it is a timestamp.
        is_plain = pa.types.is_timestamp(given) and given.tz is None
        return bool(pa.types.is_date64(given) or is_plain)
    return any(_is(family, given) and _is(family, wanted) for family in (_NUMBERS, _TEXTS, _BYTES))


def _converted(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Values cast to another type of the same kind; ``ArrowInvalid`` if that loses information."""
    if pa.types.is_dictionary(column.type):
        # Arrow cannot cast dictionaries of every type.
        column = pa.chunked_array(map(_decoded, column.chunks), _plain(column.type))
    leaf = column.type
    if _is(_LISTS, column.type):
        if pa.types.is_dictionary(column.type.value_type):
            column = _decoded_items(column)
        leaf = column.type.value_type
        # Arrow casts all items of an array, even those outside of a slice.
        column = pa.chunked_array([pa.concat_arrays([c]) for c in column.chunks], column.type)
    if pa.types.is_timestamp(leaf):
        # Directly to ``date64`` Arrow would truncate timestamps to days.
        for step in (pa.timestamp("ms", leaf.tz), pa.int64(), pa.date64()):
            column = column.cast(pa.list_(step) if _is(_LISTS, column.type) else step)
    converted = column.cast(wanted)
    if pa.types.is_floating(leaf):
        _refuse_rounded(converted, _EXACT_FLOATS[leaf])
    return converted


def _decoded(chunk: pa.DictionaryArray) -> pa.Array:
    return chunk.dictionary.cast(_plain(chunk.type)).take(chunk.indices)


def _plain(given: pa.DictionaryType) -> pa.DataType:
    return pa.string() if _is(_TEXTS, given.value_type) else given.value_type


def _decoded_items(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Lists of dictionary values as lists of plain values."""
    if pa.types.is_fixed_size_list(column.type):
        # The cast to a vector fails.
        return column
    make = pa.list_ if pa.types.is_list(column.type) else pa.large_list
    wanted = make(_plain(column.type.value_type))
    chunks = [
        type(chunk).from_buffers(
            wanted,
            len(chunk),
            chunk.buffers()[:2],
            chunk.null_count,
            chunk.offset,
            [_decoded(chunk.values)],
        )
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, wanted)


def _refuse_rounded(numbers: pa.ChunkedArray, exact: int) -> None:
    """Refuse floats beyond the bound up to which integers are exact: they may be rounded."""
    flat = pc.list_flatten(numbers) if _is(_LISTS, numbers.type) else numbers
    if not pa.types.is_integer(flat.type):
        return
    ends = pc.min_max(flat)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is not None and (low < -exact or high > exact):
        raise pa.ArrowInvalid("a float that may be rounded")


def _is(family: _Family, given: pa.DataType) -> bool:
    return any(is_type(given) for is_type in family)


def _ids(entity_type: NodeType | EdgeType, table: pa.Table) -> pa.ChunkedArray:
    """The ids of rows: their key where the type has one, else as given, else new ones."""
    given = None
    if KEY in table.column_names:
        given = _cast(entity_type, table[KEY], pa.field(KEY, pa.string(), nullable=False))
    if not isinstance(entity_type, NodeType) or not entity_type.key:
        if given is None or given.null_count == len(given):
            return pa.chunked_array([new_ids(table.num_rows)])
        if given.null_count:
            new = new_ids(given.null_count)
            flat = given.combine_chunks()
            return pa.chunked_array([pc.replace_with_mask(flat, pc.is_null(flat), new)])
        return given
    made = _key_ids(entity_type, table)
    if given is not None and pc.any(pc.not_equal(given, made)).as_py():
        raise InputError(
            f"{entity_type.table_key}: the id of a row is its key {', '.join(entity_type.key)}; "
            "another id was given",
            hint=f"leave the column '{KEY}' out",
            details={"table_key": entity_type.table_key, "property": KEY},
        )
    return made


def _key_ids(entity_type: NodeType, table: pa.Table) -> pa.ChunkedArray:
    schema = entity_type.arrow_schema()
    columns = [_column(entity_type, table, schema.field(name)) for name in entity_type.key]
    spelled = spelled_keys(columns)
    if spelled is not None:
        return spelled
    values = zip(*(to_timestamp(column).to_pylist() for column in columns), strict=True)
    return pa.chunked_array([pa.array([key_id(row) for row in values], pa.string())])


def _suggestion(name: str, names: list[str]) -> str | None:
    nearest = closest(name, names)
    return None if nearest is None else f"did you mean '{nearest}'?"


def first_repeated(names: Iterable[str]) -> str | None:
    """The first column name that occurs a second time.

    >>> first_repeated(["a", "b", "b", "a"]), first_repeated(["a"])
    ('b', None)
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
