"""The storage of one graph: objects, tables, leases, manifests, sidecars, audit.

No rule of the protocol is implemented here; those modules take a ``GraphStore``.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial

from omnigraph.commit.audit import AuditLog
from omnigraph.commit.manifest import Manifest, Manifests, branch_reference
from omnigraph.commit.names import publish_lease
from omnigraph.commit.publisher import Publisher
from omnigraph.commit.schema.files import SchemaFiles
from omnigraph.commit.sidecar import SidecarStore
from omnigraph.commit.snapshot import Pin
from omnigraph.errors import GraphNotFound, HistoryGone, OmniGraphError
from omnigraph.storage.durable import Durability
from omnigraph.storage.leases.local import TTL_SECONDS, Leases, open_leases
from omnigraph.storage.objects.paths import Root, refuse_a_file
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.storage.tables.datasets import Datasets
from omnigraph.storage.tables.inline import InlineTables
from omnigraph.storage.tables.store import TableStore
from omnigraph.storage.tables.table import Table

_PAUSE_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a writer waits for others, in seconds.

    ``lease_ttl`` is how long a lease on S3 outlives a writer that died with it.
    """

    lease: float = 30.0
    publish: float = 15.0
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
        self.tables = TableStore(self.datasets)
        self.inline = InlineTables(self.datasets)
        self.manifests = Manifests(self.datasets, self._await_publisher)
        self.sidecars = SidecarStore(self.objects)
        self.schema_files = SchemaFiles(self.objects)
        self.audit = AuditLog(self.inline)

    @cached_property
    def leases(self) -> Leases:
        return open_leases(self.root, self.objects, self.timeouts.lease_ttl)

    @cached_property
    def publisher(self) -> Publisher:
        return Publisher(self.datasets, self.leases, self.timeouts.publish)

    def _await_publisher(self, branch: str | None) -> None:
        """Wait until no publish runs on a branch, for as long as a publish may take."""
        deadline = time.monotonic() + self.timeouts.publish
        with suppress(OmniGraphError):
            while not self.leases.is_free(publish_lease(branch)):
                if time.monotonic() > deadline:
                    return
                time.sleep(_PAUSE_SECONDS)

    def manifest(self, branch: str | None) -> Manifest:
        return self.manifests.of(branch)

    def table(self, pin: Pin) -> Table:
        """The table of a pin."""
        return self.tables.open(pin.ref, pin.version, pin.e_tag, partial(self.check_life, pin))

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
