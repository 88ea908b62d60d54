"""Rows of a delta that were written as fragments of their table by many processes.

The validator reads the columns that its rules need. The fragments are staged as they are; one is
rewritten only if some of its rows were rejected, or if it has both new rows and replacements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.write_request import WriteView
from omnigraph.errors import InternalError, OmniGraphError, SchemaChanging
from omnigraph.lang.schema.catalog import EntityType
from omnigraph.records import dataclass
from omnigraph.storage.executor import Executor
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.fragments import (
    Deletions,
    FragmentTarget,
    StagedFragment,
    TableLocator,
    delete_keys,
    discard_fragments,
    fragment_groups,
    in_groups,
    read_staged_fragments,
    write_staged_fragments,
)
from omnigraph.storage.tables.inline import read_staged_fragment
from omnigraph.storage.tables.store import KEY, Data
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import StagedTable
from omnigraph.storage.tables.upserts import NEW
from omnigraph.storage.tables.wide_columns import is_blob
from omnigraph.write.delta import Effect

Replaced: TypeAlias = tuple[np.ndarray, np.ndarray, Deletions]
"""Positions of replacing rows, the row ids they replace, and the deletions of those."""


class Replacer(Protocol):
    """Finds and deletes replaced rows where the ids do not fit into memory."""

    def replaced(
        self, locator: TableLocator, table: Table, rows: FragmentRows
    ) -> list[Replaced]: ...


Locate = Callable[[Sequence[int]], list[int]]
"""Source lines of rows, by their numbers among all written rows."""


class FragmentLedger:
    """All fragments that were written for one load, and which of them were staged."""

    def __init__(self) -> None:
        self._written: list[tuple[FragmentTarget, StagedFragment]] = []
        self._staged: set[str] = set()

    def write(self, target: FragmentTarget, fragments: Iterable[StagedFragment]) -> None:
        self._written += [(target, fragment) for fragment in fragments]

    def stage(self, fragments: Iterable[StagedFragment]) -> None:
        """Record fragments that a version may reference from now on."""
        self._staged.update(fragment.fragment for fragment in fragments)

    def discard_unstaged(self, datasets: Datasets) -> None:
        """Delete the files of fragments that no version can reference."""
        with suppress(OmniGraphError):
            for target, fragment in self._written:
                if fragment.fragment not in self._staged:
                    discard_fragments(datasets, target.path, [fragment])


class FragmentRows:
    """The rows of one type, in the order of the input."""

    is_large = True
    is_judged = True

    def __init__(
        self,
        entity_type: EntityType,
        target: FragmentTarget,
        fragments: Sequence[StagedFragment],
        executor: Executor,
        locate: Locate,
        ledger: FragmentLedger,
        replacer: Replacer | None = None,
        distinct: Mapping[str, pa.Array] | None = None,
    ) -> None:
        """``distinct`` has the values of columns that were collected when they were written."""
        self.entity_type = entity_type
        self._distinct = distinct or {}
        self._target = target
        self._fragments = tuple(fragments)
        self._executor = executor
        self._locate = locate
        self._ledger = ledger
        self._replacer = replacer
        self._dropped = np.empty(0, np.int64)
        """Numbers of the dropped rows among all, ascending."""
        self._final: tuple[StagedFragment, ...] | None = self._fragments

    # -- reading -------------------------------------------------------------------------

    @property
    def num_rows(self) -> int:
        return sum(fragment.rows for fragment in self._fragments) - len(self._dropped)

    @property
    def names(self) -> Sequence[str]:
        return list(self.entity_type.arrow_schema().names)

    def select(self, columns: Sequence[str]) -> pa.Table:
        schema = self._projection(columns)
        batches = (batch.select(list(columns)) for batch in self._batches(columns))
        rows = pa.Table.from_batches((_plain(batch, schema) for batch in batches), schema)
        return rows.take(pa.array(self._numbers())) if len(self._dropped) else rows

    def distinct(self, column: str) -> pa.Array:
        if column in self._distinct:
            return self._distinct[column]
        return pc.unique(self.select([column])[column])

    def _numbers(self) -> np.ndarray:
        """The numbers of the remaining rows among all."""
        every = np.arange(sum(fragment.rows for fragment in self._fragments), dtype=np.int64)
        return np.delete(every, self._dropped)

    def numbers_of(self, rows: np.ndarray) -> np.ndarray:
        """The numbers of rows among all, by their present positions."""
        # How many rows remain before the k-th dropped one.
        left_before = self._dropped - np.arange(len(self._dropped))
        return rows + np.searchsorted(left_before, rows, side="right")

    def data(self) -> Data:
        return self.rows_at(np.arange(self.num_rows))

    def rows_at(self, positions: np.ndarray) -> pa.RecordBatchReader:
        raise InternalError("rows in fragments are staged as fragments")

    def _projection(self, columns: Sequence[str]) -> pa.Schema:
        schema = self.entity_type.arrow_schema()
        return pa.schema([schema.field(name) for name in columns])

    def _batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return read_staged_fragments(self._target, self._fragments, columns)

    def source_lines(self, rows: Sequence[int]) -> list[int]:
        """The source lines of rows."""
        return self._locate(self.numbers_of(np.asarray(rows, dtype=np.int64)).tolist())

    def drop(self, rows: Sequence[int]) -> None:
        """Drop rows by their present positions; the others move up."""
        more = self.numbers_of(np.asarray(rows, dtype=np.int64))
        self._dropped = np.sort(np.concatenate([self._dropped, more]))
        self._final = None

    def splits(self, rows: int) -> list[RowsSplit]:
        """The remaining rows in splits of about ``rows`` rows, for other processes."""
        splits: list[RowsSplit] = []
        start = first = 0
        for group in in_groups(self._fragments, rows):
            count = sum(fragment.rows for fragment in group)
            low, high = np.searchsorted(self._dropped, [start, start + count])
            dropped = self._dropped[low:high] - start
            splits.append(RowsSplit(self._target, tuple(group), first, dropped))
            start, first = start + count, first + count - len(dropped)
        return splits

    def rows_of(self, positions: np.ndarray, columns: Sequence[str]) -> pa.Table:
        """Some columns of a few rows, by their positions; other fragments are not read."""
        numbers = self.numbers_of(positions)
        bounds = _bounds(self._fragments)
        homes = np.searchsorted([end for _, end in bounds], numbers, side="right")
        schema = self._projection(columns)
        batches: list[pa.RecordBatch] = []
        for home in np.unique(homes).tolist():
            inside = np.unique(numbers[homes == home]) - bounds[home][0]
            batches += _some(self._target, self._fragments[home], schema, inside)
        order = np.searchsorted(np.unique(numbers), numbers)
        return pa.Table.from_batches(batches, schema).take(pa.array(order))

    # -- staging -------------------------------------------------------------------------

    def stage(self, view: WriteView, table: Table, effect: Effect) -> StagedTable | None:
        """Stage the remaining rows."""
        if table.ref.path != self._target.path:
            raise SchemaChanging(
                f"'{self.entity_type.name}' got another table while its rows were written",
                hint="repeat the load under the new schema",
            )
        locator = view.locate_table(table)
        fragments = self._kept(locator)
        if effect is Effect.UPSERT:
            return self._stage_upsert(view, table, locator, fragments)
        if effect not in (Effect.APPEND, Effect.OVERWRITE):
            raise InternalError(f"fragments cannot {effect}")
        self._use(view, table, fragments)
        return view.stage.stage_fragments(table, fragments, replaces=effect is Effect.OVERWRITE)

    def _use(self, view: WriteView, table: Table, fragments: Sequence[StagedFragment]) -> None:
        """Check the files of fragments that are about to be staged, and mark them as staged."""
        view.require_fragment_files(table, fragments)
        self._ledger.stage(fragments)

    def _rewrite(
        self,
        locator: TableLocator,
        fragments: Sequence[StagedFragment],
        rows: Mapping[int, tuple[np.ndarray, ...]],
        label: str,
    ) -> dict[int, list[list[StagedFragment]]]:
        """Rewrite fragments by number: new ones for each array of row numbers."""
        schema = bytes(self.entity_type.arrow_schema().serialize())
        tasks = [
            _RewriteTask(schema, locator, self._target, fragments[number], arrays)
            for number, arrays in rows.items()
        ]
        done = self._executor.run(rewrite, tasks, label)
        self._ledger.write(self._target, (new for sides in done for side in sides for new in side))
        return dict(zip(rows, done, strict=True))

    def _kept(self, locator: TableLocator) -> tuple[StagedFragment, ...]:
        """The fragments without the dropped rows."""
        if self._final is None:
            by_number: dict[int, list[StagedFragment]] = {}
            rows: dict[int, tuple[np.ndarray, ...]] = {}
            for number, (start, end) in enumerate(_bounds(self._fragments)):
                low, high = np.searchsorted(self._dropped, [start, end])
                kept = np.delete(np.arange(end - start), self._dropped[low:high] - start)
                if len(kept) == end - start:
                    by_number[number] = [self._fragments[number]]
                elif len(kept):
                    rows[number] = (kept,)
            done = self._rewrite(locator, self._fragments, rows, "removing rejected rows")
            by_number |= {number: new for number, (new,) in done.items()}
            self._final = tuple(new for number in sorted(by_number) for new in by_number[number])
        return self._final

    def _stage_upsert(
        self,
        view: WriteView,
        table: Table,
        locator: TableLocator,
        fragments: tuple[StagedFragment, ...],
    ) -> StagedTable | None:
        row_ids = np.full(sum(fragment.rows for fragment in fragments), NEW, np.int64)
        deletions = []
        for positions, replaced_ids, deleted in self._replaced(locator, table, fragments):
            row_ids[positions] = replaced_ids
            deletions.append(deleted)
        replaced: list[tuple[StagedFragment, np.ndarray]] = []
        added: list[StagedFragment] = []
        mixed: dict[int, tuple[np.ndarray, ...]] = {}
        bounds = _bounds(fragments)
        for number, (start, end) in enumerate(bounds):
            existing = row_ids[start:end] != NEW
            if existing.all():
                replaced.append((fragments[number], row_ids[start:end]))
            elif not existing.any():
                added.append(fragments[number])
            else:
                mixed[number] = (np.flatnonzero(existing), np.flatnonzero(~existing))
        rewritten = self._rewrite(locator, fragments, mixed, "separating new rows")
        for number, (old, new) in rewritten.items():
            old_ids = row_ids[slice(*bounds[number])][mixed[number][0]]
            start = 0
            for fragment in old:
                replaced.append((fragment, old_ids[start : start + fragment.rows]))
                start += fragment.rows
            added += new
        self._use(view, table, [*(fragment for fragment, _ in replaced), *added])
        return view.stage.stage_upsert_fragments(table, Deletions.of(deletions), replaced, added)

    def _replaced(
        self, locator: TableLocator, table: Table, fragments: tuple[StagedFragment, ...]
    ) -> list[Replaced]:
        if self._replacer is not None:
            return self._replacer.replaced(locator, table, self)
        tasks = [
            _ReplaceTask(locator, numbers, self._target, fragments)
            for numbers in fragment_groups(table.fragments(), _ROWS_IN_SPLIT)
        ]
        return self._executor.run(replace, tasks, "finding replaced rows")


_ROWS_IN_SPLIT = 500_000


def _bounds(fragments: Sequence[StagedFragment]) -> list[tuple[int, int]]:
    """The range of row numbers of each fragment."""
    ends = np.cumsum([fragment.rows for fragment in fragments]).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same columns under the schema of their type."""
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


