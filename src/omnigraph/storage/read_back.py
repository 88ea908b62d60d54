"""Reads back what a write left on local disk, before anything relies on it.

Three moments: files of a staged write, before its sidecar is written; the version and transaction
files of a commit, directly after it; a version of the graph's manifest, directly after its publish.
An object store answers a request with an error or has stored all of it, so nothing is read back
there. ``Damaged`` is raised with the file; callers undo and raise ``Damage.error()``.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from omnigraph.errors import OmniGraphError
from omnigraph.storage.checksums import FileSum, Sums
from omnigraph.storage.lance_format.files import (
    Damaged,
    NewFile,
    check_blob_files,
    check_new_file,
    check_transaction_file,
    check_version_file,
)
from omnigraph.storage.lance_format.manifests import VersionFile
from omnigraph.storage.objects.failures import storage_call
from omnigraph.storage.objects.paths import branch_file, refuse_unsafe, version_file
from omnigraph.storage.tables.datasets import HINT, Datasets
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.types import TableRef
from omnigraph.storage.tables.wide_columns import is_stored_blob

if TYPE_CHECKING:
    from lance import LanceDataset

ASIDE_FOLDER, ASIDE_SUFFIX = "__recovery", ".damaged"
_PACKED, _DEDICATED = 1, 2
_BLOB_ID_BITS = 32


def expand(top: str, files: Iterable[NewFile]) -> Iterator[NewFile]:
    """Files of a local table, with ``*`` expanded to all files of the directory."""
    for file in files:
        refuse_unsafe(file.name)
        folder = file.name.removesuffix("/*")
        if folder == file.name:
            yield file
            continue
        with suppress(FileNotFoundError), os.scandir(f"{top}/{folder}") as entries:
            yield from sorted(NewFile(f"{folder}/{e.name}") for e in entries if e.is_file())


def checked_sums(top: str, files: Iterable[NewFile]) -> dict[str, FileSum]:
    """Check new local files and return their sums; called by the process that wrote them."""
    try:
        with storage_call("read", top):
            return {file.name: check_new_file(top, file) for file in expand(top, files)}
    except Damaged as damaged:
        raise damaged.error() from None


def check_staged_files(
    datasets: Datasets, ref: TableRef, files: Iterable[NewFile], checked: Sums
) -> None:
    """Sync the files of a staged write, check them and note their sums.

    ``checked`` has the sums of files that were checked by the process that wrote them.
    """
    if not datasets.root.is_local:
        datasets.checksums.note(ref.path, [file.name for file in files], checked)
        return
    top = datasets.root.path(ref.path)
    sums: dict[str, FileSum] = {}
    try:
        with storage_call("write", ref.path):
            expanded = list(expand(top, files))
            for file in expanded:
                before = checked.get(file.name)
                sums[file.name] = (
                    check_new_file(top, file) if before is None else _unchanged(top, file, before)
                )
            if datasets.synced:
                datasets.sync_files(ref, (file.name for file in expanded))
    except Damaged as damaged:
        raise damaged.error() from None
    datasets.checksums.note(ref.path, sums, sums)


def _unchanged(top: str, file: NewFile, before: FileSum) -> FileSum:
    """The sum of a file that was checked before, if it still has its size."""
    path = f"{top}/{file.name}"
    size = os.path.getsize(path) if os.path.exists(path) else 0
    if size != before.size:
        raise Damaged(path, f"{size} of {before.size} bytes")
    return before


def check_added_files(datasets: Datasets, ref: TableRef, files: Iterable[NewFile]) -> None:
    """Check files of an existing version and note their sums."""
    top = datasets.root.path(ref.path)
    with storage_call("read", ref.path):
        sums = {file.name: check_new_file(top, file) for file in expand(top, files)}
    datasets.checksums.note(ref.path, sums, sums)


def check_version(
    datasets: Datasets, ref: TableRef, version: int, *, is_fork: bool = False, sync: bool = True
) -> VersionFile:
    """Check the version and transaction files of a local table and note their sums.

    A truncated transaction file is rewritten from the copy in the version file. The first version
    of a fork has none.
    """
    top = datasets.root.path(ref.path)
    name = version_file(version)
    with storage_call("read", ref.path):
        content, digest = check_version_file(f"{top}/{name}")
        sums = {name: digest}
        if content.transaction_file is not None and not is_fork:
            name = f"_transactions/{content.transaction_file}"
            try:
                sums[name] = check_transaction_file(f"{top}/{name}", content)
            except Damaged:
                if content.transaction is None:
                    raise
                datasets.objects.write_bytes(f"{ref.path}/{name}", content.transaction)
                sums[name] = check_transaction_file(f"{top}/{name}", content)
    if datasets.synced and sync:
        datasets.sync_files(ref, sums)
    datasets.checksums.note(ref.path, sums, sums)
    return content


def check_new_fork(datasets: Datasets, ref: TableRef, version: int) -> None:
    """Check the files of a new branch of a local table, which the caller syncs.

    Others can see the branch already, so a failed sync has to be repaired, not refused.
    """
    if not datasets.root.is_local or ref.branch is None:
        return
    check_version(datasets, ref, version, is_fork=True, sync=False)
    reference = branch_file(ref.branch)
    with storage_call("read", ref.location):
        digest = check_new_file(datasets.root.path(ref.location), NewFile(reference))
    datasets.checksums.note(ref.location, [reference], {reference: digest})


def is_readable_reference(datasets: Datasets, ref: TableRef) -> bool:
    """Whether the reference of a branch is readable or absent; always true on S3."""
    if not datasets.root.is_local or ref.branch is None:
        return True
    path = f"{ref.location}/{branch_file(ref.branch)}"
    try:
        if datasets.objects.head(path) is not None:
            check_new_file(datasets.root.path(ref.location), NewFile(branch_file(ref.branch)))
    except Damaged:
        return False
    return True


def set_aside(datasets: Datasets, ref: TableRef, version: int) -> None:
    """Rename an unreadable version file, on which nothing can have been built.

    The bytes are kept for inspection. Lance's hint of the newest version is corrected first: it may
    name a version that is not the newest, but never a missing one.
    """
    path = ref.version_path(version)
    with suppress(OmniGraphError):
        folder = path.rpartition("/")[0]
        datasets.objects.write_bytes(f"{folder}/{HINT}", b'{"version":%d}' % (version - 1))
    kept = f"{ASIDE_FOLDER}/{_aside_prefix(ref)}{version}~{uuid.uuid4()}{ASIDE_SUFFIX}"
    datasets.objects.rename(path, kept)
    datasets.start_over()


def versions_aside(datasets: Datasets, ref: TableRef) -> frozenset[int]:
    prefix = _aside_prefix(ref)
    names = [n for n in datasets.objects.list(ASIDE_FOLDER) if n.startswith(prefix)]
    numbers = [name.removeprefix(prefix).partition("~")[0] for name in names]
    return frozenset(int(number) for number in numbers if number.isdecimal())


def _aside_prefix(ref: TableRef) -> str:
    return f"{ref.path.replace('/', '~')}~"


def set_aside_unreadable(datasets: Datasets, ref: TableRef, head: int, floor: int) -> int:
    """The newest readable version from ``head`` down to ``floor``; sets aside those above it.

    The caller holds the lease of the table and has acknowledged nothing above ``floor``. A file
    that was damaged after it was written is left alone: opening it reports the damage.
    """
    while datasets.root.is_local and head > floor:
        try:
            with storage_call("read", ref.path):
                check_version_file(datasets.root.path(ref.version_path(head)))
            return head
        except Damaged as damaged:
            if damaged.unreadable_version:
                set_aside(datasets, ref, head)
            elif datasets.info(ref, head) is not None:
                return head
            head -= 1
    return head


def check_blobs(dataset: LanceDataset, top: str, names: Sequence[str]) -> None:
    """Compare the blob files of new data files with the sizes that the rows refer to."""
    columns = [field.name for field in dataset.schema if is_stored_blob(field)]
    if not columns:
        return
    wanted = {name.removeprefix("data/") for name in names if name.endswith(".lance")}
    with lance_call("read", top):
        for fragment in dataset.get_fragments():
            for file in fragment.metadata.files:
                folder = file.path.removesuffix(".lance")
                if file.path in wanted and os.path.isdir(f"{top}/data/{folder}"):
                    rows = dataset.scanner(columns=columns, fragments=[fragment]).to_table()
                    check_blob_files(top, _blob_sizes(folder, rows, columns))


def _blob_sizes(folder: str, rows: Any, columns: Sequence[str]) -> list[tuple[str, int]]:
    """The blob files of a data file and the minimum size of each."""
    sizes: dict[int, int] = {}
    for column in columns:
        for value in rows[column].to_pylist():
            if value is not None and value["kind"] in (_PACKED, _DEDICATED):
                end = int(value["position"]) + int(value["size"])
                number = int(value["blob_id"])
                sizes[number] = max(sizes.get(number, 0), end)
    return [
        (f"data/{folder}/{f'{number:0{_BLOB_ID_BITS}b}'[::-1]}.blob", size)
        for number, size in sorted(sizes.items())
    ]
