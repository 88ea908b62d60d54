"""Requests and responses about Blobs."""

from __future__ import annotations

from typing import Literal

import msgspec

from omnigraph.server.models.responses import CommitOutput, Count, ReceiptOutput


class BlobTarget(msgspec.Struct, frozen=True):
    """A Blob of a branch; without ``entity``, a node type counts before an edge type."""

    type: str
    id: str
    property_name: str = msgspec.field(name="property")
    entity: Literal["node", "edge"] | None = None
    branch: str | None = None

    @property
    def type_name(self) -> str:
        """The type, by its table key if the kind is given."""
        return self.type if self.entity is None else f"{self.entity}:{self.type}"


class BlobParameters(BlobTarget, frozen=True):
    """A Blob of a branch, or at a commit."""

    snapshot: str | None = None


class BlobWriteOutput(msgspec.Struct, frozen=True):
    """A Blob that was set, or removed: then it has neither size nor tag."""

    branch: str
    type: str
    id: str
    property_name: str = msgspec.field(name="property")
    size: Count | None
    etag: str | None
    actor_id: str | None
    commit: CommitOutput | None
    receipt: ReceiptOutput


class BlobLocationOutput(msgspec.Struct, frozen=True):
    """The address of a Blob that is not stored with the graph; the body of a redirect."""

    error: str
    code: str
    reason: str
    uri: str
    size: Count
