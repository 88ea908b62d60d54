"""The ASGI application: one request from its first byte to its log line.

Every check before a handler is made here, in the order of the contract: route, token, graph, body,
policy, admission. Nothing here knows what a handler does.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, NoReturn, TypeVar

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omnigraph.errors import Cancelled, OmniGraphError, PolicyDenied, ServerUnavailable
from omnigraph.escaping import escape
from omnigraph.identity import Identity
from omnigraph.server import bodies, heads, waiting
from omnigraph.server.admission import Permit
from omnigraph.server.bodies import ClientLeft, SpooledBody, read_body, spool_body
from omnigraph.server.calls import Call, Reply, RequestHeaders, Wait, prefers_async
from omnigraph.server.errors import ErrorResponse, RequestRefused, failure_of, late_body
from omnigraph.server.forwarding import replayed
from omnigraph.server.heads import API_VERSION, HTTP_API, REQUEST_ID
from omnigraph.server.lanes import ReadCancel
from omnigraph.server.look_ups import LookUps
from omnigraph.server.matching import RouteTable
from omnigraph.server.patience import Patience
from omnigraph.server.request_kinds import kind_of, label_method, query_of
from omnigraph.server.request_log import ERROR
from omnigraph.server.routes import ROUTES, Lane, Route
from omnigraph.server.state import ServedGraph, ServerProcess, ServerState
from omnigraph.server.switching import COMMIT, GenerationBehind

T = TypeVar("T")
_LEFT = 499
_NOT_MODIFIED = 304


def create_app(process: ServerProcess) -> ASGIApp:
    """The application of one process."""
    return HttpApplication(process)


class HttpApplication:
    """Answers requests with the routes of the table."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        self._table = RouteTable(ROUTES)
        self._patience = Patience()
        self._look_ups = LookUps()

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            return _Exchange(
                self._process, self._table, self._patience, self._look_ups, scope, receive, send
            ).run()
        if scope["type"] == "lifespan":
            return _lifespan(receive, send)
        return send({"type": "websocket.close", "code": 1008})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


