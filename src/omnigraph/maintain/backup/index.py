"""What a backup holds: points, each with the list of its files, and the files.

::

    omnigraph-backup.json     which graph this is a backup of
    points/<ULID>.json        one moment of it: its files, their sizes and digests; written last
    files/<path>              files that have names of their own for ever, as they lie in the graph
    objects/<sha256>          files that change under their names: versions, references, schemas

A point vouches for itself and for every file. What no point names was left by a backup that was
interrupted, and the next one uses it, or by a prune, and the next prune removes it. Anybody who can
write to a backup can write a point, so each path in one must have the form that a backup gives it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from omnigraph.commit.ulid import is_ulid
from omnigraph.errors import InputError, NotFound, StorageCorrupt, StorageError, StorageMissing
from omnigraph.storage.objects.graph_paths import is_branch, is_copied_file, is_table_file, refused
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables.types import split_file

TITLE = "omnigraph-backup.json"
POINTS, FILES, OBJECTS = "points", "files", "objects"
_FORMAT = 1
_HINT = "restore an earlier point, or take another backup"
_WRONG_SHAPE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
    OSError,
)
_DIGEST = re.compile(r"[0-9a-f]{64}")
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


def stored_path(path: str, sha256: str) -> str:
    """Where a backup keeps a file of a graph."""
    return f"{FILES}/{path}" if has_name_for_ever(path) else f"{OBJECTS}/{sha256}"


def is_stored_path(path: str) -> bool:
    """Whether a path has the form of a file that a backup keeps."""
    top, _, rest = path.partition("/")
    if top == OBJECTS:
        return _DIGEST.fullmatch(rest) is not None
    return top == FILES and is_table_file(rest) and has_name_for_ever(rest)


def stored_files(backup: ObjectStore) -> dict[str, int]:
    """Every file that a backup keeps, and what lies beside them, with its size."""
    found = backup.sizes_below(FILES)
    return found | backup.sizes_below(OBJECTS)


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
    except (ValueError, KeyError, TypeError, RecursionError):
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
    found = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return sorted(point for point in found if is_ulid(point))


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
        if told["point"] != point:
            raise ValueError
        files = tuple(_stored_file(path, *entry) for entry in told["files"])
        if len({file.path for file in files}) < len(files):
            raise ValueError
        branches = {_branch(path, name): int(n) for name, n in told["branches"].items()}
        taken = datetime.fromtimestamp(told["taken_at"] / 1_000_000, UTC)
        return BackupPoint(point, taken, str(told["graph"]), branches, files)
    except _WRONG_SHAPE:
        raise _damaged(path) from None


def _stored_file(point: str, path: object, stored: object, size: int, sha256: str) -> StoredFile:
    if not is_copied_file(path):
        raise refused(path, f"'{point}' of the backup", _HINT)
    if not isinstance(path, str) or not isinstance(size, int) or size < 0:
        raise TypeError
    if not _DIGEST.fullmatch(sha256):
        raise ValueError
    if stored != stored_path(path, sha256):
        raise refused(stored, f"'{point}' of the backup", _HINT)
    return StoredFile(path, str(stored), size, sha256)


def _branch(point: str, name: str) -> str:
    if not is_branch(name):
        raise refused(name, f"'{point}' of the backup", _HINT)
    return name


def _sum(told: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _damaged(path: str) -> StorageCorrupt:
    return StorageCorrupt(
        f"'{path}' of the backup is damaged",
        hint=_HINT,
        details={"path": path},
    )
