"""One table at one version, for reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from lance import LanceDataset, LanceFragment

from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.records import dataclass
from omnigraph.storage.tables.conditions import columns_of
from omnigraph.storage.tables.failures import is_unsupported_filter, lance_call
from omnigraph.storage.tables.indexes import index_name
from omnigraph.storage.tables.types import ROW_ADDRESS as ROW_ADDRESS
from omnigraph.storage.tables.types import ROW_ID as ROW_ID
from omnigraph.storage.tables.types import Coverage, TableRef
from omnigraph.storage.tables.wide_columns import batch_rows, is_blob, is_stored_blob

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from lance.fragment import FragmentMetadata

    from omnigraph.storage.tables.datasets import Datasets
    from omnigraph.storage.tables.warm_tables import WarmTable


_FIRST_PIECE = 256


@dataclass(frozen=True, slots=True)
class FragmentInfo:
    """A fragment of a table. Equal signatures mean equal rows, also across branches."""

    number: int
    signature: str
    rows: int
    deleted: int = 0
    size: int = 0
    """The size of its files in bytes, without large blobs."""


class Table:
    """A table at one version, for reading. Thread-safe."""

    def __init__(
        self,
        ref: TableRef,
        dataset: LanceDataset,
        datasets: Datasets | None = None,
        *,
        e_tag: str | None = None,
        open_table: Callable[[], LanceDataset] | None = None,
    ) -> None:
        """With ``open_table``, ``dataset`` only has the facts of a version, and no files."""
        self.ref = ref
        self.e_tag = e_tag
        self.version = int(dataset.version)
        self._facts = dataset
        self._open_table = open_table
        self._datasets = datasets
        self._guard = None if datasets is None else datasets.first_reads.guard(ref, dataset)

    @property
    def _handle(self) -> LanceDataset:
        return self._facts if self._open_table is None else self._open_table()

    @property
    def opened(self) -> LanceDataset | None:
        """The handle, unless it would have to be opened first."""
        return self._facts if self._open_table is None else None

    @property
    def dataset(self) -> LanceDataset:
        """The handle for reads without an index; checks the deletion files first."""
        if self._guard is not None:
            self._guard.check_rows(self._facts)
        return self._handle

    def dataset_for(self, condition: object) -> LanceDataset:
        """The handle for reads with a condition, or of a column by name.

        The handle has no indexes if one that the read would use is damaged.
        """
        dataset = self.dataset
        if condition is not None and self._datasets is not None and self.avoids_index(condition):
            return self._datasets.unindexed(self.ref, self._handle)
        return dataset

    def avoids_index(self, condition: object) -> bool:
        return self._guard is not None and self._guard.avoids_index(self._handle, condition)

    def damaged_indexes(self) -> frozenset[str]:
        """The names of the indexes with damaged files; checks all indexes."""
        if self._guard is None:
            return frozenset()
        damaged = self._guard.damaged_indexes(self._handle)
        if not damaged:
            return damaged
        with lance_call("read", self.ref.path):
            indexes = self._handle.describe_indices()
        return frozenset(index_name(index) for index in indexes if index.name in damaged)

    def check_files(self) -> bool:
        """Check all deletion files and indexes; returns whether all indexes are usable."""
        return self.dataset is not None and not self.damaged_indexes()

    @property
    def schema(self) -> pa.Schema:
        return self._facts.schema

    @property
    def layout(self) -> tuple[tuple[str, int], ...]:
        """The columns with their field ids: a name may belong to another column later."""
        return tuple((field.name(), field.id()) for field in self._facts.lance_schema.fields())

    def scan(
        self,
        columns: Sequence[str] | None = None,
        condition: pc.Expression | None = None,
        *,
        row_ids: bool = False,
        limit: int | None = None,
        fragments: Sequence[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Batches of the rows that match a condition, in no guaranteed order."""
        names = None if columns is None else list(columns)
        with lance_call("read", self.ref.path):
            try:
                yield from self._batches(names, condition, row_ids, limit, fragments)
                return
            except (ValueError, pa.ArrowInvalid) as error:
                if condition is None or not is_unsupported_filter(error):
                    raise
            yield from self._filtered(names, condition, row_ids, limit, fragments)

    def read(
        self,
        columns: Sequence[str] | None = None,
        condition: pc.Expression | None = None,
        *,
        row_ids: bool = False,
        limit: int | None = None,
    ) -> pa.Table:
        """Like ``scan``, as one table."""
        names = None if columns is None else list(columns)
        if names is not None and condition is not None and (warm := self.warm) is not None:
            matches = warm.matching(names, condition, row_ids=row_ids)
            if matches is not None:
                return matches.select([*names, ROW_ID] if row_ids else names).slice(0, limit)
        rows = batch_rows(self.schema, names)
        with lance_call("read", self.ref.path):
            try:
                return self.dataset_for(condition).to_table(
                    columns=names,
                    filter=condition,
                    limit=limit,
                    with_row_id=row_ids,
                    batch_size=rows,
                )
            except (ValueError, pa.ArrowInvalid) as error:
                if condition is None or not is_unsupported_filter(error):
                    raise
            batches = list(self._filtered(names, condition, row_ids, limit))
            empty = self.dataset.to_table(columns=names, limit=0, with_row_id=row_ids)
            return pa.Table.from_batches(batches, empty.schema)

    @property
    def warm(self) -> WarmTable | None:
        """The rows of this version that are in memory; on S3 only."""
        datasets = self._datasets
        if datasets is None or datasets.warm_rows is None:
            return None
        from omnigraph.storage.tables.warm_tables import WarmTable

        return WarmTable(
            self.ref,
            self._facts,
            datasets.warm_rows,
            lambda: self.dataset,
            lambda: datasets.earlier(self.ref, self.version, self.e_tag),
        )

    def fragment_metadata(self, number: int) -> FragmentMetadata:
        with lance_call("read", self.ref.path):
            return fragments_of(self._facts, [number])[0].metadata

    def deleted_rows(self, fragment: FragmentMetadata) -> np.ndarray | None:
        """The offsets that the deletion file of a fragment lists; ``None`` for other formats."""
        from omnigraph.storage.tables.deletion_files import is_array, read_deletions

        mark, datasets = fragment.deletion_file, self._datasets
        if datasets is None or mark is None or not is_array(mark):
            return None
        if (warm := self.warm) is not None:
            return warm.deleted_rows(fragment)
        if mark.base_id is not None:
            return None
        path = f"{self.ref.path}/{mark.path(fragment.id)}"
        return read_deletions(datasets.objects.read_bytes(path), path)

    def _batches(
        self,
        names: list[str] | None,
        condition: pc.Expression | None,
        row_ids: bool,
        limit: int | None,
        fragments: Sequence[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        dataset = self.dataset_for(condition)
        rows = batch_rows(self.schema, names)
        scanner = dataset.scanner(
            columns=names,
            filter=condition,
            limit=limit,
            with_row_id=row_ids,
            fragments=None if fragments is None else fragments_of(dataset, fragments),
            batch_size=rows,
            # Batches that are read ahead take memory too.
            batch_readahead=None if rows is None else 1,
            fragment_readahead=None if rows is None else 1,
        )
        yield from scanner.to_batches()

    def _filtered(
        self,
        names: list[str] | None,
        condition: pc.Expression,
        row_ids: bool,
        limit: int | None,
        fragments: Sequence[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows that match a condition, evaluated here.

        Lance supports no conditions on unsigned integers and timestamps, nor any condition on a
        table with a list of them.
        """
        wanted = list(self.dataset.schema.names) if names is None else names
        read = list(dict.fromkeys((*wanted, *columns_of(condition, self.dataset.schema))))
        shown = [*wanted, ROW_ID] if row_ids else wanted
        left = limit
        for batch in self._batches(read, None, row_ids, None, fragments):
            kept = pa.Table.from_batches([batch]).filter(condition).select(shown)
            if left is not None:
                kept = kept.slice(0, left)
                left -= kept.num_rows
            yield from kept.combine_chunks().to_batches()
            if left == 0:
                return

    def take(self, row_ids: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
        """Rows by their stable row ids, in the requested order."""
        batch_rows(self.schema, columns)
        with lance_call("read", self.ref.path):
            return self.dataset._take_rows(
                list(row_ids), None if columns is None else list(columns)
            )

    def fragments(self, numbers: Iterable[int] | None = None) -> tuple[FragmentInfo, ...]:
        """The fragments of this version, or those with some numbers, in the order of a scan."""
        with lance_call("read", self.ref.path):
            dataset = self._facts
            wanted = dataset.get_fragments() if numbers is None else fragments_of(dataset, numbers)
            return tuple(_fragment_info(fragment) for fragment in wanted)

    def fragment_numbers(self) -> tuple[int, ...]:
        """The numbers of the fragments of this version, in the order of a scan."""
        with lance_call("read", self.ref.path):
            return tuple(int(fragment.fragment_id) for fragment in self._facts.get_fragments())

    def read_fragments(self, numbers: Sequence[int], columns: Sequence[str]) -> dict[int, pa.Table]:
        """Columns of the rows of some fragments, with ``_rowid`` as the last one."""
        wanted = set(numbers)
        names = list(columns)
        rows = None
        if (warm := self.warm) is not None:
            rows = warm.read(names, row_ids=True, fragments=wanted, reads=False)
        if rows is None:
            size = batch_rows(self.schema, names)
            with lance_call("read", self.ref.path):
                rows = self.dataset.scanner(
                    columns=names,
                    fragments=fragments_of(self.dataset, wanted),
                    with_row_id=True,
                    with_row_address=True,
                    batch_size=size,
                ).to_table()
        kept = rows.select([*names, ROW_ID])
        homes = numpy_view(rows[ROW_ADDRESS]) >> np.uint64(32)
        cuts = [0, *(np.flatnonzero(np.diff(homes)) + 1).tolist(), len(homes)]
        rows_by_fragment = {number: kept.slice(0, 0) for number in wanted}
        for start, end in pairwise(cuts):
            if end > start:
                rows_by_fragment[int(homes[start])] = kept.slice(start, end - start)
        return rows_by_fragment

    def sorted_scan(
        self,
        columns: Sequence[str],
        key: str,
        most_rows: int,
        batch_bytes: int,
        among: pa.Table | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows, ``among`` or all, in the order of a column, in limited pieces; blobs as bytes."""
        from omnigraph.storage.tables.row_order import row_ids_by

        order = row_ids_by(self.read([key], row_ids=True) if among is None else among, key)
        blobs = [name for name in columns if is_stored_blob(self.dataset.schema.field(name))]
        plain = [name for name in columns if name not in blobs]
        fitting = batch_rows(self.schema, plain) or most_rows
        start, size = 0, min(most_rows, _FIRST_PIECE, fitting)
        while start < len(order):
            row_ids = order.slice(start, size).to_pylist()
            start += len(row_ids)
            rows = self.take(row_ids, plain)
            # The size of the next piece depends on the width of the rows in this one.
            size = max(1, min(most_rows, 2 * size, batch_bytes * len(rows) // (rows.nbytes or 1)))
            yield from self._with_blobs(rows, row_ids, columns, blobs, batch_bytes)

    def whole_rows(
        self,
        columns: Sequence[str],
        condition: pc.Expression | None = None,
        fragments: Sequence[int] | None = None,
        batch_bytes: int = 32 << 20,
    ) -> Iterator[pa.RecordBatch]:
        """Like ``scan``, with blobs as bytes, in fragment order."""
        blobs = [name for name in columns if is_stored_blob(self.dataset.schema.field(name))]
        if not blobs:
            yield from self.scan(columns, condition, fragments=fragments)
            return
        plain = [name for name in columns if name not in blobs]
        for batch in self.scan(plain, condition, row_ids=True, fragments=fragments):
            if batch.num_rows:
                rows, row_ids = pa.Table.from_batches([batch]), batch[ROW_ID].to_pylist()
                yield from self._with_blobs(rows, row_ids, columns, blobs, batch_bytes)

    def _with_blobs(
        self,
        rows: pa.Table,
        row_ids: list[int],
        columns: Sequence[str],
        blobs: list[str],
        most: int,
    ) -> Iterator[pa.RecordBatch]:
        offset = 0
        for piece in self._pieces(row_ids, blobs, most):
            batch = rows.slice(offset, len(piece))
            offset += len(piece)
            for name in blobs:
                batch = batch.append_column(name, self.read_blobs(name, piece))
            yield batch.select(list(columns)).combine_chunks().to_batches()[0]

    def last_fragment(self, schema: pa.Schema) -> pa.RecordBatch:
        """All rows of the last fragment, with blobs as bytes."""
        plain = [field.name for field in schema if not is_blob(field)]
        with lance_call("read", self.ref.path):
            last = self.dataset.get_fragments()[-1]
            rows = self.dataset.scanner(
                columns=plain, fragments=[last], with_row_id=True
            ).to_table()
        row_ids = rows[ROW_ID].to_pylist()
        columns = [
            self.read_blobs(field.name, row_ids) if is_blob(field) else rows[field.name]
            for field in schema
        ]
        table = pa.Table.from_arrays(columns, schema=schema).combine_chunks()
        return table.to_batches()[0]

    def _pieces(self, row_ids: list[int], blobs: list[str], most: int) -> Iterator[list[int]]:
        """Consecutive rows whose blobs together stay within a limit in bytes."""
        if not blobs:
            yield row_ids
            return
        described = self.take(row_ids, blobs)
        sizes = [0] * len(row_ids)
        for name in blobs:
            for position, entry in enumerate(described[name].to_pylist()):
                sizes[position] += 0 if entry is None else int(entry["size"])
        piece: list[int] = []
        size_so_far = 0
        for row_id, size in zip(row_ids, sizes, strict=True):
            if piece and size_so_far + size > most:
                yield piece
                piece, size_so_far = [], 0
            piece.append(row_id)
            size_so_far += size
        yield piece

    def read_blob(self, column: str, row_id: int, offset: int, length: int) -> bytes | None:
        """A piece of one blob; ``None`` for null."""
        with lance_call("read", self.ref.path):
            ranges = self.dataset.read_blob_ranges(
                column, requests=[(row_id, offset, length)], selector="ids"
            )
        data = ranges[0][2]
        return None if data is None else bytes(data)

    def blob_size(self, column: str, row_id: int) -> int | None:
        """The size of a blob in bytes; ``None`` for null."""
        location = self.blob_location(column, row_id)
        return None if location is None else location[0]

    def blob_location(self, column: str, row_id: int) -> tuple[int, str | None] | None:
        """The size of a blob, and its address if it is outside the table; ``None`` for null."""
        descriptor = self.take([row_id], [column])[column][0].as_py()
        if descriptor is None:
            return None
        return int(descriptor["size"]), descriptor["blob_uri"] or None

    def read_blobs(self, column: str, row_ids: list[int]) -> pa.Array:
        with lance_call("read", self.ref.path):
            described = self.take(row_ids, [column])[column].to_pylist()
            values: list[bytes | None] = [None] * len(row_ids)
            there = [i for i, entry in enumerate(described) if entry is not None]
            files = self.dataset.take_blobs(column, ids=[row_ids[i] for i in there])
            for position, file in zip(there, files, strict=True):
                if file is not None:
                    values[position] = file.readall()
        return pa.array(values, pa.large_binary())

    def count(self, condition: pc.Expression | None = None) -> int:
        with lance_call("count", self.ref.path):
            try:
                return int(self.dataset_for(condition).count_rows(filter=condition))
            except (ValueError, OSError, pa.ArrowInvalid) as error:
                if condition is None or not is_unsupported_filter(error):
                    raise
            return sum(batch.num_rows for batch in self._filtered([], condition, True, None))

    def has_values(self, column: str) -> bool:
        """Whether some row has a value in a column; stops at the first batch with one.

        Lance supports no conditions on vectors, so the column itself is read.
        """
        return any(batch[column].null_count < len(batch) for batch in self.scan([column]))

    def indexes(self) -> dict[str, Coverage]:
        """The coverage of every index, by name.

        The index of a renamed column is listed under the new name.
        """
        with lance_call("read", self.ref.path):
            live = {fragment.fragment_id for fragment in self.dataset.get_fragments()}
            covered: dict[str, set[int]] = {}
            for index in self.dataset.describe_indices():
                numbers = covered.setdefault(index_name(index), set())
                for segment in index.segments:
                    numbers.update(segment.fragment_ids)
        return {
            name: Coverage(len(fragments & live), len(live))
            for name, fragments in sorted(covered.items())
        }


def open_table(
    datasets: Datasets,
    ref: TableRef,
    version: int,
    e_tag: str | None = None,
    check: Callable[[], None] | None = None,
) -> Table:
    """A table at a known version; handles are cached and shared, see ``Datasets.shared``."""
    versions = datasets.next_versions
    facts = None if versions is None else versions.find(ref, version, e_tag)
    if facts is None:
        return Table(ref, datasets.shared(ref, version, e_tag, check), datasets, e_tag=e_tag)
    # It is opened when its files are read.
    open_again = partial(datasets.shared, ref, version, e_tag, check)
    return Table(ref, facts, datasets, e_tag=e_tag, open_table=open_again)


def fragments_of(dataset: LanceDataset, numbers: Iterable[int]) -> list[LanceFragment]:
    """The fragments of a version with these ids, in scan order."""
    wanted = frozenset(numbers)
    return [fragment for fragment in dataset.get_fragments() if fragment.fragment_id in wanted]


def _fragment_info(fragment: LanceFragment) -> FragmentInfo:
    """The facts of a fragment; its signature covers data files, overlays and deletion file."""
    metadata = fragment.metadata
    deleted = metadata.deletion_file
    files = "+".join(file.path for file in metadata.files)
    if metadata.overlays:
        files += f"|{metadata.overlays!r}"
    signature = files if deleted is None else f"{files}-{deleted.read_version}.{deleted.id}"
    return FragmentInfo(
        fragment.fragment_id,
        signature,
        metadata.num_rows,
        int(metadata.num_deletions),
        sum(file.file_size_bytes or 0 for file in metadata.files),
    )
