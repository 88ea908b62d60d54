"""Fragments that other processes write for a table, to be committed here.

Many processes each write fragments into the directory of a table, without opening it and without
moving its HEAD; they return file names as text. The coordinating process combines all fragments
into one staged write. The table need not exist when they write: a branch gets its copy of a table
only when its first write is committed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from itertools import chain
from typing import Any, TypeVar

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceOperation
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.errors import (
    AlreadyExists,
    HistoryGone,
    InternalError,
    RecoveryRequired,
    StorageMissing,
)
from omnigraph.lang.values.numpy_view import numpy_view
from omnigraph.records import dataclass
from omnigraph.storage.checksums import FileSum
from omnigraph.storage.lance_format.manifests import manifest_message, without_indexes
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.paths import parse_root, version_file
from omnigraph.storage.read_back import checked_sums
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.encodings import bulk_schema
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.store import ROWS_PER_FRAGMENT
from omnigraph.storage.tables.table import ROW_ADDRESS, ROW_ID, FragmentInfo, Table
from omnigraph.storage.tables.types import TableRef, new_files
from omnigraph.storage.tables.wide_columns import (
    is_blob,
    is_stored_blob,
    stored_data,
    stored_schema,
)

_READ_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class FragmentTarget:
    """Where fragments of one table are written, and in which format. Sent to other processes."""

    uri: str
    path: str
    """The path relative to the root, for messages."""
    is_there: bool
    """Whether the table is known to have a version there."""
    file_version: str
    fields: tuple[int, ...]
    """The field ids of the table's columns, in order."""
    options: dict[str, str] | None = field(default=None, repr=False, hash=False)


@dataclass(frozen=True, slots=True)
class StagedFragment:
    """A written fragment that no version references yet."""

    rows: int
    fragment: str
    """Its metadata for Lance, as JSON."""
    sums: tuple[tuple[str, FileSum], ...] = field(default=(), repr=False, compare=False)
    """The checksums of its files, if they are on local disk."""

    @property
    def files(self) -> list[str]:
        """The data files, relative to the table."""
        return [f"data/{file['path']}" for file in json.loads(self.fragment)["files"]]

    def metadata(self) -> FragmentMetadata:
        return FragmentMetadata.from_json(self.fragment)


P = TypeVar("P", FragmentInfo, StagedFragment)


def fragment_target(datasets: Datasets, table: Table, ref: TableRef) -> FragmentTarget:
    """The target for fragments of ``ref``, maybe a branch without a copy of ``table`` yet."""
    dataset = table.dataset
    with lance_call("read", table.ref.path):
        columns = list(zip(dataset.lance_schema.fields(), dataset.schema, strict=True))
        columns.sort(key=lambda column: is_stored_blob(column[1]))
        # The ids of fields with data in a file; a blob counts as one field.
        numbers = [
            [int(column.id())] if is_stored_blob(field) else _leaves(column)
            for column, field in columns
        ]
    return FragmentTarget(
        datasets.root.path(ref.path),
        ref.path,
        ref == table.ref,
        str(dataset.data_storage_version),
        tuple(chain.from_iterable(numbers)),
        datasets.options,
    )


def _leaves(column: Any) -> list[int]:
    inner = column.children()
    if not inner:
        return [int(column.id())]
    return [number for child in inner for number in _leaves(child)]


def write_staged_fragments(
    target: FragmentTarget, schema: pa.Schema, batches: Sequence[pa.RecordBatch]
) -> list[StagedFragment]:
    """Write rows as fragments of a table, uncommitted; for any process."""
    # Lance locates the columns of a file by position, and is wrong after a blob.
    schema = bulk_schema(pa.schema(sorted(schema, key=is_blob)))
    rows = [batch.select(schema.names) for batch in batches]
    if not target.is_there:
        with suppress(AlreadyExists):
            return _write(target, schema, rows, "create")
    # Nothing is overwritten: in this mode Lance does not read the existing table.
    return _write(target, schema, rows, "overwrite")


def _write(
    target: FragmentTarget, schema: pa.Schema, rows: Sequence[pa.RecordBatch], mode: str
) -> list[StagedFragment]:
    with lance_call("write rows for", target.path):
        fragments = write_fragments(
            stored_data(pa.RecordBatchReader.from_batches(schema, rows)),
            target.uri,
            schema=stored_schema(schema),
            mode=mode,
            max_rows_per_file=ROWS_PER_FRAGMENT,
            data_storage_version=target.file_version,
            enable_stable_row_ids=True,
            storage_options=target.options,
        )
    return [_staged_fragment(target, fragment) for fragment in fragments if fragment.physical_rows]


