"""Files: those that versions reference exist, and are as they were written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field

from omnigraph.commit.audit import AUDIT_TABLE
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import SCHEMA_LOCK, branch_label
from omnigraph.commit.snapshot import Pin
from omnigraph.errors import OmniGraphError
from omnigraph.maintain.verify.context import FROM_BACKUP, VerifyContext
from omnigraph.maintain.verify.indexes import rebuild_hint
from omnigraph.maintain.verify.report import LISTED, ProblemCode, Weight
from omnigraph.records import dataclass
from omnigraph.storage.checksums import FOLDER, ChecksumRecords, FileSum, is_same, read_records
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.storage.tables.datasets import HINT
from omnigraph.storage.tables.files import referenced_files
from omnigraph.storage.tables.segments import segments_of
from omnigraph.storage.tables.types import TableRef, split_file
from omnigraph.storage.tables.verification import branch_names, files_of_version

_FILES_PER_TASK = 64


@dataclass(slots=True)
class ReferencedFiles:
    """The files that versions reference, as far as these can be read."""

    paths: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    """Tables with an unreadable version: every file there may be needed."""
    indexes: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The table key and column of each used index, by its directory."""

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
    location, rest = "/".join(parts[:start]), "/".join(parts[start:])
    copy, inner = split_file(rest) or ("", rest)
    return location, f"{location}/{copy}".rstrip("/"), inner.split("/")


def referenced_paths(context: VerifyContext, locations: Iterable[str]) -> ReferencedFiles:
    """All files that the versions of some tables reference, on all branches."""
    referenced, datasets = ReferencedFiles(), context.store.datasets
    for location in locations:
        inside = (path for path in context.damaged if path.startswith(f"{location}/"))
        if any(path.endswith(".manifest") for path in inside):
            # Their references cannot be read; the damage is reported by file.
            referenced.unknown.add(location)
            continue
        branches: list[str] = []
        with _reading(context, referenced, location, None):
            branches = branch_names(datasets, location)
        for branch in (None, *branches):
            with _reading(context, referenced, location, branch):
                files = referenced_files(datasets, TableRef(location, branch))
                referenced.paths.update(file.path for file in files)
    for snapshot, pin in context.pins():
        version_path = pin.ref.version_path(pin.version)
        if pin.location in locations and version_path not in context.damaged:
            with context.guarded(
                "indexes",
                code=ProblemCode.TABLE_UNREADABLE,
                hint=FROM_BACKUP,
                table=pin.table_key,
                branch=branch_label(snapshot.branch),
            ):
                _add_pinned(context, referenced, pin)
    return referenced


@contextmanager
def _reading(
    context: VerifyContext, referenced: ReferencedFiles, location: str, branch: str | None
) -> Iterator[None]:
    """Read one copy: if it fails, all files of its table may be needed."""
    try:
        yield
    except OmniGraphError as error:
        referenced.unknown.add(location)
        table = context.table_at(f"{location}/")
        context.add(
            ProblemCode.HISTORY_UNREADABLE,
            f"a version of '{table or location}' cannot be read: {error.message}",
            f"{FROM_BACKUP}; cleanup removes it if it is an old version",
            table=table,
            branch=branch_label(branch),
        )


def _add_pinned(context: VerifyContext, referenced: ReferencedFiles, pin: Pin) -> None:
    """The indexes of a pinned version, and its files where those of other versions are unknown."""
    table = context.store.tables.open(pin.ref, pin.version)
    for name, segments in segments_of(table).items():
        column = name.rpartition("_")[0]
        for segment in segments:
            referenced.indexes[segment.uuid] = (pin.table_key, column)
    if pin.location in referenced.unknown:
        for file in files_of_version(table):
            # A branch has its files in its own directory or in that of its origin.
            paths = (f"{pin.ref.path}/{file}", f"{pin.location}/{file}")
            referenced.paths.add(next((p for p in paths if p in context.files), paths[0]))


def check_records(context: VerifyContext, pending: Mapping[str, FileSum]) -> ChecksumRecords:
    """The recorded checksums, and those that this process has not recorded yet."""
    records = ChecksumRecords()
    with context.guarded("the checksums"):
        records = read_records(context.store.objects)
    records.add(pending)
    for name in records.damaged:
        context.add(
            ProblemCode.CHECKSUM_RECORD_DAMAGED,
            f"the checksums in '{FOLDER}/{name}' cannot be read; their files are unverified",
            "run graph.maintenance.optimize(): it removes the record",
            Weight.WARNING,
            file=f"{FOLDER}/{name}",
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
                message = f"'{path}' is referenced by a version but missing"
                _report(context, ProblemCode.FILE_MISSING, message, referenced, path)


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
    stable = filter(_is_stable, paths)
    checkable = [path for path in stable if path in records.sums or path.endswith(".manifest")]
    starts = range(0, len(checkable), _FILES_PER_TASK)
    tasks = [checkable[start : start + _FILES_PER_TASK] for start in starts]

    def compare(task: list[str]) -> None:
        for path in task:
            with context.guarded(
                "a file", code=ProblemCode.FILE_MISSING, table=context.table_at(path), file=path
            ):
                if path not in records.sums:
                    is_right = not datasets.first_reads.is_damaged_version(path)
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
            message = f"'{path}' is not what was written: its bytes have changed"
            _report(context, ProblemCode.CHECKSUM_MISMATCH, message, referenced, path)
    return unverified[:LISTED]


def _is_stable(path: str) -> bool:
    """Whether a file never changes.

    Hints change, and detached versions belong to no history. The lock branch of a schema apply is
    created again with other bytes, and is not read.
    """
    *folders, name = path.split("/")
    is_lock = SCHEMA_LOCK in folders or name == f"{SCHEMA_LOCK}.json"
    is_detached = name.endswith(".manifest") and name.startswith("d")
    return name != HINT and not is_detached and not is_lock


def _report(
    context: VerifyContext, code: ProblemCode, message: str, referenced: ReferencedFiles, path: str
) -> None:
    parts = split(path)[2]
    index = referenced.indexes.get(parts[1]) if parts[0] == "_indices" and len(parts) > 1 else None
    hint = FROM_BACKUP if index is None else rebuild_hint(*index)
    context.add(code, message, hint, table=context.table_at(path), file=path)
