"""What a backup holds: points, each with the list of its files, and the files.

::

    omnigraph-backup.json     which graph this is a backup of
    points/<ULID>.json        one moment of it: its files, their sizes and digests; written last
    files/<path>              files that have names of their own for ever, as they lie in the graph
    objects/<sha256>          files that change under their names: versions, references, schemas

A point vouches for itself and for every file. What no point names was left by a backup that was
interrupted; the next one uses it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from omnigraph.errors import InputError, NotFound, StorageCorrupt, StorageError, StorageMissing
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.table_types import split_file

TITLE = "omnigraph-backup.json"
POINTS, FILES, OBJECTS = "points", "files", "objects"
_FORMAT = 1
_FIXED = ("data/", "_deletions/", "_indices/", "_transactions/")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a point: where it belongs in the graph, and where it lies in the backup."""

    path: str
    stored: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BackupPoint:
    """One moment of a graph in a backup."""

    point: str
    taken_at: datetime
    graph: str
    branches: Mapping[str, int]
    """The version of the manifest of every branch."""
    files: tuple[StoredFile, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)


def has_name_for_ever(path: str) -> bool:
    """Whether no other file will ever have this name: Lance draws it at random."""
    found = split_file(path)
    return found is not None and found[1].startswith(_FIXED)


def point_path(point: str) -> str:
    return f"{POINTS}/{point}.json"


def claim(target: ObjectStore, graph: str) -> None:
    """Make a place the backup of a graph, or make sure that it is."""
    if target.head(TITLE) is None:
        # Who is faster decides, and is asked below.
        target.create(TITLE, json.dumps({"format": _FORMAT, "graph": graph}))
    found = _title(target)
    if found != graph:
        raise InputError(
            f"'{target.root.uri}' is the backup of another graph",
            hint="choose another place",
            details={"graph": graph, "found": found},
        )


def _title(backup: ObjectStore) -> str:
    try:
        told = json.loads(backup.read(TITLE))
        version, graph = told["format"], str(told["graph"])
    except StorageMissing:
        raise NotFound(
            f"there is no backup at '{backup.root.uri}'", hint="look for the right place"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise _damaged(TITLE) from None
    if version != _FORMAT:
        raise InputError(
            f"the backup at '{backup.root.uri}' has format {version}, this program knows {_FORMAT}",
            hint="use a newer release",
        )
    return graph


def points(backup: ObjectStore) -> list[str]:
    """The ids of the points of a backup, oldest first."""
    _title(backup)
    names = backup.list(POINTS)
    return sorted(n.removesuffix(".json") for n in names if n.endswith(".json"))


def chosen(backup: ObjectStore, point: str | None) -> BackupPoint:
    """A point by its id, or the newest."""
    known = points(backup)
    if not known:
        raise NotFound(
            f"the backup at '{backup.root.uri}' is not complete: it has no point",
            hint="run the backup again",
        )
    if point is not None and point not in known:
        raise NotFound(
            f"the backup at '{backup.root.uri}' has no point '{point}'",
            hint="leave it out for the newest, or take one of omnigraph.backup_points",
            details={"point": point},
        )
    return read_point(backup, point or known[-1])


def write_point(target: ObjectStore, point: BackupPoint) -> None:
    told: dict[str, Any] = {
        "format": _FORMAT,
        "point": point.point,
        "taken_at": round(point.taken_at.timestamp() * 1_000_000),
        "graph": point.graph,
        "branches": dict(point.branches),
        "files": [[f.path, f.stored, f.size, f.sha256] for f in point.files],
    }
    told["sum"] = _sum(told)
    path, text = point_path(point.point), json.dumps(told)
    try:
        target.write(path, text)
    except StorageError:
        if target.head(path) is None:
            raise
        _write_again(target, path, text)


def _write_again(target: ObjectStore, path: str, text: str) -> None:
    """A point that has its name counts: it has to be on the disk, or to go."""
    try:
        target.write(path, text)
    except StorageError:
        with suppress(StorageError):
            target.delete(path)
        raise


def read_point(backup: ObjectStore, point: str) -> BackupPoint:
    path = point_path(point)
    try:
        told = json.loads(backup.read(path))
        if told.pop("sum") != _sum(told):
            raise ValueError
        files = tuple(StoredFile(p, s, int(n), d) for p, s, n, d in told["files"])
        taken = datetime.fromtimestamp(told["taken_at"] / 1_000_000, UTC)
        return BackupPoint(told["point"], taken, told["graph"], told["branches"], files)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _damaged(path) from None


def _sum(told: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _damaged(path: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"'{path}' of the backup is damaged",
        hint="restore an earlier point, or take another backup",
        details={"path": path},
    )
