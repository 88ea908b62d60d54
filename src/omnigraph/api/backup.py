"""Graphs made from backups and from other graphs: what users call without a graph at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from os import PathLike
from typing import TypeAlias

from omnigraph.api.addresses import durability_of, root_of
from omnigraph.api.arguments import public
from omnigraph.api.maintenance import concurrency
from omnigraph.commit.opening import open_contract
from omnigraph.commit.store import GraphStore
from omnigraph.errors import NotFound
from omnigraph.maintain.backup.copy import CopyProgress, CopyReport, ignore_progress
from omnigraph.maintain.backup.index import BackupPoint, find_point, list_points, read_point
from omnigraph.maintain.backup.prune import PrunePolicy, PruneReport, prune
from omnigraph.maintain.backup.restore import CopyDestination, clone_graph, restore_point
from omnigraph.maintain.cleanup.run import span
from omnigraph.settings import Settings
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.store import ObjectStore

Options: TypeAlias = Mapping[str, str] | None
Progress: TypeAlias = Callable[[CopyProgress], None]


@public
def restore(
    backup: str | PathLike[str],
    uri: str | PathLike[str],
    *,
    point: str | None = None,
    storage_options: Options = None,
    backup_options: Options = None,
    durability: Durability | str = Durability.DISK,
    progress: Progress | None = None,
) -> CopyReport:
    """Make a graph from a backup: its newest point, or one by its id.

    The graph has everything that the original had at that moment: branches, commits, tags,
    receipts. There must be none at ``uri`` yet. A restore that was interrupted is gone on with by
    the same call. ``backup_options`` are the storage options of the backup, where they are not
    those of the graph.
    """
    store = _backup_at(backup, storage_options if backup_options is None else backup_options)
    dest = _destination(uri, storage_options, durability, progress)
    return restore_point(store, find_point(store, point), dest)


@public
def clone(
    uri: str | PathLike[str],
    dest: str | PathLike[str],
    *,
    storage_options: Options = None,
    dest_options: Options = None,
    durability: Durability | str = Durability.DISK,
    progress: Progress | None = None,
) -> CopyReport:
    """Make an independent copy of a graph as it is now, with its history and branches.

    ``dest_options`` are the storage options of the copy, where they are not those of the graph.
    """
    store = GraphStore(root_of(uri, storage_options))
    open_contract(store, writable=True)
    options = storage_options if dest_options is None else dest_options
    return clone_graph(store, _destination(dest, options, durability, progress))


@public
def backup_points(
    backup: str | PathLike[str], *, storage_options: Options = None
) -> list[BackupPoint]:
    """The points of a backup, oldest first."""
    store = _backup_at(backup, storage_options)
    return [read_point(store, point) for point in list_points(store)]


@public
def prune_backup(
    backup: str | PathLike[str],
    *,
    points: Sequence[str] = (),
    keep: int | None = None,
    older_than: timedelta | float | None = None,
    allow_empty: bool = False,
    dry_run: bool = False,
    storage_options: Options = None,
) -> PruneReport:
    """Remove points of a backup, and the files that no other point needs.

    Points go by their ids, or those that are not among the newest ``keep`` and are older than
    ``older_than`` (seconds, or a ``timedelta``); with both limits, a point has to be behind both.
    The last point stays unless ``allow_empty``. ``dry_run`` removes nothing and says what would go.
    A prune that was interrupted is finished by the next prune or backup.
    """
    age = span("older_than", older_than)
    policy = PrunePolicy(tuple(points), keep, age, allow_empty)
    return prune(_backup_at(backup, storage_options), policy, dry_run=dry_run)


def _backup_at(place: str | PathLike[str], options: Options) -> ObjectStore:
    root = root_of(place, options)
    if root.is_missing():
        # Opening the object store would make the directory.
        raise NotFound(f"there is no backup at '{root.uri}'", hint="check the location")
    return ObjectStore(root)


def _destination(
    uri: str | PathLike[str],
    options: Options,
    durability: Durability | str,
    progress: Progress | None,
) -> CopyDestination:
    return CopyDestination(
        root_of(uri, options),
        durability_of(durability),
        concurrency(Settings.from_environ()),
        progress or ignore_progress,
    )
