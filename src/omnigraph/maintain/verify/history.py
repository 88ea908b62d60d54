"""Checks beside the tables: schema files, branches, commits, tags, unfinished writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pyarrow.compute as pc

from omnigraph.commit.branch_claims import read_claims
from omnigraph.commit.branches import Branches
from omnigraph.commit.history import History
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import SCHEMA_LOCK, branch_label, normal_branch
from omnigraph.commit.removal import Purpose, RemovalIntent, read_intents
from omnigraph.commit.rows import HeadRow, from_arrow
from omnigraph.commit.sidecar import FOLDER as RECOVERY
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.staging import ENDING
from omnigraph.errors import HistoryGone, OmniGraphError, StorageCorrupt, StorageMissing
from omnigraph.maintain.verify.context import FROM_BACKUP, VerifyContext
from omnigraph.maintain.verify.report import ProblemCode, VerifyProblem, Weight
from omnigraph.storage.objects.graph_paths import branch_of_reference, escaped
from omnigraph.storage.removed_versions import life_id, read_removed
from omnigraph.storage.tables.ledger import Ledger
from omnigraph.storage.tables.types import TableRef, split_file

_ABANDONED = timedelta(days=7)
_CLEANUP = "run graph.maintenance.cleanup()"
_REFS = "_refs/branches/"


def check_schema(context: VerifyContext) -> None:
    """The three schema files agree."""
    with context.guarded("the schema files", code=ProblemCode.SCHEMA_DISAGREES):
        context.contract = context.store.schema_files.load()


def check_branches(context: VerifyContext) -> list[str]:
    """Every branch with a readable reference; all tables depend on their states."""
    references = {p for p in context.files if p.startswith(f"{MANIFEST}/{_REFS}")}
    _damaged_references(context, references)
    names = ["main"]
    with context.guarded("the branches", code=ProblemCode.MANIFEST_UNREADABLE, hint=FROM_BACKUP):
        _require_intact(context, None)
        names = Branches(context.store).list()
    for name in names:
        with context.guarded(
            f"the manifest of branch '{name}'",
            code=ProblemCode.MANIFEST_UNREADABLE,
            hint=FROM_BACKUP,
            table=MANIFEST,
            branch=name,
        ):
            branch = normal_branch(name)
            _require_intact(context, branch)
            context.snapshots[branch] = context.store.manifest(branch).current()
    return names


def _require_intact(context: VerifyContext, branch: str | None) -> None:
    """A damaged file is never read: it could end the process."""
    ref = TableRef(MANIFEST, branch)
    folder = f"{ref.path}/_versions/"
    existing = [name for name in context.files if name.startswith(folder)]
    # The names of versions count down.
    newest = min((name for name in existing if name.endswith(".manifest")), default=None)
    damaged = newest in context.damaged
    if newest is not None and not damaged:
        version = 2**64 - 1 - int(newest.removeprefix(folder).removesuffix(".manifest"))
        damaged = not context.is_intact(ref, version)
    if damaged:
        raise StorageCorrupt(f"files of the manifest of '{branch_label(branch)}' are damaged")


def _damaged_references(context: VerifyContext, references: set[str]) -> None:
    others = {p for p in context.files if f"/{_REFS}" in p} - references
    for path in sorted(references | others):
        with context.guarded("a branch", table=context.table_at(path), file=path):
            try:
                branch_of_reference(path.rpartition("/")[2])
                reference = json.loads(context.store.objects.read(path))
            except (ValueError, StorageMissing, StorageCorrupt, RecursionError):
                reference = None
            if not isinstance(reference, dict):
                context.problems.add(
                    VerifyProblem(
                        ProblemCode.BRANCH_REFERENCE_DAMAGED,
                        f"{escaped(path)} is not a valid branch reference",
                        FROM_BACKUP,
                        table=context.table_at(path),
                        file=path,
                    )
                )


def check_orphans(context: VerifyContext) -> None:
    """Directories of deleted branches, of the graph and of single tables."""
    if context.reverted:
        # The lost state may use them, and the hint would be to remove them.
        return
    writing = _being_written(context)
    for path, location, branch in _copies(context):
        reference = f"{location}/{_REFS}{branch.replace('/', '%2F')}.json"
        if location == MANIFEST:
            if reference not in context.files and branch != SCHEMA_LOCK:
                context.problems.add(_orphan(ProblemCode.ORPHAN_BRANCH, path, branch, MANIFEST))
            continue
        pins = {(pin.location, pin.branch) for _, pin in context.pins(of_all=True)}
        table = context.table_at(path)
        if (location, branch) not in pins and (table, branch) not in writing:
            context.problems.add(_orphan(ProblemCode.ORPHAN_FORK, path, branch, table))


def _being_written(context: VerifyContext) -> set[tuple[str | None, str | None]]:
    """The tables and branches of unfinished writes; they fork first."""
    busy: set[tuple[str | None, str | None]] = set()
    for operation in context.store.sidecars.list():
        with suppress(OmniGraphError):
            sidecar = context.store.sidecars.read(operation)
            entries = () if sidecar is None else sidecar.tables
            busy |= {(entry.table_key, entry.table_branch) for entry in entries}
    return busy


def _copies(context: VerifyContext) -> Iterator[tuple[str, str, str]]:
    """The directories of branches with versions: path, table, and branch."""
    copies: dict[str, tuple[str, str]] = {}
    for path in context.files:
        copy, name = split_file(path) or ("", "")
        location, tree, branch = copy.partition("/tree/")
        if tree and name.startswith("_versions/"):
            copies.setdefault(copy, (location, branch))
    for path, (location, branch) in sorted(copies.items()):
        yield path, location, branch


def _orphan(code: ProblemCode, path: str, branch: str, table: str | None) -> VerifyProblem:
    return VerifyProblem(
        code,
        f"'{path}' is left over from a deleted branch",
        _CLEANUP,
        Weight.WARNING,
        table,
        branch,
        path,
    )


# -- commits --------------------------------------------------------------------------------------


def check_commits(context: VerifyContext, snapshot: Snapshot) -> None:
    """The parent of every commit exists, and so does the head."""
    name = branch_label(snapshot.branch)
    with context.guarded(
        f"the commits of branch '{name}'",
        code=ProblemCode.MANIFEST_UNREADABLE,
        hint=FROM_BACKUP,
        table=MANIFEST,
        branch=name,
    ):
        manifest = context.store.manifest(snapshot.branch)
        commits = manifest.commits()
        existing = {commit.commit_id for commit in commits}
        for commit in commits[1:]:
            if commit.parent not in existing:
                context.problems.add(
                    VerifyProblem(
                        ProblemCode.PARENT_MISSING,
                        f"the parent {commit.parent} of commit {commit.commit_id} is missing",
                        FROM_BACKUP,
                        table=MANIFEST,
                        branch=name,
                    )
                )
        ledger = Ledger.open(context.store.datasets, manifest.ref, snapshot.manifest_version)
        rows = from_arrow(ledger.read(condition=pc.field("object_type") == HeadRow.kind))
        for row in (row for row in rows if isinstance(row, HeadRow)):
            if row.branch == snapshot.branch and row.commit_id not in existing:
                context.problems.add(
                    VerifyProblem(
                        ProblemCode.HEAD_UNKNOWN,
                        f"the head {row.commit_id} of branch '{name}' is missing",
                        FROM_BACKUP,
                        table=MANIFEST,
                        branch=name,
                    )
                )


def check_tags(context: VerifyContext) -> None:
    """The state of every tag exists, with its tables."""
    if None not in context.snapshots or any(p.startswith(MANIFEST) for p in context.damaged):
        return
    with context.guarded("the tags", table=MANIFEST):
        history = History(context.store)
        removed = _removed_versions(context)
        for name, row in context.store.manifest(None).tags().items():
            try:
                snapshot = history.snapshot_of(row.commit_id or "")
            except HistoryGone as error:
                # A cleanup keeps the states of tags, unless their data was dropped before.
                branch = normal_branch(history.commit(row.commit_id or "").branch)
                if removed(TableRef(MANIFEST, branch), int(error.details.get("version", 0))):
                    context.problems.add(_outdated_tag(name))
                else:
                    context.problems.add(_unreadable_tag(name, error.message))
                continue
            except OmniGraphError as error:
                context.problems.add(_unreadable_tag(name, error.message))
                continue
            gone = {
                key: pin
                for key, pin in snapshot.pins.items()
                if context.store.tables.info(pin.ref, pin.version) is None
            }
            if not gone:
                continue
            if all(removed(pin.ref, pin.version) for pin in gone.values()):
                context.problems.add(_outdated_tag(name))
            else:
                tables = ", ".join(gone)
                context.problems.add(_unreadable_tag(name, f"the tables {tables} are gone"))


def _removed_versions(context: VerifyContext) -> Callable[[TableRef, int], bool]:
    """Whether a table version was removed on purpose, by the graph's own record."""
    objects = context.store.objects
    with suppress(StorageCorrupt):
        record = read_removed(objects)
        if record is not None:
            return lambda ref, version: version in record.of(ref, life_id(objects, ref))
    return lambda ref, version: False


