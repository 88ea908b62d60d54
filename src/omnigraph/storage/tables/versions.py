"""The versions of a table: their operations, the space that removing them frees, and their removal.

Lance removes the files of a version before the version itself, so a process that dies in between
leaves versions that cannot be read. Here Lance only lists what can be removed: version files are
removed first, then the files that only they reference. The caller records the intent before; see
``commit.removal``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from lance import LanceOperation

from omnigraph.errors import OmniGraphError
from omnigraph.records import dataclass
from omnigraph.storage.objects.local import ObjectInfo
from omnigraph.storage.objects.paths import is_removable_file, refused
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.files import name_in_versions, referenced_names
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import TableRef, split_file

RESERVED = "ReserveFragments"
"""An operation without a Python class: a version with the same fragments and columns as before."""
_UNNAMED = "BaseOperation"
_PHYSICAL = (LanceOperation.Rewrite, LanceOperation.CreateIndex, LanceOperation.UpdateConfig)
# More files than any table has: Lance lists a thousand by default.
_ALL = 1 << 40


@dataclass(frozen=True, slots=True)
class VersionStamp:
    """An existing version and its creation time."""

    version: int
    made: datetime


@dataclass(frozen=True, slots=True)
class Freed:
    """What removing versions would free."""

    versions: int
    size: int
    unverified: Mapping[str, int]
    """The sizes of orphaned files; Lance would remove the old ones too."""


@dataclass(frozen=True, slots=True)
class Removal:
    """Removable versions of one copy of a table, and the files that are removed with them."""

    ref: TableRef
    versions: tuple[int, ...]
    files: tuple[str, ...]
    """The files that only these versions reference, relative to the root."""
    unverified: tuple[str, ...]
    """Orphaned files older than a week, which Lance would remove too."""
    size: int
    """The total size in bytes, including version files."""


def versions_of(datasets: Datasets, ref: TableRef) -> list[VersionStamp]:
    """Every version of one copy of a table, oldest first."""
    dataset = datasets.open(ref)
    with lance_call("list the versions of", ref.path):
        listed: Any = dataset.versions()
    # Lance returns naive datetimes in the local time zone.
    stamps = [VersionStamp(int(v["version"]), v["timestamp"].astimezone(UTC)) for v in listed]
    return sorted(stamps, key=lambda stamp: stamp.version)


def freed_by(datasets: Datasets, ref: TableRef, versions: Sequence[int]) -> Freed:
    if not versions:
        return Freed(0, 0, {})
    explanation = _explain(datasets, ref, versions)
    unverified = {f.path: int(f.size_bytes) for f in explanation.candidate_files if f.unverified}
    return Freed(
        int(explanation.stats.old_versions), int(explanation.stats.bytes_removed), unverified
    )


def _explain(datasets: Datasets, ref: TableRef, versions: Sequence[int]) -> Any:
    dataset = datasets.open(ref)
    with lance_call("look at old versions of", ref.path):
        return dataset.explain_cleanup_old_versions(
            versions=list(versions),
            error_if_tagged_old_versions=False,
            include_files=True,
            max_files=_ALL,
        )


def removal_of(datasets: Datasets, ref: TableRef, versions: Sequence[int]) -> Removal:
    """The removable part of some versions: not the newest, nor those that forks start from.

    Raises ``StorageCorrupt`` for a file outside of this copy, or behind a link.
    """
    wanted = sorted(set(versions))
    while wanted:
        sizes: dict[str, int] = {}
        unverified: set[str] = set()
        for file in _explain(datasets, ref, wanted).candidate_files:
            _, inside, name = f"/{file.path}".rpartition(f"/{ref.path}/")
            if inside:
                sizes[f"{ref.path}/{name}"] = int(file.size_bytes)
                if file.unverified:
                    unverified.add(f"{ref.path}/{name}")
        manifests = {ref.version_path(version): version for version in wanted}
        going = [version for path, version in manifests.items() if path in sizes]
        if going == wanted:
            for path in sizes:
                if path not in manifests and not is_removable_file(path, ref.path):
                    raise refused(path, f"a version of '{ref.path}'")
                datasets.objects.address(path, written=True)
            files = [path for path in sizes if path not in manifests and path not in unverified]
            return Removal(
                ref,
                tuple(going),
                tuple(sorted(files)),
                tuple(sorted(unverified)),
                sum(sizes.values()),
            )
        # Lance also lists the transactions of retained versions: exclude them.
        wanted = going
    return Removal(ref, (), (), (), 0)


def delete_versions(datasets: Datasets, ref: TableRef, versions: Iterable[int]) -> None:
    """Remove version files, oldest first; the removal is durable on return."""
    datasets.objects.delete_all(ref.version_path(version) for version in sorted(versions))
    datasets.forget()


def delete_files(objects: ObjectStore, paths: Sequence[str]) -> None:
    """Remove files of a table, and the index and blob directories that become empty."""
    objects.delete_all(paths)
    for folder in sorted({path.rpartition("/")[0] for path in paths}):
        # Not the shared directories: a writer may be about to use them.
        if (split_file(f"{folder}/") or ("", ""))[1].count("/") > 1:
            objects.remove_if_empty(folder)


def unreferenced_among(datasets: Datasets, location: str, paths: Iterable[str]) -> list[str]:
    """The files among ``paths`` that no version of any branch of a table references."""
    named = referenced_names(datasets, location)
    unreferenced = []
    for path in paths:
        _, inside = split_file(path.removeprefix(f"{location}/")) or ("", "")
        if inside and name_in_versions(inside.split("/")) not in named:
            unreferenced.append(path)
    return unreferenced


def is_empty(datasets: Datasets, ref: TableRef) -> bool:
    """Whether the newest version has no fragments."""
    dataset = datasets.open(ref)
    with lance_call("read", ref.path):
        return not dataset.get_fragments()


def fork_files(objects: ObjectStore, location: str) -> Iterator[tuple[str, str, ObjectInfo]]:
    """The files of all forks of a table, with or without a reference, and the fork of each."""
    top = f"{location}/tree"
    for path, info in objects.files_below(top):
        split = split_file(path.removeprefix(f"{top}/"))
        if split is not None and split[0]:
            yield split[0], path, info


def operations_between(
    datasets: Datasets, ref: TableRef, after: int, until: int
) -> tuple[str, ...]:
    """The operations of the versions after one up to another; empty if unreadable."""
    return tuple(_name(datasets, ref, version) for version in range(after + 1, until + 1))


def restored_version(datasets: Datasets, ref: TableRef, version: int) -> int | None:
    """The version that another one restored; ``None`` for other operations or if unreadable."""
    operation = _operation(datasets, ref, version)
    return int(operation.version) if isinstance(operation, LanceOperation.Restore) else None


def version_of_same_rows(datasets: Datasets, ref: TableRef, version: int) -> int | None:
    """The earlier version whose rows a version kept; ``None`` if it changed any or is unreadable.

    A restore kept those of the restored version; compactions, indexes and settings those of the
    version before.
    """
    operation = _operation(datasets, ref, version)
    if isinstance(operation, LanceOperation.Restore):
        return int(operation.version)
    return version - 1 if isinstance(operation, _PHYSICAL) else None


def _operation(datasets: Datasets, ref: TableRef, version: int) -> object | None:
    try:
        with lance_call("read the transactions of", ref.path):
            transaction = datasets.open(ref, version).read_transaction(version)
    except OmniGraphError:
        return None
    return None if transaction is None else transaction.operation


def _name(datasets: Datasets, ref: TableRef, version: int) -> str:
    operation = _operation(datasets, ref, version)
    if type(operation).__name__ == _UNNAMED:
        return RESERVED if _is_untouched(datasets, ref, version) else ""
    return "" if operation is None else type(operation).__name__


def _is_untouched(datasets: Datasets, ref: TableRef, version: int) -> bool:
    """Whether a version has the same content as the one before it."""
    try:
        before = Table(ref, datasets.open(ref, version - 1), datasets)
        after = Table(ref, datasets.open(ref, version), datasets)
        return before.fragments() == after.fragments() and before.schema == after.schema
    except OmniGraphError:
        return False
