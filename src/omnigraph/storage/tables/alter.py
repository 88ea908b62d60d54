"""Changes to the columns of a table: staged, in one commit, without touching unchanged columns.

A column that is kept, renamed or made optional keeps its files; a new column without values needs
none. Only computed values are written, to files beside the existing ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from lance import LanceOperation, Transaction
from lance.fragment import DataFile, FragmentMetadata, LanceFragment
from lance.schema import LanceSchema

from omnigraph.records import dataclass
from omnigraph.storage.lance_format.fields import ColumnProto, columns_of, new_column, schema_of
from omnigraph.storage.lance_format.files import NewFile
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.indexes import index_name, index_segments
from omnigraph.storage.tables.store import KEY, TableStore
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import StagedTable, TableChange, staged_table
from omnigraph.storage.tables.wide_columns import batch_rows, stored_schema

Compute = Callable[[pa.Array], pa.Array]
"""Computes new values from the values of a column, or from the ids for a new column."""


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The target state of a column.

    ``source`` is the existing column that it continues, ``None`` for a new one. With ``compute``
    its values are computed; otherwise they are kept, or null for a new column.
    """

    field: pa.Field
    source: str | None
    compute: Compute | None = None


def stage_alter(
    store: TableStore, table: Table, columns: Sequence[ColumnPlan]
) -> list[StagedTable]:
    """Give a table exactly these columns, in this order; stages nothing if it has them already.

    This takes one step, unless columns are added or written and others change their nullability:
    Lance refuses both in one transaction, so nullability changes in an earlier step. A last step
    drops indexes whose names a new column may need.
    """
    dataset = table.dataset
    with lance_call("stage new columns for", table.ref.path):
        before = columns_of(dataset.lance_schema)
        kept = [fragment.metadata for fragment in dataset.get_fragments()]
        written, computed = _write_computed(store, table, columns)
        after = _arrange(dataset, before, columns, computed)
        if after == before:
            return []
        grows = any(column.source is None or column.compute for column in columns)
        relaxed = _with_nullability(before, columns) if grows else before
        operations: list[Any] = []
        if relaxed != before:
            operations.append(LanceOperation.Project(schema_of(dataset.lance_schema, relaxed)))
        schema = schema_of(dataset.lance_schema, after)
        operations.append(
            LanceOperation.Merge(written or kept, schema)
            if grows
            else LanceOperation.Project(schema)
        )
        wrong = _misnamed_indexes(dataset, after)
        if wrong:
            operations.append(LanceOperation.CreateIndex([], wrong))
    existing_files = {file.path for fragment in kept for file in fragment.files}
    files = [
        NewFile(f"data/{file.path}", file.file_size_bytes)
        for fragment in written
        for file in fragment.files
        if file.path not in existing_files
    ]
    steps = [
        staged_table(table, TableChange.ALTER, Transaction(table.version + number, operation))
        for number, operation in enumerate(operations)
    ]
    # A merge lists the files of every fragment; only those that it wrote are checked.
    return [
        replace(step, files=tuple(files) if isinstance(operation, LanceOperation.Merge) else ())
        for step, operation in zip(steps, operations, strict=True)
    ]


def _with_nullability(
    before: Sequence[ColumnProto], columns: Sequence[ColumnPlan]
) -> list[ColumnProto]:
    """The columns of a table; those that keep their values get their target nullability."""
    kept = {
        column.source: column.field.nullable
        for column in columns
        if column.source is not None and column.compute is None
    }
    return [
        column.altered(column.name, kept[column.name]) if column.name in kept else column
        for column in before
    ]


def _misnamed_indexes(dataset: Any, after: Sequence[ColumnProto]) -> list[Any]:
    """The indexes of renamed columns that have the name an index of another column would get."""
    names = {field.id: column.name for column in after for field in column.fields}
    return [
        segment
        for index in dataset.describe_indices()
        for segment in index_segments(dataset, index_name(index))
        if (called := segment.name.rpartition("_")[0]) != names.get(segment.fields[0])
        and called in names.values()
    ]


