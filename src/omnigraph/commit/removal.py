"""Removing versions of tables so that a process may die at any step.

``__recovery/<ULID>.cleanup`` is written before the first file goes and says what is being removed:
versions first, then the files that only they name. A version that is there is therefore always
whole, and what a dead process left are files that nobody reads. Whoever opens the graph to write,
cleans up or repairs finishes it. Other programs ignore the name.

The sidecar of a schema apply names what its hard drops take away. The intents are written from it
between the publish and the end of the sidecar, so that the data goes whoever dies, and only if the
apply is in force. Such an intent names no files before its removal begins.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import branch_label, normal_branch, publish_lease, table_lease
from omnigraph.commit.sidecar import HardDrop, Sidecar
from omnigraph.commit.staging import FOLDER
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.errors import Conflict, OmniGraphError, StorageCorrupt, StorageMissing
from omnigraph.logs import logger
from omnigraph.storage.objects.graph_paths import is_branch, is_removable_file, is_table, refused
from omnigraph.storage.removed_versions import (
    checked_ranges,
    from_ranges,
    life_id,
    record_removed,
    to_ranges,
)
from omnigraph.storage.tables.cleaning import (
    Removal,
    delete_files,
    delete_versions,
    removal_of,
    unreferenced_among,
)
from omnigraph.storage.tables.inline import BranchInfo
from omnigraph.storage.tables.types import TableRef

ENDING = ".cleanup"

_LOG = logger(__name__)
_HINT = "remove it if no cleanup runs"


class Purpose(StrEnum):
    """Why versions are removed: what is left of a cleanup may stay, of a hard drop it may not."""

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
            "versions": [list(each) for each in to_ranges(self.versions)],
            "files": list(self.files),
        }
        return json.dumps(stored, sort_keys=True)


def remove_versions(
    store: GraphStore, ref: TableRef, versions: Sequence[int], table_key: str
) -> tuple[int, int]:
    """Remove versions with the files that only they name; gives how many, and bytes.

    The caller holds the lease of the table, or of publishing for the manifest. The newest version
    and those that forks were made from stay, whatever is asked for.
    """
    if not versions:
        return 0, 0
    removal = removal_of(store.datasets, ref, versions)
    if not removal.versions:
        return 0, 0
    life = life_id(store.objects, ref)
    intent = RemovalIntent(
        new_ulid(),
        now_micros(),
        Purpose.CLEANUP,
        table_key,
        ref,
        life,
        removal.versions,
        removal.files,
    )
    _remove(store, intent, removal)
    return len(removal.versions), removal.size


def _remove(store: GraphStore, intent: RemovalIntent, removal: Removal) -> None:
    """Write the intent, then remove versions and the files that only they name."""
    ref = intent.ref
    store.objects.write(intent.path, intent.to_text())
    # Before they go, so that a copy of the graph that is made meanwhile knows it, too.
    record_removed(store.objects, ref, intent.life, removal.versions)
    reached(Failpoint.REMOVAL_AFTER_INTENT)
    delete_versions(store.datasets, ref, removal.versions)
    reached(Failpoint.REMOVAL_AFTER_VERSIONS)
    delete_files(store.objects, (*removal.files, *removal.unverified))
    # What an attempt before this one did not come to.
    earlier = [path for path in intent.files if path not in removal.files]
    if earlier:
        delete_files(store.objects, unreferenced_among(store.datasets, ref.location, earlier))
    store.objects.delete(intent.path)


# -- hard drops -----------------------------------------------------------------------------------


def announce_hard_drops(store: GraphStore, sidecar: Sidecar) -> None:
    """Write the intents of the hard drops of an apply that is published."""
    for drop in sidecar.hard_drops:
        versions = _left_of(store, drop)
        if versions:
            intent = RemovalIntent(
                new_ulid(),
                now_micros(),
                Purpose.DROP,
                drop.table_key,
                TableRef(drop.table_path),
                None,
                versions,
                (),
            )
            store.objects.write(intent.path, intent.to_text())


def is_cleared(store: GraphStore, drop: HardDrop) -> bool:
    """Whether nothing is left of what a hard drop takes away."""
    return not _left_of(store, drop)


def _left_of(store: GraphStore, drop: HardDrop) -> tuple[int, ...]:
    present = store.datasets.listed_versions(TableRef(drop.table_path))
    return tuple(version for version in present if version <= drop.through_version)


def _finish_drop(store: GraphStore, intent: RemovalIntent, left: frozenset[int]) -> None:
    """Remove versions that must not stay, with the copies that were made of them.

    There was no branch when they were dropped, so a copy of one of them is what an interrupted
    deletion of a branch left. Of a dropped type also the newest version goes; an empty one takes
    its place, since a type of that name has to count its versions on.
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
    """Delete copies that were made of versions of ``main`` up to one, copies of copies first."""
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


# -- what dead processes left ---------------------------------------------------------------------


def read_intents(store: GraphStore) -> list[RemovalIntent | StorageCorrupt]:
    """Every removal that is under way or was interrupted, oldest first."""
    found: list[RemovalIntent | StorageCorrupt] = []
    for name in store.objects.list(FOLDER):
        if name.endswith(ENDING):
            try:
                found.append(_read(store, name))
            except StorageMissing:
                continue
            except StorageCorrupt as error:
                found.append(error)
    return found


def _read(store: GraphStore, name: str) -> RemovalIntent:
    path = f"{FOLDER}/{name}"
    text = store.objects.read(path)
    try:
        stored = json.loads(text)
        life = stored["life"]
        ref = _checked_ref(path, stored["location"], stored["branch"])
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
            f"'{path}' does not say which versions are being removed",
            hint=_HINT,
            details={"file": path},
        ) from None


def _checked_ref(path: str, location: object, branch: object) -> TableRef:
    """The copy of a table that an intent is about."""
    if not is_table(location):
        raise refused(location, f"'{path}'", _HINT)
    if not is_branch(branch):
        raise refused(branch, f"'{path}'", _HINT)
    return TableRef(str(location), normal_branch(str(branch)))


def finish_removals(store: GraphStore, purpose: Purpose | None = None, wait: float = 0.0) -> int:
    """Finish what dead processes left of their removals; gives how many there were.

    A process that lives holds the lease of its table, so its removal is left to it, unless one
    waits for the lease. Only files are at stake that nobody reads: that one cannot be removed
    keeps nobody from writing.
    """
    done = 0
    for intent in read_intents(store):
        if isinstance(intent, StorageCorrupt) or purpose not in (None, intent.purpose):
            continue
        try:
            with suppress(Conflict), store.leases.acquire([_lease(store, intent)], timeout=wait):
                # Who held the lease may have finished in the meantime.
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
    # The type may have another name by now.
    keys = [key for key, pin in pins.items() if pin.location == ref.location]
    return table_lease(keys[0] if keys else intent.table_key, ref.branch)


def _finish(store: GraphStore, intent: RemovalIntent) -> None:
    """Files go that no version names; versions only where none may stay.

    A version that a cleanup did not come to may have got a branch or a tag since: the next cleanup
    decides about it anew.
    """
    ref = intent.ref
    if life_id(store.objects, ref) != intent.life:
        # The fork is gone with all its files, and there may be another of its name.
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
