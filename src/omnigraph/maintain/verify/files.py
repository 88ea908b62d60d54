"""Files: those that versions reference exist, and are as they were written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from omnigraph.commit.audit import AUDIT_TABLE
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import SCHEMA_LOCK, branch_label
from omnigraph.commit.snapshot import Pin
from omnigraph.errors import OmniGraphError
from omnigraph.maintain.verify.context import FROM_BACKUP, VerifyContext
from omnigraph.maintain.verify.indexes import rebuild_hint
from omnigraph.maintain.verify.report import LISTED, ProblemCode, VerifyProblem, Weight
from omnigraph.storage.checksums import FOLDER, ChecksumRecords, FileSum, is_same, read_records
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.storage.tables.datasets import HINT
from omnigraph.storage.tables.segments import segments_of
from omnigraph.storage.tables.types import TableRef, split_file
from omnigraph.storage.tables.verification import branch_names, files_by_directory, files_of_version

_FILES_PER_TASK = 64


@dataclass(slots=True)
class ReferencedFiles:
    """The files that versions reference, as far as these can be read."""

    paths: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    """Tables with an unreadable version: every file there may be needed."""
    indexes: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """The location, table key and column of each used index, by its directory."""

    def has(self, path: str) -> bool:
        """Whether a file is needed; a blob is if the file of its row is."""
        location, copy, parts = split(path)
        if location in self.unknown or parts[0] == "_refs" or path in self.paths:
            return True
        if parts[0] == "data" and len(parts) > 2:
            return f"{copy}/data/{parts[1]}.lance" in self.paths
        return False


def split(path: str) -> tuple[str, str, list[str]]:
    """The table of a file, the table copy, and the path inside of it."""
    parts = path.split("/")
    start = 1 if parts[0] in (MANIFEST, AUDIT_TABLE) else 2
    inner = split_file("/".join(parts[start:]))
    if inner is None:
        return "/".join(parts[:start]), "/".join(parts[:start]), parts[start:]
    copy = "/".join([*parts[:start], *inner[0].split("/")] if inner[0] else parts[:start])
    return "/".join(parts[:start]), copy, inner[1].split("/")


def referenced_paths(context: VerifyContext, locations: Iterable[str]) -> ReferencedFiles:
    """All files that the versions of some tables reference, on all branches."""
    referenced = ReferencedFiles()
    for location in locations:
        table = context.table_at(f"{location}/")
        if _has_damaged_versions(context, location):
            # Their references cannot be read; the damage is reported by file.
            referenced.unknown.add(location)
            continue
        branches: list[str] = []
        with _reading(context, referenced, location, table, None):
            branches = branch_names(context.store.datasets, location)
        for branch in (None, *branches):
            with _reading(context, referenced, location, table, branch):
                for folder, names in files_by_directory(
                    context.store.datasets, TableRef(location, branch)
                ):
                    referenced.paths.update(f"{folder}/{name}" for name in names)
    for snapshot, pin in context.pins():
        if pin.location in locations and _is_openable(context, pin):
            with context.guarded(
                "indexes",
                code=ProblemCode.TABLE_UNREADABLE,
                hint=FROM_BACKUP,
                table=pin.table_key,
                branch=branch_label(snapshot.branch),
            ):
                table_at_pin = context.store.tables.open(pin.ref, pin.version)
                for name, segments in segments_of(table_at_pin).items():
                    column = name.rpartition("_")[0]
                    for segment in segments:
                        referenced.indexes[segment.uuid] = (pin.location, pin.table_key, column)
                if pin.location in referenced.unknown:
                    _add_version(context, referenced, pin.ref, files_of_version(table_at_pin))
    return referenced


@contextmanager
def _reading(
    context: VerifyContext,
    referenced: ReferencedFiles,
    location: str,
    table: str | None,
    branch: str | None,
) -> Iterator[None]:
    """Read one copy: if it fails, all files of its table may be needed."""
    try:
        yield
    except OmniGraphError as error:
        referenced.unknown.add(location)
        context.problems.add(
            VerifyProblem(
                ProblemCode.HISTORY_UNREADABLE,
                f"a version of '{table or location}' cannot be read: {error.message}",
                f"{FROM_BACKUP}; cleanup removes it if it is an old version",
                table=table,
                branch=branch_label(branch),
            )
        )


def _has_damaged_versions(context: VerifyContext, location: str) -> bool:
    inside = (path for path in context.damaged if path.startswith(f"{location}/"))
    return any(path.endswith(".manifest") for path in inside)


def _is_openable(context: VerifyContext, pin: Pin) -> bool:
    return context.store.datasets.version_path(pin.ref, pin.version) not in context.damaged


def _add_version(
    context: VerifyContext, referenced: ReferencedFiles, ref: TableRef, names: Iterable[str]
) -> None:
    """A branch has its files in its own directory or in that of its origin."""
    for name in names:
        existing = [
            p for p in (f"{ref.path}/{name}", f"{ref.location}/{name}") if p in context.files
        ]
        referenced.paths.add(existing[0] if existing else f"{ref.path}/{name}")


def check_records(context: VerifyContext, pending: Mapping[str, FileSum]) -> ChecksumRecords:
    """The recorded checksums, and those that this process has not recorded yet."""
    records = ChecksumRecords()
    with context.guarded("the checksums"):
        records = read_records(context.store.objects)
    records.add(pending)
    for name in records.damaged:
        context.problems.add(
            VerifyProblem(
                ProblemCode.CHECKSUM_RECORD_DAMAGED,
                f"the checksums in '{FOLDER}/{name}' cannot be read; their files are unverified",
                "run graph.maintenance.optimize(): it removes the record",
                Weight.WARNING,
                file=f"{FOLDER}/{name}",
            )
        )
    return records


def check_missing(
    context: VerifyContext, referenced: ReferencedFiles, records: ChecksumRecords
) -> None:
    """Missing files that a version references, or that belong to a referenced one."""
    gone = {path for path in referenced.paths if path not in context.files}
    for path in records.sums:
        _, _, parts = split(path)
        is_blob = parts[0] == "data" and len(parts) > 2
        is_index = parts[0] == "_indices" and len(parts) > 1 and parts[1] in referenced.indexes
        if path not in context.files and (is_index or (is_blob and referenced.has(path))):
            gone.add(path)
    for path in sorted(gone):
        with context.guarded("a file", file=path):
            if context.store.objects.head(path) is None:
                context.problems.add(
                    VerifyProblem(
                        ProblemCode.FILE_MISSING,
                        f"'{path}' is referenced by a version but missing",
                        _hint(referenced, path),
                        table=context.table_at(path),
                        file=path,
                    )
                )


def compare_files(
    context: VerifyContext,
    records: ChecksumRecords,
    paths: Iterable[str],
    concurrency: int,
    report: Callable[[int, int], None],
) -> None:
    """Find the files that differ from their checksum, before they are read for anything else.

    A version file without a checksum has to be a valid one of the version in its name.
    """
    datasets = context.store.datasets
    checkable = [
        path
        for path in paths
        if _is_stable(path) and (path in records.sums or path.endswith(".manifest"))
    ]
    tasks = [
        checkable[start : start + _FILES_PER_TASK]
        for start in range(0, len(checkable), _FILES_PER_TASK)
    ]

    def compare(task: list[str]) -> None:
        for path in task:
            with context.guarded(
                "a file", code=ProblemCode.FILE_MISSING, table=context.table_at(path), file=path
            ):
                if path not in records.sums:
                    is_right = not datasets.is_damaged_version(path)
                else:
                    info = context.files[path]
                    is_right = is_same(context.store.objects, path, info, records.sums[path])
                if not is_right:
                    context.damaged.add(path)

    executor = ThreadExecutor(concurrency, lambda _, done, total: report(done, total))
    executor.run(compare, tasks)


def report_files(
    context: VerifyContext,
    referenced: ReferencedFiles,
    records: ChecksumRecords,
    locations: Iterable[str],
) -> list[str]:
    """Count the files and report damaged ones; returns the first files without a checksum."""
    wanted = set(locations)
    stable = [p for p in sorted(context.files) if split(p)[0] in wanted and _is_stable(p)]
    needed = [path for path in stable if referenced.has(path)]
    unverified = [path for path in needed if path not in records.sums]
    context.problems.count(
        files=len(needed),
        bytes=sum(context.files[path].size for path in needed),
        checked=len(needed) - len(unverified),
        unverified=len(unverified),
        unnamed=len(stable) - len(needed),
    )
    for path in needed:
        if path in context.damaged:
            context.problems.add(
                VerifyProblem(
                    ProblemCode.CHECKSUM_MISMATCH,
                    f"'{path}' is not what was written: its bytes have changed",
                    _hint(referenced, path),
                    table=context.table_at(path),
                    file=path,
                )
            )
    return unverified[:LISTED]


def _is_stable(path: str) -> bool:
    """Whether a file never changes.

    Hints change, and detached versions belong to no history. The lock branch of a schema apply is
    created again with other bytes, and nobody reads it.
    """
    *folders, name = path.split("/")
    is_lock = SCHEMA_LOCK in folders or name == f"{SCHEMA_LOCK}.json"
    is_detached = name.endswith(".manifest") and name.startswith("d")
    return name != HINT and not is_detached and not is_lock


def _hint(referenced: ReferencedFiles, path: str) -> str:
    parts = split(path)[2]
    index = referenced.indexes.get(parts[1]) if parts[0] == "_indices" and len(parts) > 1 else None
    return FROM_BACKUP if index is None else rebuild_hint(index[1], index[2])
