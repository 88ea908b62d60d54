"""Checks beside the tables: schema files, branches, commits, tags, unfinished writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta

from omnigraph.commit.branches import Branches
from omnigraph.commit.history import History
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import SCHEMA_LOCK, branch_label, normal_branch
from omnigraph.commit.removal import Purpose, RemovalIntent, read_intents
from omnigraph.commit.rows import HeadRow, from_arrow
from omnigraph.commit.sidecar import FOLDER as RECOVERY
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.staging import ENDING, read_claims
from omnigraph.errors import HistoryGone, OmniGraphError, StorageCorrupt, StorageMissing
from omnigraph.maintain.running_writes import committing_tables
from omnigraph.maintain.verify.context import FROM_BACKUP, VerifyContext
from omnigraph.maintain.verify.report import ProblemCode, Weight
from omnigraph.storage.objects.paths import (
    branch_file,
    branch_of_reference,
    escaped,
    version_number,
)
from omnigraph.storage.removed_versions import life_id, read_removed
from omnigraph.storage.tables.ledger import Ledger
from omnigraph.storage.tables.ledger_reader import has_text
from omnigraph.storage.tables.types import TableRef, split_file

_ABANDONED = timedelta(days=7)
_CLEANUP = "run graph.maintenance.cleanup()"


def check_schema(context: VerifyContext) -> None:
    """The three schema files agree."""
    with context.guarded("the schema files", code=ProblemCode.SCHEMA_DISAGREES):
        context.contract = context.store.schema_files.load()


def check_branches(context: VerifyContext) -> list[str]:
    """Every branch with a readable reference; all tables depend on their states."""
    for path in sorted(path for path in context.files if "/_refs/branches/" in path):
        _check_reference(context, path)
    names = ["main"]
    with context.guarded("the branches", code=ProblemCode.MANIFEST_UNREADABLE, hint=FROM_BACKUP):
        _require_intact(context, None)
        names = Branches(context.store).list()
    for name in names:
        with _reading_manifest(context, f"the manifest of branch '{name}'", name):
            branch = normal_branch(name)
            _require_intact(context, branch)
            context.snapshots[branch] = context.store.manifest(branch).current()
    return names


def _reading_manifest(
    context: VerifyContext, what: str, branch: str
) -> AbstractContextManager[None]:
    code = ProblemCode.MANIFEST_UNREADABLE
    return context.guarded(what, code=code, hint=FROM_BACKUP, table=MANIFEST, branch=branch)


def _require_intact(context: VerifyContext, branch: str | None) -> None:
    """Refuse to read a damaged file: it could crash the process."""
    ref = TableRef(MANIFEST, branch)
    folder = f"{ref.path}/_versions/"
    names = (path.removeprefix(folder) for path in context.files if path.startswith(folder))
    newest = max((version_number(name) or 0 for name in names), default=0)
    if newest and not context.is_intact(ref, newest):
        raise StorageCorrupt(f"files of the manifest of '{branch_label(branch)}' are damaged")


def _check_reference(context: VerifyContext, path: str) -> None:
    table = context.table_at(path)
    with context.guarded("a branch", table=table, file=path):
        try:
            branch_of_reference(path.rpartition("/")[2])
            reference = json.loads(context.store.objects.read(path))
        except (ValueError, StorageMissing, StorageCorrupt, RecursionError):
            reference = None
        if not isinstance(reference, dict):
            message = f"{escaped(path)} is not a valid branch reference"
            code = ProblemCode.BRANCH_REFERENCE_DAMAGED
            context.add(code, message, FROM_BACKUP, table=table, file=path)


def check_orphans(context: VerifyContext) -> None:
    """Directories of deleted branches, of the graph and of single tables."""
    if context.reverted:
        # The lost state may use them, and the hint would be to remove them.
        return
    writing = committing_tables(context.store)
    pins = {(pin.location, pin.branch) for _, pin in context.pins(of_all=True)}
    for path, (location, branch) in sorted(_copies(context).items()):
        table = context.table_at(path)
        if location == MANIFEST:
            code = ProblemCode.ORPHAN_BRANCH
            is_used = f"{MANIFEST}/{branch_file(branch)}" in context.files or branch == SCHEMA_LOCK
        else:
            code = ProblemCode.ORPHAN_FORK
            is_used = (location, branch) in pins or (table, branch) in writing
        if not is_used:
            message = f"'{path}' is left over from a deleted branch"
            where = {"table": table, "branch": branch, "file": path}
            context.add(code, message, _CLEANUP, Weight.WARNING, **where)


def _copies(context: VerifyContext) -> dict[str, tuple[str, str]]:
    """The table and branch of each directory of a branch with versions."""
    copies: dict[str, tuple[str, str]] = {}
    for path in context.files:
        copy, name = split_file(path) or ("", "")
        location, tree, branch = copy.partition("/tree/")
        if tree and name.startswith("_versions/"):
            copies[copy] = (location, branch)
    return copies


# -- commits --------------------------------------------------------------------------------------


def check_commits(context: VerifyContext, snapshot: Snapshot) -> None:
    """The parent of every commit exists, and so does the head."""
    name = branch_label(snapshot.branch)
    with _reading_manifest(context, f"the commits of branch '{name}'", name):
        manifest = context.store.manifest(snapshot.branch)
        commits = manifest.commits()
        existing = {commit.commit_id for commit in commits}
        for commit in commits[1:]:
            if commit.parent not in existing:
                message = f"the parent {commit.parent} of commit {commit.commit_id} is missing"
                code = ProblemCode.PARENT_MISSING
                context.add(code, message, FROM_BACKUP, table=MANIFEST, branch=name)
        ledger = Ledger.open(context.store.datasets, manifest.ref, snapshot.manifest_version)
        rows = from_arrow(ledger.read(condition=has_text("object_type", HeadRow.kind)))
        for row in (row for row in rows if isinstance(row, HeadRow)):
            if row.branch == snapshot.branch and row.commit_id not in existing:
                message = f"the head {row.commit_id} of branch '{name}' is missing"
                code = ProblemCode.HEAD_UNKNOWN
                context.add(code, message, FROM_BACKUP, table=MANIFEST, branch=name)


def check_tags(context: VerifyContext) -> None:
    """The state of every tag exists, with its tables."""
    if None not in context.snapshots or any(p.startswith(MANIFEST) for p in context.damaged):
        return
    with context.guarded("the tags", table=MANIFEST):
        history = History(context.store)
        removed = _removed_versions(context)
        for name, row in context.store.manifest(None).tags().items():
            is_dropped, why = False, ""
            try:
                pins = history.snapshot_of(row.commit_id or "").pins
                datasets = context.store.datasets
                gone = {k: p for k, p in pins.items() if datasets.info(p.ref, p.version) is None}
                is_dropped = bool(gone) and all(removed(p.ref, p.version) for p in gone.values())
                why = f"the tables {', '.join(gone)} are gone" if gone else ""
            except HistoryGone as error:
                # A cleanup keeps the states of tags, unless their data was dropped before.
                ref = TableRef(MANIFEST, normal_branch(history.commit(row.commit_id or "").branch))
                is_dropped = removed(ref, int(error.details.get("version", 0)))
                why = error.message
            except OmniGraphError as error:
                why = error.message
            if is_dropped:
                message = f"the data of tag '{name}' was dropped for good by a schema apply"
                hint, weight = "delete the tag", Weight.WARNING
                context.add(ProblemCode.TAG_UNREADABLE, message, hint, weight, table=MANIFEST)
            elif why:
                message = f"the state of tag '{name}' cannot be read: {why}"
                hint = "move or delete the tag, or restore the graph from a backup"
                context.add(ProblemCode.TAG_UNREADABLE, message, hint, table=MANIFEST)


def _removed_versions(context: VerifyContext) -> Callable[[TableRef, int], bool]:
    """Whether a table version was removed on purpose, by the graph's own record."""
    objects = context.store.objects
    with suppress(StorageCorrupt):
        record = read_removed(objects)
        if record is not None:
            return lambda ref, version: version in record.of(ref, life_id(objects, ref))
    return lambda ref, version: False


# -- unfinished writes ----------------------------------------------------------------------------


def check_writes(context: VerifyContext) -> None:
    """Sidecars and markers of running and of interrupted writes."""
    store = context.store
    with context.guarded("the recovery files"):
        for operation in store.sidecars.list():
            file = f"{RECOVERY}/{operation}.json"
            with context.guarded("a recovery file", code=ProblemCode.SIDECAR_DAMAGED, file=file):
                if store.sidecars.read(operation) is not None:
                    message = f"the write {operation} is running or was interrupted"
                    hint = "if no writer is running, open the graph read-write to recover it"
                    code = ProblemCode.WRITE_INTERRUPTED
                    context.add(code, message, hint, Weight.WARNING, file=file)
        for name in store.objects.list(RECOVERY):
            if name.endswith(ENDING):
                _check_marker(context, f"{RECOVERY}/{name}")
        for record in (*read_claims(store), *read_intents(store)):
            if isinstance(record, StorageCorrupt):
                code, file = ProblemCode.MARKER_DAMAGED, str(record.details["file"])
                context.add(code, record.message, record.hint, Weight.WARNING, file=file)
            elif isinstance(record, RemovalIntent):
                _report_removal(context, record)


def _report_removal(context: VerifyContext, intent: RemovalIntent) -> None:
    what, left = "a cleanup", "files of removed versions"
    if intent.purpose is Purpose.DROP:
        what, left = "a hard drop", "dropped data"
    context.add(
        ProblemCode.CLEANUP_UNFINISHED,
        f"{what} of '{intent.table_key}' is running or was interrupted: {left} may remain",
        "if no process works on it, open the graph read-write, or run "
        "graph.maintenance.cleanup() or repair(), to finish it",
        Weight.WARNING,
        table=intent.table_key,
        branch=branch_label(intent.ref.branch),
        file=intent.path,
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
            message, hint = f"'{file}' is not a valid staging marker", "remove it if no load runs"
            context.add(ProblemCode.MARKER_DAMAGED, message, hint, Weight.WARNING, file=file)
            return
        if datetime.now(UTC) - since > _ABANDONED:
            message = f"a write started on {since:%Y-%m-%d} has not ended"
            hint = f"if its process is gone, {_CLEANUP}"
            context.add(ProblemCode.STAGING_ABANDONED, message, hint, Weight.WARNING, file=file)
