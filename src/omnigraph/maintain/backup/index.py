"""The layout of a backup: points, each with the list of its files, and the files.

::

    omnigraph-backup.json     the id of the graph
    points/<ULID>.json        one point: its files, their sizes and digests; written last
    files/<path>              immutable files, with their paths in the graph
    objects/<sha256>          files that change in place: versions, references, schemas

A point contains a checksum of itself and of every file. A file that no point references was left by
an interrupted backup, and the next one uses it, or by a prune, and the next prune removes it.
Anyone who can write to a backup can write a point, so the form of every path in it is checked.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from omnigraph.commit.ulid import is_ulid
from omnigraph.errors import InputError, NotFound, StorageCorrupt, StorageError, StorageMissing
from omnigraph.records import dataclass
from omnigraph.storage.objects.paths import is_branch, is_copied_file, is_table_file, refused
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
_IMMUTABLE = ("data/", "_deletions/", "_indices/", "_transactions/")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a point: its path in the graph, and in the backup."""

    path: str
    stored: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BackupPoint:
    """A graph as of one time, in a backup."""

    point: str
    taken_at: datetime
    graph: str
    branches: Mapping[str, int]
    """The manifest version of every branch."""
    files: tuple[StoredFile, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)


def is_immutable_file(path: str) -> bool:
    """Whether the name is unique and the file never changes: Lance chooses it at random."""
    split = split_file(path)
    return split is not None and split[1].startswith(_IMMUTABLE)


def stored_path(path: str, sha256: str) -> str:
    """The path of a file of the graph in a backup."""
    return f"{FILES}/{path}" if is_immutable_file(path) else f"{OBJECTS}/{sha256}"


def is_stored_path(path: str) -> bool:
    """Whether a path has the form of a stored file."""
    top, _, rest = path.partition("/")
    if top == OBJECTS:
        return _DIGEST.fullmatch(rest) is not None
    return top == FILES and is_table_file(rest) and is_immutable_file(rest)


def stored_files(backup: ObjectStore) -> dict[str, int]:
    """Every file in the directories of the stored files, with its size."""
    return backup.sizes_below(FILES) | backup.sizes_below(OBJECTS)


def point_path(point: str) -> str:
    return f"{POINTS}/{point}.json"


def claim_backup(target: ObjectStore, graph: str) -> None:
    """Make a location the backup of a graph, or make sure that it is."""
    if target.head(TITLE) is None:
        # The first writer wins; the winner is read below.
        target.create(TITLE, json.dumps({"format": _FORMAT, "graph": graph}))
    owner = _graph_of(target)
    if owner != graph:
        raise InputError(
            f"'{target.root.uri}' is the backup of another graph",
            hint="choose another location",
            details={"graph": graph, "found": owner},
        )


def _graph_of(backup: ObjectStore) -> str:
    try:
        title = json.loads(backup.read(TITLE))
        version, graph = title["format"], str(title["graph"])
    except StorageMissing:
        raise NotFound(
            f"there is no backup at '{backup.root.uri}'", hint="check the location"
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _damaged(TITLE) from None
    if version != _FORMAT:
        raise InputError(
            f"the backup at '{backup.root.uri}' has format {version}; this release reads {_FORMAT}",
            hint="use a newer release",
        )
    return graph


def list_points(backup: ObjectStore) -> list[str]:
    """The ids of the points of a backup, oldest first."""
    _graph_of(backup)
    names = backup.list(POINTS)
    ids = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return sorted(point for point in ids if is_ulid(point))


def find_point(backup: ObjectStore, point: str | None) -> BackupPoint:
    """A point by its id, or the newest."""
    points = list_points(backup)
    if not points:
        raise NotFound(
            f"the backup at '{backup.root.uri}' is incomplete: it has no point",
            hint="run the backup again",
        )
    if point is not None and point not in points:
        raise NotFound(
            f"the backup at '{backup.root.uri}' has no point '{point}'",
            hint="omit it for the newest, or use one of omnigraph.backup_points",
            details={"point": point},
        )
    return read_point(backup, point or points[-1])


def write_point(target: ObjectStore, point: BackupPoint) -> None:
    payload: dict[str, Any] = {
        "format": _FORMAT,
        "point": point.point,
        "taken_at": round(point.taken_at.timestamp() * 1_000_000),
        "graph": point.graph,
        "branches": dict(point.branches),
        "files": [[f.path, f.stored, f.size, f.sha256] for f in point.files],
    }
    payload["sum"] = _sum(payload)
    path, text = point_path(point.point), json.dumps(payload)
    try:
        target.write(path, text)
    except StorageError:
        if target.head(path) is None:
            raise
        _write_again(target, path, text)


def _write_again(target: ObjectStore, path: str, text: str) -> None:
    """Rewrite a point whose sync failed; a point with its final name must be durable."""
    try:
        target.write(path, text)
    except StorageError:
        with suppress(StorageError):
            target.delete(path)
        raise


def read_point(backup: ObjectStore, point: str) -> BackupPoint:
    path = point_path(point)
    try:
        payload = json.loads(backup.read(path))
        if payload.pop("sum") != _sum(payload):
            raise ValueError
        if payload["point"] != point:
            raise ValueError
        files = tuple(_stored_file(path, *entry) for entry in payload["files"])
        if len({file.path for file in files}) < len(files):
            raise ValueError
        branches = {_branch(path, name): int(n) for name, n in payload["branches"].items()}
        taken = datetime.fromtimestamp(payload["taken_at"] / 1_000_000, UTC)
        return BackupPoint(point, taken, str(payload["graph"]), branches, files)
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


def _sum(payload: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()


def _damaged(path: str) -> StorageCorrupt:
    return StorageCorrupt(f"'{path}' of the backup is damaged", hint=_HINT, details={"path": path})