def stage_repeats(table: Table, content: int, times: int) -> list[StagedTable]:
    """Additional versions without changes: each has the content of ``content``.

    A type name that is reused continues its former version numbers.
    """
    return [
        staged_table(
            table, TableChange.ALTER, Transaction(table.version, LanceOperation.Restore(content))
        )
        for _ in range(times)
    ]


def _write_computed(
    store: TableStore, table: Table, columns: Sequence[ColumnPlan]
) -> tuple[list[FragmentMetadata], dict[str, ColumnProto]]:
    """The fragments with the computed columns, and those columns by their new names.

    Lance's own function for adding columns to a fragment writes null for deleted rows, even into a
    required column, and cannot always read that back. So all rows are computed, deleted ones
    included.
    """
    wanted = [column for column in columns if column.compute is not None]
    dataset = table.dataset
    fragments = dataset.get_fragments()
    if not wanted or not fragments:
        return [], {}
    schema = stored_schema(pa.schema([column.field for column in wanted]))
    above = int(dataset.max_field_id) + 1
    made = {
        column.name: column.shifted(above)
        for column in columns_of(LanceSchema.from_pyarrow(schema))
    }
    rewritten = []
    for fragment in fragments:
        rows = pa.RecordBatchReader.from_batches(schema, _computed(fragment, schema, wanted))
        written = LanceFragment.create(
            dataset.uri,
            rows,
            mode="overwrite",
            data_storage_version=dataset.data_storage_version,
            storage_options=store.storage_options,
        )
        metadata = fragment.metadata
        rewritten.append(
            replace(metadata, files=[*metadata.files, *_numbered(written.files, above)])
        )
    return rewritten, made


def _numbered(files: Sequence[DataFile], above: int) -> list[DataFile]:
    """Files that were written as a separate table, with field ids renumbered above ``above``."""
    return [
        DataFile(
            file.path,
            [number + above for number in file.fields],
            file.column_indices,
            file.file_major_version,
            file.file_minor_version,
            file.file_size_bytes,
        )
        for file in files
    ]


def _computed(
    fragment: LanceFragment, schema: pa.Schema, wanted: Sequence[ColumnPlan]
) -> Iterator[pa.RecordBatch]:
    reads = sorted({column.source or KEY for column in wanted})
    widths = pa.schema([*(fragment.schema.field(name) for name in reads), *schema])
    scanner = fragment.scanner(
        columns=reads,
        with_row_id=True,
        include_deleted_rows=True,
        batch_size=batch_rows(widths),
    )
    for batch in scanner.to_batches():
        arrays = []
        for column in wanted:
            assert column.compute is not None
            values = column.compute(batch[column.source or KEY])
            arrays.append(values if column.field.nullable else _without_nulls(values))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _without_nulls(values: pa.Array) -> pa.Array:
    """Values with nulls replaced by any value: a required column has nulls in deleted rows only."""
    if not values.null_count:
        return values
    any_value = pa.array([_zero(values.type)], values.type)
    at = np.where(
        values.is_valid().to_numpy(zero_copy_only=False), np.arange(len(values)), len(values)
    )
    return pa.concat_arrays([values, any_value]).take(pa.array(at))


def _zero(type_: pa.DataType) -> Any:
    """A value of a type that is cheap to store."""
    if pa.types.is_list(type_):
        return []
    if pa.types.is_fixed_size_list(type_):
        return [0.0] * type_.list_size
    if pa.types.is_boolean(type_):
        return False
    return "" if pa.types.is_string(type_) else 0


def _arrange(
    dataset: Any,
    before: Sequence[ColumnProto],
    columns: Sequence[ColumnPlan],
    computed: dict[str, ColumnProto],
) -> list[ColumnProto]:
    existing = {column.name: column for column in before}
    # Above every id that any file uses, or a new column would show the values of a dropped one.
    last = max([dataset.max_field_id, *(column.last_id for column in computed.values())])
    arranged = []
    for column in columns:
        field = stored_schema(pa.schema([column.field])).field(0)
        if field.name in computed:
            proto = computed[field.name]
        elif column.source is None or column.compute is not None:
            proto = new_column(field, last + 1)
            last = proto.last_id
        else:
            proto = existing[column.source]
        arranged.append(proto.altered(field.name, field.nullable))
    return arranged
