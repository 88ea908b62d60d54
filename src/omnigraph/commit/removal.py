"""Crash-safe removal of table versions.

``__recovery/<ULID>.cleanup`` is written before the first file is deleted and records what is being
removed: versions first, then the files that only they reference. An existing version is therefore
always complete, and a dead process leaves only orphaned files. The next read-write open, cleanup or
repair finishes the removal. Other programs ignore the name.

The sidecar of a schema apply names its hard drops. The intents are written from it between the
publish and the deletion of the sidecar, so that the data is removed whichever process dies, and
only if the apply was published. Such an intent names no files before its removal begins.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum

from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import branch_label, normal_branch, publish_lease, table_lease
from omnigraph.commit.sidecar import FOLDER, HardDrop
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.errors import Conflict, OmniGraphError, StorageCorrupt, StorageMissing
from omnigraph.logs import logger
from omnigraph.records import dataclass
from omnigraph.storage.objects.paths import is_branch, is_removable_file, is_table, refused
from omnigraph.storage.removed_versions import (
    checked_ranges,
    from_ranges,
    life_id,
    record_removed,
    to_ranges,
)
from omnigraph.storage.tables.branch_list import BranchInfo
from omnigraph.storage.tables.types import TableRef
from omnigraph.storage.tables.versions import (
    Removal,
    delete_files,
    delete_versions,
    removal_of,
    unreferenced_among,
)

ENDING = ".cleanup"

_LOG = logger(__name__)
_HINT = "remove it if no cleanup runs"


class Purpose(StrEnum):
    """Why versions are removed: leftovers of a cleanup may remain, those of a hard drop may not."""

    CLEANUP = "cleanup"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class RemovalIntent:
    """What is being removed from one copy of a table."""

    operation: str
    started_at: int
    purpose: Purpose
    table_key: str
    ref: TableRef
    life: str | None
    versions: tuple[int, ...]
    files: tuple[str, ...]

    @property
    def path(self) -> str:
        return f"{FOLDER}/{self.operation}{ENDING}"

    def to_text(self) -> str:
        stored = {
            "operation_id": self.operation,
            "started_at": self.started_at,
            "purpose": self.purpose.value,
            "table": self.table_key,
            "location": self.ref.location,
            "branch": branch_label(self.ref.branch),
            "life": self.life,
            "versions": [list(span) for span in to_ranges(self.versions)],
            "files": list(self.files),
        }
        return json.dumps(stored, sort_keys=True)


def remove_versions(
    store: GraphStore, ref: TableRef, versions: Sequence[int], table_key: str
) -> tuple[int, int]:
    """Remove versions and the files that only they reference; returns their number and bytes.

    The caller holds the lease of the table, or of publishing for the manifest. The newest version
    and those that forks were created from always stay.
    """
    if not versions:
        return 0, 0
    removal = removal_of(store.datasets, ref, versions)
    if not removal.versions:
        return 0, 0
    intent = RemovalIntent(
        new_ulid(),
        now_micros(),
        Purpose.CLEANUP,
        table_key,
        ref,
        life_id(store.objects, ref),
        removal.versions,
        removal.files,
    )
    _remove(store, intent, removal)
    return len(removal.versions), removal.size


def _remove(store: GraphStore, intent: RemovalIntent, removal: Removal) -> None:
    """Write the intent, then remove versions and the files that only they reference."""
    ref = intent.ref
    store.objects.write(intent.path, intent.to_text())
    # Recorded first, so that a copy of the graph made meanwhile has it, too.
    record_removed(store.objects, ref, intent.life, removal.versions)
    reached(Failpoint.REMOVAL_AFTER_INTENT)
    delete_versions(store.datasets, ref, removal.versions)
    reached(Failpoint.REMOVAL_AFTER_VERSIONS)
    delete_files(store.objects, (*removal.files, *removal.unverified))
    # Left over by an earlier attempt.
    earlier = [path for path in intent.files if path not in removal.files]
    if earlier:
        delete_files(store.objects, unreferenced_among(store.datasets, ref.location, earlier))
    store.objects.delete(intent.path)


# -- hard drops -----------------------------------------------------------------------------------


def announce_hard_drop(store: GraphStore, drop: HardDrop) -> None:
    """Write the intent of a hard drop of an apply that is published."""
    versions = _left_of(store, drop)
    if versions:
        key, ref = drop.table_key, TableRef(drop.table_path)
        intent = RemovalIntent(new_ulid(), now_micros(), Purpose.DROP, key, ref, None, versions, ())
        store.objects.write(intent.path, intent.to_text())


def is_cleared(store: GraphStore, drop: HardDrop) -> bool:
    """Whether a hard drop has removed everything."""
    return not _left_of(store, drop)


def _left_of(store: GraphStore, drop: HardDrop) -> tuple[int, ...]:
    present = store.datasets.listed_versions(TableRef(drop.table_path))
    return tuple(version for version in present if version <= drop.through_version)


def _finish_drop(store: GraphStore, intent: RemovalIntent, left: frozenset[int]) -> None:
    """Remove hard-dropped versions, with the forks that were created from them.

    There was no branch when they were dropped, so such a fork was left by an interrupted deletion
    of a branch. Of a dropped type also the newest version is removed; an empty one replaces it,
    since a type of that name has to continue its version numbers.
    """
    ref, datasets = intent.ref, store.datasets
    _delete_forks(store, ref.location, max(intent.versions))
    newest = max(datasets.listed_versions(ref))
    if newest in left:
        schema = store.tables.open(ref, newest).schema
        store.inline.begin_again(ref.location, schema, newest)
    removal = removal_of(datasets, ref, sorted(left))
    files = tuple(sorted({*intent.files, *removal.files}))
    _remove(store, replace(intent, files=files), removal)


def _delete_forks(store: GraphStore, location: str, through: int) -> None:
    """Delete forks created from versions of ``main`` up to one, forks of forks first."""
    forks = store.inline.branches(location)

    def is_dead(fork: BranchInfo) -> bool:
        while fork.parent in forks:
            fork = forks[fork.parent]
        return fork.parent_version <= through

    going = {name for name, fork in forks.items() if is_dead(fork)}
    while going:
        parents = {forks[name].parent for name in going}
        for name in sorted(going - parents):
            store.inline.delete_branch(location, name)
        going &= parents


# -- interrupted removals ---------------------------------------------------------------------


def read_intents(store: GraphStore) -> list[RemovalIntent | StorageCorrupt]:
    """Every removal that is running or was interrupted, oldest first."""
    intents: list[RemovalIntent | StorageCorrupt] = []
    for name in store.objects.list(FOLDER):
        if name.endswith(ENDING):
            try:
                intents.append(_read(store, name))
            except StorageMissing:
                continue
            except StorageCorrupt as error:
                intents.append(error)
    return intents


def _read(store: GraphStore, name: str) -> RemovalIntent:
    path = f"{FOLDER}/{name}"
    text = store.objects.read(path)
    try:
        stored = json.loads(text)
        life = stored["life"]
        location, branch = stored["location"], stored["branch"]
        if not is_table(location) or not is_branch(branch):
            raise refused(branch if is_table(location) else location, f"'{path}'", _HINT)
        # The copy of a table that the intent is about.
        ref = TableRef(str(location), normal_branch(str(branch)))
        files = tuple(map(str, stored["files"]))
        for file in files:
            if not is_removable_file(file, ref.path):
                raise refused(file, f"'{path}'", _HINT)
        return RemovalIntent(
            name.removesuffix(ENDING),
            int(stored["started_at"]),
            Purpose(stored["purpose"]),
            str(stored["table"]),
            ref,
            None if life is None else str(life),
            tuple(from_ranges(checked_ranges(stored["versions"]))),
            files,
        )
    except StorageCorrupt as error:
        raise StorageCorrupt(
            error.message, hint=error.hint, details={**error.details, "file": path}
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError, OmniGraphError):
        raise StorageCorrupt(
            f"'{path}' is not a valid removal intent", hint=_HINT, details={"file": path}
        ) from None


def finish_removals(store: GraphStore, purpose: Purpose | None = None, wait: float = 0.0) -> int:
    """Finish the removals of dead processes; returns how many there were.

    A running process holds the lease of its table, so its removal is left to it, unless the caller
    waits for the lease. Only orphaned files are concerned: a failure does not block writers.
    """
    done = 0
    for intent in read_intents(store):
        if isinstance(intent, StorageCorrupt) or purpose not in (None, intent.purpose):
            continue
        try:
            with suppress(Conflict), store.leases.acquire([_lease(store, intent)], timeout=wait):
                # The holder of the lease may have finished in the meantime.
                if store.objects.head(intent.path) is not None:
                    _finish(store, intent)
                    done += 1
        except OmniGraphError as error:
            _LOG.warning("the removal %s could not be finished: %s", intent.operation, error)
    return done


def _lease(store: GraphStore, intent: RemovalIntent) -> str:
    ref = intent.ref
    if ref.location == MANIFEST:
        return publish_lease(ref.branch)
    pins = store.manifest(None).current().pins
    # The type may have been renamed since.
    keys = [key for key, pin in pins.items() if pin.location == ref.location]
    return table_lease(keys[0] if keys else intent.table_key, ref.branch)


def _finish(store: GraphStore, intent: RemovalIntent) -> None:
    """Delete unreferenced files; versions only for a hard drop.

    A version that a cleanup did not reach may have a branch or a tag by now: the next cleanup
    decides.
    """
    ref = intent.ref
    if life_id(store.objects, ref) != intent.life:
        # The fork was deleted with all its files, and may have been created again.
        store.objects.delete(intent.path)
        return
    left = frozenset(store.datasets.listed_versions(ref)).intersection(intent.versions)
    if intent.purpose is Purpose.DROP and left:
        _finish_drop(store, intent, left)
        return
    record_removed(
        store.objects, ref, intent.life, frozenset(intent.versions).difference(left), left
    )
    delete_files(store.objects, unreferenced_among(store.datasets, ref.location, intent.files))
    store.objects.delete(intent.path)
