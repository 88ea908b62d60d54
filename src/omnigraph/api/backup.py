"""Restores backups, clones graphs, and lists or removes backup points, without an open graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Literal, TypeAlias

from omnigraph.api.arguments import Actor, Location, Natural, public
from omnigraph.api.gate import WriteGate
from omnigraph.api.handle import parse_location
from omnigraph.api.row_access import authorize_copy, require_whole_copy
from omnigraph.commit.branches import Branches
from omnigraph.commit.opening import open_contract
from omnigraph.commit.schema.files import SOURCE
from omnigraph.commit.store import GraphStore
from omnigraph.errors import NotFound
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.maintain.backup.copy import CopyReport
from omnigraph.maintain.backup.index import BackupPoint, find_point, list_points, read_point
from omnigraph.maintain.backup.prune import PrunePolicy, PruneReport, prune
from omnigraph.maintain.backup.restore import CopyDestination, clone_graph, restore_point
from omnigraph.maintain.cleanup.retention import check_duration
from omnigraph.progress import OnProgress
from omnigraph.settings import Settings
from omnigraph.storage.durable import Durability
from omnigraph.storage.objects.store import ObjectStore

Options: TypeAlias = Mapping[str, str] | None


@public
def restore(
    backup: Location,
    uri: Location,
    *,
    point: str | None = None,
    storage_options: Options = None,
    backup_options: Options = None,
    durability: Durability | Literal["disk", "os"] = Durability.DISK,
    on_progress: OnProgress | None = None,
    policy: WriteGate | None = None,
    actor: Actor | None = None,
) -> CopyReport:
    """Create a graph from a backup: from its newest point, or from a point by id.

    The graph has everything that the original had at that time: branches, commits, tags,
    receipts. There must be no graph at ``uri`` yet. The same call resumes an interrupted restore.
    ``backup_options`` are the storage options of the backup, by default those of the graph.
    With a ``policy``, the actor needs the action ``admin`` and must see all rows.

    Raises:
        NotFound: the backup or point does not exist.
        AlreadyExists: there is a graph at ``uri``.
        PolicyDenied: the policy does not allow it.

    >>> point = graph.maintenance.backup(folder / "backup").point
    >>> restore(folder / "backup", folder / "copy.omni").point == point
    True
    """
    authorize_copy(policy, actor)
    store = _backup_at(backup, storage_options if backup_options is None else backup_options)
    dest = _destination(uri, storage_options, durability, on_progress)
    chosen = find_point(store, point)
    require_whole_copy(policy, actor, chosen.branches, lambda: _catalog_of(store, chosen))
    return restore_point(store, chosen, dest)


@public
def clone(
    uri: Location,
    dest: Location,
    *,
    storage_options: Options = None,
    dest_options: Options = None,
    durability: Durability | Literal["disk", "os"] = Durability.DISK,
    on_progress: OnProgress | None = None,
    policy: WriteGate | None = None,
    actor: Actor | None = None,
) -> CopyReport:
    """Create an independent copy of a graph as it is now, with its history and branches.

    ``dest_options`` are the storage options of the copy, by default those of the graph. With a
    ``policy``, the actor needs the action ``admin`` and must see all rows.

    Raises:
        NotFound: there is no graph at ``uri``.
        AlreadyExists: there is a graph at ``dest``.
        PolicyDenied: the policy does not allow it.

    >>> list(clone(graph.uri, folder / "copy.omni").branches)
    ['main']
    """
    authorize_copy(policy, actor)
    store = GraphStore(parse_location(uri, storage_options, Settings.from_environ()))
    contract, _ = open_contract(store, writable=True)
    require_whole_copy(policy, actor, Branches(store).list(), lambda: contract.catalog)
    options = storage_options if dest_options is None else dest_options
    return clone_graph(store, _destination(dest, options, durability, on_progress))


@public
def backup_points(backup: Location, *, storage_options: Options = None) -> list[BackupPoint]:
    """The points of a backup, oldest first.

    Raises:
        NotFound: there is no backup.

    >>> report = graph.maintenance.backup(folder / "backup")
    >>> [point.point == report.point for point in backup_points(folder / "backup")]
    [True]
    """
    store = _backup_at(backup, storage_options)
    return [read_point(store, point) for point in list_points(store)]


@public
def prune_backup(
    backup: Location,
    *,
    points: Sequence[str] = (),
    keep: Natural | None = None,
    older_than: timedelta | float | None = None,
    allow_empty: bool = False,
    dry_run: bool = False,
    storage_options: Options = None,
    policy: WriteGate | None = None,
    actor: Actor | None = None,
) -> PruneReport:
    """Remove points of a backup, and the files that only they need.

    Points are selected by their ids, or as not among the newest ``keep`` and older than
    ``older_than`` (seconds, or a ``timedelta``); with both limits, a point must exceed both. The
    last point is kept unless ``allow_empty``. ``dry_run`` removes nothing and reports what would be
    removed. The next prune or backup completes an interrupted prune. With a ``policy``, the actor
    needs the action ``admin``.

    Raises:
        NotFound: the backup or point does not exist.
        InputError: nothing is selected, or the last point would be removed.
        PolicyDenied: the policy does not allow it.

    >>> reports = [graph.maintenance.backup(folder / "backup") for _ in range(2)]
    >>> len(prune_backup(folder / "backup", keep=1).removed)
    1
    """
    authorize_copy(policy, actor)
    age = check_duration("older_than", older_than)
    selected = PrunePolicy(tuple(points), keep, age, allow_empty)
    return prune(_backup_at(backup, storage_options), selected, dry_run=dry_run)


def _catalog_of(store: ObjectStore, point: BackupPoint) -> Catalog | None:
    """The newest schema of a point; ``None`` if it has none."""
    for file in point.files:
        if file.path == SOURCE:
            return compile_schema(store.read(file.stored))
    return None


def _backup_at(backup: Location, options: Options) -> ObjectStore:
    root = parse_location(backup, options, Settings.from_environ())
    if root.is_missing():
        # Opening the object store would create the directory.
        raise NotFound(f"there is no backup at '{root.uri}'", hint="check the location")
    return ObjectStore(root)


def _destination(
    uri: Location,
    options: Options,
    durability: Durability | Literal["disk", "os"],
    on_progress: OnProgress | None,
) -> CopyDestination:
    settings = Settings.from_environ()
    root = parse_location(uri, options, settings)
    many = settings.maintenance_concurrency
    return CopyDestination(root, Durability(durability), many, on_progress)