def _outdated_tag(name: str) -> VerifyProblem:
    return VerifyProblem(
        ProblemCode.TAG_UNREADABLE,
        f"the data of tag '{name}' was dropped for good by a schema apply",
        "delete the tag",
        Weight.WARNING,
        table=MANIFEST,
    )


def _unreadable_tag(name: str, why: str) -> VerifyProblem:
    return VerifyProblem(
        ProblemCode.TAG_UNREADABLE,
        f"the state of tag '{name}' cannot be read: {why}",
        "move or delete the tag, or restore the graph from a backup",
        table=MANIFEST,
    )


# -- unfinished writes ----------------------------------------------------------------------------


def check_writes(context: VerifyContext) -> None:
    """Sidecars and markers of running and of interrupted writes."""
    store = context.store
    with context.guarded("the recovery files"):
        for operation in store.sidecars.list():
            file = f"{RECOVERY}/{operation}.json"
            with context.guarded("a recovery file", code=ProblemCode.SIDECAR_DAMAGED, file=file):
                if store.sidecars.read(operation) is not None:
                    context.problems.add(
                        VerifyProblem(
                            ProblemCode.WRITE_INTERRUPTED,
                            f"the write {operation} is running or was interrupted",
                            "if no writer is running, open the graph read-write to recover it",
                            Weight.WARNING,
                            file=file,
                        )
                    )
        for name in store.objects.list(RECOVERY):
            if name.endswith(ENDING):
                _check_marker(context, f"{RECOVERY}/{name}")
        for claim in read_claims(store):
            if isinstance(claim, StorageCorrupt):
                context.problems.add(_damaged_marker(claim))
        for intent in read_intents(store):
            if isinstance(intent, StorageCorrupt):
                context.problems.add(_damaged_marker(intent))
            else:
                context.problems.add(_removal(intent))


