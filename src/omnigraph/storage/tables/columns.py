"""Replaces some columns of existing rows, fragment by fragment.

Any process can do this for some fragments of a table: the other columns are neither read nor
written, and row addresses do not change, so only indexes of the replaced columns have to be
updated. The processes return file names as text, and one staged write combines all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from lance import LanceOperation, Transaction
from lance.fragment import FragmentMetadata

from omnigraph.errors import InternalError
from omnigraph.records import dataclass
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.table import ROW_ADDRESS, Table, fragments_of
from omnigraph.storage.tables.types import StagedTable, TableChange, staged_table

ROW_UPDATED = "_row_last_updated_at_version"


@dataclass(frozen=True, slots=True)
class Unfilled:
    """Rows with a null in one of the columns; with ``until`` also all rows unchanged since then."""

    columns: tuple[str, ...]
    until: int | None = None

    def condition(self) -> str:
        """The condition as SQL: structured conditions support neither vectors nor versions."""
        terms = [f"{_quoted(column)} IS NULL" for column in self.columns]
        if self.until is not None:
            terms.append(f"{ROW_UPDATED} <= {self.until:d}")
        return " OR ".join(terms)


def unfilled_rows(
    table: Table,
    wanted: Unfilled | None,
    columns: Sequence[str],
    fragments: Sequence[int],
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    """Columns of these rows, or of all, with their addresses, in a stable order."""
    with lance_call("read", table.ref.path):
        condition = None if wanted is None else wanted.condition()
        dataset = table.dataset_for(condition)
        yield from dataset.scanner(
            columns=list(columns),
            filter=condition,
            fragments=fragments_of(dataset, fragments),
            with_row_address=True,
            batch_size=batch_rows,
        ).to_batches()


def count_unfilled(table: Table, column: str) -> int:
    """The number of rows without a value in a column."""
    return _count(table, Unfilled((column,)).condition())


def count_blank(table: Table, column: str, text: str) -> int:
    """The number of rows without a value and without a text to compute it from."""
    words = f"({_quoted(text)} IS NULL OR {_quoted(text)} = '')"
    return _count(table, f"{Unfilled((column,)).condition()} AND {words}")


def _count(table: Table, condition: str) -> int:
    with lance_call("count", table.ref.path):
        return int(table.dataset_for(condition).count_rows(filter=condition))


def _quoted(column: str) -> str:
    if "`" in column:
        raise InternalError(f"invalid column name '{column}'")
    return f"`{column}`"


@dataclass(frozen=True, slots=True)
class ColumnUpdate:
    """A fragment with new values in some columns, in files that no version references yet."""

    rows: int
    values: int
    """The number of new values in all columns."""
    fragment: str
    """The metadata of the fragment for Lance, as JSON."""
    number: int
    fields: tuple[int, ...]
    offsets: bytes
    """The changed rows in Lance's encoding."""


def update_columns(table: Table, fragment: int, rows: pa.Table, values: int) -> ColumnUpdate:
    """Write new values for rows of a fragment, by their ``ROW_ADDRESS``; for any process.

    ``values`` is the caller's count of new values.
    """
    with lance_call("stage an update of", table.ref.path):
        target = table.dataset.get_fragment(fragment)
        if target is None:
            raise InternalError(f"'{table.ref.path}' has no fragment {fragment}")
        metadata, fields, offsets = target.update_columns(rows, ROW_ADDRESS, with_offsets=True)
    text = json.dumps(metadata.to_json())
    return ColumnUpdate(rows.num_rows, values, text, fragment, tuple(fields), bytes(offsets))


def stage_columns(table: Table, updates: Iterable[ColumnUpdate]) -> StagedTable | None:
    """Combine updates of different fragments of one version into one staged write."""
    ordered = sorted(updates, key=lambda update: update.number)
    if not ordered:
        return None
    operation = LanceOperation.Update(
        updated_fragments=[FragmentMetadata.from_json(update.fragment) for update in ordered],
        fields_modified=sorted({field for update in ordered for field in update.fields}),
        update_mode="rewrite_columns",
        updated_fragment_offsets={update.number: update.offsets for update in ordered},
    )
    transaction = Transaction(table.version, operation)
    rows = sum(update.rows for update in ordered)
    return staged_table(table, TableChange.UPDATE, transaction, updated=rows)
