"""Caches one version of a table in memory, by fragment, and only the columns in use.

Versions and branches that have a fragment in common share its entry, so after a commit that adds
rows only those rows are read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import MemoryExceeded
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.topology.measures import Measures

if TYPE_CHECKING:
    from omnigraph.storage.tables.table import FragmentInfo, Table
    from omnigraph.topology.nodes import Ids, Numbers

RowIds = npt.NDArray[np.int64]


class FragmentCache:
    """The cached columns of one fragment."""

    __slots__ = ("columns", "numbers", "row_ids", "signature")

    def __init__(self, signature: str) -> None:
        self.signature = signature
        self.row_ids: RowIds | None = None
        self.columns: dict[str, pa.Array] = {}
        self.numbers: dict[str, Numbers] = {}


class Codes(NamedTuple):
    """Equal values have equal codes. ``null`` is the code of null, -1 if there is no null."""

    codes: Numbers
    size: int
    null: int
    values: pa.Array
    """The value of each code."""

    def code_of(self, value: pa.Scalar) -> int:
        """The code of a value; -1 if no row has it."""
        code: int = pc.index(self.values, value).as_py()
        return code


class TableCache:
    """One version of a table. Safe to share between threads.

    Rows have positions: the order of a scan, from 0.
    """

    def __init__(
        self, table: Table, before: TableCache | None = None, measures: Measures | None = None
    ) -> None:
        self.table = table
        self.fragments: tuple[FragmentInfo, ...] = table.fragments()
        shared: dict[str, FragmentCache] = {}
        self.measures = measures if measures is not None and before is None else Measures()
        # In another schema the same name may belong to another column.
        if before is not None and before.table.layout == table.layout:
            shared = {entry.signature: entry for entry in before.entries}
            self.measures = before.measures
        self.entries: tuple[FragmentCache, ...] = tuple(
            shared.get(f.signature) or FragmentCache(f.signature) for f in self.fragments
        )
        self.rows = sum(fragment.rows for fragment in self.fragments)
        # Versions that share entries share their lock.
        self._lock: threading.RLock = threading.RLock() if before is None else before._lock
        self._columns: dict[str, pa.Array] = {}
        self._numbers: dict[str, Numbers] = {}
        self._codes: dict[str, Codes] = {}
        self._row_ids: RowIds | None = None
        self._row_order: RowIds | None = None

    def rows_by_fragment(self) -> dict[str, int]:
        """The number of rows of each fragment, by its signature."""
        return {fragment.signature: fragment.rows for fragment in self.fragments}

    def has(self, column: str) -> bool:
        """Whether a column is in memory."""
        return column in self._columns

    def nbytes(self) -> int:
        """The memory in use, in bytes; every version counts the entries that it shares."""
        # Copies: a query in another thread may add one meanwhile.
        size: int = sum(column.nbytes for column in list(self._columns.values()))
        size += sum(numbers.nbytes for numbers in list(self._numbers.values()))
        size += sum(codes.codes.nbytes for codes in list(self._codes.values()))
        return size + (0 if self._row_ids is None else self._row_ids.nbytes)

    def drop_columns(self) -> None:
        """Free the columns; they are read again on the next use."""
        with self._lock:
            for entry in self.entries:
                entry.columns.clear()
            self._columns.clear()
            self._codes.clear()

    # -- reading -------------------------------------------------------------------------

    def row_ids(self) -> RowIds:
        """The stable row id at each position."""
        if self._row_ids is None:
            with self._lock:
                self._load(lambda entry: entry.row_ids is None, ())
                arrays = [entry.row_ids for entry in self.entries if entry.row_ids is not None]
                self._row_ids = np.concatenate([np.empty(0, np.int64), *arrays])
        return self._row_ids

    def positions(self, row_ids: npt.NDArray[np.integer]) -> RowIds:
        """The positions of rows; all rows must exist."""
        rows = self.row_ids()
        if self._row_order is None:
            self._row_order = np.argsort(rows, kind="stable")
        ranks = np.searchsorted(rows, row_ids.astype(np.int64), sorter=self._row_order)
        positions: RowIds = self._row_order[ranks]
        return positions

    def column(self, name: str) -> pa.Array:
        """The values of a column by position."""
        column = self._columns.get(name)
        if column is None:
            with self._lock:
                column = self._columns.get(name)
                if column is None:
                    column = self._columns[name] = self._read_column(name)
        return column

    def _read_column(self, name: str) -> pa.Array:
        self._load(lambda entry: name not in entry.columns, (name,))
        empty = pa.array([], self.table.schema.field(name).type)
        whole = pa.concat_arrays([empty, *(entry.columns[name] for entry in self.entries)])
        # The entries become slices of the whole column, so that nothing is in memory twice.
        start = 0
        for entry, fragment in zip(self.entries, self.fragments, strict=True):
            entry.columns[name] = whole.slice(start, fragment.rows)
            start += fragment.rows
        self.measures.note_column(name, whole, self.rows_by_fragment())
        return whole

    def codes(self, name: str) -> Codes:
        """The dictionary codes of a column by position; null has a code too."""
        codes = self._codes.get(name)
        if codes is None:
            column = self.column(name)
            encoded = pc.dictionary_encode(column, null_encoding="encode")
            null = pc.index_in(pa.scalar(None, column.type), value_set=encoded.dictionary).as_py()
            codes = Codes(
                numpy_view(encoded.indices),
                len(encoded.dictionary),
                -1 if null is None else null,
                encoded.dictionary,
            )
            self._codes[name] = codes
        return codes

    def numbers(self, name: str, ids: Ids) -> Numbers:
        """The numbers of a column of ids by position."""
        numbers = self._numbers.get(name)
        if numbers is None:
            with self._lock:
                numbers = self._numbers.get(name)
                if numbers is None:
                    numbers = self._numbers[name] = self._read_numbers(name, ids)
        return numbers

    def _read_numbers(self, name: str, ids: Ids) -> Numbers:
        missing = [entry for entry in self.entries if name not in entry.numbers]
        if missing:
            self._load(lambda entry: entry in missing and name not in entry.columns, (name,))
            texts = pa.concat_arrays([entry.columns[name] for entry in missing])
            numbers = ids.numbers(texts)
            start = 0
            for entry in missing:
                end = start + len(entry.columns[name])
                entry.numbers[name] = numbers[start:end]
                start = end
                if name not in self._columns:
                    # The numbering already has the texts.
                    del entry.columns[name]
        arrays = [entry.numbers[name] for entry in self.entries]
        return np.concatenate([np.empty(0, np.int32), *arrays])

    def _load(self, lacks: Callable[[FragmentCache], bool], columns: Sequence[str]) -> None:
        pairs = zip(self.fragments, self.entries, strict=True)
        missing = {fragment.number: entry for fragment, entry in pairs if lacks(entry)}
        if not missing:
            return
        for number, rows in self.table.read_fragments(list(missing), columns).items():
            entry = missing[number]
            for name in columns:
                entry.columns[name] = one_array(rows[name])
            entry.row_ids = numpy_view(one_array(rows["_rowid"])).view(np.int64)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    try:
        return pa.concat_arrays(column.chunks) if column.num_chunks else column.combine_chunks()
    except pa.ArrowInvalid:
        raise MemoryExceeded(
            "the values of a column are more than 2 GiB at once",
            hint="filter earlier, or return fewer rows at a time",
        ) from None
