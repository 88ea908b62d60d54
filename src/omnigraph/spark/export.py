"""A snapshot written out by many processes: a directory of NDJSON or Parquet files for each type.

``nodes/Person/part-00000.ndjson`` and so on, and ``_SUCCESS`` when all is there. Rows and lines are
those of an export in one process, in the order in which storage has them. A file appears under its
name when it is whole, and the directory when all files are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.commit.ulid import new_ulid
from omnigraph.errors import InputError
from omnigraph.lang.schema import text_of
from omnigraph.lang.schema.catalog import Catalog, EdgeType
from omnigraph.spark.load.read_tasks import cached_catalog
from omnigraph.spark.source.reader import groups_of
from omnigraph.storage.objects.failures import translate
from omnigraph.storage.tables.fragments import (
    TableLocator,
    locate_table,
    open_version,
    report_removed_version,
)
from omnigraph.write.conform import find_type
from omnigraph.write.delta import Kind
from omnigraph.write.destinations import new_folder
from omnigraph.write.encode import Encoder
from omnigraph.write.export import Export, parquet_groups, parquet_schema, typed_batch
from omnigraph.write.fragments import Runner

FORMATS = ("ndjson", "parquet")
SUCCESS = "_SUCCESS"
_BUFFER = 1 << 18


@dataclass(frozen=True, slots=True)
class Writing:
    """One file of an export. Made to be sent to other processes."""

    catalog: str
    table_key: str
    form: str
    place: TableLocator
    fragments: tuple[int, ...]
    folder: str
    name: str


def export_files(export: Export, catalog: Catalog, dest: Path, form: str, run: Runner) -> int:
    """Write a directory that ``load`` reads; gives how many rows. All workers must see it."""
    if form not in FORMATS:
        raise InputError(f"'{form}' is no export format", hint="use ndjson or parquet")
    with export.lasting(), new_folder(Path(os.path.abspath(dest))) as top:
        shares = list(_shares(export, catalog, top, form))
        for folder in sorted({share.folder for share in shares}):
            Path(folder).mkdir(parents=True, exist_ok=True)
        rows = sum(run(write_file, shares, "exporting"))
        for share in shares:
            _remove_halves(Path(share.folder))
        (top / SUCCESS).touch()
    return rows


def _shares(export: Export, catalog: Catalog, top: Path, form: str) -> Iterator[Writing]:
    text = text_of(catalog)
    for kind, table in export.tables():
        folder = top / ("edges" if isinstance(kind, EdgeType) else "nodes") / kind.name
        place = locate_table(export.datasets, table)
        # A type without rows has a file too: it is part of what was exported.
        for number, group in enumerate(list(groups_of(table)) or [()]):
            name = f"part-{number:05}.{form}"
            yield Writing(text, kind.table_key, form, place, group, str(folder), name)


def write_file(share: Writing) -> int:
    """Write one file; gives how many rows it has."""
    kind = find_type(cached_catalog(share.catalog), share.table_key)
    final = Path(share.folder, share.name)
    # Of several attempts each has a file of its own, and the last puts the same rows there.
    half = Path(share.folder, f".{share.name}.{new_ulid()}")
    try:
        if share.form == "parquet":
            count = _write_parquet(share, kind, half)
        else:
            count = _write_lines(share, kind, half)
        half.replace(final)
    except OSError as error:
        raise translate(error, "write", str(final)) from error
    finally:
        with suppress(OSError):
            half.unlink(missing_ok=True)
    return count


def _write_lines(share: Writing, kind: Kind, path: Path) -> int:
    encoder, count = Encoder(kind), 0
    with path.open("wb", buffering=_BUFFER) as file:
        for batch in _batches(share, kind):
            for line in encoder.lines(batch):
                file.write(f"{line}\n".encode())
            count += batch.num_rows
    return count


def _write_parquet(share: Writing, kind: Kind, path: Path) -> int:
    schema, count = parquet_schema(kind), 0
    with pq.ParquetWriter(path, schema) as writer:
        for rows in parquet_groups(_batches(share, kind), schema):
            writer.write_table(rows)
            count += rows.num_rows
    return count


def _batches(share: Writing, kind: Kind) -> Iterator[pa.RecordBatch]:
    if not share.fragments:
        return
    schema = kind.arrow_schema()
    with report_removed_version(share.place):
        for batch in open_version(share.place).whole_rows(schema.names, None, share.fragments):
            yield typed_batch(batch, schema)


def _remove_halves(folder: Path) -> None:
    """What attempts left that died."""
    for half in folder.glob(".part-*"):
        half.unlink(missing_ok=True)
