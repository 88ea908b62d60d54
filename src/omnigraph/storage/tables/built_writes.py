"""Writes of one version on S3 that was built locally, from the upload to the created version."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from lance import LanceDataset, Transaction

from omnigraph.errors import Conflict, OmniGraphError
from omnigraph.storage.objects.uploads import Upload
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.next_version import LocalCopy, NextVersion, NextVersions
from omnigraph.storage.tables.types import TableRef
from omnigraph.storage.tables.warm_tables import WarmTable


def create_built(
    datasets: Datasets, versions: NextVersions, copy: LocalCopy, transaction: Transaction
) -> tuple[NextVersion, str] | None:
    """Upload the files of a local copy, then create its next version; also returns the tag.

    ``None`` if Lance needs more than the version file to commit: then nothing was uploaded. Raises
    ``Conflict`` if another writer was first, ``StorageUnknown`` if that is not known.
    """
    try:
        built = copy.commit(transaction)
    except OmniGraphError:
        return None
    files = copy.new_files()
    stored = Upload(datasets.objects, files).finish()
    created = versions.create(built)
    if created is None:
        datasets.objects.delete_quietly(files)
        raise Conflict(
            f"version {built.version} of '{copy.ref.path}' was written by another writer",
            hint="refresh and retry",
        )
    datasets.checksums.note_tags({**stored, built.path: created})
    if datasets.warm_rows is not None:
        datasets.warm_rows.note_deletion_files(files)
    return built, created.e_tag


def note_written(datasets: Datasets, facts: LanceDataset, rows: pa.Table) -> None:
    """Keep the rows of the newest fragment in memory, as they were just written."""
    written = facts.get_fragments()[-1].metadata
    if datasets.warm_rows is not None and written.physical_rows == rows.num_rows:
        datasets.warm_rows.note_rows(written, _fields(facts), facts.schema, rows)


def rows_in_memory(
    datasets: Datasets,
    ref: TableRef,
    facts: LanceDataset,
    open_table: Callable[[], LanceDataset],
    columns: Sequence[str] | None = None,
) -> pa.Table | None:
    """All rows of a small table on S3 with ``_rowaddr``; what is not in memory is read once."""
    if datasets.warm_rows is None:
        return None
    warm = WarmTable(ref, facts, datasets.warm_rows, open_table)
    return warm.read(facts.schema.names if columns is None else columns)


def _fields(facts: LanceDataset) -> dict[str, int]:
    return {field.name(): field.id() for field in facts.lance_schema.fields()}
