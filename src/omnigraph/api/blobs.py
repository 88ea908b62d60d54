"""``graph.blobs``: sets single Blobs, each in a commit of its own."""

from __future__ import annotations

import omnigraph
from omnigraph.api.arguments import Actor, Label, public
from omnigraph.api.handle import Handle, Namespace
from omnigraph.api.row_access import row_security
from omnigraph.commit.names import normal_branch
from omnigraph.errors import InputError
from omnigraph.write.blob_value import BlobCell, BlobCondition, WrittenBlob, write_blob


class GraphBlobs(Namespace):
    """The Blobs of a graph, as ``graph.blobs``. A snapshot reads them."""

    @public
    def put(
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
        actor: Actor | None = None,
    ) -> omnigraph.Receipt:
        """Set a Blob of an existing node or edge, in one commit.

        ``if_digest``, from ``snapshot.blob_digest``, sets it only if its bytes are still those;
        ``if_null`` only if it is null.

        Raises:
            NotFound: the node or edge does not exist.
            InputError: the property is not a Blob.
            PreconditionFailed: the Blob or the branch does not fulfil the conditions.
            Conflict: other writers changed the type meanwhile.

        >>> receipt = graph.blobs.put("Person", "Ada", "photo", b"hello")
        >>> graph.snapshot().read_blob("Person", "Ada", "photo")
        b'hello'
        """
        cell = BlobCell(type_name, entity_id, property_name)
        condition = blob_condition(if_digest, if_null)
        rules = if_commit, idempotency_key, actor
        return run_blob_write(self._handle, cell, bytes(data), branch, condition, *rules).receipt

    @public
    def delete(
        self,
        type_name: str,
        entity_id: str,
        property_name: str,
        branch: str = "main",
        *,
        if_digest: str | None = None,
        if_commit: str | None = None,
        idempotency_key: Label | None = None,
        actor: Actor | None = None,
    ) -> omnigraph.Receipt:
        """Set a Blob of an existing node or edge to null; if it is null already, nothing happens.

        Raises:
            NotFound: the node or edge does not exist.
            InputError: the property is not a Blob, or is required.
            PreconditionFailed: the Blob or the branch does not fulfil the conditions.

        >>> receipt = graph.blobs.delete("Person", "Grace", "photo")
        >>> graph.snapshot().read_blob("Person", "Grace", "photo") is None
        True
        """
        cell = BlobCell(type_name, entity_id, property_name)
        condition = blob_condition(if_digest, False)
        rules = if_commit, idempotency_key, actor
        return run_blob_write(self._handle, cell, None, branch, condition, *rules).receipt


def blob_condition(if_digest: str | None, if_null: bool) -> BlobCondition:
    """The condition of a call."""
    if if_digest is not None and if_null:
        raise InputError("pass only one of if_digest and if_null")
    among = None if if_digest is None else frozenset({if_digest})
    return BlobCondition(among, True if if_null else None)


def run_blob_write(
    handle: Handle,
    cell: BlobCell,
    data: bytes | None,
    branch: str,
    condition: BlobCondition,
    if_commit: str | None = None,
    idempotency_key: str | None = None,
    actor: str | None = None,
) -> WrittenBlob:
    """Set a Blob, as the actor of a handle."""
    author = handle.authorize(actor, "change", branch)
    target = normal_branch(branch)
    contract = handle.write(target)
    return write_blob(
        handle.store,
        contract,
        cell,
        data,
        target,
        author,
        condition,
        if_commit=if_commit,
        idempotency_key=idempotency_key,
        security=row_security(handle, author, "change", branch, contract.catalog),
    )
