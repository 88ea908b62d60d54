"""Versions that were just written: their check, the sums of their files, and their withdrawal."""

from __future__ import annotations

from contextlib import suppress

from lance import LanceDataset, LanceOperation

from omnigraph.errors import OmniGraphError
from omnigraph.storage.durable import exists
from omnigraph.storage.lance_format.files import Damaged
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.paths import branch_file
from omnigraph.storage.read_back import check_added_files, check_version, expand, set_aside
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.types import TableRef, is_blob_folder, new_files
from omnigraph.storage.tables.wide_columns import is_stored_blob


def withdraw(datasets: Datasets, ref: TableRef, dataset: LanceDataset, damage: Damaged) -> bool:
    """See ``Ledger.withdraw``. The caller has made sure that there was no later write."""
    version = int(dataset.version)
    if damage.unreadable_version:
        set_aside(datasets, ref, version)
        return False
    with lance_call("restore", ref.path, writes=True):
        restored = LanceDataset.commit(
            dataset,
            LanceOperation.Restore(version - 1),
            read_version=version,
            max_retries=0,
            storage_options=datasets.options,
        )
    check_version(datasets, ref, int(restored.version))
    return True


def check_added(datasets: Datasets, ref: TableRef, dataset: LanceDataset) -> None:
    """Check the version that a handle has just written, with its new files."""
    if not datasets.root.is_local:
        with suppress(OmniGraphError):
            note_made(datasets, ref, dataset, int(dataset.version))
        return
    check_version(datasets, ref, int(dataset.version), sync=False)
    with lance_call("read", ref.path):
        made_by = dataset.read_transaction(int(dataset.version))
    if made_by is not None:
        check_added_files(datasets, ref, new_files(made_by.operation))


def note_made(
    datasets: Datasets, ref: TableRef, dataset: LanceDataset, version: int, *, adopted: bool = False
) -> None:
    """Note the sums of all files that a version added, by its transaction."""
    with lance_call("read", ref.path):
        made_by = dataset.read_transaction(version)
    files = () if made_by is None else new_files(made_by.operation)
    if datasets.root.is_local:
        top = datasets.root.path(ref.path)
        with storage_call("read", ref.path):
            # Files of a branch may be in the directory of its parent.
            names = [f.name for f in expand(top, files) if exists(f"{top}/{f.name}")]
    else:
        has_blobs = any(map(is_stored_blob, dataset.schema))
        names = [f.name for f in files if has_blobs or not is_blob_folder(f)]
    datasets.note_version(ref, version, made_by, names, adopted=adopted)


def adopt_versions(datasets: Datasets, ref: TableRef, first: int, last: int) -> None:
    """Note the sums of files that a dead writer added; unreadable versions stay unverified."""
    for version in range(first, last + 1):
        with suppress(OmniGraphError):
            if datasets.info(ref, version) is not None:
                note_made(datasets, ref, datasets.open(ref, version), version, adopted=True)
    if ref.branch is not None:
        datasets.checksums.adopt(ref.location, [branch_file(ref.branch)])
