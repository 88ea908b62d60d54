"""Request bodies: size and time limits, content encodings, and strict JSON.

A body that is refused is refused with a typed error; what a client sends is never the reason of an
internal one.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import tempfile
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import IO, Any
from urllib.parse import parse_qsl

import msgspec
import pyarrow as pa

from omnigraph.records import dataclass
from omnigraph.server.calls import RequestHeaders
from omnigraph.server.errors import RequestRefused

DEFAULT_LIMIT = 1 << 20
LOAD_LIMIT = 32 << 20
JOB_LIMIT = 1 << 30
"""For a load that becomes a job: its body is kept in a file."""
IDLE_SECONDS = 30.0
"""The longest pause between two pieces of a body."""
TOTAL_SECONDS = 600.0
"""The longest time for a whole body."""
LARGE = 64 << 10
"""Larger bodies are decoded on a thread."""
_PIECE = 1 << 16
_DISCARDED = 16 << 20
"""How much of a body that is too large is read before the connection is closed."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]


class ClientLeft(Exception):
    """The client closed the connection before its request was complete."""


@dataclass(frozen=True, slots=True)
class BodyTimes:
    """How long a server waits for a body, in seconds."""

    idle: float = IDLE_SECONDS
    total: float = TOTAL_SECONDS


async def read_body(
    receive: Receive, headers: RequestHeaders, limit: int, times: BodyTimes
) -> bytes:
    """The bytes of a body as they were sent; refuses one that is too large or too slow."""
    length = headers.one("content-length")
    if length is not None and length.isdecimal() and int(length) > limit + _DISCARDED:
        raise too_large(limit, closes=True)
    loop = asyncio.get_running_loop()
    end = loop.time() + times.total
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await _next_message(receive, times, end)
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit + _DISCARDED:
            raise too_large(limit, closes=True)
        if size > limit:
            # Read on: most clients look for an answer only after the last byte.
            pieces.clear()
        elif piece:
            pieces.append(piece)
        if not message.get("more_body", False):
            break
    if size > limit:
        raise too_large(limit)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class SpooledBody:
    """A large body in a temporary file, which vanishes with the process."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file = file
        self.size = size
        self.is_taken = False
        """Whether a job has it, and closes it; otherwise it is closed with its request."""


async def spool_body(
    receive: Receive, headers: RequestHeaders, limit: int, times: BodyTimes
) -> SpooledBody:
    """The bytes of a body as they were sent, in a file; only a piece of it is in memory."""
    if (headers.one("content-encoding") or "identity").lower() != "identity":
        raise RequestRefused(
            415,
            "content_encoding",
            "a body that is kept in a file has no content encoding",
            hint="send the body as it is",
        )
    length = headers.one("content-length")
    if length is not None and length.isdecimal() and int(length) > limit:
        raise too_large(limit, closes=True)
    file: IO[bytes] = await asyncio.to_thread(tempfile.TemporaryFile, prefix="omnigraph-body-")
    end = asyncio.get_running_loop().time() + times.total
    size = 0
    try:
        while True:
            pieces, more = await _some_pieces(receive, times, end)
            size += sum(map(len, pieces))
            if size > limit:
                raise too_large(limit, closes=True)
            await asyncio.to_thread(file.writelines, pieces)
            if not more:
                await asyncio.to_thread(file.seek, 0)
                return SpooledBody(file, size)
    except BaseException:
        file.close()
        raise


async def _some_pieces(receive: Receive, times: BodyTimes, end: float) -> tuple[list[bytes], bool]:
    """The next pieces of a body, about a mebibyte, and whether there are more."""
    pieces: list[bytes] = []
    more = True
    while more and sum(map(len, pieces)) < DEFAULT_LIMIT:
        message = await _next_message(receive, times, end)
        pieces.append(message.get("body", b""))
        more = bool(message.get("more_body", False))
    return pieces, more


async def _next_message(receive: Receive, times: BodyTimes, end: float) -> Message:
    pause = min(times.idle, end - asyncio.get_running_loop().time())
    try:
        async with asyncio.timeout(pause):
            message = await receive()
    except TimeoutError:
        raise RequestRefused(
            408,
            "body_timeout",
            "the body of the request did not arrive in time",
            hint="send the body without long pauses",
            closes=True,
        ) from None
    if message["type"] == "http.disconnect":
        raise ClientLeft
    return message


def too_large(limit: int, *, closes: bool = False) -> RequestRefused:
    return RequestRefused(
        413,
        "body_too_large",
        f"the body of the request is larger than {limit} bytes",
        hint="send the data in several requests",
        closes=closes,
    )


# -- content encodings -----------------------------------------------------------------------


def decoded(raw: bytes, encoding: str | None, limit: int) -> bytes:
    """The bytes of a body without its content encoding; the limit counts decoded bytes."""
    match (encoding or "identity").lower():
        case "identity":
            return raw
        case "gzip":
            source: Any = gzip.GzipFile(fileobj=io.BytesIO(raw))
        case "zstd":
            source = pa.CompressedInputStream(pa.BufferReader(raw), "zstd")
        case other:
            raise RequestRefused(
                415,
                "content_encoding",
                f"unsupported content encoding '{other}'",
                hint="send the body as it is, or with gzip or zstd",
            )
    try:
        content: bytes = _read_at_most(source, limit)
    except (OSError, EOFError, zlib.error, pa.ArrowException):
        raise RequestRefused(
            400, "content_encoding", f"the body of the request is not valid {encoding}"
        ) from None
    return content


def _read_at_most(source: Any, limit: int) -> bytes:
    """All bytes of a stream in small pieces, so that a bomb is never unpacked."""
    pieces = []
    size = 0
    while piece := source.read(_PIECE):
        size += len(piece)
        if size > limit:
            raise too_large(limit)
        pieces.append(piece)
    return b"".join(pieces)


# -- JSON ------------------------------------------------------------------------------------


def require_type(headers: RequestHeaders, wanted: str) -> None:
    """Refuse a body of another content type."""
    given = (headers.one("content-type") or "").partition(";")[0].strip().lower()
    is_json = wanted == "application/json" and given.endswith("+json")
    if given != wanted and not is_json:
        raise RequestRefused(
            415,
            "content_type",
            f"expected a request with `Content-Type: {wanted}`",
        )


def decode_json(body: bytes, model: Any) -> Any:
    """A body as its model.

    >>> from omnigraph.server.models.requests import BranchCreateRequest
    >>> decode_json(b'{"name": "review", "unknown": 1}', BranchCreateRequest).name
    'review'
    """
    try:
        value = _decoder(model).decode(body)
        _refuse_repeated_keys(body)
    except msgspec.ValidationError as error:
        raise RequestRefused(422, "body_shape", f"invalid body: {_sentence(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        reason = _sentence(error) if isinstance(error, msgspec.DecodeError) else "not UTF-8 JSON"
        raise RequestRefused(400, "body_not_json", f"the body is not JSON: {reason}") from None
    except RecursionError:
        raise RequestRefused(400, "body_not_json", "the body is nested too deeply") from None
    return value


def decode_body(content: bytes, model: Any, is_lenient: bool) -> Any:
    """A body as its model, or as it is without one; a lenient one may be absent or null."""
    if model is None:
        return content
    if not is_lenient:
        return decode_json(content, model)
    if not content.strip():
        return None
    try:
        return decode_json(content, model | None)
    except RequestRefused as error:
        raise RequestRefused(
            400, error.reason, f"invalid stored-query invocation body: {error.message}"
        ) from None


_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(model: Any) -> msgspec.json.Decoder[Any]:
    decoder = _DECODERS.get(model)
    if decoder is None:
        decoder = _DECODERS[model] = msgspec.json.Decoder(model)
    return decoder


def _refuse_repeated_keys(body: bytes) -> None:
    _KEYS.decode(body.decode("utf-8"))


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise RequestRefused(422, "repeated_key", f"invalid body: repeated key `{repeated}`")


# Made once: a decoder takes longer to make than a small body to read.
_KEYS = json.JSONDecoder(object_pairs_hook=_distinct)


def _sentence(error: Exception) -> str:
    text = str(error)
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


# -- query strings ---------------------------------------------------------------------------


def decode_query(query_string: bytes, model: Any) -> Any:
    """A query string as its model; unknown parameters are ignored.

    >>> from omnigraph.server.models.requests import CommitFilter
    >>> decode_query(b"limit=2&branch=a%2Fb", CommitFilter)
    CommitFilter(branch='a/b', actor=None, kind=None, limit=2)
    """
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=100,
        )
    except ValueError:
        raise RequestRefused(400, "bad_query_string", "the query string is invalid") from None
    values = dict(pairs)
    names = {field.encode_name for field in msgspec.structs.fields(model)}
    for name in names & values.keys():
        if sum(key == name for key, _ in pairs) > 1:
            raise RequestRefused(400, "bad_query_string", f"parameter `{name}` is given twice")
    try:
        return msgspec.convert(
            {name: values[name] for name in names & values.keys()}, model, strict=False
        )
    except msgspec.ValidationError as error:
        raise RequestRefused(
            400, "bad_query_string", f"invalid query string: {_sentence(error)}"
        ) from None