class _Exchange:
    """One request and its response."""

    def __init__(
        self,
        process: ServerProcess,
        table: RouteTable,
        patience: Patience,
        look_ups: LookUps,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        self._process = process
        self._state: ServerState = process.state
        self._table = table
        self._scope = scope
        self._receive = receive
        self._send = send
        self._headers = RequestHeaders(scope["headers"])
        self._method: str = scope["method"]
        self._request_id = heads.request_id_of(self._headers)
        self._route: Route | None = None
        self._served: ServedGraph | None = None
        self._identity: Identity | None = None
        self._call: Call | None = None
        self._status = _LEFT
        self._has_started = False
        self._reply: Reply | None = None
        self._echoes_version = False
        self._patience = patience
        self._look_ups = look_ups
        self._listening: asyncio.Task[None] | None = None
        self._waiting = waiting.WaitingConnection()

    # -- the whole ---------------------------------------------------------------------------

    async def run(self) -> None:
        started = time.perf_counter()
        self._process.metrics.request_started()
        try:
            await self._answer()
        except (ClientLeft, Cancelled) as error:
            if isinstance(error, Cancelled) and not self._has_started:
                await self._fail(error)
        except OmniGraphError as error:
            await self._fail(error)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._log_fault(error)
            await self._fail(error)
        finally:
            call = self._call
            if call is not None and isinstance(call.body, SpooledBody) and not call.body.is_taken:
                call.body.file.close()
            self._waiting.release()
            self._account(time.perf_counter() - started - self._waiting.seconds)

    async def _answer(self) -> None:
        heads.check_size(self._scope)
        self._echoes_version = heads.names_version(self._headers)
        match = self._table.find(self._scope["raw_path"], self._state.only_graph)
        if match is None:
            raise RequestRefused(404, "route_not_found", "there is nothing at this path")
        route = match.route(self._method)
        if route is None:
            raise RequestRefused(
                405,
                "method_not_allowed",
                f"method {escape(self._method)} is not allowed here",
                headers=(("allow", match.allowed),),
            )
        self._route = route
        self._scope["omnigraph.route"] = route.path
        path = dict(zip(route.parameters, match.values, strict=True)) if match.values else {}
        is_free = route.is_free(self._state.config)
        if not is_free:
            self._identity = await heads.authenticate(self._headers, self._state.tokens)
        if route.scope == "graph":
            self._served = heads.find_graph(self._state, path["graph_id"], self._identity)
        lane = route.lane_for(self._state.access, self._identity, self._served, path)
        if lane == "write" and self._process.forwarder is not None:
            self._scope["headers"] = self._headers.with_id(REQUEST_ID, self._request_id)
            await self._process.forwarder(self._scope, self._receive, self._count_status)
            return
        if route.has_body or route.query is not None:
            call = await self._read_call(route, path)
        else:
            call = self._call_of(route, path, None, None, 0)
        self._call = call
        if not is_free:
            try:
                route.authorize(call)
            except PolicyDenied as denied:
                await self._deny(route, call, denied)
        if route.relays is not None and self._process.forwarder is not None and route.relays(call):
            scope, receive = replayed(self._scope, call, self._receive)
            await self._process.forwarder(scope, receive, self._count_status)
            return
        await self._respond(await self._reply_fitting(route, call, lane))

    # -- the request -------------------------------------------------------------------------

    async def _read_call(self, route: Route, path: dict[str, str]) -> Call:
        query = body = None
        size = 0
        if route.query is not None:
            query = bodies.decode_query(self._scope["query_string"], route.query)
        if route.has_body:
            if route.body_type is not None:
                bodies.require_type(self._headers, route.body_type)
            if self._spools(route):
                # Only whoever may load gets a file for it.
                unread = self._call_of(route, path, query, b"", 0)
                try:
                    route.authorize(unread)
                except PolicyDenied as denied:
                    await self._deny(route, unread, denied)
            body, size = await self._read_body(route)
        return self._call_of(route, path, query, body, size)

    def _call_of(
        self, route: Route, path: dict[str, str], query: Any, body: Any, size: int
    ) -> Call:
        timeout = self._state.config.limits.timeout
        return Call(
            route,
            self._process,
            self._state,
            self._request_id,
            self._headers,
            self._identity,
            self._served,
            path,
            query,
            body,
            size,
            ReadCancel(timeout),
            self._method == "HEAD",
        )

    def _spools(self, route: Route) -> bool:
        """Whether the body is kept in a file, for a job."""
        return bool(route.spool_limit) and prefers_async(self._headers)

    async def _read_body(self, route: Route) -> tuple[Any, int]:
        times = self._process.times
        if self._spools(route):
            spooled = await spool_body(self._receive, self._headers, route.spool_limit, times)
            # Admission counts memory, of which it takes none.
            return spooled, 0
        raw = await read_body(self._receive, self._headers, route.body_limit, times)
        return await self._decode(route, raw)

    async def _decode(self, route: Route, raw: bytes) -> tuple[Any, int]:
        encoding = self._headers.one("content-encoding")
        if encoding is None and len(raw) <= bodies.LARGE:
            return bodies.decode_body(raw, route.request, route.is_lenient), len(raw)

        def work() -> tuple[Any, int]:
            content = bodies.decoded(raw, encoding, route.body_limit)
            return bodies.decode_body(content, route.request, route.is_lenient), len(content)

        return await self._process.lanes.read(work, is_long=True)

    async def _deny(self, route: Route, call: Call, denied: PolicyDenied) -> NoReturn:
        """Refuse a request, with the error that the route has for it."""
        if route.on_denied is not None:
            replace = route.on_denied
            await self._process.lanes.read(lambda: replace(call, denied))
        raise denied

    # -- the work ----------------------------------------------------------------------------

    async def _reply_fitting(self, route: Route, call: Call, lane: Lane) -> Reply:
        """Let the generation answer that fits the schema of the graph."""
        while True:
            try:
                if lane == "read":
                    return await self._read(route, call)
                if lane == "write":
                    return await self._write(route, call)
                reply: Reply | Awaitable[Reply] = route.handler(call)
                return reply if isinstance(reply, Reply) else await self._listening_to(reply)
            except GenerationBehind as behind:
                call = await waiting.call_after_switch(call, behind.seconds, self._leaves)
                self._call, self._served, self._identity = call, call.served, call.identity

    async def _write(self, route: Route, call: Call) -> Reply:
        process = self._process
        try:
            permit = process.admission.enter(call.actor, route.size(call))
        except ServerUnavailable:
            process.metrics.refused("write")
            raise
        reply: Reply = await process.lanes.write(lambda: route.handler(call), permit=permit)
        return reply

    def _answer_here(self, route: Route, call: Call) -> Reply | None:
        """The answer of a read that needs no thread, because it reads nothing but memory."""
        if route.in_memory is None or self._process.lanes.observes_all:
            return None
        commit = call.headers.one(COMMIT)
        if commit is not None and not (call.served is not None and call.served.has_seen(commit)):
            return None
        return route.in_memory(call)

    def _run_read(self, route: Route, call: Call) -> Reply | Wait:
        commit = call.headers.one(COMMIT)
        if commit is not None and call.served is not None:
            call.served.see(commit)
        reply: Reply | Wait = route.handler(call)
        return reply

    async def _read(self, route: Route, call: Call) -> Reply:
        """Run a read; it is cancelled when its client leaves. While it waits, it holds nothing."""
        reply = await self._run_once(route, call, lambda: self._run_read(route, call))
        while isinstance(reply, Wait):
            is_over, then = await self._waiting.wait(call, reply, self._leaves), reply.then
            assert then is not None
            reply = await self._run_once(route, call, partial(then, is_over))
        return reply

    async def _run_once(
        self, route: Route, call: Call, work: Callable[[], Reply | Wait]
    ) -> Reply | Wait:
        kind = kind_of(call)
        reply = self._answer_here(route, call)
        if reply is not None:
            # It has taken nothing that admission counts.
            self._look_ups.note(kind)
            return reply
        permit = await self._admit(call)
        try:
            reply = await self._look_ups.wait(kind, lambda: self._answer_here(route, call))
        except BaseException:
            permit.release()
            raise
        if reply is not None:
            permit.release()
            return reply
        with self._look_ups.fill(kind):
            read = self._process.lanes.read(work, call.cancel, permit=permit, key=kind)
            return await self._listening_to(read)

    async def _listening_to(self, work: Awaitable[T]) -> T:
        """Wait for something; its reads are cancelled when the client leaves."""
        # Most reads have ended before it pays to listen to their clients.
        self._patience.add(self)
        try:
            return await work
        finally:
            self._patience.discard(self)
            if self._listening is not None:
                self._listening.cancel()

    async def _admit(self, call: Call) -> Permit:
        try:
            return await self._process.reads.enter(call.actor, call.body_bytes)
        except ServerUnavailable:
            self._process.metrics.refused("read")
            raise

    def listen(self) -> None:
        """Cancel the read of this request when its client leaves."""
        assert self._call is not None
        loop = asyncio.get_running_loop()
        self._listening = loop.create_task(self._cancel_when_left(self._call))

    async def _cancel_when_left(self, call: Call) -> None:
        await self._leaves()
        call.cancel.set()

    async def _leaves(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    # -- the response ------------------------------------------------------------------------

    async def _respond(self, reply: Reply) -> None:
        route, self._reply = self._route, reply
        if reply.follows and self._call is not None:
            self._waiting.admit(self._call)
        is_modified = reply.status != _NOT_MODIFIED
        headers = [("content-type", reply.content_type)] if is_modified else []
        headers += reply.headers
        if route is not None and route.deprecated:
            headers.append(("deprecation", "true"))
            headers.append(("link", f'<{route.successor}>; rel="successor-version"'))
        length = reply.length
        if reply.is_whole and length is None:
            length = len(reply.body)
        if length is not None and is_modified:
            headers.append(("content-length", str(length)))
        await self._send(self._head_of(reply.status, headers))
        if reply.is_whole or self._method == "HEAD":
            await self._send({"type": "http.response.body", "body": reply.body})
            return
        await self._send({"type": "http.response.body", "body": reply.body, "more_body": True})
        await self._stream(reply.kept or (), reply.stream)

    async def _stream(self, kept: Iterable[bytes], stream: Any) -> None:
        """Send the pieces of a body, each when the one before has been taken."""
        call = self._call
        assert call is not None
        leaving = asyncio.ensure_future(self._leaves())
        try:
            for data in kept:
                if leaving.done():
                    break
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
            while not leaving.done():
                piece = await self._next_piece(call, stream)
                if isinstance(piece, Wait):
                    leaving.cancel()
                    is_over = await self._waiting.wait(call, piece, self._leaves)
                    leaving = asyncio.ensure_future(self._leaves())
                    if not is_over:
                        continue
                    piece = b""
                if not piece:
                    await self._send({"type": "http.response.body", "body": b""})
                    return
                await self._send({"type": "http.response.body", "body": piece, "more_body": True})
            self._status = _LEFT
        finally:
            leaving.cancel()
            # Still running if this request was cancelled; it ends at its next check.
            if stream is not None:
                with contextlib.suppress(ValueError):
                    stream.close()

    async def _next_piece(self, call: Call, stream: Any) -> bytes | Wait:
        """The next piece of a stream; empty at its end."""
        if stream is None:
            # Nothing is left to compute, so there is no wait for a thread.
            return b""
        piece: bytes | Wait = await self._process.lanes.read(
            lambda: next(stream, b""), call.cancel, is_long=True
        )
        return piece

    def _head_of(self, status: int, headers: list[tuple[str, str]]) -> Message:
        """The first message of the response."""
        self._status = status
        self._has_started = True
        headers.append((REQUEST_ID, self._request_id))
        if self._echoes_version:
            headers.append((HTTP_API, API_VERSION))
        return {
            "type": "http.response.start",
            "status": status,
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
        }

    async def _count_status(self, message: Message) -> None:
        """Sends what the writer answers."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._has_started = True
        await self._send(message)

    async def _fail(self, error: BaseException) -> None:
        private = {}
        if self._served is not None:
            private[self._served.uri] = f"graph '{self._served.graph_id}'"
        failure = failure_of(error, self._request_id, private=private)
        if failure.status == 409 and self._served is not None:
            self._process.metrics.conflict(self._served.graph_id, failure.body.reason)
        if isinstance(error, OmniGraphError) and failure.status == 500:
            self._log_fault(error)
        if self._has_started:
            # Only a broken connection tells every client that the body is incomplete.
            if self._reply is not None and self._reply.failed is not None:
                last = self._reply.failed(late_body(failure))
                with contextlib.suppress(OSError):
                    await self._send(
                        {"type": "http.response.body", "body": last, "more_body": True}
                    )
            raise error
        await self._send_failure(failure)

    async def _send_failure(self, failure: ErrorResponse) -> None:
        body = msgspec.json.encode(failure.body)
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            *failure.headers,
        ]
        if failure.closes:
            headers.append(("connection", "close"))
        await self._send(self._head_of(failure.status, headers))
        await self._send({"type": "http.response.body", "body": body})

    # -- accounts ----------------------------------------------------------------------------

    def _log_fault(self, error: BaseException) -> None:
        self._process.log.event(
            "internal error",
            level=ERROR,
            request_id=self._request_id,
            error=f"{type(error).__name__}: {error}",
            traceback="".join(traceback.format_exception(error)),
        )

    def _account(self, seconds: float) -> None:
        route = self._route
        label = "unmatched" if route is None else route.path
        self._process.metrics.request(label, label_method(self._method), self._status, seconds)
        log = self._process.log
        if not log.wants_request(seconds):
            return
        text, name = query_of(self._call)
        log.request(
            request_id=self._request_id,
            method=self._method,
            path=label,
            status=self._status,
            seconds=seconds,
            actor=None if self._identity is None else self._identity.id,
            query=text,
            query_name=name,
        )
