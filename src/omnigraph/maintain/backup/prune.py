"""Prune: points of a backup are removed, with the files that no other point needs.

A backup is changed by one process at a time, which holds a lease at the backup itself. A mark is
written first; then the points go, and after them their files, so a point that is there has all of
its files at any moment. What is interrupted is finished by the next prune or backup, which finds
the mark. Only files that have the form of stored files are ever removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from omnigraph.commit.store import Timeouts
from omnigraph.errors import Conflict, InputError, NotFound, StorageCorrupt
from omnigraph.maintain.backup.index import (
    BackupPoint,
    is_stored_path,
    point_path,
    points,
    read_point,
    stored_files,
)
from omnigraph.maintain.report import Report
from omnigraph.storage.leases.local import LEASE_FOLDER, LeaseGuard, open_leases
from omnigraph.storage.objects.store import ObjectStore

BACKUP_LEASE = "backup"
"""The right to change a backup: to add a point, or to remove some."""
_MARK = f"{LEASE_FOLDER}/prune.unfinished"
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class PruneReport(Report):
    """Which points were removed from a backup, and what that freed; or what would be."""

    uri: str
    removed: tuple[str, ...]
    """The ids of the points that were removed, oldest first."""
    kept: tuple[str, ...]
    files: int
    """Files that no point needs any more."""
    bytes: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class PrunePolicy:
    """Which points go: some by their ids, or all that are behind the limits."""

    points: tuple[str, ...] = ()
    keep: int | None = None
    """So many of the newest stay."""
    older_than: timedelta | None = None
    """Younger ones stay. With both limits a point has to be behind both."""
    allow_empty: bool = False
    """Whether no point may be left."""

    def __post_init__(self) -> None:
        has_limits = self.keep is not None or self.older_than is not None
        if bool(self.points) == has_limits:
            raise InputError(
                "pass either the ids of points, or a limit: keep, older_than or both",
                hint="for example keep=7, or points=[…] with ids of omnigraph.backup_points",
            )
        if self.keep is not None and self.keep < (0 if self.allow_empty else 1):
            raise InputError(
                f"keep is {self.keep}, and the newest point always stays",
                hint="pass a number from 1 on; allow_empty=True also removes the last point",
            )

    def choose(self, backup: ObjectStore, known: Sequence[str], now: datetime) -> list[str]:
        """The points that go, oldest first."""
        if self.points:
            return self._named(backup, known)
        going = list(known[: max(len(known) - self.keep, 0)] if self.keep is not None else known)
        if self.older_than is not None:
            limit = now - self.older_than
            going = [point for point in going if read_point(backup, point).taken_at < limit]
        if not self.allow_empty and len(going) == len(known):
            going = going[:-1]
        return going

    def _named(self, backup: ObjectStore, known: Sequence[str]) -> list[str]:
        for point in self.points:
            if point not in known:
                raise NotFound(
                    f"the backup at '{backup.root.uri}' has no point {point!r}",
                    hint="take one of omnigraph.backup_points",
                    details={"point": point},
                )
        going = [point for point in known if point in self.points]
        if len(going) == len(known) and not self.allow_empty:
            raise InputError(
                "that would remove every point of the backup",
                hint="leave one out, or pass allow_empty=True",
            )
        return going


@contextmanager
def alone(backup: ObjectStore, timeouts: Timeouts) -> Iterator[LeaseGuard]:
    """While nobody else changes a backup."""
    leases = open_leases(backup.root, backup, timeouts.lease_ttl)
    with ExitStack() as stack:
        stack.callback(backup.remove_if_empty, LEASE_FOLDER)
        try:
            held = stack.enter_context(leases.acquire([BACKUP_LEASE], timeouts.lease))
        except Conflict:
            raise Conflict(
                f"another backup to '{backup.root.uri}', or a prune of it, is running",
                hint="repeat when it has ended",
            ) from None
        yield held


def prune(backup: ObjectStore, policy: PrunePolicy, *, dry_run: bool = False) -> PruneReport:
    """Remove points, and files that no point needs."""
    # Also says that there is no backup, before anything is made there.
    points(backup)
    if dry_run:
        return _plan(backup, policy).report(backup, dry_run=True)
    with alone(backup, Timeouts()) as held:
        plan = _plan(backup, policy)
        _carry_out(backup, plan, held)
    return plan.report(backup, dry_run=False)


def finish_prune(backup: ObjectStore, held: LeaseGuard) -> None:
    """Finish what an interrupted prune left; the caller holds the lease of the backup.

    What a damaged point needs is not known, so then everything stays, and so does the mark.
    """
    if backup.head(_MARK) is None:
        return
    try:
        plan = _plan_of(backup, [], points(backup))
    except (StorageCorrupt, NotFound):
        return
    _carry_out(backup, plan, held)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What goes and what stays."""

    going: tuple[str, ...]
    staying: tuple[str, ...]
    surplus: dict[str, int]
    """Stored files that no point needs that stays, with their sizes."""

    def report(self, backup: ObjectStore, *, dry_run: bool) -> PruneReport:
        return PruneReport(
            backup.root.uri,
            self.going,
            self.staying,
            len(self.surplus),
            sum(self.surplus.values()),
            dry_run,
        )


def _plan(backup: ObjectStore, policy: PrunePolicy) -> _Plan:
    known = points(backup)
    return _plan_of(backup, policy.choose(backup, known, datetime.now(UTC)), known)


def _plan_of(backup: ObjectStore, going: Collection[str], known: Sequence[str]) -> _Plan:
    staying = [point for point in known if point not in going]
    needed = {file.stored for point in staying for file in _read_staying(backup, point).files}
    surplus = {
        path: size
        for path, size in stored_files(backup).items()
        if path not in needed and is_stored_path(path)
    }
    return _Plan(tuple(going), tuple(staying), surplus)


def _read_staying(backup: ObjectStore, point: str) -> BackupPoint:
    """A point that stays must say what it needs."""
    try:
        return read_point(backup, point)
    except StorageCorrupt as error:
        raise StorageCorrupt(
            f"{error.message}; nothing was removed, because what it needs is not known",
            hint=f"remove that point by its id, {point}, if it is of no use",
            details=error.details,
        ) from None


def _carry_out(backup: ObjectStore, plan: _Plan, held: LeaseGuard) -> None:
    if plan.going or plan.surplus:
        backup.write(_MARK, "")
        for point in plan.going:
            held.check()
            backup.delete(point_path(point))
        paths = list(plan.surplus)
        for start in range(0, len(paths), _AT_ONCE):
            held.check()
            backup.delete_all(paths[start : start + _AT_ONCE])
        for folder in sorted(_folders(paths), key=len, reverse=True):
            backup.remove_if_empty(folder)
    if backup.head(_MARK) is not None:
        held.check()
        backup.delete(_MARK)


def _folders(paths: Sequence[str]) -> set[str]:
    """The directories of files, and those above them, below the two that every backup has."""
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while "/" in folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return found
