"""States that were readable once and are not any more: cleanup removed them.

Cleanup spares what its own process reads and everything younger than an age floor; who reads
longer than that in another process finds files missing. That is no damage, and is said as such.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import branch_label
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import HistoryGone, StorageMissing
from omnigraph.storage.tables.types import TableRef


@contextmanager
def reading(store: GraphStore, snapshot: Snapshot) -> Iterator[None]:
    """Read from a snapshot: a file that went with it is ``HistoryGone``, not ``StorageMissing``."""
    try:
        yield
    except StorageMissing:
        refuse_removed(store, snapshot)
        raise


def refuse_removed(store: GraphStore, snapshot: Snapshot) -> None:
    """Raise if a snapshot was removed, by cleanup or with its branch.

    Cleanup removes a state before what it shows. An earlier state whose tables went was lost for
    good by a schema apply; from the newest nothing is ever removed, so what it lacks is damage.
    """
    for pin in snapshot.pins.values():
        store.check_life(pin)
    version = snapshot.manifest_version
    if store.datasets.info(TableRef(MANIFEST, snapshot.branch), version) is not None:
        newest = store.manifest(snapshot.branch).current().manifest_version
        if version >= newest or all(
            store.datasets.info(pin.ref, pin.version) for pin in snapshot.pins.values()
        ):
            return
    # A handle that was not asked for a while may take the state that went for the newest still.
    store.manifests.forget_versions()
    raise HistoryGone(
        f"version {version} of branch '{branch_label(snapshot.branch)}' was removed",
        hint="take a new snapshot; a tag, or cleanup with a larger min_age, keeps one for longer",
        details={"branch": branch_label(snapshot.branch), "version": version},
    )
