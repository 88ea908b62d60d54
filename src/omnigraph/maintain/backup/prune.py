"""Prune: removes points of a backup, with the files that no other point needs.

One process at a time changes a backup; it holds a lease in the backup itself. A mark is written
first; then the points are deleted, and after them their files, so an existing point always has all
of its files. The next prune or backup finds the mark of an interrupted prune and finishes it. Only
files with the form of stored files are ever deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta

from omnigraph.commit.store import Timeouts
from omnigraph.errors import Conflict, InputError, NotFound, StorageCorrupt
from omnigraph.maintain.backup.index import (
    BackupPoint,
    is_stored_path,
    list_points,
    point_path,
    read_point,
    stored_files,
)
from omnigraph.maintain.report import Report
from omnigraph.records import dataclass
from omnigraph.storage.leases.local import LEASE_FOLDER, LeaseGuard, open_leases
from omnigraph.storage.objects.store import ObjectStore

BACKUP_LEASE = "backup"
"""The right to add and remove points."""
_MARK = f"{LEASE_FOLDER}/prune.unfinished"
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class PruneReport(Report):
    """The points removed from a backup, and the space freed; for a dry run, what would be."""

    uri: str
    removed: tuple[str, ...]
    """The ids of the removed points, oldest first."""
    kept: tuple[str, ...]
    files: int
    """Files that no remaining point needs."""
    bytes: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class PrunePolicy:
    """The points to remove: by their ids, or all beyond the limits."""

    points: tuple[str, ...] = ()
    keep: int | None = None
    """How many of the newest points to keep."""
    older_than: timedelta | None = None
    """Younger points are kept. With both limits, a point has to be beyond both."""
    allow_empty: bool = False
    """Whether the last point may be removed."""

    def __post_init__(self) -> None:
        has_limits = self.keep is not None or self.older_than is not None
        if bool(self.points) == has_limits:
            raise InputError(
                "pass either the ids of points, or a limit: keep, older_than or both",
                hint="for example keep=7, or points=[…] with ids of omnigraph.backup_points",
            )
        if self.keep is not None and self.keep < (0 if self.allow_empty else 1):
            raise InputError(
                f"keep is {self.keep}, but the newest point is always kept",
                hint="pass 1 or more; allow_empty=True also removes the last point",
            )

    def choose(self, backup: ObjectStore, points: Sequence[str], now: datetime) -> list[str]:
        """The points to remove, oldest first."""
        if self.points:
            return self._choose_by_id(backup, points)
        removed = list(points if self.keep is None else points[: max(len(points) - self.keep, 0)])
        if self.older_than is not None:
            limit = now - self.older_than
            removed = [point for point in removed if read_point(backup, point).taken_at < limit]
        if not self.allow_empty and len(removed) == len(points):
            removed = removed[:-1]
        return removed

    def _choose_by_id(self, backup: ObjectStore, points: Sequence[str]) -> list[str]:
        for point in self.points:
            if point not in points:
                raise NotFound(
                    f"the backup at '{backup.root.uri}' has no point {point!r}",
                    hint="use one of omnigraph.backup_points",
                    details={"point": point},
                )
        removed = [point for point in points if point in self.points]
        if len(removed) == len(points) and not self.allow_empty:
            raise InputError(
                "that would remove every point of the backup",
                hint="leave one out, or pass allow_empty=True",
            )
        return removed


@contextmanager
def lock_backup(backup: ObjectStore, timeouts: Timeouts) -> Iterator[LeaseGuard]:
    """Keep other processes from changing a backup."""
    leases = open_leases(backup.root, backup, timeouts.lease_ttl)
    with ExitStack() as stack:
        stack.callback(backup.remove_if_empty, LEASE_FOLDER)
        try:
            guard = stack.enter_context(leases.acquire([BACKUP_LEASE], timeouts.lease))
        except Conflict:
            raise Conflict(
                f"another backup to '{backup.root.uri}', or a prune of it, is running",
                hint="repeat when it has finished",
            ) from None
        yield guard


def prune(backup: ObjectStore, policy: PrunePolicy, *, dry_run: bool = False) -> PruneReport:
    """Remove points, and files that no point needs."""
    # Reports a missing backup before anything is written there.
    list_points(backup)
    if dry_run:
        plan = _plan(backup, policy)
    else:
        with lock_backup(backup, Timeouts()) as guard:
            plan = _plan(backup, policy)
            _execute(backup, plan, guard)
    files, size = len(plan.surplus), sum(plan.surplus.values())
    return PruneReport(backup.root.uri, plan.removed, plan.kept, files, size, dry_run)


def finish_prune(backup: ObjectStore, guard: LeaseGuard) -> None:
    """Finish an interrupted prune; the caller has locked the backup.

    The files of a damaged point are unknown, so then everything is kept, and so is the mark.
    """
    if backup.head(_MARK) is None:
        return
    try:
        plan = _plan(backup, None)
    except (StorageCorrupt, NotFound):
        return
    _execute(backup, plan, guard)


@dataclass(frozen=True, slots=True)
class _PrunePlan:
    """The points to remove and to keep."""

    removed: tuple[str, ...]
    kept: tuple[str, ...]
    surplus: dict[str, int]
    """Stored files that no kept point needs, with their sizes."""


def _plan(backup: ObjectStore, policy: PrunePolicy | None) -> _PrunePlan:
    """What to remove; without a policy, no point but surplus files."""
    points = list_points(backup)
    removed = [] if policy is None else policy.choose(backup, points, datetime.now(UTC))
    kept = [point for point in points if point not in removed]
    needed = {file.stored for point in kept for file in _read_kept(backup, point).files}
    surplus = {
        path: size
        for path, size in stored_files(backup).items()
        if path not in needed and is_stored_path(path)
    }
    return _PrunePlan(tuple(removed), tuple(kept), surplus)


def _read_kept(backup: ObjectStore, point: str) -> BackupPoint:
    """A kept point has to be readable: it lists the files it needs."""
    try:
        return read_point(backup, point)
    except StorageCorrupt as error:
        raise StorageCorrupt(
            f"{error.message}; nothing was removed, because the files it needs are unknown",
            hint=f"remove that point by its id, {point}, if it is not needed",
            details=error.details,
        ) from None


def _execute(backup: ObjectStore, plan: _PrunePlan, guard: LeaseGuard) -> None:
    if plan.removed or plan.surplus:
        backup.write(_MARK, "")
        for point in plan.removed:
            guard.check()
            backup.delete(point_path(point))
        paths = list(plan.surplus)
        for start in range(0, len(paths), _AT_ONCE):
            guard.check()
            backup.delete_all(paths[start : start + _AT_ONCE])
        for folder in sorted(_folders(paths), key=len, reverse=True):
            backup.remove_if_empty(folder)
    if backup.head(_MARK) is not None:
        guard.check()
        backup.delete(_MARK)


def _folders(paths: Sequence[str]) -> set[str]:
    """The directories of files, and their parents, below the two that every backup has."""
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while "/" in folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders
