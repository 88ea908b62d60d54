"""The graph around its tables: schema files, branches, commits, tags, writes that are not over."""

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
from omnigraph.maintain.verify.ground import FROM_BACKUP, Ground
from omnigraph.maintain.verify.report import ProblemCode, VerifyProblem, Weight
from omnigraph.storage.objects.graph_paths import branch_of_reference, escaped
from omnigraph.storage.removed_versions import life_id, read_removed
from omnigraph.storage.tables.ledger import Ledger
from omnigraph.storage.tables.types import TableRef, split_file

_ABANDONED = timedelta(days=7)
_CLEANUP = "run graph.maintenance.cleanup()"
_REFS = "_refs/branches/"


def look_at_schema(ground: Ground) -> None:
    """The three files agree with each other."""
    with ground.guarded("the schema files", code=ProblemCode.SCHEMA_DISAGREES):
        ground.contract = ground.store.schema_files.load()


def look_at_branches(ground: Ground) -> list[str]:
    """Every branch whose reference can be read; their states are what all tables hang on."""
    references = {p for p in ground.files if p.startswith(f"{MANIFEST}/{_REFS}")}
    _damaged_references(ground, references)
    names = ["main"]
    with ground.guarded("the branches", code=ProblemCode.MANIFEST_UNREADABLE, hint=FROM_BACKUP):
        _require_whole(ground, None)
        names = Branches(ground.store).list()
    for name in names:
        with ground.guarded(
            f"the manifest of branch '{name}'",
            code=ProblemCode.MANIFEST_UNREADABLE,
            hint=FROM_BACKUP,
            table=MANIFEST,
            branch=name,
        ):
            branch = normal_branch(name)
            _require_whole(ground, branch)
            ground.snapshots[branch] = ground.store.manifest(branch).current()
    return names


def _require_whole(ground: Ground, branch: str | None) -> None:
    """Nothing is read that is known to be damaged: it could end the process."""
    ref = TableRef(MANIFEST, branch)
    folder = f"{ref.path}/_versions/"
    there = [name for name in ground.files if name.startswith(folder)]
    # The names of versions count down.
    newest = min((name for name in there if name.endswith(".manifest")), default=None)
    damaged = newest in ground.damaged
    if newest is not None and not damaged:
        version = 2**64 - 1 - int(newest.removeprefix(folder).removesuffix(".manifest"))
        damaged = not ground.is_whole(ref, version)
    if damaged:
        raise StorageCorrupt(f"files of the manifest of '{branch_label(branch)}' are damaged")


def _damaged_references(ground: Ground, references: set[str]) -> None:
    others = {p for p in ground.files if f"/{_REFS}" in p} - references
    for path in sorted(references | others):
        with ground.guarded("a branch", table=ground.table_at(path), file=path):
            try:
                branch_of_reference(path.rpartition("/")[2])
                told = json.loads(ground.store.objects.read(path))
            except (ValueError, StorageMissing, StorageCorrupt, RecursionError):
                told = None
            if not isinstance(told, dict):
                ground.problems.add(
                    VerifyProblem(
                        ProblemCode.BRANCH_REFERENCE_DAMAGED,
                        f"{escaped(path)} does not say what branch it is",
                        FROM_BACKUP,
                        table=ground.table_at(path),
                        file=path,
                    )
                )


def look_at_orphans(ground: Ground) -> None:
    """Directories of branches that there are no more, of the graph and of single tables."""
    if ground.reverted:
        # The lost state may show them, and the hint would be to remove them.
        return
    writing = _being_written(ground)
    for path, location, branch in _copies(ground):
        reference = f"{location}/{_REFS}{branch.replace('/', '%2F')}.json"
        if location == MANIFEST:
            if reference not in ground.files and branch != SCHEMA_LOCK:
                ground.problems.add(_orphan(ProblemCode.ORPHAN_BRANCH, path, branch, MANIFEST))
            continue
        pins = {(pin.location, pin.branch) for _, pin in ground.pins(of_all=True)}
        table = ground.table_at(path)
        if (location, branch) not in pins and (table, branch) not in writing:
            ground.problems.add(_orphan(ProblemCode.ORPHAN_FORK, path, branch, table))


