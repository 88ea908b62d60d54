"""All tools of one actor at one graph. Knows nothing of the protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from omnigraph.errors import OmniGraphError
from omnigraph.mcp.branching import branch_reading_tools, branch_writing_tools
from omnigraph.mcp.context import AgentContext
from omnigraph.mcp.reading import reading_tools
from omnigraph.mcp.results import ToolResult, failure
from omnigraph.mcp.stored import stored_tool, tool_name
from omnigraph.mcp.tools import AgentTool, UnknownTool, check_arguments


class Toolbox:
    """The tools that an actor may use; one that it may not use does not exist for it."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context

    def tools(self) -> list[AgentTool]:
        """The tools: those of the graph first, then the stored queries."""
        stored = (stored_tool(self._context, name, self._own) for name in self._context.queries)
        listed = (tool for tool in stored if tool is not None and tool.is_listed)
        return [*self._own.values(), *listed]

    @cached_property
    def _own(self) -> Mapping[str, AgentTool]:
        return {tool.name: tool for tool in self._built_in()}

    def _built_in(self) -> Iterator[AgentTool]:
        context = self._context
        if context.grants.allows("read") or context.grants.allows("read", "main"):
            yield from reading_tools(context)
            yield from branch_reading_tools(context)
        if not context.settings.read_only:
            yield from branch_writing_tools(context)

    def get(self, name: str) -> AgentTool:
        """A tool; raises ``UnknownTool``."""
        tool = self._own.get(name)
        if tool is None:
            names = {tool_name(query, self._own): query for query in self._context.queries}
            query = names.get(name)
            tool = None if query is None else stored_tool(self._context, query, self._own)
        if tool is None:
            raise UnknownTool(f"unknown tool: {name}")
        return tool

    def call(self, name: str, arguments: Mapping[str, Any] | None) -> ToolResult:
        """Run a tool; its errors are results, so that a model can mend the call.

        Raises:
            UnknownTool: there is no such tool for this actor.
        """
        tool, given = self.get(name), dict(arguments or {})
        try:
            check_arguments(tool, given)
            return tool.run(given)
        except OmniGraphError as error:
            return failure(error)
