"""What is known of a Blob without its bytes. Only plain data, also for clients of a server."""

from __future__ import annotations

from omnigraph.records import dataclass

BLOB_PIECE = 4 << 20
"""The bytes of a Blob that are read if no length is given."""


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """The metadata of a Blob."""

    size: int
    uri: str | None = None
    """The address of a Blob that is not stored with the graph."""
