"""MCP over HTTP, by the package ``mcp``: the messages of agents with the gates of the server.

Every request is a whole conversation: there are no sessions, so any process answers any request.
The tools run in the lanes of the server, with permits of its admission.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Message, Receive, Scope

from omnigraph.errors import InputError, ServerUnavailable
from omnigraph.mcp.context import AgentContext
from omnigraph.mcp.protocol import Context, create_server
from omnigraph.mcp.toolbox import Toolbox
from omnigraph.server.admission import Permit
from omnigraph.server.calls import JSON, Call, Headers, Reply
from omnigraph.server.handlers.tooling import called_tool, context_of
from omnigraph.server.handlers.writing import note_commit
from omnigraph.server.request_log import ERROR
from omnigraph.server.switching import check_generation

T = TypeVar("T")
_SERVED = "omnigraph.agent_call"
_DROPPED = (b"content-length", b"content-encoding", b"transfer-encoding", b"authorization")
# What the package logs may contain the arguments of tools.
logging.getLogger("mcp").addHandler(logging.NullHandler())
logging.getLogger("mcp").propagate = False


class ServedCall:
    """One message of an agent, and the permit of the work that it causes."""

    def __init__(self, call: Call, context: AgentContext, tool: str | None, permit: Permit) -> None:
        self._call = call
        self._context = context
        self._tool = tool
        self._permit: Permit | None = permit
        self.commit_id: str | None = None
        """The commit that it made."""

    @property
    def context(self) -> AgentContext:
        return self._context

    async def run(self, work: Callable[[], T], *, writes: bool = False) -> T:
        process = self._call.process
        if writes and _kind_of(self._context, self._tool) != "write":
            # The message was not understood as this call before, so it may be in a reader.
            raise InputError("the message is not valid JSON")
        permit, self._permit = self._permit, None
        if not writes:
            key = self._call.route.operation_id, self._call.graph_id, hash(self._tool)
            return await process.lanes.read(work, self._call.cancel, permit=permit, key=key)
        result = await process.lanes.write(work, permit=permit)
        self._note(result)
        return result

    def _note(self, result: Any) -> None:
        commit = result[0].data.get("commit_id")
        if isinstance(commit, str) and not result[0].is_error:
            self.commit_id = commit

    def note_fault(self, error: Exception) -> None:
        self._call.process.log.event(
            "internal error",
            level=ERROR,
            request_id=self._call.request_id,
            error=f"{type(error).__name__}: {error}",
            traceback="".join(traceback.format_exception(error)),
        )

    def release(self) -> None:
        """Give the permit back, unless some work has it."""
        if self._permit is not None:
            self._permit.release()


def _kind_of(context: AgentContext, tool: str | None) -> str | None:
    return None if tool is None else Toolbox(context).kind_of(tool)


def _call_of(request: Context) -> ServedCall:
    assert request.request is not None, "every message comes with a request"
    served: ServedCall = request.request.scope[_SERVED]
    return served


_SERVER = create_server(_call_of)


async def answer(call: Call) -> Reply:
    """Answer one message."""
    context, tool = context_of(call), called_tool(call.body)
    kind = _kind_of(context, tool)
    query = None if tool is None else Toolbox(context).query_of(tool)
    if query is not None:
        await call.process.lanes.read(partial(check_generation, call, query))
    served = ServedCall(call, context, tool, await _admit(call, kind == "write"))
    if kind is not None:
        call.process.log.event(
            "tool called",
            request_id=call.request_id,
            graph=call.graph_id,
            actor_id=call.actor,
            tool=tool,
            kind=kind,
        )
    try:
        return await _exchange(call, served)
    finally:
        served.release()


async def _admit(call: Call, writes: bool) -> Permit:
    process = call.process
    try:
        if writes:
            return process.admission.enter(call.actor, call.body_bytes)
        return await process.reads.enter(call.actor, call.body_bytes)
    except ServerUnavailable:
        process.metrics.refused("write" if writes else "read")
        raise


async def _exchange(call: Call, served: ServedCall) -> Reply:
    """Let the package answer; its transport lives as long as the request."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    manager = StreamableHTTPSessionManager(
        _SERVER,
        json_response=True,
        stateless=True,
        max_request_body_size=max(len(call.body), 1),
    )
    async with manager.run():
        await manager.handle_request(_scope(call, served), _receive_once(call.body), send)
    start = sent[0]
    body = b"".join(message.get("body", b"") for message in sent[1:])
    headers: Headers = () if served.commit_id is None else note_commit(call, served.commit_id)
    return Reply(body, start["status"], _content_type(start), headers)


def _scope(call: Call, served: ServedCall) -> Scope:
    headers = [item for item in call.headers.items() if item[0] not in _DROPPED]
    return {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "query_string": b"",
        "headers": headers,
        _SERVED: served,
    }


def _receive_once(body: bytes) -> Receive:
    pending = [body]

    async def receive() -> Message:
        if not pending:
            # Whether the client has left is looked at elsewhere.
            await asyncio.Event().wait()
        return {"type": "http.request", "body": pending.pop(), "more_body": False}

    return receive


def _content_type(start: Message) -> str:
    for name, value in start.get("headers", ()):
        if name == b"content-type":
            text: str = value.decode("latin-1")
            return text
    return JSON
