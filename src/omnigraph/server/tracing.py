"""What one request did: spans for OpenTelemetry, and storage operations for a header.

Both are off unless they are asked for: spans by the configuration, the header by the request. Spans
have routes, methods, statuses and request ids; neither tokens, texts nor parameters.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

import omnigraph
from omnigraph.errors import OmniGraphError, PackageMissing
from omnigraph.read.limits import Cancel
from omnigraph.server.admission import Permit
from omnigraph.server.calls import RequestHeaders
from omnigraph.server.config import ServerConfig
from omnigraph.server.heads import authenticate
from omnigraph.server.lanes import LaneObserver, Lanes
from omnigraph.server.state import ServerProcess
from omnigraph.storage.objects.traffic import Traffic, thread_traffic

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

T = TypeVar("T")

DEBUG_HEADER = b"omnigraph-debug"
STORAGE_HEADER = b"omnigraph-storage-operations"
ROUTE = "omnigraph.route"
"""Where the application puts the route of a request into its scope."""
_REQUEST_ID = b"omnigraph-request-id"
_SERVICE = "omnigraph-server"

_COUNTED: ContextVar[Traffic | None] = ContextVar("omnigraph_storage_operations", default=None)


class Tracing:
    """The spans of one process."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("omnigraph", omnigraph.__version__)

    @classmethod
    def from_config(cls, config: ServerConfig) -> Tracing | None:
        """Spans for the configured collector; ``None`` if there is none."""
        if not config.trace_endpoint:
            return None
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ModuleNotFoundError as error:
            raise PackageMissing(
                "OTEL_EXPORTER_OTLP_ENDPOINT is set, and OpenTelemetry is not installed",
                hint="install omnigraph with its extra: pip install 'omnigraph[server,otel]'",
            ) from error
        resource = Resource.create({"service.name": _SERVICE})
        provider = TracerProvider(resource=resource)
        # The exporter reads its address and headers from the variables of OpenTelemetry itself.
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return cls(provider)

    @contextmanager
    def request(self, scope: Scope) -> Iterator[Span]:
        """The span of a request; it continues the trace that the client names."""
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        carrier = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in (b"traceparent", b"tracestate")
        }
        with self._tracer.start_as_current_span(
            scope["method"],
            extract(carrier),
            SpanKind.SERVER,
            {"http.request.method": scope["method"]},
        ) as span:
            yield span

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """The span of a part of a request."""
        with self._tracer.start_as_current_span(name):
            yield

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()


class Instrumented:
    """An application whose requests are traced and counted, if that is asked for."""

    def __init__(self, app: ASGIApp, process: ServerProcess, tracing: Tracing | None) -> None:
        self._app = app
        self._process = process
        self._tracing = tracing

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        is_plain = self._tracing is None and DEBUG_HEADER not in dict(scope.get("headers", ()))
        if is_plain or scope["type"] != "http":
            return self._app(scope, receive, send)
        return self._observed(scope, receive, send)

    async def _observed(self, scope: Scope, receive: Receive, send: Send) -> None:
        if DEBUG_HEADER in dict(scope["headers"]) and await self._may_count(scope):
            await self._counted(scope, receive, send)
        elif self._tracing is not None:
            await self._traced(self._tracing, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _may_count(self, scope: Scope) -> bool:
        """Only in the open state, or for an administrator of the server."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if [value for name, value in headers if name == DEBUG_HEADER] != [b"storage"]:
            return False
        state = self._process.state
        if state.run_state == "open":
            return True
        try:
            actor = await authenticate(RequestHeaders(headers), state.tokens)
        except OmniGraphError:
            return False
        return state.access.decide(None, actor, "admin").allowed

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        traffic = Traffic()
        _COUNTED.set(traffic)

        async def send_counts(message: Message) -> None:
            if message["type"] == "http.response.start" and not any(
                name == STORAGE_HEADER for name, _ in message["headers"]
            ):
                counts = f"reads={traffic.reads}, writes={traffic.writes}, "
                counts += f"lists={traffic.lists}, deletes={traffic.deletes}"
                message["headers"] = [*message["headers"], (STORAGE_HEADER, counts.encode())]
            await send(message)

        if self._tracing is None:
            await self._app(scope, receive, send_counts)
        else:
            await self._traced(self._tracing, scope, receive, send_counts)

    async def _traced(self, tracing: Tracing, scope: Scope, receive: Receive, send: Send) -> None:
        with tracing.request(scope) as span:

            async def send_traced(message: Message) -> None:
                if message["type"] == "http.response.start":
                    status = message["status"]
                    span.set_attribute("http.response.status_code", status)
                    route = scope.get(ROUTE, "unmatched")
                    span.update_name(f"{scope['method']} {route}")
                    span.set_attribute("http.route", route)
                    for name, value in message["headers"]:
                        if name == _REQUEST_ID:
                            span.set_attribute("omnigraph.request_id", value.decode("latin-1"))
                await send(message)

            await self._app(scope, receive, send_traced)


class InstrumentedLanes(Lanes):
    """Lanes whose work has spans, and whose storage operations are counted for its request."""

    def __init__(self, tracing: Tracing | None, observer: LaneObserver | None = None) -> None:
        super().__init__(observer=observer)
        self._tracing = tracing

    @property
    def observes_all(self) -> bool:
        return self._tracing is not None or _COUNTED.get() is not None

    async def read(
        self,
        fn: Callable[[], T],
        cancel: Cancel | None = None,
        *,
        permit: Permit | None = None,
        key: Hashable = None,
        is_long: bool = False,
    ) -> T:
        work = _counting(fn)
        if self._tracing is None:
            return await super().read(work, cancel, permit=permit, key=key, is_long=is_long)
        with self._tracing.step("read"):
            return await super().read(work, cancel, permit=permit, key=key, is_long=is_long)

    async def write(self, fn: Callable[[], T], *, permit: Permit | None = None) -> T:
        work = _counting(fn)
        if self._tracing is None:
            return await super().write(work, permit=permit)
        with self._tracing.step("write"):
            return await super().write(work, permit=permit)


def _counting(fn: Callable[[], T]) -> Callable[[], T]:
    """The work, with its storage operations added to those of the request."""
    counted = _COUNTED.get()
    if counted is None:
        return fn
    total: Any = counted

    def work() -> T:
        before = thread_traffic()
        try:
            return fn()
        finally:
            total.add(thread_traffic().since(before))

    return work
