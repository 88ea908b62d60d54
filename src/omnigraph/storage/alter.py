"""Giving a table other columns: staged, in one commit, and without touching what stays.

A column that goes on, also under another name or as optional, keeps its files; one that is new and
empty needs none. Only values that are computed are written, in files beside those that are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from lance import LanceOperation, Transaction
from lance.fragment import FragmentMetadata

from omnigraph.storage.blobs import stored_schema
from omnigraph.storage.field_protos import ColumnProto, columns_of, new_column, schema_of
from omnigraph.storage.file_checks import NewFile
from omnigraph.storage.lance_failures import lance_call
from omnigraph.storage.table import Table, index_name
from omnigraph.storage.table_types import Change, StagedTable
from omnigraph.storage.tables import KEY, TableStore, index_segments

Compute = Callable[[pa.Array], pa.Array]
"""From the values of a column, or from the ids where there is none, to new values."""


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """A column as it is to be.

    ``source`` is the column that it goes on from, none for a new one; with ``compute`` its values
    are made anew, without it they stay, or are null.
    """

    field: pa.Field
    source: str | None
    compute: Compute | None = None


def stage_alter(
    store: TableStore, table: Table, columns: Sequence[ColumnPlan]
) -> list[StagedTable]:
    """Give a table exactly these columns, in this order; nothing is staged if it has them.

    The first step does it; a second takes indexes away whose names a new column may need.
    """
    dataset = table._dataset
    with lance_call("stage new columns for", table.ref.path):
        before = columns_of(dataset.lance_schema)
        kept = [fragment.metadata for fragment in dataset.get_fragments()]
        written, computed = _written(dataset, columns)
        after = _arranged(dataset, before, columns, computed)
        if after == before:
            return []
        schema = schema_of(dataset.lance_schema, after)
        grows = any(column.source is None or column.compute for column in columns)
        operation: Any = (
            LanceOperation.Merge(written or kept, schema)
            if grows
            else LanceOperation.Project(schema)
        )
    known = {file.path for fragment in kept for file in fragment.files}
    files = [
        NewFile(f"data/{file.path}", file.file_size_bytes)
        for fragment in written
        for file in fragment.files
        if file.path not in known
    ]
    staged = store._staged(table, Change.ALTER, Transaction(table.version, operation))
    return [replace(staged, files=tuple(files)), *_without_misnomers(store, table, after)]


def _without_misnomers(
    store: TableStore, table: Table, after: Sequence[ColumnProto]
) -> Iterator[StagedTable]:
    """Drop the indexes of renamed columns that are called as those of another column would be."""
    names = {field.id: column.name for column in after for field in column.fields}
    with lance_call("read", table.ref.path):
        wrong = [
            segment
            for index in table._dataset.describe_indices()
            for segment in index_segments(table._dataset, index_name(index))
            if (called := segment.name.rpartition("_")[0]) != names.get(segment.fields[0])
            and called in names.values()
        ]
    if wrong:
        operation = LanceOperation.CreateIndex([], wrong)
        yield store._staged(table, Change.ALTER, Transaction(table.version + 1, operation))


def stage_repeats(store: TableStore, table: Table, content: int, times: int) -> list[StagedTable]:
    """Further versions that change nothing: each has the content of an earlier one.

    A name that comes back must count its versions on from where it left.
    """
    return [
        store._staged(
            table, Change.ALTER, Transaction(table.version, LanceOperation.Restore(content))
        )
        for _ in range(times)
    ]


def _written(
    dataset: Any, columns: Sequence[ColumnPlan]
) -> tuple[list[FragmentMetadata], dict[str, ColumnProto]]:
    """The parts with the columns that are computed, and those columns by their names to be."""
    wanted = [column for column in columns if column.compute is not None]
    fragments = dataset.get_fragments()
    if not wanted or not fragments:
        return [], {}
    # No property can have such a name.
    names = {f"{column.field.name}~": column for column in wanted}

    def values(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch(dict(_computed(names, batch)))

    reads = sorted({column.source or KEY for column in wanted})
    parts = []
    for fragment in fragments:
        part, schema = fragment.merge_columns(values, columns=reads)
        parts.append(part)
    found = {column.name: column for column in columns_of(schema)}
    return parts, {column.field.name: found[name] for name, column in names.items()}


def _computed(
    names: dict[str, ColumnPlan], batch: pa.RecordBatch
) -> Iterator[tuple[str, pa.Array]]:
    for name, column in names.items():
        assert column.compute is not None
        yield name, column.compute(batch[column.source or KEY])


def _arranged(
    dataset: Any,
    before: Sequence[ColumnProto],
    columns: Sequence[ColumnPlan],
    computed: dict[str, ColumnProto],
) -> list[ColumnProto]:
    known = {column.name: column for column in before}
    # Above every number that any file uses, or a new column would show what a dropped one held.
    last = max([dataset.max_field_id, *(column.last_id for column in computed.values())])
    arranged = []
    for column in columns:
        field = stored_schema(pa.schema([column.field])).field(0)
        if field.name in computed:
            found = computed[field.name]
        elif column.source is None or column.compute is not None:
            found = new_column(field, last + 1)
            last = found.last_id
        else:
            found = known[column.source]
        arranged.append(found.altered(field.name, field.nullable))
    return arranged