def _staged_fragment(target: FragmentTarget, fragment: FragmentMetadata) -> StagedFragment:
    """A fragment with the field ids of its table; Lance numbered them from zero."""
    description = fragment.to_json()
    for file in description["files"]:
        if len(file["fields"]) != len(target.fields):
            actual, wanted = len(file["fields"]), len(target.fields)
            raise InternalError(f"{actual} columns were written for '{target.path}' of {wanted}")
        file["fields"] = list(target.fields)
    staged = StagedFragment(int(fragment.physical_rows), json.dumps(description))
    if not parse_root(target.uri, target.options).is_local:
        return staged
    files = new_files(LanceOperation.Append([fragment]))
    return replace(staged, sums=tuple(checked_sums(target.uri, files).items()))


def read_staged_fragments(
    target: FragmentTarget, fragments: Sequence[StagedFragment], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Some columns of uncommitted rows, in the order they were written."""
    with lance_call("read rows for", target.path):
        for fragment in fragments:
            for name in fragment.files:
                reader = LanceFileReader(f"{target.uri}/{name}", target.options, list(columns))
                yield from reader.read_all(batch_size=_READ_ROWS).to_batches()


def require_fragment_files(
    datasets: Datasets, ref: TableRef, fragments: Iterable[StagedFragment]
) -> None:
    """Refuse to commit fragments whose files were removed, which Lance does not check."""
    there = set(datasets.objects.list(f"{ref.path}/data"))
    for fragment in fragments:
        for name in fragment.files:
            if name.removeprefix("data/") not in there:
                raise StorageMissing(
                    f"staged files of '{ref.path}' were removed",
                    hint="repeat the write; another program removed uncommitted files",
                    details={"table": ref.path, "file": name},
                )


def discard_fragments(datasets: Datasets, path: str, fragments: Iterable[StagedFragment]) -> None:
    """Remove rows that will never be committed."""
    for fragment in fragments:
        for name in fragment.files:
            datasets.objects.delete(f"{path}/{name}")
            datasets.objects.delete_prefix(f"{path}/{name.removesuffix('.lance')}")


# -- rows that are replaced -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deletions:
    """Rows of a table marked as deleted, in deletion files that no version references yet."""

    rows: int = 0
    changed: tuple[str, ...] = ()
    """The metadata of the fragments with deleted rows, as JSON."""
    removed: tuple[int, ...] = ()
    """Fragments without remaining rows."""

    @classmethod
    def of(cls, several: Iterable[Deletions]) -> Deletions:
        """Deletions of different fragments, combined."""
        deletions = list(several)
        return cls(
            sum(deletion.rows for deletion in deletions),
            tuple(text for deletion in deletions for text in deletion.changed),
            tuple(number for deletion in deletions for number in deletion.removed),
        )


@dataclass(frozen=True, slots=True)
class TableLocator:
    """How another process opens a version of a table."""

    uri: str
    path: str
    version: int
    options: dict[str, str] | None = field(default=None, repr=False, hash=False)
    has_damaged_index: bool = False
    """Whether to read it without its indexes."""
    rows: int = 0
    """Its row count, if the caller passed it."""

    def open(self) -> lance.LanceDataset:
        # Not cached: a branch may be deleted and created again while a process lives.
        return lance.dataset(self.uri, version=self.version, storage_options=self.options)


def locate_table(datasets: Datasets, table: Table, rows: int = 0) -> TableLocator:
    """The address of an open table, for processes that open it themselves."""
    if not datasets.names_this_root(table.ref, table.version):
        raise RecoveryRequired(
            f"'{table.ref.path}' still refers to the location that the graph was moved from",
            hint="open the graph once with mode='rw' to update it",
        )
    uri = datasets.root.path(table.ref.path)
    # The processes that open it check no files themselves.
    is_damaged = not table.check_files()
    return TableLocator(uri, table.ref.path, table.version, datasets.options, is_damaged, rows)


def open_version(locator: TableLocator) -> Table:
    with report_removed_version(locator), lance_call("open", locator.path):
        return Table(TableRef(locator.path), _dataset(locator))


@contextmanager
def report_removed_version(locator: TableLocator) -> Iterator[None]:
    """Report files that are missing because the located version was removed since."""
    try:
        yield
    except StorageMissing as error:
        try:
            with lance_call("open", locator.path):
                _dataset(locator)
        except StorageMissing:
            raise HistoryGone(
                f"version {locator.version} of '{locator.path}' was removed",
                hint="read a newer state; tags and a larger min_age of cleanup keep old ones",
                details={"table": locator.path, "version": locator.version},
            ) from error
        raise


def in_groups(fragments: Iterable[P], rows: int) -> Iterator[list[P]]:
    """Fragments in their order, in groups of about ``rows`` rows."""
    group: list[P] = []
    count = 0
    for fragment in fragments:
        group.append(fragment)
        count += fragment.rows
        if count >= rows:
            yield group
            group, count = [], 0
    if group:
        yield group


def fragment_groups(fragments: Iterable[FragmentInfo], rows: int) -> Iterator[tuple[int, ...]]:
    """The numbers of fragments, in groups of about ``rows`` rows.

    >>> list(fragment_groups([FragmentInfo(n, "", 5) for n in range(5)], 10))
    [(0, 1), (2, 3), (4,)]
    """
    for group in in_groups(fragments, rows):
        yield tuple(fragment.number for fragment in group)


def row_addresses(
    locator: TableLocator, fragments: Sequence[int], key: str
) -> Iterator[tuple[int, pa.Table]]:
    """The keys, row addresses and row ids of the rows of some fragments."""
    with lance_call("read", locator.path):
        dataset = _dataset(locator)
        for number in fragments:
            yield number, _addresses(dataset.get_fragment(number), key)


def _addresses(fragment: Any, key: str) -> pa.Table:
    rows = fragment.to_table(columns=[key], with_row_id=True, with_row_address=True)
    homes = [rows[name].cast(pa.int64()) for name in (ROW_ADDRESS, ROW_ID)]
    return pa.table([rows[key], *homes], [key, ROW_ADDRESS, ROW_ID])


def delete_addresses(locator: TableLocator, number: int, addresses: np.ndarray) -> Deletions:
    """Mark rows of a fragment as deleted, by row address."""
    with lance_call("stage a delete from", locator.path):
        return delete_in_fragment(_dataset(locator).get_fragment(number), addresses)


def delete_keys(
    locator: TableLocator, fragments: Sequence[int], key: str, wanted: pa.Array
) -> tuple[np.ndarray, np.ndarray, Deletions]:
    """Mark the rows of some fragments that have one of the keys as deleted.

    Returns the positions of the matched keys in ``wanted``, and the row ids of the deleted rows.
    """
    positions, row_ids, done = [], [], []
    with lance_call("stage a delete from", locator.path):
        dataset = _dataset(locator)
        for number in fragments:
            fragment: Any = dataset.get_fragment(number)
            rows = _addresses(fragment, key)
            matches = pc.index_in(rows[key], value_set=wanted).combine_chunks()
            hit = matches.is_valid()
            if not pc.any(hit).as_py():
                continue
            rows = rows.filter(hit)
            positions.append(numpy_view(matches.drop_null()).astype(np.int64))
            row_ids.append(numpy_view(rows[ROW_ID]))
            done.append(delete_in_fragment(fragment, numpy_view(rows[ROW_ADDRESS])))
    empty = np.empty(0, np.int64)
    return (
        np.concatenate([empty, *positions]),
        np.concatenate([empty, *row_ids]),
        Deletions.of(done),
    )


def _dataset(locator: TableLocator) -> lance.LanceDataset:
    if not locator.has_damaged_index:
        return locator.open()
    # A damaged index is detected only in local tables.
    path = f"{locator.uri}/{version_file(locator.version)}"
    with storage_call("read", path), open(path, "rb") as file:
        content = without_indexes(manifest_message(file.read(), path), path)
    return lance.LanceDataset(locator.uri, version=locator.version, serialized_manifest=content)


def delete_in_fragment(fragment: Any, addresses: np.ndarray) -> Deletions:
    """Mark rows of an opened fragment as deleted."""
    # Lance takes only SQL here; the numbers come from Lance.
    text = ", ".join(map(str, addresses.tolist()))
    left = fragment.delete(f"{ROW_ADDRESS} IN ({text})")
    if left is None:
        return Deletions(len(addresses), (), (int(fragment.fragment_id),))
    return Deletions(len(addresses), (json.dumps(left.to_json()),))
