"""Rows of a delta that lie beside their table already, written by many processes.

They are judged like any others, by the columns that a rule needs. What is left of them is staged
where it lies; a part is written again only when rows of it were set aside, or when some of them
replace others and some are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from omnigraph.commit.write_request import WriteView
from omnigraph.errors import InternalError, OmniGraphError
from omnigraph.storage.tables.blobs import is_blob
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.fragments import (
    Deletions,
    FragmentTarget,
    StagedFragment,
    TableLocator,
    delete_keys,
    discard_fragments,
    read_staged_fragments,
    write_staged_fragments,
)
from omnigraph.storage.tables.inline import read_staged_fragment
from omnigraph.storage.tables.store import KEY, Data
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import StagedTable
from omnigraph.storage.tables.upserts import NEW
from omnigraph.write.delta import Effect, Kind

A = TypeVar("A")
R = TypeVar("R")


class _HasRows(Protocol):
    @property
    def rows(self) -> int: ...


P = TypeVar("P", bound=_HasRows)


class Runner(Protocol):
    """Whoever has a function run on many shares; the results come in their order."""

    def __call__(self, work: Callable[[A], R], shares: Sequence[A], label: str) -> list[R]: ...


Replaced: TypeAlias = tuple[np.ndarray, np.ndarray, Deletions]
"""Positions of rows that replace others, the ids of those, and how they were marked as deleted."""


class Replacer(Protocol):
    """Whoever finds what is replaced where nobody can hold the ids."""

    def replaced(self, where: TableLocator, table: Table, rows: FragmentRows) -> list[Replaced]: ...


Locate = Callable[[Sequence[int]], list[int]]
"""Where rows came from, by their numbers among all that were written."""


class FragmentLedger:
    """All parts that were written for one write, and which of them some staged write names."""

    def __init__(self) -> None:
        self._written: list[tuple[FragmentTarget, StagedFragment]] = []
        self._staged: set[str] = set()

    def write(self, place: FragmentTarget, parts: Iterable[StagedFragment]) -> None:
        self._written += [(place, part) for part in parts]

    def stage(self, parts: Iterable[StagedFragment]) -> None:
        """From now on these may be part of a version."""
        self._staged.update(part.fragment for part in parts)

    def discard_unstaged(self, datasets: Datasets) -> None:
        """Remove what no version can name: refused, repeated, tried, or written again."""
        with suppress(OmniGraphError):
            for place, part in self._written:
                if part.fragment not in self._staged:
                    discard_fragments(datasets, place, [part])


class FragmentRows:
    """The rows of one type, in the order in which they came."""

    is_large = True
    is_judged = True

    def __init__(
        self,
        kind: Kind,
        place: FragmentTarget,
        parts: Sequence[StagedFragment],
        run: Runner,
        locate: Locate,
        ledger: FragmentLedger,
        replacer: Replacer | None = None,
    ) -> None:
        self.kind = kind
        self._place = place
        self._parts = tuple(parts)
        self._run = run
        self._locate = locate
        self._ledger = ledger
        self._replacer = replacer
        self._dropped = np.empty(0, np.int64)
        """The rows that were set aside, by their numbers among all, which ascend."""
        self._final: tuple[StagedFragment, ...] | None = self._parts

    # -- reading -------------------------------------------------------------------------

    @property
    def num_rows(self) -> int:
        return sum(part.rows for part in self._parts) - len(self._dropped)

    @property
    def names(self) -> Sequence[str]:
        return list(self.kind.arrow_schema().names)

    def select(self, columns: Sequence[str]) -> pa.Table:
        known = self.kind.arrow_schema()
        schema = pa.schema([known.field(name) for name in columns])
        batches = (batch.select(list(columns)) for batch in self._batches(columns))
        rows = pa.Table.from_batches((_plain(batch, schema) for batch in batches), schema)
        return rows.take(pa.array(self._numbers())) if len(self._dropped) else rows

    def _numbers(self) -> np.ndarray:
        """The rows that are left, by their numbers among all."""
        every = np.arange(sum(part.rows for part in self._parts), dtype=np.int64)
        return np.delete(every, self._dropped)

    def numbers_of(self, rows: np.ndarray) -> np.ndarray:
        """What number rows have among all, by their present positions."""
        # Before the k-th dropped row, so many rows are left.
        left_before = self._dropped - np.arange(len(self._dropped))
        return rows + np.searchsorted(left_before, rows, side="right")

    def data(self) -> Data:
        return self.rows_at(np.arange(self.num_rows))

    def rows_at(self, positions: np.ndarray) -> pa.RecordBatchReader:
        raise InternalError("rows that lie beside their table are staged where they lie")

    def _batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return read_staged_fragments(self._place, self._parts, columns)

    def places(self, rows: Sequence[int]) -> list[int]:
        """Where rows came from."""
        return self._locate(self.numbers_of(np.asarray(rows, dtype=np.int64)).tolist())

    def drop(self, rows: Sequence[int]) -> None:
        """Forget rows by their present positions; the others move up."""
        more = self.numbers_of(np.asarray(rows, dtype=np.int64))
        self._dropped = np.sort(np.concatenate([self._dropped, more]))
        self._final = None

    def shares(self, rows: int) -> list[RowsSplit]:
        """What is left, in shares of about so many rows for other processes."""
        found: list[RowsSplit] = []
        start = first = 0
        for group in in_groups(self._parts, rows):
            count = sum(part.rows for part in group)
            low, high = np.searchsorted(self._dropped, [start, start + count])
            dropped = self._dropped[low:high] - start
            found.append(RowsSplit(self._place, tuple(group), first, dropped))
            start, first = start + count, first + count - len(dropped)
        return found

    def rows_of(self, positions: np.ndarray, columns: Sequence[str]) -> pa.Table:
        """Some columns of a few rows, by their positions; other parts are not read."""
        numbers = self.numbers_of(positions)
        bounds = _bounds(self._parts)
        homes = np.searchsorted([end for _, end in bounds], numbers, side="right")
        known = self.kind.arrow_schema()
        schema = pa.schema([known.field(name) for name in columns])
        found = []
        for home in np.unique(homes).tolist():
            start, rows = bounds[home][0], np.unique(numbers[homes == home])
            inside = rows - start
            for batch in _some(self._place, self._parts[home], schema, inside):
                found.append(batch)
        order = np.searchsorted(np.unique(numbers), numbers)
        return pa.Table.from_batches(found, schema).take(pa.array(order))

    # -- staging -------------------------------------------------------------------------

    def stage(self, view: WriteView, table: Table, effect: Effect) -> StagedTable | None:
        """Make a staged write of what is left."""
        if table.ref.path != self._place.path:
            raise InternalError(f"rows for '{self._place.path}' meet '{table.ref.path}'")
        where = view.locate_table(table)
        parts = self._kept(where)
        if effect is Effect.UPSERT:
            return self._stage_upsert(view, table, where, parts)
        if effect not in (Effect.APPEND, Effect.OVERWRITE):
            raise InternalError(f"parts cannot {effect}")
        self._use(view, table, parts)
        return view.stage.stage_fragments(table, parts, replaces=effect is Effect.OVERWRITE)

    def _use(self, view: WriteView, table: Table, parts: Sequence[StagedFragment]) -> None:
        """Make sure of the parts that a staged write will name, and keep them from now on."""
        view.require_fragment_files(table, parts)
        self._ledger.stage(parts)

    def _rewritten(
        self, shares: Sequence[_RewriteTask], label: str
    ) -> list[list[list[StagedFragment]]]:
        done = self._run(rewrite, shares, label)
        self._ledger.write(self._place, (part for sides in done for side in sides for part in side))
        return done

    def _kept(self, where: TableLocator) -> tuple[StagedFragment, ...]:
        """The parts without the rows that were dropped."""
        if self._final is None:
            shares, untouched = [], {}
            for number, (start, end) in enumerate(_bounds(self._parts)):
                low, high = np.searchsorted(self._dropped, [start, end])
                kept = np.delete(np.arange(end - start), self._dropped[low:high] - start)
                if len(kept) == end - start:
                    untouched[number] = (self._parts[number],)
                elif len(kept):
                    part = self._parts[number]
                    shares.append(
                        _RewriteTask(number, self._schema(), where, self._place, part, (kept,))
                    )
            done = self._rewritten(shares, "leaving out what was refused")
            again = {share.number: parts for share, (parts,) in zip(shares, done, strict=True)}
            order = sorted({**untouched, **again})
            found = {**untouched, **again}
            self._final = tuple(part for number in order for part in found[number])
        return self._final

    def _stage_upsert(
        self, view: WriteView, table: Table, where: TableLocator, parts: tuple[StagedFragment, ...]
    ) -> StagedTable | None:
        row_ids = np.full(sum(part.rows for part in parts), NEW, np.int64)
        deletions = []
        for positions, found, deleted in self._replaced(where, table, parts):
            row_ids[positions] = found
            deletions.append(deleted)
        replaced: list[tuple[StagedFragment, np.ndarray]] = []
        added: list[StagedFragment] = []
        mixed: list[_RewriteTask] = []
        for number, (start, end) in enumerate(_bounds(parts)):
            known = row_ids[start:end] != NEW
            if known.all():
                replaced.append((parts[number], row_ids[start:end]))
            elif not known.any():
                added.append(parts[number])
            else:
                sides = (np.flatnonzero(known), np.flatnonzero(~known))
                mixed.append(
                    _RewriteTask(number, self._schema(), where, self._place, parts[number], sides)
                )
        bounds = _bounds(parts)
        for share, (old, new) in zip(
            mixed, self._rewritten(mixed, "parting new rows from others"), strict=True
        ):
            mine = row_ids[slice(*bounds[share.number])][share.rows[0]]
            start = 0
            for part in old:
                replaced.append((part, mine[start : start + part.rows]))
                start += part.rows
            added += new
        self._use(view, table, [*(part for part, _ in replaced), *added])
        return view.stage.stage_upsert_fragments(table, Deletions.of(deletions), replaced, added)

    def _replaced(
        self, where: TableLocator, table: Table, parts: tuple[StagedFragment, ...]
    ) -> list[Replaced]:
        if self._replacer is not None:
            return self._replacer.replaced(where, table, self)
        shares = [
            _ReplaceTask(where, tuple(numbers), self._place, parts)
            for numbers in even(table, _ROWS_IN_SHARE)
        ]
        return self._run(replace, shares, "finding what is replaced")

    def _schema(self) -> bytes:
        return bytes(self.kind.arrow_schema().serialize())


_ROWS_IN_SHARE = 500_000


def _bounds(parts: Sequence[StagedFragment]) -> list[tuple[int, int]]:
    """Where the rows of each part begin and end among all."""
    ends = np.cumsum([part.rows for part in parts]).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def even(table: Table, rows: int) -> Iterator[list[int]]:
    """The fragments of a table in groups of about so many rows."""
    for group in in_groups(table.fragments(), rows):
        yield [fragment.number for fragment in group]


def in_groups(pieces: Iterable[P], rows: int) -> Iterator[list[P]]:
    """Pieces in their order, in groups of about so many rows."""
    group: list[P] = []
    count = 0
    for piece in pieces:
        group.append(piece)
        count += piece.rows
        if count >= rows:
            yield group
            group, count = [], 0
    if group:
        yield group


def _plain(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same columns under the schema of their type."""
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


