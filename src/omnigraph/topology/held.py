"""A version of a table in memory: part by part, and of each part only the columns asked for.

Parts that did not change between two versions, or between a branch and its parent, are shared by
what is held of both; a commit that adds rows costs the reading of those rows.
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
from omnigraph.topology.ids import Ids, Numbers

if TYPE_CHECKING:
    from omnigraph.storage.tables.table import FragmentInfo, Table

RowIds = npt.NDArray[np.int64]


class Part:
    """What is held of one part of a table."""

    __slots__ = ("columns", "numbers", "row_ids", "signature")

    def __init__(self, signature: str) -> None:
        self.signature = signature
        self.row_ids: RowIds | None = None
        self.columns: dict[str, pa.Array] = {}
        self.numbers: dict[str, Numbers] = {}


class Codes(NamedTuple):
    """Equal values have equal codes. ``null`` is the code of null, -1 when there is none."""

    codes: Numbers
    size: int
    null: int


class HeldTable:
    """One version of a table. Safe to share between threads.

    Rows have positions: the order of a scan, from 0.
    """

    def __init__(self, table: Table, before: HeldTable | None = None) -> None:
        self.table = table
        self.fragments: tuple[FragmentInfo, ...] = table.fragments()
        known: dict[str, Part] = {}
        # Under another schema a column may have the name that another had.
        if before is not None and before.table.layout == table.layout:
            known = {part.signature: part for part in before.parts}
        self.parts: tuple[Part, ...] = tuple(
            known.get(f.signature) or Part(f.signature) for f in self.fragments
        )
        self.rows = sum(fragment.rows for fragment in self.fragments)
        # Versions that share parts share the lock of them.
        self._lock: threading.RLock = threading.RLock() if before is None else before._lock
        self._columns: dict[str, pa.Array] = {}
        self._numbers: dict[str, Numbers] = {}
        self._codes: dict[str, Codes] = {}
        self._row_ids: RowIds | None = None
        self._row_order: RowIds | None = None

    # -- what is there -------------------------------------------------------------------

    def has(self, column: str) -> bool:
        """Whether a column is in memory."""
        return column in self._columns

    def nbytes(self) -> int:
        """How much memory is taken; shared parts are counted for each who shares them."""
        # Lists of them: a query in another thread may add one meanwhile.
        held: int = sum(column.nbytes for column in list(self._columns.values()))
        held += sum(numbers.nbytes for numbers in list(self._numbers.values()))
        held += sum(codes.codes.nbytes for codes in list(self._codes.values()))
        return held + (0 if self._row_ids is None else self._row_ids.nbytes)

    def drop_columns(self) -> None:
        """Let the columns go; they are read again when they are asked for."""
        with self._lock:
            for part in self.parts:
                part.columns.clear()
            self._columns.clear()
            self._codes.clear()

    # -- reading -------------------------------------------------------------------------

    def row_ids(self) -> RowIds:
        """The stable row id at each position."""
        if self._row_ids is None:
            with self._lock:
                self._load(lambda part: part.row_ids is None, ())
                arrays = [part.row_ids for part in self.parts if part.row_ids is not None]
                self._row_ids = np.concatenate([np.empty(0, np.int64), *arrays])
        return self._row_ids

    def positions(self, row_ids: npt.NDArray[np.integer]) -> RowIds:
        """The positions of rows; all of them must be there."""
        rows = self.row_ids()
        if self._row_order is None:
            self._row_order = np.argsort(rows, kind="stable")
        places = np.searchsorted(rows, row_ids.astype(np.int64), sorter=self._row_order)
        found: RowIds = self._row_order[places]
        return found

    def column(self, name: str) -> pa.Array:
        """The values of a column by position."""
        found = self._columns.get(name)
        if found is None:
            with self._lock:
                found = self._columns.get(name)
                if found is None:
                    found = self._columns[name] = self._combined(name)
        return found

    def _combined(self, name: str) -> pa.Array:
        self._load(lambda part: name not in part.columns, (name,))
        empty = pa.array([], self.table.schema.field(name).type)
        whole = pa.concat_arrays([empty, *(part.columns[name] for part in self.parts)])
        self._share(whole, name)
        return whole

    def _share(self, whole: pa.Array, name: str) -> None:
        """Let the parts be pieces of the whole, so that nothing is in memory twice."""
        start = 0
        for part, fragment in zip(self.parts, self.fragments, strict=True):
            part.columns[name] = whole.slice(start, fragment.rows)
            start += fragment.rows

    def codes(self, name: str) -> Codes:
        """The different values of a column as small numbers, by position; null has one too."""
        found = self._codes.get(name)
        if found is None:
            column = self.column(name)
            encoded = pc.dictionary_encode(column, null_encoding="encode")
            null = pc.index_in(pa.scalar(None, column.type), value_set=encoded.dictionary).as_py()
            found = Codes(
                encoded.indices.to_numpy(zero_copy_only=False),
                len(encoded.dictionary),
                -1 if null is None else null,
            )
            self._codes[name] = found
        return found

    def numbers(self, name: str, ids: Ids) -> Numbers:
        """The numbers of a column of ids by position."""
        found = self._numbers.get(name)
        if found is None:
            with self._lock:
                found = self._numbers.get(name)
                if found is None:
                    found = self._numbers[name] = self._numbered(name, ids)
        return found

    def _numbered(self, name: str, ids: Ids) -> Numbers:
        missing = [part for part in self.parts if name not in part.numbers]
        if missing:
            self._load(lambda part: part in missing and name not in part.columns, (name,))
            texts = pa.concat_arrays([part.columns[name] for part in missing])
            numbers = ids.numbers(texts)
            start = 0
            for part in missing:
                end = start + len(part.columns[name])
                part.numbers[name] = numbers[start:end]
                start = end
                if name not in self._columns:
                    # The text can be had from its number.
                    del part.columns[name]
        arrays = [part.numbers[name] for part in self.parts]
        return np.concatenate([np.empty(0, np.int32), *arrays])

    def _load(self, lacks: Callable[[Part], bool], columns: Sequence[str]) -> None:
        pairs = zip(self.fragments, self.parts, strict=True)
        missing = {fragment.number: part for fragment, part in pairs if lacks(part)}
        if not missing:
            return
        for number, rows in self.table.read_fragments(list(missing), columns).items():
            part = missing[number]
            for name in columns:
                part.columns[name] = one_array(rows[name])
            part.row_ids = one_array(rows["_rowid"]).to_numpy().view(np.int64)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    try:
        return pa.concat_arrays(column.chunks) if column.num_chunks else column.combine_chunks()
    except pa.ArrowInvalid:
        raise MemoryExceeded(
            "the values of a column are more than 2 GiB at once",
            hint="filter earlier, or return fewer rows at a time",
        ) from None
