"""Files: what versions name is there, and is what it was when it was written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from omnigraph.commit.audit import AUDIT_TABLE
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import SCHEMA_LOCK, branch_label
from omnigraph.commit.snapshot import Pin
from omnigraph.errors import OmniGraphError
from omnigraph.maintain.verify.ground import FROM_BACKUP, Ground
from omnigraph.maintain.verify.indexes import rebuild_hint
from omnigraph.maintain.verify.report import LISTED, ProblemCode, VerifyProblem, Weight
from omnigraph.storage.checksums import FOLDER, ChecksumRecords, FileSum, is_same, read_records
from omnigraph.storage.tables.datasets import HINT
from omnigraph.storage.tables.segments import segments_of
from omnigraph.storage.tables.types import TableRef, split_file
from omnigraph.storage.tables.verification import branch_names, files_by_directory, files_of_version

_SHARE = 64


@dataclass(slots=True)
class Named:
    """What versions name, as far as it can be read."""

    paths: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    """Tables of which some version cannot be read: every file there may be needed."""
    indexes: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """The directory of each index that is in use: where it lies, its table, its column."""

    def has(self, path: str) -> bool:
        """Whether a file is needed; a blob is when the file of its row is."""
        location, copy, parts = split(path)
        if location in self.unknown or parts[0] == "_refs" or path in self.paths:
            return True
        if parts[0] == "data" and len(parts) > 2:
            return f"{copy}/data/{parts[1]}.lance" in self.paths
        return False


def split(path: str) -> tuple[str, str, list[str]]:
    """A file as its table, the copy of it in which it lies, and the way from there."""
    parts = path.split("/")
    start = 1 if parts[0] in (MANIFEST, AUDIT_TABLE) else 2
    found = split_file("/".join(parts[start:]))
    if found is None:
        return "/".join(parts[:start]), "/".join(parts[:start]), parts[start:]
    copy = "/".join([*parts[:start], *found[0].split("/")] if found[0] else parts[:start])
    return "/".join(parts[:start]), copy, found[1].split("/")


def look_at_names(ground: Ground, locations: Iterable[str]) -> Named:
    """Everything that the versions of some tables name, on all their branches."""
    named = Named()
    for location in locations:
        table = ground.table_at(f"{location}/")
        if _has_damaged_versions(ground, location):
            # What they name cannot be asked for; that they are damaged is told by their names.
            named.unknown.add(location)
            continue
        branches: list[str] = []
        with _reading(ground, named, location, table, None):
            branches = branch_names(ground.store.datasets, location)
        for branch in (None, *branches):
            with _reading(ground, named, location, table, branch):
                for folder, names in files_by_directory(
                    ground.store.datasets, TableRef(location, branch)
                ):
                    named.paths.update(f"{folder}/{name}" for name in names)
    for snapshot, pin in ground.pins():
        if pin.location in locations and _is_openable(ground, pin):
            with ground.guarded(
                "indexes",
                code=ProblemCode.TABLE_UNREADABLE,
                hint=FROM_BACKUP,
                table=pin.table_key,
                branch=branch_label(snapshot.branch),
            ):
                table_now = ground.store.tables.open(pin.ref, pin.version)
                for name, segments in segments_of(table_now).items():
                    column = name.rpartition("_")[0]
                    for each in segments:
                        named.indexes[each.uuid] = (pin.location, pin.table_key, column)
                if pin.location in named.unknown:
                    _of_version(ground, named, pin.ref, files_of_version(table_now))
    return named


@contextmanager
def _reading(
    ground: Ground, named: Named, location: str, table: str | None, branch: str | None
) -> Iterator[None]:
    """Reading one copy: when it fails, all files of its table may be needed."""
    try:
        yield
    except OmniGraphError as error:
        named.unknown.add(location)
        ground.problems.add(
            VerifyProblem(
                ProblemCode.HISTORY_UNREADABLE,
                f"a version of '{table or location}' cannot be read: {error.message}",
                f"{FROM_BACKUP}; if only old versions are meant, cleanup removes them",
                table=table,
                branch=branch_label(branch),
            )
        )


def _has_damaged_versions(ground: Ground, location: str) -> bool:
    inside = (path for path in ground.damaged if path.startswith(f"{location}/"))
    return any(path.endswith(".manifest") for path in inside)


def _is_openable(ground: Ground, pin: Pin) -> bool:
    return ground.store.datasets.version_path(pin.ref, pin.version) not in ground.damaged


def _of_version(ground: Ground, named: Named, ref: TableRef, names: Iterable[str]) -> None:
    """A branch has its files in its own directory or in that of what it was made from."""
    for name in names:
        there = [p for p in (f"{ref.path}/{name}", f"{ref.location}/{name}") if p in ground.files]
        named.paths.add(there[0] if there else f"{ref.path}/{name}")


def look_at_records(ground: Ground, pending: Mapping[str, FileSum]) -> ChecksumRecords:
    """What is recorded, and what this process has not recorded yet."""
    records = ChecksumRecords()
    with ground.guarded("the checksums"):
        records = read_records(ground.store.objects)
    records.add(pending)
    for name in records.damaged:
        ground.problems.add(
            VerifyProblem(
                ProblemCode.CHECKSUM_RECORD_DAMAGED,
                f"the checksums in '{FOLDER}/{name}' cannot be read; their files are unverified",
                "run graph.maintenance.optimize(): it removes the record",
                Weight.WARNING,
                file=f"{FOLDER}/{name}",
            )
        )
    return records


def look_for_missing(ground: Ground, named: Named, records: ChecksumRecords) -> None:
    """Files that a version names, or that were written beside one, and that are gone."""
    gone = {path for path in named.paths if path not in ground.files}
    for path in records.sums:
        _, _, parts = split(path)
        is_blob = parts[0] == "data" and len(parts) > 2
        is_index = parts[0] == "_indices" and len(parts) > 1 and parts[1] in named.indexes
        if path not in ground.files and (is_index or (is_blob and named.has(path))):
            gone.add(path)
    for path in sorted(gone):
        with ground.guarded("a file", file=path):
            if ground.store.objects.head(path) is None:
                ground.problems.add(
                    VerifyProblem(
                        ProblemCode.FILE_MISSING,
                        f"'{path}' is named by a version and is not there",
                        _hint(named, path),
                        table=ground.table_at(path),
                        file=path,
                    )
                )


def compare_files(
    ground: Ground,
    records: ChecksumRecords,
    paths: Iterable[str],
    many: int,
    told: Callable[[int, int], None],
) -> None:
    """Find the files that are not what was recorded of them, before anybody else reads them.

    A version file of which nothing is recorded must be one, and of the version in its name.
    """
    datasets = ground.store.datasets
    known = [
        path
        for path in paths
        if _is_kept(path) and (path in records.sums or path.endswith(".manifest"))
    ]
    shares = [known[start : start + _SHARE] for start in range(0, len(known), _SHARE)]

    def compare(share: list[str]) -> None:
        for path in share:
            with ground.guarded(
                "a file", code=ProblemCode.FILE_MISSING, table=ground.table_at(path), file=path
            ):
                if path not in records.sums:
                    is_right = not datasets.is_damaged_version(path)
                else:
                    info = ground.files[path]
                    is_right = is_same(ground.store.objects, path, info, records.sums[path])
                if not is_right:
                    ground.damaged.add(path)

    with ThreadPoolExecutor(many) as pool:
        for done, _ in enumerate(pool.map(compare, shares), start=1):
            told(done, len(shares))


def tell_of_files(
    ground: Ground, named: Named, records: ChecksumRecords, locations: Iterable[str]
) -> list[str]:
    """Count the files, name those that are damaged; gives the first of which nothing is known."""
    wanted = set(locations)
    mine = [p for p in sorted(ground.files) if split(p)[0] in wanted and _is_kept(p)]
    needed = [path for path in mine if named.has(path)]
    unverified = [path for path in needed if path not in records.sums]
    ground.problems.count(
        files=len(needed),
        bytes=sum(ground.files[path].size for path in needed),
        checked=len(needed) - len(unverified),
        unverified=len(unverified),
        unnamed=len(mine) - len(needed),
    )
    for path in needed:
        if path in ground.damaged:
            ground.problems.add(
                VerifyProblem(
                    ProblemCode.CHECKSUM_MISMATCH,
                    f"'{path}' is not what was written: its bytes have changed",
                    _hint(named, path),
                    table=ground.table_at(path),
                    file=path,
                )
            )
    return unverified[:LISTED]


def _is_kept(path: str) -> bool:
    """Whether a file stays as it is.

    Hints change, and detached versions are in no history. The lock branch of a schema apply comes
    back under its name with other bytes, and nobody reads it.
    """
    *folders, name = path.split("/")
    is_lock = SCHEMA_LOCK in folders or name == f"{SCHEMA_LOCK}.json"
    is_detached = name.endswith(".manifest") and name.startswith("d")
    return name != HINT and not is_detached and not is_lock


def _hint(named: Named, path: str) -> str:
    parts = split(path)[2]
    found = named.indexes.get(parts[1]) if parts[0] == "_indices" and len(parts) > 1 else None
    return FROM_BACKUP if found is None else rebuild_hint(found[1], found[2])
