"""Blobs: their bytes, in whole or in part, and setting and removing them."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from omnigraph.api.blobs import run_blob_write
from omnigraph.api.snapshot_rows import OpenBlob, open_blob
from omnigraph.errors import Cancelled, InputError, PreconditionFailed, StorageCorrupt
from omnigraph.server.calls import Call, Headers, Reply
from omnigraph.server.conditions import ByteRange, TagList, byte_range, quoted, tag_list
from omnigraph.server.errors import RequestRefused
from omnigraph.server.handlers.reading import MAIN, snapshot_of
from omnigraph.server.handlers.writing import commit_headers, commit_output, conditions_of
from omnigraph.server.models.blobs import (
    BlobLocationOutput,
    BlobParameters,
    BlobTarget,
    BlobWriteOutput,
)
from omnigraph.server.models.responses import ReceiptOutput
from omnigraph.storage.tables.blob_digests import digest_of
from omnigraph.write.blob_value import BlobCell, BlobCondition, blob_changed, without_digest

BYTES = "application/octet-stream"
_PIECE = 1 << 20
"""How much of a Blob is in memory at once."""
_BASE_HEADERS: Headers = (
    ("accept-ranges", "bytes"),
    ("cache-control", "private, no-cache"),
    # The bytes are those of somebody who may write: no browser shall run them.
    ("content-disposition", "attachment"),
    ("x-content-type-options", "nosniff"),
)


# -- reading ---------------------------------------------------------------------------------


def authorize_blob(call: Call) -> None:
    """Reading a branch needs ``read`` on it; a commit is looked up first, by the handler."""
    wanted: BlobParameters = call.query
    if wanted.branch is not None and wanted.snapshot is not None:
        raise InputError("request may specify branch or snapshot, not both")
    if wanted.snapshot is None:
        call.require("read", wanted.branch or MAIN)


def get_blob(call: Call) -> Reply:
    """The bytes of a Blob."""
    wanted: BlobParameters = call.query
    snapshot = snapshot_of(call, wanted.branch, wanted.snapshot)
    blob = open_blob(snapshot, wanted.type_name, wanted.id, wanted.property_name)
    if blob is None:
        raise RequestRefused(
            404, "blob_is_null", f"{wanted.type}.{wanted.property_name} of '{wanted.id}' is null"
        )
    if blob.info.uri is not None:
        return _elsewhere(blob.info.uri, blob.info.size)

    def check() -> None:
        if call.cancel.is_set:
            raise Cancelled("the request was cancelled")

    digest = blob.digest(check)
    headers = (*_BASE_HEADERS, ("etag", quoted([digest])))
    required, cached = tag_list(call.headers, "if-match"), tag_list(call.headers, "if-none-match")
    if required is not None and not required.matches(digest, weakly=False):
        raise blob_changed(digest)
    if cached is not None and cached.matches(digest, weakly=True):
        return Reply(status=304, headers=headers)
    size = blob.info.size
    # A range only means something for GET.
    part = None if call.is_head else byte_range(call.headers, digest, size)
    if call.is_head:
        return Reply(b"", 200, BYTES, headers, length=size)
    if part is None:
        return _bytes(blob, ByteRange(0, size, size), headers, 200)
    return _bytes(blob, part, (*headers, ("content-range", part.content_range)), 206)


def _bytes(blob: OpenBlob, part: ByteRange, headers: Headers, status: int) -> Reply:
    pieces = _pieces(blob, part)
    first = next(pieces, b"")
    return Reply(first, status, BYTES, headers, pieces, part.end - part.start)


def _pieces(blob: OpenBlob, part: ByteRange) -> Iterator[bytes]:
    for start in range(part.start, part.end, _PIECE):
        piece = blob.read(start, min(_PIECE, part.end - start))
        if not piece:
            raise StorageCorrupt("a Blob is shorter than its size")
        yield piece


def _elsewhere(uri: str, size: int) -> Reply:
    """Another program stored a link: it is passed on if a client can follow it, never read here."""
    parts = urlsplit(uri)
    is_safe = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    if not is_safe or not uri.isascii() or not uri.isprintable():
        raise RequestRefused(
            424,
            "external_blob_source",
            "the Blob is stored outside of the graph, at an address that is not served",
            hint="store its bytes in the graph",
        )
    output = BlobLocationOutput(
        "the Blob is stored outside of the graph", "not_found", "external_blob", uri, size
    )
    return Reply.json(output, 302, (("location", uri), ("cache-control", "private, no-cache")))


# -- writing ---------------------------------------------------------------------------------


def authorize_blob_write(call: Call) -> None:
    """Setting a Blob needs ``change`` on its branch."""
    call.require("change", call.query.branch or MAIN)


def put_blob(call: Call) -> Reply:
    """Set a Blob to the bytes of the body."""
    if call.headers.all("content-range"):
        raise RequestRefused(
            400, "partial_put", "a Blob is set as a whole: 'Content-Range' is not supported"
        )
    return _write(call, call.body)


def delete_blob(call: Call) -> Reply:
    """Set a Blob to null."""
    return _write(call, None)


def _write(call: Call, data: bytes | None) -> Reply:
    target: BlobTarget = call.query
    rules, branch = conditions_of(call), target.branch or MAIN
    try:
        written = run_blob_write(
            call.graph._handle,
            BlobCell(target.type_name, target.id, target.property_name),
            data,
            branch,
            _condition(call),
            rules.if_commit,
            rules.idempotency_key,
        )
    except PreconditionFailed as error:
        if call.allows("read", branch) is None:
            raise
        raise without_digest(error) from None
    receipt = written.receipt
    etag = None if data is None else quoted([digest_of(data)])
    output = BlobWriteOutput(
        receipt.branch,
        target.type,
        target.id,
        target.property_name,
        None if data is None else len(data),
        etag,
        receipt.actor,
        commit_output(call, receipt.commit_id),
        ReceiptOutput.of(receipt),
    )
    headers = commit_headers(call, receipt)
    if etag is not None:
        headers = (*headers, ("etag", etag))
    is_new = data is not None and written.was_null
    return Reply.json(output, 201 if is_new else 200, headers)


def _condition(call: Call) -> BlobCondition:
    """The conditions in the headers; a weak tag never proves what a write needs to know."""
    required, refused = tag_list(call.headers, "if-match"), tag_list(call.headers, "if-none-match")
    among, is_null = None, None
    if required is not None:
        among, is_null = (None, False) if required.is_any else (required.strong, None)
    if refused is None:
        return BlobCondition(among, is_null)
    if refused.is_any:
        # With If-Match too, nothing fulfils both.
        impossible: frozenset[str] = frozenset()
        return BlobCondition(None if required is None else impossible, True)
    return BlobCondition(among, is_null, _all(refused))


def _all(tags: TagList) -> frozenset[str]:
    return tags.strong | tags.weak
