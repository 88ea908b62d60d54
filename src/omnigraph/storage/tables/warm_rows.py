"""The columns of small tables on S3 in memory, by data file.

Lance reads the pages of a column from the store for every scan. A write asks small tables the same
few questions each time: is this key there, which edges has this node, where are these rows. Data
files never change, so their columns are kept here, within a limit in bytes: those that this process
wrote, and those that a scan read. Deleted rows are left out by the deletion files, which never
change either. What is missing is read by Lance.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata, RowIdSequence

from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.storage.tables.deletion_files import DELETIONS_SUFFIX, is_array, read_deletions
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.types import ROW_ADDRESS, ROW_ID

if TYPE_CHECKING:
    from lance import LanceDataset

    from omnigraph.storage.objects.store import ObjectStore
    from omnigraph.storage.tables.types import TableRef

MOST_ROWS = 20_000
"""Tables with more rows are read by Lance, with its indexes."""
_MOST_BYTES = 32 << 20
_MOST_DELETIONS = 1_024
_MOST_CHUNKS = 32
FolderOf = Callable[[int | None], str]
"""The copy of a table that holds a file, by the base id of the file."""


class _File:
    """The columns of one data file, by field id, for the rows at some offsets."""

    __slots__ = ("columns", "nbytes", "offsets")

    def __init__(self, offsets: np.ndarray) -> None:
        self.offsets = offsets
        self.columns: dict[int, pa.Array] = {}
        self.nbytes = 0

    def add(self, field: int, column: pa.Array) -> None:
        self.columns[field] = column
        self.nbytes += column.nbytes

    def has(self, fields: Mapping[str, int]) -> bool:
        return all(field in self.columns for field in fields.values())


class _Assembled(NamedTuple):
    """The rows of some fragments in a row: the next version of a table often adds to them."""

    states: tuple[Any, ...]
    rows: pa.Table


class WarmRows:
    """The columns of the small tables of one graph. Thread-safe."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._nbytes = 0
        self._deletions: OrderedDict[str, np.ndarray] = OrderedDict()
        self._assembled: OrderedDict[Any, _Assembled] = OrderedDict()

    # -- what this process wrote ---------------------------------------------------------

    def note_rows(
        self,
        fragment: FragmentMetadata,
        fields: Mapping[str, int],
        schema: pa.Schema,
        rows: pa.Table,
    ) -> None:
        """Keep the rows of a data file that was just written, in its order."""
        file = _File(np.arange(rows.num_rows, dtype=np.uint32))
        for name in rows.column_names:
            type_ = rows.schema.field(name).type
            if name in fields and is_plain(type_) and schema.field(name).type == type_:
                file.add(fields[name], _one(rows[name]))
        self._keep(file_names(fragment), file)

    def note_deletions(self, path: str, offsets: np.ndarray) -> None:
        """Keep the content of a deletion file."""
        with self._lock:
            self._deletions[path] = offsets
            while len(self._deletions) > _MOST_DELETIONS:
                self._deletions.popitem(last=False)

    def note_deletion_files(self, files: Mapping[str, bytes]) -> None:
        """Keep the content of the deletion files among new files."""
        for path, data in files.items():
            if path.endswith(DELETIONS_SUFFIX):
                self.note_deletions(path, read_deletions(data, path))

    # -- reading -------------------------------------------------------------------------

    def read(
        self,
        ref: TableRef,
        fragments: Sequence[FragmentMetadata],
        fields: Mapping[str, int],
        folder_of: FolderOf,
        open_table: Callable[[], LanceDataset] | None,
        *,
        row_ids: bool = False,
    ) -> pa.Table | None:
        """Columns of all rows, with ``_rowaddr`` and perhaps ``_rowid``; ``None`` if not small.

        ``fields`` has the ids of the columns. ``open_table`` is called if something is missing;
        without it, ``None`` is returned then.
        """
        if not _are_small(fragments) or not fragments:
            return None
        if open_table is None:
            return self._assemble(ref, fragments, fields, folder_of, None, row_ids)
        key, states = (ref.path, tuple(fields.items()), row_ids), tuple(map(_state, fragments))
        with self._lock:
            before = self._assembled.get(key)
        if before is not None and states[: len(before.states)] != before.states:
            before = None
        pieces = [] if before is None else [before.rows]
        added = fragments if before is None else fragments[len(before.states) :]
        if added:
            rows = self._assemble(ref, added, fields, folder_of, open_table, row_ids)
            if rows is None:
                return None
            pieces.append(rows)
        whole = pa.concat_tables(pieces)
        if whole[ROW_ADDRESS].num_chunks > _MOST_CHUNKS:
            whole = whole.combine_chunks()
        with self._lock:
            self._assembled[key] = _Assembled(states, whole)
            self._assembled.move_to_end(key)
            while self._assembled and self.assembled_bytes > _MOST_BYTES:
                self._assembled.popitem(last=False)
        return whole

    @property
    def nbytes(self) -> int:
        """The size of the columns in memory, without assembled rows."""
        return self._nbytes

    @property
    def assembled_bytes(self) -> int:
        return sum(assembled.rows.nbytes for assembled in self._assembled.values())

    def _assemble(
        self,
        ref: TableRef,
        fragments: Sequence[FragmentMetadata],
        fields: Mapping[str, int],
        folder_of: FolderOf,
        open_table: Callable[[], LanceDataset] | None,
        row_ids: bool,
    ) -> pa.Table | None:
        """See ``read``; fragment by fragment."""
        deleted = []
        for fragment in fragments:
            offsets = self.deletions(fragment, folder_of)
            if offsets is None:
                return None
            deleted.append(offsets)
        files = self._find(fragments, deleted, fields)
        if files is None and open_table is not None:
            self._load(ref, fragments, deleted, fields, open_table)
            files = self._find(fragments, deleted, fields)
        if files is None:
            return None
        pieces = []
        for fragment, (file, live) in zip(fragments, files, strict=True):
            offsets = file.offsets[live]
            columns = [file.columns[field] for field in fields.values()]
            if not live.all():
                columns = [column.filter(pa.array(live)) for column in columns]
            names = list(fields)
            if row_ids:
                ids = _row_ids(fragment)
                if ids is None:
                    return None
                columns.append(pa.array(ids[offsets], pa.uint64()))
                names.append(ROW_ID)
            addresses = (np.uint64(fragment.id) << np.uint64(32)) | offsets.astype(np.uint64)
            columns.append(pa.array(addresses, pa.uint64()))
            names.append(ROW_ADDRESS)
            pieces.append(pa.table(columns, names))
        return pa.concat_tables(pieces)

    def deletions(self, fragment: FragmentMetadata, folder_of: FolderOf) -> np.ndarray | None:
        """The offsets of the deleted rows of a fragment; ``None`` if only Lance can read them."""
        mark = fragment.deletion_file
        if mark is None:
            return np.empty(0, np.uint32)
        if not is_array(mark):
            return None
        path = f"{folder_of(mark.base_id)}/{mark.path(fragment.id)}"
        with self._lock:
            offsets = self._deletions.get(path)
        if offsets is None:
            offsets = read_deletions(self._objects.read_bytes(path), path)
            self.note_deletions(path, offsets)
        return offsets

    def _find(
        self,
        fragments: Sequence[FragmentMetadata],
        deleted: Sequence[np.ndarray],
        fields: Mapping[str, int],
    ) -> list[tuple[_File, np.ndarray]] | None:
        """The kept files of all fragments and which of their rows are live, if all are kept."""
        files = []
        with self._lock:
            for fragment, gone in zip(fragments, deleted, strict=True):
                file = self._files.get(file_names(fragment))
                live = None if file is None else _live(file, fragment, gone)
                if file is None or live is None or not file.has(fields):
                    return None
                files.append((file, live))
            for fragment in fragments:
                self._files.move_to_end(file_names(fragment))
        return files

    def _load(
        self,
        ref: TableRef,
        fragments: Sequence[FragmentMetadata],
        deleted: Sequence[np.ndarray],
        fields: Mapping[str, int],
        open_table: Callable[[], LanceDataset],
    ) -> None:
        """Read what is missing in one scan."""
        homes: dict[int, FragmentMetadata] = {}
        with self._lock:
            for fragment, gone in zip(fragments, deleted, strict=True):
                file = self._files.get(file_names(fragment))
                if file is None or not file.has(fields) or _live(file, fragment, gone) is None:
                    homes[fragment.id] = fragment
        dataset = open_table()
        with lance_call("read", ref.path):
            rows = dataset.scanner(
                columns=list(fields),
                fragments=[f for f in dataset.get_fragments() if f.fragment_id in homes],
                with_row_address=True,
            ).to_table()
        addresses = numpy_view(rows[ROW_ADDRESS])
        for number, fragment in homes.items():
            mine = (addresses >> np.uint64(32)) == np.uint64(number)
            loaded = _File((addresses[mine] & np.uint64(0xFFFFFFFF)).astype(np.uint32))
            kept = rows.filter(pa.array(mine))
            for name, field in fields.items():
                loaded.add(field, _one(kept[name]))
            self._merge(fragment, loaded)

    def _merge(self, fragment: FragmentMetadata, file: _File) -> None:
        """Keep columns that were read, beside those of the same rows that are kept."""
        with self._lock:
            before = self._files.get(file_names(fragment))
        if before is not None and np.array_equal(before.offsets, file.offsets):
            for field, column in before.columns.items():
                if field not in file.columns:
                    file.add(field, column)
        self._keep(file_names(fragment), file)

    def _keep(self, key: str, file: _File) -> None:
        with self._lock:
            before = self._files.pop(key, None)
            self._nbytes += file.nbytes - (0 if before is None else before.nbytes)
            self._files[key] = file
            while self._nbytes > _MOST_BYTES and len(self._files) > 1:
                self._nbytes -= self._files.popitem(last=False)[1].nbytes


