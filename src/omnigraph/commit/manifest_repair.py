"""Repair of a manifest whose newest version cannot be read."""

from __future__ import annotations

from omnigraph.commit.checked_writes import withdraw_version
from omnigraph.commit.manifest import Manifest
from omnigraph.commit.names import publish_lease
from omnigraph.commit.store import GraphStore
from omnigraph.errors import StorageCorrupt, StorageError
from omnigraph.logs import logger
from omnigraph.storage.checksums import read_records
from omnigraph.storage.lance_format.files import Damaged
from omnigraph.storage.read_back import set_aside_unreadable
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.failures import lance_call
from omnigraph.storage.tables.ledger import Ledger

_LOG = logger(__name__)


def ensure_readable(store: GraphStore, branch: str | None) -> bool:
    """Take back an unreadable newest version of a branch's manifest; says whether there was one.

    A writer died, or its disk was full, after a damaged version had become visible. Nothing in it
    was acknowledged unless its checksums were recorded: then it was damaged later, and stays.
    """
    manifest = store.manifest(branch)
    try:
        manifest.current()
        return False
    except StorageCorrupt:
        with store.leases.acquire([publish_lease(branch)], store.timeouts.publish):
            is_repaired = _take_back_newest(store.datasets, manifest)
        if not is_repaired:
            raise
        _LOG.warning("a damaged version of '%s' was taken back", manifest.ref.path)
        manifest.current()
        return True


def _take_back_newest(datasets: Datasets, manifest: Manifest) -> bool:
    """Take the newest version back if it is damaged and was never acknowledged."""
    ref = manifest.ref
    versions = datasets.listed_versions(ref)
    if not datasets.root.is_local or len(versions) < 2:
        return False
    base, head = versions[-2:]
    if ref.version_path(head) in read_records(datasets.objects).sums:
        return False
    if set_aside_unreadable(datasets, ref, head, base) < head:
        return True
    if _is_whole(datasets, manifest, head):
        # Another process took the damaged one back.
        return True
    if not _is_whole(datasets, manifest, base):
        return False
    writer = Ledger.open(datasets, ref, head)
    damage = Damaged(datasets.root.path(ref.version_path(head)), "it cannot be read")
    withdraw_version(datasets, manifest, writer, damage)
    return True


def _is_whole(datasets: Datasets, manifest: Manifest, version: int) -> bool:
    try:
        with lance_call("read", manifest.ref.path):
            datasets.open_anew(manifest.ref, version).to_table()
    except StorageError:
        return False
    return True
