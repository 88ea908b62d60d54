"""The tools of a graph in the Model Context Protocol, by the package ``mcp``.

Only this module imports the package. Calls run in threads: the event loop stays free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

import omnigraph
from omnigraph.errors import InputError, NotFound, OmniGraphError
from omnigraph.mcp.context import AgentContext
from omnigraph.mcp.prompts import PROMPTS, AgentPrompt
from omnigraph.mcp.resources import read_resource, visible_resources
from omnigraph.mcp.results import ToolResult
from omnigraph.mcp.toolbox import Toolbox
from omnigraph.mcp.tools import AgentTool, UnknownTool

T = TypeVar("T")
Context = ServerRequestContext[Any]
ContextOf = Callable[[Context], AgentContext]
"""The actor and the graph of a request."""
InThread = Callable[[Callable[[], T]], Awaitable[T]]

INSTRUCTIONS = (
    "A typed property graph with branches. Read graph_schema first. Write only on a branch of your "
    "own (branch_create), in small commits, and leave the merge to whoever reviews it. Errors have "
    "a code and a hint; errors in queries name the place and a correction."
)


def create_server(
    context_of: ContextOf, in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread
) -> Server[Any]:
    """An MCP server; ``context_of`` says who calls, ``in_thread`` runs what may take long."""

    async def list_tools(ctx: Context, _: Any) -> types.ListToolsResult:
        context = context_of(ctx)
        tools = await in_thread(Toolbox(context).tools)
        return types.ListToolsResult(tools=[_tool(tool) for tool in tools])

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        toolbox = Toolbox(context_of(ctx))
        try:
            result, has_schema = await in_thread(
                partial(_called, toolbox, params.name, params.arguments)
            )
        except UnknownTool as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        return _result(result, has_schema)

    async def list_resources(ctx: Context, _: Any) -> types.ListResourcesResult:
        listed = visible_resources(context_of(ctx))
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
        context = context_of(ctx)
        try:
            resource, text = await in_thread(partial(read_resource, context, str(params.uri)))
        except OmniGraphError as error:
            raise _refused(error) from None
        content = types.TextResourceContents(
            uri=resource.uri, mime_type=resource.media_type, text=text
        )
        return types.ReadResourceResult(contents=[content])

    async def list_prompts(ctx: Context, _: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[_prompt(prompt) for prompt in PROMPTS.values()])

    async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> Any:
        prompt = PROMPTS.get(params.name)
        if prompt is None:
            raise MCPError(types.INVALID_PARAMS, f"unknown prompt: {params.name}")
        try:
            text = prompt.filled(params.arguments or {})
        except InputError as error:
            raise _refused(error) from None
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(description=prompt.description, messages=[message])

    return Server(
        "omnigraph",
        version=omnigraph.__version__,
        title="OmniGraph",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )


async def serve_stdio(context: AgentContext) -> None:
    """Serve one graph over standard input and output, until the input ends."""
    from mcp.server.stdio import stdio_server

    server = create_server(lambda _: context)
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


def _refused(error: OmniGraphError) -> MCPError:
    code = types.INVALID_PARAMS if isinstance(error, InputError | NotFound) else -32603
    return MCPError(code, error.message, {"code": error.code, "hint": error.hint})