def is_plain(type_: pa.DataType) -> bool:
    """Whether values of a type are small and stored as they are."""
    tests = (
        pa.types.is_string,
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_temporal,
    )
    inner = type_.value_type if pa.types.is_list(type_) else type_
    return any(test(inner) for test in tests)


def _are_small(fragments: Sequence[FragmentMetadata]) -> bool:
    rows = 0
    for fragment in fragments:
        rows += fragment.physical_rows
        if rows > MOST_ROWS or fragment.overlays:
            return False
    return True


def _live(file: _File, fragment: FragmentMetadata, gone: np.ndarray) -> np.ndarray | None:
    """Which rows of a kept file are live; ``None`` if it lacks one that is.

    A file that was read at one version lacks the rows deleted there, which an earlier version has.
    """
    live: np.ndarray = ~np.isin(file.offsets, gone)
    return live if int(live.sum()) == fragment.physical_rows - len(gone) else None


def _state(fragment: FragmentMetadata) -> tuple[Any, ...]:
    """Equal states mean equal rows."""
    mark = fragment.deletion_file
    return fragment.id, file_names(fragment), mark and (mark.base_id, mark.read_version, mark.id)


def file_names(fragment: FragmentMetadata) -> str:
    """The names of the data files, which are unique."""
    return "+".join(file.path for file in fragment.files)


def _row_ids(fragment: FragmentMetadata) -> np.ndarray | None:
    """The row ids of a fragment by offset."""
    if fragment.row_id_meta is None:
        return None
    try:
        sequence = RowIdSequence.from_inline_metadata(fragment.row_id_meta)
    except ValueError:
        # Stored in a file of their own.
        return None
    ids: np.ndarray = numpy_view(sequence.to_pyarrow())
    return ids


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
