"""Reads of a table on S3 from memory: all of a small one, and of others what was written last.

Of a larger table, the rows that match a condition are read by the handle of an earlier version,
with its indexes, and completed by the fragments that this process has added since: a version that
it wrote need not be opened, which would take two requests in sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.fragment import FragmentMetadata

from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.storage.lance_format.addresses import parse_table_address
from omnigraph.storage.tables.conditions import columns_of
from omnigraph.storage.tables.failures import is_unsupported_filter, lance_call
from omnigraph.storage.tables.types import ROW_ADDRESS, ROW_ID, TableRef
from omnigraph.storage.tables.warm_rows import WarmRows, file_names, is_plain

if TYPE_CHECKING:
    pass


class WarmTable:
    """One version of a table, read from memory where that is possible."""

    def __init__(
        self,
        ref: TableRef,
        facts: LanceDataset,
        rows: WarmRows,
        open_table: Callable[[], LanceDataset],
        earlier: Callable[[], LanceDataset | None] = lambda: None,
    ) -> None:
        """``facts`` may be a handle without files; ``earlier`` finds that of an earlier version."""
        self._ref = ref
        self._facts = facts
        self._rows = rows
        self._open_table = open_table
        self._earlier = earlier
        self._fields = {field.name(): field.id() for field in facts.lance_schema.fields()}

    def read(
        self,
        columns: Sequence[str],
        *,
        row_ids: bool = False,
        fragments: Collection[int] | None = None,
        reads: bool = True,
    ) -> pa.Table | None:
        """Columns of all rows with ``_rowaddr``; ``None`` if the table is not small.

        Without ``reads``, all of it must be in memory.
        """
        if not self._are_plain(columns):
            return None
        wanted = [f for f in self._metadata(self._facts) if fragments is None or f.id in fragments]
        return self._read(wanted, columns, row_ids, self._open_table if reads else None)

    def matching(
        self, columns: Sequence[str], condition: pc.Expression, *, row_ids: bool = False
    ) -> pa.Table | None:
        """Columns of the rows that match a condition, with ``_rowaddr``."""
        names = list(dict.fromkeys((*columns, *columns_of(condition, self._facts.schema))))
        shown = [*columns, *([ROW_ID] if row_ids else []), ROW_ADDRESS]
        rows = self.read(names, row_ids=row_ids)
        if rows is not None:
            return rows.filter(condition).select(shown)
        earlier = self._earlier()
        if earlier is None or not self._are_plain(names):
            return None
        return self._completed(earlier, names, shown, condition, row_ids)

    def deleted_rows(self, fragment: FragmentMetadata) -> np.ndarray | None:
        """The offsets of deleted rows; ``None`` where only Lance can read them."""
        return self._rows.deletions(fragment, self._folder_of)

    def _completed(
        self,
        earlier: LanceDataset,
        names: Sequence[str],
        shown: Sequence[str],
        condition: pc.Expression,
        row_ids: bool,
    ) -> pa.Table | None:
        """The matches of an earlier version that are still there, and those added since."""
        now = {fragment.id: fragment for fragment in self._metadata(self._facts)}
        before = {fragment.id: fragment for fragment in self._metadata(earlier)}
        kept = {
            number
            for number, fragment in now.items()
            if number in before and file_names(before[number]) == file_names(fragment)
        }
        added = [fragment for number, fragment in now.items() if number not in kept]
        new = self._read(added, names, row_ids, None) if added else None
        if added and new is None:
            return None
        with lance_call("read", self._ref.path):
            try:
                old = earlier.scanner(
                    columns=list(names),
                    filter=condition,
                    with_row_id=row_ids,
                    with_row_address=True,
                ).to_table()
            except (ValueError, pa.ArrowInvalid) as error:
                if not is_unsupported_filter(error):
                    raise
                return None
        addresses = numpy_view(old[ROW_ADDRESS])
        homes = addresses >> np.uint64(32)
        stays = np.isin(homes, np.array(sorted(kept), np.uint64))
        for number in sorted(kept & set(homes.tolist())):
            if now[number].deletion_file == before[number].deletion_file:
                continue
            gone = self.deleted_rows(now[number])
            if gone is None:
                return None
            offsets = (addresses & np.uint64(0xFFFFFFFF)).astype(np.uint32)
            stays &= ~((homes == np.uint64(number)) & np.isin(offsets, gone))
        matches = [_bare(old.filter(pa.array(stays)), shown)]
        if new is not None:
            matches.append(_bare(new.filter(condition), shown))
        return pa.concat_tables(matches)

    def _read(
        self,
        fragments: Sequence[FragmentMetadata],
        columns: Sequence[str],
        row_ids: bool,
        open_table: Callable[[], LanceDataset] | None,
    ) -> pa.Table | None:
        fields = {name: self._fields[name] for name in columns}
        return self._rows.read(
            self._ref, fragments, fields, self._folder_of, open_table, row_ids=row_ids
        )

    def _are_plain(self, columns: Sequence[str]) -> bool:
        schema = self._facts.schema
        return all(name in self._fields and is_plain(schema.field(name).type) for name in columns)

    def _metadata(self, dataset: LanceDataset) -> list[FragmentMetadata]:
        with lance_call("read", self._ref.path):
            return [fragment.metadata for fragment in dataset.get_fragments()]

    def _folder_of(self, base: int | None) -> str:
        """The copy of the table that holds a file: a fork refers to files of its parent."""
        if base is None:
            return self._ref.path
        address = self._facts.base_paths()[base].path
        return parse_table_address(address, self._ref.location)[1]


def _bare(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Columns without the metadata of their schema."""
    return pa.table([rows[name] for name in columns], list(columns))
