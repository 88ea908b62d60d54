"""The routes of Blobs."""

from __future__ import annotations

from functools import partial

from omnigraph.server.bodies import LOAD_LIMIT
from omnigraph.server.handlers import blobs
from omnigraph.server.models.blobs import BlobParameters, BlobTarget, BlobWriteOutput
from omnigraph.server.routes.shape import Route, of_graph

_write = partial(
    of_graph,
    path="/blob",
    tag="blobs",
    action="change",
    lane="write",
    authorize=blobs.authorize_blob_write,
    query=BlobTarget,
    response=BlobWriteOutput,
    since="1",
)

BLOB_ROUTES: tuple[Route, ...] = (
    of_graph(
        "GET",
        "/blob",
        "get_blob",
        "Get the bytes of a Blob, or a range of them",
        "blobs",
        "read",
        blobs.get_blob,
        authorize=blobs.authorize_blob,
        query=BlobParameters,
        content_type=blobs.BYTES,
        headers=("Range", "If-Match", "If-None-Match", "If-Range"),
        statuses=(206, 302, 304, 412, 416, 424),
        since="1",
    ),
    _write(
        "PUT",
        operation="put_blob",
        summary="Set a Blob of an existing node or edge to the bytes of the body",
        handler=blobs.put_blob,
        body_limit=LOAD_LIMIT,
        body_type=None,
        headers=("If-Match", "If-None-Match"),
        statuses=(201, 412),
    ),
    _write(
        "DELETE",
        operation="delete_blob",
        summary="Set a Blob to null",
        handler=blobs.delete_blob,
        headers=("If-Match", "If-None-Match"),
        statuses=(412,),
    ),
)
