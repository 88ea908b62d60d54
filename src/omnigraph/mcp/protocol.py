"""The tools of a graph in the Model Context Protocol, by the package ``mcp``.

Only this module and the route of the server import the package. Calls run in threads: the event
loop stays free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

import omnigraph
from omnigraph.errors import InputError, NotFound, OmniGraphError
from omnigraph.logs import logger
from omnigraph.mcp.context import AgentContext
from omnigraph.mcp.prompts import PROMPTS, AgentPrompt
from omnigraph.mcp.resources import read_resource, visible_resources
from omnigraph.mcp.results import ToolResult, writable
from omnigraph.mcp.toolbox import Toolbox
from omnigraph.mcp.tools import AgentTool, UnknownTool
from omnigraph.read.limits import Cancel

T = TypeVar("T")
Context = ServerRequestContext[Any]
_LOG = logger(__name__)

INSTRUCTIONS = (
    "A typed property graph with branches. Read graph_schema first. Write only on a branch of your "
    "own (branch_create), in small commits, and leave the merge to whoever reviews it. Errors have "
    "a code and a hint; errors in queries name the place and a correction."
)


class AgentCall(Protocol):
    """One request of an agent: who asks, and the threads that run what may take long."""

    @property
    def context(self) -> AgentContext: ...

    async def run(self, work: Callable[[], T], *, writes: bool = False) -> T:
        """Run something on a thread. A read ends if nobody waits for it; a write is completed."""
        ...

    def note_fault(self, error: Exception) -> None:
        """Report an exception that nobody expected to the operator."""
        ...


def create_server(call_of: Callable[[Context], AgentCall]) -> Server[Any]:
    """An MCP server; ``call_of`` says who asks."""

    async def list_tools(ctx: Context, _: Any) -> types.ListToolsResult:
        call = call_of(ctx)
        tools = await _run(call, Toolbox(call.context).tools)
        return types.ListToolsResult(tools=[_tool(tool) for tool in tools])

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        call, name, arguments = call_of(ctx), params.name, params.arguments
        toolbox = Toolbox(call.context)
        try:
            writes = toolbox.kind_of(name) == "write"
            result, has_schema = await _run(
                call, lambda: _called(toolbox, name, arguments), writes=writes
            )
        except UnknownTool as error:
            raise MCPError(types.INVALID_PARAMS, writable(str(error))) from None
        except OmniGraphError as error:
            # It was not even begun: the process is busy, or ends.
            return _result(call.context.describe(error), has_schema=True)
        return _result(result, has_schema)

    async def list_resources(ctx: Context, _: Any) -> types.ListResourcesResult:
        call = call_of(ctx)
        listed = visible_resources(call.context)
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=one.uri,
                    name=one.name,
                    description=one.description,
                    mime_type=one.media_type,
                )
                for one in listed
            ]
        )

    async def read(ctx: Context, params: types.ReadResourceRequestParams) -> Any:
        call, uri = call_of(ctx), str(params.uri)
        try:
            resource, text = await _run(call, lambda: read_resource(call.context, uri))
        except OmniGraphError as error:
            raise _refused(error, call.context) from None
        content = types.TextResourceContents(
            uri=resource.uri, mime_type=resource.media_type, text=text
        )
        return types.ReadResourceResult(contents=[content])

    async def list_prompts(ctx: Context, _: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[_prompt(prompt) for prompt in PROMPTS.values()])

    async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> Any:
        prompt = PROMPTS.get(params.name)
        if prompt is None:
            raise MCPError(types.INVALID_PARAMS, writable(f"unknown prompt: {params.name}"))
        try:
            text = prompt.filled(params.arguments or {})
        except InputError as error:
            raise _refused(error, call_of(ctx).context) from None
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(description=prompt.description, messages=[message])

    return Server(
        "omnigraph",
        version=omnigraph.__version__,
        title="OmniGraph",
        instructions=INSTRUCTIONS,
        # No tool takes an argument from a header; without this all tools are listed for each call.
        get_tool_input_schema=lambda name: None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )


async def _run(call: AgentCall, work: Callable[[], T], *, writes: bool = False) -> T:
    """Run something; an exception that nobody expected has no text for the agent."""
    try:
        return await call.run(work, writes=writes)
    except (OmniGraphError, UnknownTool, MCPError):
        raise
    except Exception as error:
        call.note_fault(error)
        raise MCPError(types.INTERNAL_ERROR, "internal error") from None


# -- a graph in this process -----------------------------------------------------------------


class EmbeddedCall:
    """A request to a graph in this process."""

    def __init__(self, context: AgentContext) -> None:
        self._cancel = Cancel()
        self._context = replace(context, cancel=self._cancel)

    @property
    def context(self) -> AgentContext:
        return self._context

    async def run(self, work: Callable[[], T], *, writes: bool = False) -> T:
        try:
            return await asyncio.to_thread(work)
        except asyncio.CancelledError:
            if not writes:
                self._cancel.set()
            raise

    def note_fault(self, error: Exception) -> None:
        _LOG.error("a tool failed", exc_info=error)


async def serve_stdio(context: AgentContext) -> None:
    """Serve one graph over standard input and output, until the input ends."""
    from mcp.server.stdio import stdio_server

    server = create_server(lambda _: EmbeddedCall(context))
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def _called(toolbox: Toolbox, name: str, arguments: Any) -> tuple[ToolResult, bool]:
    has_schema = toolbox.get(name).output_schema is not None
    return toolbox.call(name, arguments), has_schema


def _result(result: ToolResult, has_schema: bool) -> types.CallToolResult:
    # The schema of a result does not describe errors.
    is_structured = not (result.is_error and has_schema)
    return types.CallToolResult(
        content=[types.TextContent(text=result.text)],
        structured_content=dict(result.data) if is_structured else None,
        is_error=result.is_error,
    )


def _tool(tool: AgentTool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations(
            read_only_hint=not tool.writes,
            destructive_hint=tool.destroys,
            open_world_hint=False,
        ),
    )


def _prompt(prompt: AgentPrompt) -> types.Prompt:
    arguments = [
        types.PromptArgument(name=name, description=text, required=True)
        for name, text in prompt.arguments.items()
    ]
    return types.Prompt(
        name=prompt.name,
        title=prompt.title,
        description=prompt.description,
        arguments=arguments,
    )


def _refused(error: OmniGraphError, context: AgentContext) -> MCPError:
    code = types.INVALID_PARAMS if isinstance(error, InputError | NotFound) else -32603
    data = context.describe(error).data
    return MCPError(code, data["error"], {"code": data["code"], "hint": data["hint"]})
