"""Agents: who may connect, what a message is about, and who answers it.

The package ``mcp`` is imported with the first message of an agent; a server without it answers 501.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec

from omnigraph.errors import LanguageError, OmniGraphError, PackageMissing
from omnigraph.mcp.branch_prefixes import prefix_for
from omnigraph.mcp.context import AgentContext
from omnigraph.mcp.results import ToolResult, writable
from omnigraph.mcp.settings import AgentSettings
from omnigraph.mcp.toolbox import Toolbox
from omnigraph.server.calls import Call, Reply
from omnigraph.server.config import is_loopback
from omnigraph.server.errors import RequestRefused, failure_of
from omnigraph.server.request_log import ERROR

_PROTOCOL = "omnigraph.server.agents"
_is_loaded = False
_DECODER = msgspec.json.Decoder(dict[str, Any])


# -- who may connect -------------------------------------------------------------------------


def authorize_agent(call: Call) -> None:
    """Web pages of others are refused; so is an actor for whom there is no tool at all."""
    _check_host(call)
    _check_origin(call)
    if Toolbox(context_of(call)).is_empty:
        call.require("read")


def _check_host(call: Call) -> None:
    """Refuse a name that may have been made to point here, so that a web page reaches the server.

    Behind a proxy any name is right, unless the operator has listed them.
    """
    config = call.state.config
    host = call.headers.one("host") or ""
    if host in config.agents.hosts or (not config.is_loopback and not config.agents.hosts):
        return
    if config.is_loopback and _is_local(f"//{host}"):
        return
    raise RequestRefused(
        421,
        "host_not_allowed",
        "this server is not addressed by this name",
        hint="the operator lists further names in OMNIGRAPH_AGENT_HOSTS",
    )


def _check_origin(call: Call) -> None:
    """Refuse web pages of other origins; programs send no origin."""
    config, origin = call.state.config, call.headers.one("origin")
    if origin is None or origin in config.agents.origins:
        return
    if config.is_loopback and _is_local(origin):
        return
    raise RequestRefused(
        403,
        "origin_not_allowed",
        "web pages of this origin may not use the server",
        hint="the operator lists origins in OMNIGRAPH_AGENT_ORIGINS",
    )


def _is_local(address: str) -> bool:
    try:
        host = urlsplit(address).hostname
    except ValueError:
        return False
    return host is not None and is_loopback(host)


# -- what a message is about -----------------------------------------------------------------


def called_tool(body: bytes) -> str | None:
    """The tool that a message calls; ``None`` if it does something else, or is not valid."""
    try:
        message = _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    params = message.get("params")
    if message.get("method") != "tools/call" or not isinstance(params, dict):
        return None
    name = params.get("name")
    return name if isinstance(name, str) else None


def runs_in_writer(call: Call) -> bool:
    """Whether a message calls a tool of the actor that writes."""
    name = called_tool(call.body)
    return name is not None and Toolbox(context_of(call)).kind_of(name) == "write"


def context_of(call: Call) -> AgentContext:
    """The agent at the graph of a request."""
    config = call.state.config
    settings = AgentSettings(
        max_rows=config.agents.max_rows,
        max_paged_rows=config.limits.max_rows,
        max_bytes=config.agents.max_bytes,
        timeout=config.limits.timeout,
        max_memory=config.limits.max_memory,
        branch_prefix=prefix_for(config.agents.branches, call.actor),
    )
    return AgentContext(
        call.graph,
        call,
        settings,
        call.serving.cursor_keys,
        call.cancel,
        partial(_describe, call),
    )


def _describe(call: Call, error: OmniGraphError) -> ToolResult:
    """An error as every response of the server describes it."""
    private = {call.uri: f"graph '{call.graph_id}'"}
    response = failure_of(error, call.request_id, private=private)
    if response.status == 500:
        call.process.log.event(
            "internal error",
            level=ERROR,
            request_id=call.request_id,
            error=f"{type(error).__name__}: {error}",
        )
    body = response.body
    data: dict[str, Any] = {
        "error": body.error,
        "code": body.reason,
        "hint": body.hint or None,
        "retryable": body.retryable,
        "request_id": call.request_id,
    }
    if isinstance(error, LanguageError):
        data["diagnostics"] = [problem.to_json() for problem in error.diagnostics]
        data["shown"] = error.render()
    if body.commit_id:
        data["commit_id"] = body.commit_id
    return ToolResult(writable(data), is_error=True)


# -- who answers it --------------------------------------------------------------------------


async def serve_agent(call: Call) -> Reply:
    """Answer one message of an agent."""
    global _is_loaded
    try:
        if not _is_loaded:
            # On a thread, so that other requests do not wait for it.
            await asyncio.to_thread(__import__, _PROTOCOL)
            _is_loaded = True
        from omnigraph.server import agents
    except ModuleNotFoundError as error:
        raise PackageMissing(
            f"the server needs the package {error.name} for agents",
            hint="the operator installs it with: pip install 'omnigraph[mcp]'",
        ) from None
    return await agents.answer(call)