def _damaged_marker(error: StorageCorrupt) -> VerifyProblem:
    file = str(error.details["file"])
    return VerifyProblem(
        ProblemCode.MARKER_DAMAGED, error.message, error.hint, Weight.WARNING, file=file
    )


def _removal(intent: RemovalIntent) -> VerifyProblem:
    what, left = "a cleanup", "files of removed versions"
    if intent.purpose is Purpose.DROP:
        what, left = "a hard drop", "dropped data"
    return VerifyProblem(
        ProblemCode.CLEANUP_UNFINISHED,
        f"{what} of '{intent.table_key}' is running or was interrupted: {left} may remain",
        "if no process works on it, open the graph read-write, or run "
        "graph.maintenance.cleanup() or repair(), to finish it",
        Weight.WARNING,
        intent.table_key,
        branch_label(intent.ref.branch),
        intent.path,
    )


def _check_marker(context: VerifyContext, file: str) -> None:
    with context.guarded("a marker", file=file):
        try:
            text = context.store.objects.read(file)
        except StorageMissing:
            return
        try:
            since = datetime.fromtimestamp(json.loads(text)["started_at"] / 1_000_000, UTC)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            context.problems.add(
                VerifyProblem(
                    ProblemCode.MARKER_DAMAGED,
                    f"'{file}' is not a valid staging marker",
                    "remove it if no load runs",
                    Weight.WARNING,
                    file=file,
                )
            )
            return
        if datetime.now(UTC) - since > _ABANDONED:
            context.problems.add(
                VerifyProblem(
                    ProblemCode.STAGING_ABANDONED,
                    f"a write started on {since:%Y-%m-%d} has not ended",
                    "if its process is gone, run graph.maintenance.cleanup()",
                    Weight.WARNING,
                    file=file,
                )
            )
