"""A small application for the process model: it opens no graph, and can be made to wait.

Its generation is the text of a file. A text that begins with ``refuse`` cannot be served.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from omnigraph.errors import OmniGraphError, OutcomePending, ServerUnavailable
from omnigraph.server.admission import Admission, TooMany
from omnigraph.server.control import KeptGraph, OpenedGraphs, ReloadFailure
from omnigraph.server.lanes import Lanes, ReadCancel
from omnigraph.server.lifecycle import CannotServe, ProcessParts


def wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.005)


class SmallApplication:
    """Answers with what a test wants to know of the process."""

    def __init__(self, parts: ProcessParts) -> None:
        self._parts = parts
        self._text = self._next = ""
        self._failure: ReloadFailure | None = None
        self._lanes = Lanes(observer=parts.metrics)
        self._admission = Admission(parts.config.write_caps)

    async def open(self, generation: bytes) -> OpenedGraphs:
        self._text = self._accepted(generation)
        return OpenedGraphs((self._text,), ())

    async def prepare(self, generation: bytes) -> Sequence[KeptGraph]:
        self._next = self._accepted(generation)
        return ()

    def _accepted(self, generation: bytes) -> str:
        text = generation.decode()
        if text.startswith("refuse"):
            raise CannotServe(f"cannot serve '{text}'")
        return text

    def activate(self, *, is_kept: bool) -> None:
        self._text = self._next if is_kept else self._text

    def notice(self, reload_failure: ReloadFailure | None) -> None:
        self._failure = reload_failure

    def begin_drain(self) -> None:
        pass

    async def drain(self) -> None:
        await self._lanes.drain()

    async def close(self) -> None:
        self._lanes.close()

    # -- requests ----------------------------------------------------------------------------

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        path, method = scope["path"], scope["method"]
        options = {
            key: values[0] for key, values in parse_qs(scope["query_string"].decode()).items()
        }
        metrics, started = self._parts.metrics, time.perf_counter()
        metrics.request_started()
        try:
            if path == "/write" and self._parts.role == "reader":
                assert self._parts.host.forwarder is not None
                await self._parts.host.forwarder(scope, receive, send)
                return
            body = b""
            while method == "POST":
                message = await receive()
                body += message.get("body", b"")
                if not message.get("more_body"):
                    break
            status, answer = await self._answer(path, options, body, receive)
        except TooMany as refused:
            status, answer = 429, refused.to_json()
        except (ServerUnavailable, OutcomePending) as refused:
            status, answer = 503, refused.to_json()
        except OmniGraphError as refused:
            status, answer = 409, refused.to_json()
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        metrics.request(path, method, status, time.perf_counter() - started)
        headers = [(b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _answer(
        self, path: str, options: dict[str, str], body: bytes, receive: Any
    ) -> tuple[int, Any]:
        match path:
            case "/who":
                failure = None if self._failure is None else self._failure.message
                return 200, {
                    "role": self._parts.role,
                    "pid": os.getpid(),
                    "text": self._text,
                    "failure": failure,
                }
            case "/read":
                return 200, await self._read(options, receive)
            case "/write":
                permit = self._admission.enter("ada", len(body))
                return 200, await self._lanes.write(
                    lambda: self._write(options, body), permit=permit
                )
            case "/reload":
                await self._parts.host.reload()
                return 200, {}
            case "/metrics":
                return 200, await self._parts.host.gather_metrics()
        return 404, {}

    def _write(self, options: dict[str, str], body: bytes) -> dict[str, Any]:
        if "started" in options:
            Path(options["started"]).touch()
        if "until" in options:
            wait_for(options["until"])
        if "file" in options:
            with Path(options["file"]).open("ab") as file:
                file.write(body)
        return {"role": self._parts.role, "pid": os.getpid(), "size": len(body)}

    async def _read(self, options: dict[str, str], receive: Any) -> dict[str, Any]:
        cancel = ReadCancel()

        def work() -> dict[str, Any]:
            if "started" in options:
                Path(options["started"]).touch()
            while "until" in options and not Path(options["until"]).exists():
                if cancel.is_set:
                    Path(options["cancelled"]).touch()
                    raise CannotServe("cancelled")
                time.sleep(0.005)
            return {"pid": os.getpid()}

        async def left() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            cancel.set()

        watcher = asyncio.create_task(left())
        try:
            return await self._lanes.read(work, cancel)
        finally:
            watcher.cancel()
