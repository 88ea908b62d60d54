"""The Blobs of a remote graph: requests, what their responses say, and ``graph.blobs``.

A Blob is read in ranges, so a piece of a large one costs no more than a small one. Links to other
places are reported, not followed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import omnigraph
from omnigraph.api.arguments import Actor, Label, public
from omnigraph.api.blob_info import BLOB_PIECE, BlobInfo
from omnigraph.client.server import ServerRequest
from omnigraph.errors import InputError, NotServed, OmniGraphError
from omnigraph.records import dataclass
from omnigraph.remote import documents, requests
from omnigraph.remote.unserved import refuse_arguments

if TYPE_CHECKING:
    from omnigraph.remote.calls import RemoteCalls

_CONTENT_RANGE = re.compile(r"bytes (?:\d+-\d+|\*)/(\d+)")
_NULL, _BEYOND, _ELSEWHERE = "blob_is_null", "range_not_satisfiable", "external_blob"


@dataclass(frozen=True, slots=True)
class RemoteCell:
    """A Blob at a commit."""

    type_name: str
    entity_id: str
    property_name: str
    commit_id: str

    def read(self, offset: int = 0, length: int | None = None) -> ServerRequest:
        """A range of its bytes; never an empty one, which has no form."""
        wanted = max(BLOB_PIECE if length is None else length, 1)
        return self._get(f"{offset}-{offset + wanted - 1}")

    def stat(self) -> ServerRequest:
        """Its last byte, with its size and its tag in the headers.

        A ``HEAD`` has no body that would say why it fails, and an empty Blob no first byte.
        """
        return self._get("-1")

    def _get(self, part: str) -> ServerRequest:
        cell = _cell(self.type_name, self.entity_id, self.property_name)
        query = {**cell, "snapshot": self.commit_id}
        headers = {"Accept": "*/*", "Range": f"bytes={part}"}
        return ServerRequest("GET", ("blob",), query, headers=headers)


@dataclass(frozen=True, slots=True)
class BlobState:
    """What a server says about a Blob: ``None`` instead of it says that the Blob is null."""

    info: BlobInfo
    digest: str | None


def state_of(headers: Mapping[str, str]) -> BlobState:
    """The state of a Blob, from the headers of one of its ranges, or of the whole."""
    shown = _CONTENT_RANGE.fullmatch(headers.get("Content-Range") or "")
    size = int(shown[1]) if shown else int(headers["Content-Length"])
    return BlobState(BlobInfo(size), (headers.get("ETag") or "").strip('"') or None)


def refused_state(error: OmniGraphError) -> BlobState | None:
    """The state that a refusal reports; raises the error if it is about something else."""
    reason = error.details.get("reason")
    if reason == _NULL:
        return None
    if reason == _ELSEWHERE:
        return BlobState(BlobInfo(int(error.details["size"]), str(error.details["uri"])), None)
    raise error


def refused_bytes(error: OmniGraphError) -> bytes | None:
    """The bytes of a range that a server refuses: none beyond the end, ``None`` of null."""
    reason = error.details.get("reason")
    if reason == _NULL:
        return None
    if reason == _BEYOND:
        return b""
    if reason == _ELSEWHERE:
        raise NotServed(
            f"the Blob is stored outside of the graph, at {error.details['uri']}",
            hint="fetch it from there",
            details={"name": "snapshot.read_blob", "uri": error.details["uri"]},
        )
    raise error


def cut(content: bytes, status: int, offset: int, length: int | None) -> bytes:
    """The range of a response; a server that ignores ranges sends the whole."""
    wanted = BLOB_PIECE if length is None else length
    return content[:wanted] if status == 206 else content[offset : offset + wanted]


def put(
    cell: tuple[str, str, str],
    data: bytes | None,
    branch: str,
    if_digest: str | None,
    if_null: bool,
    if_commit: str | None,
    idempotency_key: str | None,
) -> ServerRequest:
    """A Blob to set; to remove, without data."""
    if if_digest is not None and if_null:
        raise InputError("pass only one of if_digest and if_null")
    headers = requests.conditions(if_commit, idempotency_key)
    if if_digest is not None:
        headers["If-Match"] = f'"{if_digest}"'
    if if_null:
        headers["If-None-Match"] = "*"
    if data is not None:
        headers["Content-Type"] = "application/octet-stream"
    method = "DELETE" if data is None else "PUT"
    query = {**_cell(*cell), "branch": branch}
    return ServerRequest(method, ("blob",), query, data, headers, changes=True)


def _cell(type_name: str, entity_id: str, property_name: str) -> dict[str, str]:
    entity, _, name = type_name.rpartition(":")
    kind = {"entity": entity} if entity else {}
    return {**kind, "type": name, "id": entity_id, "property": property_name}


class RemoteBlobs:
    """The Blobs of a remote graph, as ``graph.blobs``. A snapshot reads them."""

    def __init__(self, calls: RemoteCalls) -> None:
        self._calls = calls

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
        """Set a Blob of an existing node or edge, in one commit; see ``GraphBlobs.put``.

        Raises:
            NotFound: the node or edge does not exist.
            InputError: the property is not a Blob.
            LimitExceeded: the data is larger than the server accepts.
            PreconditionFailed: the Blob or the branch does not fulfil the conditions.
            OutcomePending: there was no answer, so the outcome is not known.
        """
        refuse_arguments("blobs.put", actor=actor)
        cell = type_name, entity_id, property_name
        request = put(cell, bytes(data), branch, if_digest, if_null, if_commit, idempotency_key)
        return self._calls.send(request, documents.receipt)

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
        """Set a Blob to null; if it is null already, nothing happens.

        Raises:
            NotFound: the node or edge does not exist.
            InputError: the property is not a Blob, or is required.
            PreconditionFailed: the Blob or the branch does not fulfil the conditions.
        """
        refuse_arguments("blobs.delete", actor=actor)
        cell = type_name, entity_id, property_name
        request = put(cell, None, branch, if_digest, False, if_commit, idempotency_key)
        return self._calls.send(request, documents.receipt)