# -- in other processes ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowsSplit:
    """Some parts of a write, and what was set aside of them."""

    place: FragmentTarget
    parts: tuple[StagedFragment, ...]
    first: int
    """The position of its first row among those that are left of the write."""
    dropped: np.ndarray
    """Numbers of rows among all of the share, which ascend."""


def read_rows(
    share: RowsSplit, columns: Sequence[str]
) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    """Some columns of the rows of a share that are left, with their positions."""
    start, first = 0, share.first
    names = list(dict.fromkeys(columns))
    for batch in read_staged_fragments(share.place, share.parts, names):
        low, high = np.searchsorted(share.dropped, [start, start + batch.num_rows])
        start += batch.num_rows
        if high > low:
            inside = share.dropped[low:high] - (start - batch.num_rows)
            batch = batch.take(pa.array(np.delete(np.arange(batch.num_rows), inside)))
        yield np.arange(first, first + batch.num_rows), batch
        first += batch.num_rows


@dataclass(frozen=True, slots=True)
class _RewriteTask:
    """A part of which some rows go into one new part, others into another or nowhere."""

    number: int
    schema: bytes
    where: TableLocator
    place: FragmentTarget
    part: StagedFragment
    rows: tuple[np.ndarray, ...]


def rewrite(share: _RewriteTask) -> list[list[StagedFragment]]:
    """Write rows of a part again, apart from each other."""
    schema = pa.ipc.read_schema(pa.py_buffer(share.schema))
    if any(map(is_blob, schema)):
        whole = read_staged_fragment(share.where, share.part, schema)
        return [
            write_staged_fragments(share.place, schema, [whole.take(pa.array(rows))])
            for rows in share.rows
        ]
    return [
        write_staged_fragments(
            share.place, schema, list(_some(share.place, share.part, schema, rows))
        )
        for rows in share.rows
    ]


