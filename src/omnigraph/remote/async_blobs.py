"""``graph.blobs`` of the async client."""

from __future__ import annotations

import omnigraph
from omnigraph.api.arguments import Label, public
from omnigraph.remote import documents
from omnigraph.remote.async_namespaces import AsyncRemoteCalls
from omnigraph.remote.blobs import put


class AsyncRemoteBlobs:
    """The Blobs of a remote graph, as ``graph.blobs``. A snapshot reads them."""

    def __init__(self, calls: AsyncRemoteCalls) -> None:
        self._calls = calls

    @public
    async def put(
        self,
        type_name: str,
        entity_id: str,
        property_name: str,
        data: bytes,
        branch: str = "main",
        *,
        if_digest: str | None = None,
        if_null: bool = False,
        if_commit: str | None = None,
        idempotency_key: Label | None = None,
    ) -> omnigraph.Receipt:
        """Set a Blob of an existing node or edge, in one commit; see ``GraphBlobs.put``.

        Raises:
            NotFound: the node or edge does not exist.
            PreconditionFailed: the Blob or the branch does not fulfil the conditions.
        """
        cell = type_name, entity_id, property_name
        request = put(cell, bytes(data), branch, if_digest, if_null, if_commit, idempotency_key)
        return await self._calls.send(request, documents.receipt)

    @public
    async def delete(
        self,
        type_name: str,
        entity_id: str,
        property_name: str,
        branch: str = "main",
        *,
        if_digest: str | None = None,
        if_commit: str | None = None,
        idempotency_key: Label | None = None,
    ) -> omnigraph.Receipt:
        """Set a Blob to null; if it is null already, nothing happens.

        Raises:
            NotFound: the node or edge does not exist.
            PreconditionFailed: the Blob or the branch does not fulfil the conditions.
        """
        cell = type_name, entity_id, property_name
        request = put(cell, None, branch, if_digest, False, if_commit, idempotency_key)
        return await self._calls.send(request, documents.receipt)