# -- in other processes ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowsSplit:
    """Some fragments of a load, and their dropped rows."""

    target: FragmentTarget
    fragments: tuple[StagedFragment, ...]
    first: int
    """The position of its first remaining row among those of the load."""
    dropped: np.ndarray
    """Numbers of the dropped rows inside the split, ascending."""


def read_rows(
    split: RowsSplit, columns: Sequence[str]
) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    """Some columns of the remaining rows of a split, with their positions."""
    start, first = 0, split.first
    names = list(dict.fromkeys(columns))
    for batch in read_staged_fragments(split.target, split.fragments, names):
        low, high = np.searchsorted(split.dropped, [start, start + batch.num_rows])
        start += batch.num_rows
        if high > low:
            inside = split.dropped[low:high] - (start - batch.num_rows)
            batch = batch.take(pa.array(np.delete(np.arange(batch.num_rows), inside)))
        yield np.arange(first, first + batch.num_rows), batch
        first += batch.num_rows


@dataclass(frozen=True, slots=True)
class _RewriteTask:
    """A fragment to be rewritten: one new fragment for each array of ``rows``."""

    schema: bytes
    locator: TableLocator
    target: FragmentTarget
    fragment: StagedFragment
    rows: tuple[np.ndarray, ...]


def rewrite(task: _RewriteTask) -> list[list[StagedFragment]]:
    """Write rows of a fragment to new fragments."""
    schema = pa.ipc.read_schema(pa.py_buffer(task.schema))
    if any(map(is_blob, schema)):
        whole = read_staged_fragment(task.locator, task.fragment, schema)
        return [
            write_staged_fragments(task.target, schema, [whole.take(pa.array(rows))])
            for rows in task.rows
        ]
    return [
        write_staged_fragments(
            task.target, schema, list(_some(task.target, task.fragment, schema, rows))
        )
        for rows in task.rows
    ]