def _being_written(ground: Ground) -> set[tuple[str | None, str | None]]:
    """Tables and branches that belong to writes which are not over; they fork first."""
    found: set[tuple[str | None, str | None]] = set()
    for operation in ground.store.sidecars.list():
        with suppress(OmniGraphError):
            sidecar = ground.store.sidecars.read(operation)
            entries = () if sidecar is None else sidecar.tables
            found |= {(entry.table_key, entry.table_branch) for entry in entries}
    return found


def _copies(ground: Ground) -> Iterator[tuple[str, str, str]]:
    """The directories of branches, by their versions: path, table, and branch."""
    seen: dict[str, tuple[str, str]] = {}
    for path in ground.files:
        copy, name = split_file(path) or ("", "")
        location, found, branch = copy.partition("/tree/")
        if found and name.startswith("_versions/"):
            seen.setdefault(copy, (location, branch))
    for path, (location, branch) in sorted(seen.items()):
        yield path, location, branch


def _orphan(code: ProblemCode, path: str, branch: str, table: str | None) -> VerifyProblem:
    return VerifyProblem(
        code,
        f"'{path}' is what is left of a branch that is not there",
        _CLEANUP,
        Weight.WARNING,
        table,
        branch,
        path,
    )


# -- commits --------------------------------------------------------------------------------------


def look_at_commits(ground: Ground, snapshot: Snapshot) -> None:
    """Every commit follows one that is there, and the head is one of them."""
    name = branch_label(snapshot.branch)
    with ground.guarded(
        f"the commits of branch '{name}'",
        code=ProblemCode.MANIFEST_UNREADABLE,
        hint=FROM_BACKUP,
        table=MANIFEST,
        branch=name,
    ):
        manifest = ground.store.manifest(snapshot.branch)
        commits = manifest.commits()
        known = {commit.commit_id for commit in commits}
        for commit in commits[1:]:
            if commit.parent not in known:
                ground.problems.add(
                    VerifyProblem(
                        ProblemCode.PARENT_MISSING,
                        f"commit {commit.commit_id} follows {commit.parent}, which is not there",
                        FROM_BACKUP,
                        table=MANIFEST,
                        branch=name,
                    )
                )
        ledger = Ledger.open(ground.store.datasets, manifest.ref, snapshot.manifest_version)
        rows = from_arrow(ledger.read(condition=pc.field("object_type") == HeadRow.kind))
        for row in (each for each in rows if isinstance(each, HeadRow)):
            if row.branch == snapshot.branch and row.commit_id not in known:
                ground.problems.add(
                    VerifyProblem(
                        ProblemCode.HEAD_UNKNOWN,
                        f"the head of branch '{name}' is {row.commit_id}, which is not there",
                        FROM_BACKUP,
                        table=MANIFEST,
                        branch=name,
                    )
                )


def look_at_tags(ground: Ground) -> None:
    """What a tag names is there, with its tables."""
    if None not in ground.snapshots or any(p.startswith(MANIFEST) for p in ground.damaged):
        return
    with ground.guarded("the tags", table=MANIFEST):
        history = History(ground.store)
        removed = _removed_versions(ground)
        for name, row in ground.store.manifest(None).tags().items():
            try:
                snapshot = history.snapshot_of(row.commit_id or "")
            except HistoryGone as error:
                # A cleanup keeps what tags name, unless their data was dropped before.
                branch = normal_branch(history.commit(row.commit_id or "").branch)
                if removed(TableRef(MANIFEST, branch), int(error.details.get("version", 0))):
                    ground.problems.add(_outdated_tag(name))
                else:
                    ground.problems.add(_unreadable_tag(name, error.message))
                continue
            except OmniGraphError as error:
                ground.problems.add(_unreadable_tag(name, error.message))
                continue
            gone = {
                key: pin
                for key, pin in snapshot.pins.items()
                if ground.store.tables.info(pin.ref, pin.version) is None
            }
            if not gone:
                continue
            if all(removed(pin.ref, pin.version) for pin in gone.values()):
                ground.problems.add(_outdated_tag(name))
            else:
                tables = ", ".join(gone)
                ground.problems.add(_unreadable_tag(name, f"the tables {tables} are gone"))


