"""The storage of one graph: objects, tables, leases, manifests, sidecars, audit.

No rule of the protocol is implemented here; those modules take a ``GraphStore``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING

from omnigraph.commit.manifest import MANIFEST, branch_reference
from omnigraph.commit.manifests import Manifests
from omnigraph.commit.names import SCHEMA_LOCK, branch_label, missing_branch, publish_lease
from omnigraph.commit.schema.files import SchemaFiles
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.errors import (
    CommitNotFound,
    Conflict,
    GraphNotFound,
    HistoryGone,
    OmniGraphError,
    StorageMissing,
)
from omnigraph.records import dataclass
from omnigraph.storage.durable import Durability
from omnigraph.storage.leases import TTL_SECONDS
from omnigraph.storage.objects.paths import Root, refuse_a_file
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.table import Table, open_table
from omnigraph.storage.tables.types import TableRef

if TYPE_CHECKING:
    from omnigraph.commit.audit import AuditLog
    from omnigraph.commit.publisher import Publisher
    from omnigraph.commit.sidecar import SidecarStore
    from omnigraph.commit.write_queue import WriteQueues
    from omnigraph.storage.leases.local import Leases
    from omnigraph.storage.tables.blob_digests import BlobDigests
    from omnigraph.storage.tables.inline import InlineTables
    from omnigraph.storage.tables.store import TableStore

_PAUSE_SECONDS = 0.01

OnCommit = Callable[[str | None, Iterable[str]], None]
"""Called after a commit with its branch and table keys, whose leases may still be held; neither
blocks nor raises."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts of a writer, in seconds.

    ``lease_ttl`` is how long a lease on S3 outlives a writer that died with it; ``publish`` is
    longer, so that no write is left pending because another writer died in its publish.
    """

    lease: float = 30.0
    publish: float = 20.0
    lease_ttl: float = TTL_SECONDS


class GraphStore:
    """The storage of one graph."""

    def __init__(
        self,
        root: Root,
        durability: Durability = Durability.DISK,
        timeouts: Timeouts | None = None,
        *,
        create: bool = False,
    ) -> None:
        if not create and root.is_missing():
            # Opening the object store would create the directory.
            raise GraphNotFound(
                f"there is no graph at '{root.uri}'", hint="create one with Graph.init"
            )
        refuse_a_file(root)
        self.root = root
        self.timeouts = timeouts or Timeouts()
        self.objects = ObjectStore(root, durability)
        self.datasets = Datasets(self.objects, durability)
        self.manifests = Manifests(self.datasets, self._await_publisher)
        self.manifest = self.manifests.of
        self.schema_files = SchemaFiles(self.objects)
        self._queues: WriteQueues | None = None
        self._lock = threading.Lock()
        self.on_commit: OnCommit | None = None
        self.recoveries = 0
        """How many writes of dead processes this store has completed or rolled back."""

    @cached_property
    def blob_digests(self) -> BlobDigests:
        from omnigraph.storage.tables.blob_digests import BlobDigests

        return BlobDigests()

    # -- for writers: made, and their modules loaded, when a writer asks -----------------------

    @cached_property
    def tables(self) -> TableStore:
        from omnigraph.storage.tables.store import TableStore

        return TableStore(self.datasets)

    @cached_property
    def inline(self) -> InlineTables:
        from omnigraph.storage.tables.inline import InlineTables

        return InlineTables(self.datasets)

    @cached_property
    def sidecars(self) -> SidecarStore:
        from omnigraph.commit.sidecar import SidecarStore

        return SidecarStore(self.objects)

    @cached_property
    def audit(self) -> AuditLog:
        from omnigraph.commit.audit import AuditLog

        return AuditLog(self.inline)

    @property
    def queues(self) -> WriteQueues:
        """The queues of writers that commit as a group; the same for all threads."""
        from omnigraph.commit.write_queue import WriteQueues

        with self._lock:
            if self._queues is None:
                self._queues = WriteQueues()
            return self._queues

    @cached_property
    def leases(self) -> Leases:
        from omnigraph.storage.leases.local import open_leases

        return open_leases(self.root, self.objects, self.timeouts.lease_ttl)

    @cached_property
    def publisher(self) -> Publisher:
        from omnigraph.commit.publisher import Publisher

        return Publisher(self.leases, self.timeouts.publish)

    def close(self) -> None:
        """End the queues of writers."""
        with self._lock:
            queues = self._queues
        if queues is not None:
            queues.close()

    # ------------------------------------------------------------------------------------------

    def _await_publisher(self, branch: str | None) -> None:
        """Wait until no publish runs on a branch, for as long as a publish may take."""
        deadline = time.monotonic() + self.timeouts.publish
        with suppress(OmniGraphError):
            while not self.leases.is_free(publish_lease(branch)):
                if time.monotonic() > deadline:
                    return
                time.sleep(_PAUSE_SECONDS)

    def look_ahead(self, branch: str | None) -> None:
        """Ask at once for what every write to a branch asks first; on S3 only."""
        if self.root.is_local:
            return
        from omnigraph.commit.sidecar import FOLDER

        manifest = self.manifests.loaded(branch)
        probed = [] if manifest is None else manifest.probed_paths()
        self.objects.look_ahead([branch_reference(SCHEMA_LOCK), *probed], [FOLDER])
        if probed and self.objects.exists_ahead(probed[-1]):
            # Another writer has published: it may have changed the schema.
            self.manifests.note_change()

    def table(self, pin: Pin) -> Table:
        """The table of a pin."""
        check = partial(self.check_life, pin)
        return open_table(self.datasets, pin.ref, pin.version, pin.e_tag, check)

    def check_life(self, pin: Pin) -> None:
        """Refuse a pin of a deleted branch: a new one of its name may have other rows there."""
        if pin.branch is None or pin.life is None:
            return
        branch, tag = pin.life
        reference = self.objects.head(branch_reference(branch))
        if reference is None or reference.e_tag != tag:
            raise HistoryGone(
                f"branch '{branch}' was deleted after this snapshot of it was taken",
                hint="take a new snapshot",
                details={"branch": branch},
            )


@contextmanager
def detect_removal(store: GraphStore, snapshot: Snapshot) -> Iterator[None]:
    """Report a missing file as ``HistoryGone`` if its snapshot was removed.

    Cleanup keeps what its own process reads and everything younger than a minimum age. A reader in
    another process that takes longer finds files missing, which is not damage.
    """
    try:
        yield
    except StorageMissing:
        check_not_removed(store, snapshot)
        raise


@contextmanager
def detect_branch_deletion(store: GraphStore, *branches: str | None) -> Iterator[None]:
    """Report a failure as ``BranchNotFound`` if a branch was deleted during the call."""
    try:
        yield
    except (StorageMissing, HistoryGone, CommitNotFound, Conflict) as error:
        for branch in branches:
            if branch is not None and store.objects.head(branch_reference(branch)) is None:
                raise missing_branch(branch) from error
        raise


def check_not_removed(store: GraphStore, snapshot: Snapshot) -> None:
    """Raise if a snapshot was removed, by cleanup or with its branch.

    Cleanup removes a state before its tables. An earlier state without its tables was hard-dropped
    by a schema apply. Nothing is ever removed from the newest state, so a missing file there is
    damage.
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
    # A handle that was idle may still take the removed state for the newest.
    store.manifests.forget_versions()
    raise HistoryGone(
        f"version {version} of branch '{branch_label(snapshot.branch)}' was removed",
        hint="take a new snapshot; a tag, or cleanup with a larger min_age, keeps one for longer",
        details={"branch": branch_label(snapshot.branch), "version": version},
    )