def _some(
    target: FragmentTarget, fragment: StagedFragment, schema: pa.Schema, rows: np.ndarray
) -> Iterator[pa.RecordBatch]:
    start = 0
    for batch in read_staged_fragments(target, [fragment], schema.names):
        low, high = np.searchsorted(rows, [start, start + batch.num_rows])
        if high > low:
            kept = batch.take(pa.array(rows[low:high] - start))
            yield _plain(kept.select(schema.names), schema)
        start += batch.num_rows


@dataclass(frozen=True, slots=True)
class _ReplaceTask:
    """Some fragments of a table, and those whose rows may replace theirs."""

    locator: TableLocator
    numbers: tuple[int, ...]
    target: FragmentTarget
    fragments: tuple[StagedFragment, ...]


def replace(task: _ReplaceTask) -> Replaced:
    """Delete the replaced rows."""
    ids = _ids(task.target, task.fragments)
    return delete_keys(task.locator, task.numbers, KEY, ids)


@lru_cache(maxsize=1)
def _ids(target: Any, fragments: tuple[StagedFragment, ...]) -> pa.Array:
    """The ids of all rows; a process reads them once for all of its tasks."""
    batches = [batch.column(KEY) for batch in read_staged_fragments(target, fragments, [KEY])]
    return pa.concat_arrays(batches) if batches else pa.array([], pa.string())