def _removed_versions(ground: Ground) -> Callable[[TableRef, int], bool]:
    """Whether a table version was removed on purpose, by the graph's own record."""
    objects = ground.store.objects
    with suppress(StorageCorrupt):
        record = read_removed(objects)
        if record is not None:
            return lambda ref, version: version in record.of(ref, life_id(objects, ref))
    return lambda ref, version: False


def _outdated_tag(name: str) -> VerifyProblem:
    return VerifyProblem(
        ProblemCode.TAG_UNREADABLE,
        f"tag '{name}' names a state whose data a schema apply dropped for good",
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


# -- writes that are not over ---------------------------------------------------------------------


def look_at_writes(ground: Ground) -> None:
    """Sidecars and markers: of a write that runs, or of one whose process died."""
    store = ground.store
    with ground.guarded("the recovery files"):
        for operation in store.sidecars.list():
            file = f"{RECOVERY}/{operation}.json"
            with ground.guarded("a recovery file", code=ProblemCode.SIDECAR_DAMAGED, file=file):
                if store.sidecars.read(operation) is not None:
                    ground.problems.add(
                        VerifyProblem(
                            ProblemCode.WRITE_INTERRUPTED,
                            f"the write {operation} is under way or was interrupted",
                            "if no writer lives, open the graph read-write: that settles it",
                            Weight.WARNING,
                            file=file,
                        )
                    )
        for name in store.objects.list(RECOVERY):
            if name.endswith(ENDING):
                _look_at_marker(ground, f"{RECOVERY}/{name}")
        for claim in read_claims(store):
            if isinstance(claim, StorageCorrupt):
                ground.problems.add(_damaged_marker(claim))
        for intent in read_intents(store):
            if isinstance(intent, StorageCorrupt):
                ground.problems.add(_damaged_marker(intent))
            else:
                ground.problems.add(_removal(intent))


def _damaged_marker(error: StorageCorrupt) -> VerifyProblem:
    file = str(error.details["file"])
    return VerifyProblem(
        ProblemCode.MARKER_DAMAGED, error.message, error.hint, Weight.WARNING, file=file
    )


def _removal(intent: RemovalIntent) -> VerifyProblem:
    what, left = "a cleanup", "files of versions that are gone"
    if intent.purpose is Purpose.DROP:
        what, left = "a hard drop", "data that was dropped for good"
    return VerifyProblem(
        ProblemCode.CLEANUP_UNFINISHED,
        f"{what} of '{intent.table_key}' is under way or was interrupted: {left} may be on storage",
        "if no process works on it, open the graph read-write, or run "
        "graph.maintenance.cleanup() or repair(): that finishes it",
        Weight.WARNING,
        intent.table_key,
        branch_label(intent.ref.branch),
        intent.path,
    )


def _look_at_marker(ground: Ground, file: str) -> None:
    with ground.guarded("a marker", file=file):
        try:
            text = ground.store.objects.read(file)
        except StorageMissing:
            return
        try:
            since = datetime.fromtimestamp(json.loads(text)["started_at"] / 1_000_000, UTC)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            ground.problems.add(
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
            ground.problems.add(
                VerifyProblem(
                    ProblemCode.STAGING_ABANDONED,
                    f"a write that began {since:%Y-%m-%d} has not ended",
                    "if its process is gone, run graph.maintenance.cleanup()",
                    Weight.WARNING,
                    file=file,
                )
            )
