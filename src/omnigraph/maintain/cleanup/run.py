"""Cleanup: removes versions and files that are no longer needed, and only those.

``plan`` and ``retention`` decide once what to remove. Then, in this order:

1. orphaned files of writes that ended long ago;
2. under the lease of branches and tags: unused forks of tables, and old states of the manifest.
   If branches or tags have changed since, the plan is made again;
3. the table versions that only those states used, table by table, each under the table's lease;
4. derived data: persisted topologies of removed versions, markers of dead writers.

States are removed before their table versions, and a version before its files. So a crash, or a
failure at one table, leaves unreachable versions, which the next cleanup finds, and files
of removed versions, which ``commit.removal`` recorded before. Nothing else is written but the
record of removed versions, and an empty version of a dropped table, which no branch uses.

A reader elsewhere finds the newest version by probing the name after its own, as long as it does so
often; therefore nothing younger than ``READERS`` is removed, unless the caller rules out such
readers by an age of zero. See ``commit.manifest``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import field
from typing import TypeVar

from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.manifests import versions_were_removed
from omnigraph.commit.names import BRANCHES_LEASE, branch_label, publish_lease, table_lease
from omnigraph.commit.removal import finish_removals, remove_versions
from omnigraph.commit.schema.lock import refuse_while_schema_changes
from omnigraph.commit.sidecar import FOLDER
from omnigraph.commit.staging import markers
from omnigraph.commit.store import GraphStore
from omnigraph.errors import BranchNotFound, Conflict, OmniGraphError, StorageCorrupt
from omnigraph.maintain.cleanup.plan import CleanupPlan, copy_identity, fingerprint_refs, make_plan
from omnigraph.maintain.cleanup.report import (
    CleanupReport,
    ManifestCleanup,
    Reclaimed,
    Skipped,
    TableCleanup,
)
from omnigraph.maintain.cleanup.retention import CleanupPolicy, orphans_of
from omnigraph.maintain.running_writes import recover_writes, running_writes
from omnigraph.records import dataclass
from omnigraph.storage.checksums import MOST_RECORDS, fold_checksums
from omnigraph.storage.executor import Executor
from omnigraph.storage.leases.local import LeaseGuard
from omnigraph.storage.objects.derived import FOLDER as TOPOLOGY
from omnigraph.storage.removed_versions import (
    RemovedVersions,
    adopt_record,
    life_id,
    prune_record,
    read_removed,
)
from omnigraph.storage.tables.datasets import HINT
from omnigraph.storage.tables.files import orphaned_files
from omnigraph.storage.tables.types import TableRef
from omnigraph.storage.tables.versions import fork_files, freed_by, is_empty, versions_of
from omnigraph.topology.persisted import unused_files

REMOVING = "removing"
T = TypeVar("T")
R = TypeVar("R")


def clean_up(
    store: GraphStore, policy: CleanupPolicy, executor: Executor, *, dry_run: bool = False
) -> CleanupReport:
    """Clean up; a dry run only reports what would be removed."""
    recover_writes(store)
    refuse_while_schema_changes(store, "cleanup")
    if not dry_run:
        finish_removals(store)
    return _Cleanup(store, make_plan(store, policy, executor), executor, dry_run).run()


@dataclass(slots=True)
class _TableCounts:
    """What was removed from one table."""

    size: int = 0
    versions: int = 0
    errors: list[str] = field(default_factory=list)


class _Cleanup:
    def __init__(
        self, store: GraphStore, plan: CleanupPlan, executor: Executor, dry_run: bool
    ) -> None:
        self._store = store
        self._plan = plan
        self._executor = executor
        self._dry_run = dry_run
        self._skipped: list[Skipped] = []
        self._files: dict[str, int] = {}
        """Removed orphaned files; Lance counts some of them too."""

    def run(self) -> CleanupReport:
        self._start_record()
        files = self._remove_files()
        forks, manifest = self._remove_states()
        dropped = self._empty_dropped()
        tables = self._remove_versions()
        reached(Failpoint.CLEANUP_BEFORE_REST)
        topologies, markers = self._remove_topologies(), self._remove_markers()
        if not self._dry_run:
            with suppress(OmniGraphError):
                fold_checksums(self._store.objects, MOST_RECORDS)
                prune_record(self._store.objects)
        for branch, reason in sorted(self._plan.unreadable.items()):
            self._skipped.append(Skipped(f"branch '{branch}'", reason))
        return CleanupReport(
            tables,
            manifest,
            forks,
            files,
            dropped,
            topologies,
            markers,
            tuple(self._skipped),
            self._dry_run,
        )

    # -- the record of removed versions --------------------------------------------------

    def _start_record(self) -> None:
        """Start the record of removed versions, which graphs of other programs do not have."""
        objects, plan = self._store.objects, self._plan
        if self._dry_run or plan.errors or plan.unreadable:
            return
        with suppress(StorageCorrupt):
            if read_removed(objects) is not None:
                return
        removed = RemovedVersions()
        for ref, versions in plan.versions.items():
            gaps = set(range(versions[0], versions[-1])).difference(versions) if versions else ()
            if gaps:
                removed = removed.changed(ref, life_id(objects, ref), gaps)
        adopt_record(objects, removed)

    # -- orphaned files ------------------------------------------------------------------

    def _remove_files(self) -> Reclaimed:
        plan = self._plan
        writes = list(running_writes(self._store, plan.dead_markers))
        trees = tuple(f"{ref.path}/" for ref in (*plan.forks, *plan.strays))
        reached(Failpoint.CLEANUP_BEFORE_FILES)

        def remove(location: str) -> dict[str, int]:
            removed = {}
            with ExitStack() as lock:
                if location == MANIFEST and not self._dry_run:
                    lock.enter_context(self._lock_publishing(plan.manifests))
                key = plan.keys.get(location, "")
                for orphan in orphans_of(self._store, key, location, writes):
                    is_old = orphan.age >= plan.policy.file_age
                    if is_old and not orphan.needed_by and not orphan.path.startswith(trees):
                        if not self._dry_run:
                            self._store.objects.delete(orphan.path)
                            self._store.objects.remove_if_empty(orphan.path.rpartition("/")[0])
                        removed[orphan.path] = orphan.size
            return removed

        tables = {ref.location for ref in (*plan.copies, *plan.dropped)}
        locations = [*sorted(tables), MANIFEST]
        for location, files in zip(locations, self._run(remove, locations), strict=True):
            if isinstance(files, str):
                what = f"files of '{plan.keys.get(location, location)}'"
                self._skipped.append(Skipped(what, files))
            else:
                self._files |= files
        return Reclaimed(len(self._files), sum(self._files.values()))

    def _run(self, remove: Callable[[T], R], items: Sequence[T]) -> list[R | str]:
        """Remove from several tables in parallel; a failure is returned as its reason."""

        def attempt(item: T) -> R | str:
            try:
                return remove(item)
            except OmniGraphError as error:
                return str(error)

        return self._executor.run(attempt, items, REMOVING)

    @contextmanager
    def _skipping(self, what: str) -> Iterator[None]:
        """Report a failure and continue."""
        try:
            yield
        except OmniGraphError as error:
            self._skipped.append(Skipped(what, str(error)))

    # -- forks and states ----------------------------------------------------------------

    def _remove_states(self) -> tuple[Reclaimed, ManifestCleanup]:
        """Remove unused forks and old states, under the lease that blocks new branches and tags."""
        store = self._store
        if self._dry_run:
            return self._forks_and_strays(), self._manifests()
        with store.leases.acquire([BRANCHES_LEASE], store.timeouts.lease):
            if fingerprint_refs(store) != self._plan.refs:
                self._plan = make_plan(store, self._plan.policy, self._executor)
            forks = self._forks_and_strays()
            try:
                return forks, self._manifests()
            finally:
                versions_were_removed(store.root.uri)

    def _forks_and_strays(self) -> Reclaimed:
        total = Reclaimed()
        sizes: dict[TableRef, int] = {}
        for location in sorted({ref.location for ref in (*self._plan.forks, *self._plan.strays)}):
            for name, _, info in fork_files(self._store.objects, location):
                ref = TableRef(location, name)
                sizes[ref] = sizes.get(ref, 0) + info.size
        for ref in (*self._plan.forks, *self._plan.strays):
            with self._skipping(f"fork '{ref.branch}' of '{self._key(ref)}'"):
                if self._may_get_rows(ref):
                    continue
                if not self._dry_run:
                    self._remove_fork(ref)
                total = total.plus(Reclaimed(1, sizes.get(ref, 0)))
        return total

    def _may_get_rows(self, ref: TableRef) -> bool:
        """Whether a running write may write rows for a fork that it has not made yet."""
        running = markers(self._store, self._plan.dead_markers)
        return any(one.branch == ref.branch and self._key(ref) in one.tables for one in running)

    def _key(self, ref: TableRef) -> str:
        return self._plan.keys.get(ref.location, ref.location)

    def _remove_fork(self, ref: TableRef) -> None:
        """Remove a fork that its branch does not use; checked again under the lease."""
        store, branch = self._store, ref.branch
        assert branch is not None
        reached(Failpoint.CLEANUP_BEFORE_FORK)
        if ref.location == MANIFEST:
            if branch not in store.inline.branches(MANIFEST):
                store.inline.delete_branch(MANIFEST, branch)
            return
        with store.leases.acquire([table_lease(self._key(ref), branch)], store.timeouts.lease):
            try:
                used = {pin.ref for pin in store.manifest(branch).current().pins.values()}
            except BranchNotFound:
                used = set()
            if ref not in used:
                store.inline.delete_branch(ref.location, branch)

    def _manifests(self) -> ManifestCleanup:
        versions = size = 0
        errors = []
        floor = self._plan.floor
        for branch, expired in self._plan.manifests.items():
            try:
                with ExitStack() as lock:
                    if expired and not self._dry_run:
                        lock.enter_context(self._lock_publishing([branch]))
                    reached(Failpoint.CLEANUP_BEFORE_MANIFEST)
                    count, freed = self._remove(TableRef(MANIFEST, branch), expired)
                versions, size = versions + count, size + freed
            except OmniGraphError as error:
                errors.append(f"{branch_label(branch)}: {error}")
        return ManifestCleanup(floor, size, versions, "; ".join(errors) or None)

    def _lock_publishing(
        self, branches: Iterable[str | None]
    ) -> AbstractContextManager[LeaseGuard]:
        """Keep others from publishing on some branches."""
        names = [publish_lease(branch) for branch in branches]
        return self._store.leases.acquire(names, self._store.timeouts.lease)

    # -- versions of tables --------------------------------------------------------------

    def _remove(self, ref: TableRef, versions: Sequence[int]) -> tuple[int, int]:
        """Remove versions, or compute what that would free: their number, and bytes."""
        if not self._dry_run:
            return remove_versions(self._store, ref, versions, self._key(ref))
        freed = freed_by(self._store.datasets, ref, versions)
        root = self._store.root
        counted = {root.object_path(path) for path in self._files}
        twice = sum(size for path, size in freed.unverified.items() if path in counted)
        return freed.versions, freed.size - twice

    def _remove_versions(self) -> tuple[TableCleanup, ...]:
        plan = self._plan
        counts: defaultdict[str, _TableCounts] = defaultdict(_TableCounts)
        for location in plan.shown | {ref.location for ref in plan.expired}:
            if location in plan.keys:
                counts[plan.keys[location]] = _TableCounts()
        for location, error in plan.errors.items():
            counts[plan.keys.get(location, location)].errors.append(error)
        if plan.unreadable:
            names = ", ".join(f"'{name}'" for name in sorted(plan.unreadable))
            for count in counts.values():
                count.errors.append(f"the needs of branch {names} are unknown")

        def remove(ref: TableRef) -> tuple[int, int]:
            return self._remove_locked(ref, plan.expired[ref])

        refs = [ref for ref in sorted(plan.expired, key=lambda ref: ref.path) if plan.expired[ref]]
        for ref, result in zip(refs, self._run(remove, refs), strict=True):
            count = counts[self._key(ref)]
            if isinstance(result, str):
                count.errors.append(result)
            else:
                count.versions += result[0]
                count.size += result[1]
        return tuple(
            TableCleanup(key, count.size, count.versions, "; ".join(count.errors) or None)
            for key, count in sorted(counts.items())
        )

    def _remove_locked(self, ref: TableRef, versions: Sequence[int]) -> tuple[int, int]:
        store = self._store
        if self._dry_run:
            return self._remove(ref, versions)
        with store.leases.acquire([table_lease(self._key(ref), ref.branch)], store.timeouts.lease):
            if copy_identity(store, ref) != self._plan.identities[ref]:
                raise Conflict(f"the fork '{ref.branch}' was replaced meanwhile", hint="repeat")
            reached(Failpoint.CLEANUP_BEFORE_TABLE)
            return self._remove(ref, versions)

    # -- dropped tables ------------------------------------------------------------------

    def _empty_dropped(self) -> Reclaimed:
        """Empty the tables that no state uses; one empty version keeps the version numbers."""
        total = Reclaimed()
        for ref, versions in self._plan.dropped.items():
            with self._skipping(f"dropped table '{self._key(ref)}'"):
                size = self._empty(ref, versions)
                total = total.plus(Reclaimed(int(size > 0), size))
        return total

    def _empty(self, ref: TableRef, versions: Sequence[int]) -> int:
        store = self._store
        if is_empty(store.datasets, ref):
            return self._remove_locked(ref, versions[:-1])[1]
        if self._dry_run:
            return self._size(ref)
        with store.leases.acquire([table_lease(self._key(ref), None)], store.timeouts.lease):
            if versions_of(store.datasets, ref)[-1].version != versions[-1]:
                # Its location is in use again.
                raise Conflict(f"'{self._key(ref)}' was replaced meanwhile", hint="repeat")
            reached(Failpoint.CLEANUP_BEFORE_EMPTYING)
            schema = store.tables.open(ref, versions[-1]).schema
            store.inline.begin_again(ref.location, schema, versions[-1])
            return self._remove(ref, versions)[1]

    def _size(self, ref: TableRef) -> int:
        """The bytes of all files that some version of a table references."""
        store = self._store
        orphaned = {file.path for file in orphaned_files(store.datasets, ref.location)}
        beside = (f"{ref.path}/_refs/", f"{ref.path}/tree/")
        return sum(
            info.size
            for path, info in store.objects.files_below(ref.path)
            if path not in orphaned and not path.startswith(beside) and not path.endswith(HINT)
        )

    # -- derived data --------------------------------------------------------------------

    def _remove_topologies(self) -> Reclaimed:
        plan, total = self._plan, Reclaimed()
        with self._skipping("persisted topologies"):
            files = {
                path.rpartition("/")[2]: (path, info)
                for path, info in self._store.objects.files_below(TOPOLOGY)
            }
            for name in unused_files(files, plan.shown, [ref.path for ref in plan.copies]):
                path, info = files[name]
                if not self._dry_run:
                    self._store.objects.delete(path)
                total = total.plus(Reclaimed(1, info.size))
        return total

    def _remove_markers(self) -> Reclaimed:
        total = Reclaimed()
        for name in self._plan.dead_markers:
            path = f"{FOLDER}/{name}"
            with self._skipping(f"marker '{name}'"):
                info = self._store.objects.head(path)
                if info is not None:
                    if not self._dry_run:
                        self._store.objects.delete(path)
                    total = total.plus(Reclaimed(1, info.size))
        return total
