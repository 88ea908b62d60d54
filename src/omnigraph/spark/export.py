"""Exports a snapshot in many processes: a directory of NDJSON or Parquet files per type.

Writes ``nodes/Person/part-00000.ndjson`` and so on, and ``_SUCCESS`` last. Rows and lines are those
of a local export, in storage order. Files and the directory are renamed to their final names when
complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from omnigraph.commit.ulid import new_ulid
from omnigraph.errors import InputError
from omnigraph.lang.schema.catalog import Catalog, EdgeType, EntityType, text_of
from omnigraph.records import dataclass
from omnigraph.spark.load.read_tasks import cached_catalog
from omnigraph.storage.executor import Executor
from omnigraph.storage.objects.failures import translate
from omnigraph.storage.tables.fragments import (
    TableLocator,
    fragment_groups,
    locate_table,
    open_version,
    report_removed_version,
)
from omnigraph.write.conform import find_type
from omnigraph.write.destinations import new_folder
from omnigraph.write.export import Encoder, Export, typed_batch, write_parquet

FORMATS = ("ndjson", "parquet")
SUCCESS = "_SUCCESS"
_BUFFER = 1 << 18
_FILE_ROWS = 500_000


@dataclass(frozen=True, slots=True)
class ExportTask:
    """One file of an export. Pickled for other processes."""

    catalog: str
    table_key: str
    format: str
    locator: TableLocator
    fragments: tuple[int, ...]
    folder: str
    name: str


def export_files(
    export: Export, catalog: Catalog, dest: Path, format: str, executor: Executor
) -> int:
    """Write a directory for ``load`` that all workers can reach; returns the number of rows."""
    if format not in FORMATS:
        raise InputError(f"invalid format '{format}'", hint="use ndjson or parquet")
    with export.lasting(), new_folder(Path(os.path.abspath(dest))) as top:
        tasks = list(_tasks(export, catalog, top, format))
        folders = [Path(folder) for folder in sorted({task.folder for task in tasks})]
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        rows = sum(executor.run(write_file, tasks, "exporting"))
        for temporary in [path for folder in folders for path in folder.glob(".part-*")]:
            # Left by an attempt that died.
            temporary.unlink(missing_ok=True)
        (top / SUCCESS).touch()
    return rows


def _tasks(export: Export, catalog: Catalog, top: Path, format: str) -> Iterator[ExportTask]:
    text = text_of(catalog)
    for entity_type, table in export.tables():
        folder = (
            top / ("edges" if isinstance(entity_type, EdgeType) else "nodes") / entity_type.name
        )
        locator = locate_table(export.datasets, table)
        # A type without rows has an empty file.
        for number, group in enumerate(
            list(fragment_groups(table.fragments(), _FILE_ROWS)) or [()]
        ):
            name = f"part-{number:05}.{format}"
            yield ExportTask(text, entity_type.table_key, format, locator, group, str(folder), name)


def write_file(task: ExportTask) -> int:
    """Write one file; returns its number of rows."""
    entity_type = find_type(cached_catalog(task.catalog), task.table_key)
    final = Path(task.folder, task.name)
    # Each attempt has its own temporary file; the last rename wins, with the same rows.
    temporary = Path(task.folder, f".{task.name}.{new_ulid()}")
    try:
        if task.format == "parquet":
            count = write_parquet(temporary, entity_type, _batches(task, entity_type))
        else:
            count = _write_lines(task, entity_type, temporary)
        temporary.replace(final)
    except OSError as error:
        raise translate(error, "write", str(final)) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return count


def _write_lines(task: ExportTask, entity_type: EntityType, path: Path) -> int:
    encoder, count = Encoder(entity_type), 0
    with path.open("wb", buffering=_BUFFER) as file:
        for batch in _batches(task, entity_type):
            for line in encoder.lines(batch):
                file.write(f"{line}\n".encode())
            count += batch.num_rows
    return count


def _batches(task: ExportTask, entity_type: EntityType) -> Iterator[pa.RecordBatch]:
    if not task.fragments:
        return
    schema = entity_type.arrow_schema()
    with report_removed_version(task.locator):
        for batch in open_version(task.locator).whole_rows(schema.names, None, task.fragments):
            yield typed_batch(batch, schema)