def _some(
    place: FragmentTarget, part: StagedFragment, schema: pa.Schema, rows: np.ndarray
) -> Iterator[pa.RecordBatch]:
    start = 0
    for batch in read_staged_fragments(place, [part], schema.names):
        low, high = np.searchsorted(rows, [start, start + batch.num_rows])
        if high > low:
            kept = batch.take(pa.array(rows[low:high] - start))
            yield _plain(kept.select(schema.names), schema)
        start += batch.num_rows


@dataclass(frozen=True, slots=True)
class _ReplaceTask:
    """Some fragments of a table, and the rows that may replace theirs."""

    where: TableLocator
    fragments: tuple[int, ...]
    place: FragmentTarget
    parts: tuple[StagedFragment, ...]


def replace(share: _ReplaceTask) -> Replaced:
    """Mark what is replaced as deleted."""
    ids = _ids(share.place, share.parts)
    return delete_keys(share.where, share.fragments, KEY, ids)


@lru_cache(maxsize=1)
def _ids(place: Any, parts: tuple[StagedFragment, ...]) -> pa.Array:
    """The ids of all rows; a process that gets several shares reads them once."""
    batches = [batch.column(KEY) for batch in read_staged_fragments(place, parts, [KEY])]
    return pa.concat_arrays(batches) if batches else pa.array([], pa.string())
