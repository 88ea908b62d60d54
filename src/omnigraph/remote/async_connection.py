"""The connection of the async client: the same requests and errors, sent by httpx."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from omnigraph.client.http import Failure
from omnigraph.client.server import (
    COMMIT_HEADER,
    Connection,
    ServerRequest,
    no_response,
    unexpected_response,
)
from omnigraph.errors import OmniGraphError, PackageMissing

if TYPE_CHECKING:
    import httpx


class AsyncConnection:
    """A server, or one graph of it, for the async client."""

    def __init__(self, connection: Connection) -> None:
        try:
            import httpx
        except ImportError:
            raise PackageMissing(
                "the async client needs httpx", hint="install omnigraph[async]"
            ) from None
        self._httpx = httpx
        self._connection = connection
        self._client = httpx.AsyncClient(follow_redirects=False, timeout=None)

    @property
    def base(self) -> str:
        return self._connection.base

    async def send(self, request: ServerRequest) -> Any:
        """The response of a request as plain data."""
        async with self.open(request) as answer:
            content = await self.read(answer, request)
        import json

        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise unexpected_response(self.base) from None

    @asynccontextmanager
    async def open(self, request: ServerRequest) -> AsyncIterator[httpx.Response]:
        """A successful response whose body is still to be read."""
        connection = self._connection
        content = request.content
        sent = self._client.build_request(
            request.method,
            connection.address(request),
            headers=connection.headers(request),
            content=content if isinstance(content, bytes | None) else _sent_apart(content),
            timeout=request.timeout,
        )
        try:
            answer = await self._client.send(sent, stream=True)
        except self._httpx.HTTPError as error:
            raise no_response(self.base, self._failure(error), request) from None
        try:
            connection.note(answer.headers)
            if not answer.is_success:
                content = await self.read(answer, request, most=1 << 20)
                raise connection.refusal(answer.status_code, answer.headers, content, request)
            yield answer
        finally:
            await answer.aclose()

    async def read(
        self, answer: httpx.Response, request: ServerRequest, most: int | None = None
    ) -> bytes:
        """The body of a response; at most ``most`` bytes of an error."""
        pieces: list[bytes] = []
        size = 0
        async for piece in self.pieces(answer, request):
            pieces.append(piece)
            size += len(piece)
            if most is not None and size >= most:
                break
        return b"".join(pieces)

    async def pieces(self, answer: httpx.Response, request: ServerRequest) -> AsyncIterator[bytes]:
        """The body of a response, piece by piece."""
        try:
            async for piece in answer.aiter_bytes():
                yield piece
        except self._httpx.HTTPError as error:
            raise no_response(self.base, self._failure(error), request) from None

    def late_refusal(self, content: bytes, request: ServerRequest) -> OmniGraphError:
        """The error with which a response has ended that began as a success."""
        return self._connection.late_refusal(content, request)

    def note(self, commit_id: str) -> None:
        """Remember a commit, so that later reads include it."""
        self._connection.note({COMMIT_HEADER: commit_id})

    async def close(self) -> None:
        await self._client.aclose()

    def _failure(self, error: httpx.HTTPError) -> Failure:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLCertVerificationError):
                return Failure.UNTRUSTED
            cause = cause.__cause__ or cause.__context__
        if isinstance(error, self._httpx.ConnectError | self._httpx.ConnectTimeout):
            return Failure.UNREACHABLE
        return (
            Failure.TIMEOUT if isinstance(error, self._httpx.TimeoutException) else Failure.BROKEN
        )


async def _sent_apart(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Pieces that are read from files on a thread, so that nothing else waits for a disk."""
    rest: Iterator[bytes] = iter(pieces)
    while (piece := await asyncio.to_thread(next, rest, None)) is not None:
        yield piece
