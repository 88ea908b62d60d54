"""Graphs made from backups and from other graphs: what users call without a graph at hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import TypeAlias

from omnigraph.addresses import durability_of, root_of
from omnigraph.arguments import public
from omnigraph.commit.opening import open_contract
from omnigraph.commit.store import GraphStore
from omnigraph.errors import NotFound
from omnigraph.maintain.backup import CopyProgress, quiet
from omnigraph.maintain.backup_index import BackupPoint, chosen, points, read_point
from omnigraph.maintain.backup_restore import CopyReport, Target, clone_graph, restore_point
from omnigraph.maintaining import concurrency
from omnigraph.settings import Settings
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects import ObjectStore

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
    found = chosen(store, point)
    return restore_point(store, found, _target(uri, storage_options, durability, progress))


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
    return clone_graph(store, _target(dest, options, durability, progress))


@public
def backup_points(
    backup: str | PathLike[str], *, storage_options: Options = None
) -> list[BackupPoint]:
    """The points of a backup, oldest first."""
    store = _backup_at(backup, storage_options)
    return [read_point(store, point) for point in points(store)]


def _backup_at(place: str | PathLike[str], options: Options) -> ObjectStore:
    root = root_of(place, options)
    if root.is_missing():
        # Opening the object store would make the directory.
        raise NotFound(f"there is no backup at '{root.uri}'", hint="look for the right place")
    return ObjectStore(root)


def _target(
    uri: str | PathLike[str],
    options: Options,
    durability: Durability | str,
    progress: Progress | None,
) -> Target:
    many = concurrency(Settings.from_environ())
    return Target(root_of(uri, options), durability_of(durability), many, progress or quiet)
