"""All tools of one actor at one graph. Knows nothing of the protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Literal

from omnigraph.errors import LimitExceeded, OmniGraphError
from omnigraph.mcp.branching import branch_reading_tools, branch_writing_tools
from omnigraph.mcp.context import AgentContext
from omnigraph.mcp.reading import reading_tools
from omnigraph.mcp.results import ToolResult, size_of
from omnigraph.mcp.stored import may_invoke, stored_tool, tool_name
from omnigraph.mcp.tools import AgentTool, UnknownTool, check_arguments

_MOST = 2
"""How many times as long as a page a result may be, with what surrounds its rows."""


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
        may = context.grants.may
        # Branches of its own may be all that an agent reads.
        own = f"{context.settings.branch_prefix or ''}draft"
        if may("read") or may("read", "main") or may("read", own):
            yield from reading_tools(context)
            yield from branch_reading_tools(context)
        if not context.settings.read_only:
            yield from branch_writing_tools(context)

    def get(self, name: str) -> AgentTool:
        """A tool; raises ``UnknownTool``."""
        tool = self._own.get(name)
        if tool is None:
            query = self._stored_names.get(name)
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
            return self._fitting(tool.run(given))
        except OmniGraphError as error:
            return self._context.describe(error)

    def _fitting(self, result: ToolResult) -> ToolResult:
        """Refuse a result that is longer than any may be; lists and rows were cut before."""
        size, most = size_of(result.data), _MOST * self._context.settings.max_bytes
        if size > most:
            raise LimitExceeded(
                f"the result has {size} bytes, and may have {most}",
                hint="ask for less: one type, a lower limit, fewer properties",
            )
        return result

    def kind_of(self, name: str) -> Literal["read", "write"] | None:
        """What a tool does; ``None`` if there is none. Looks nothing up but what is in memory."""
        tool = self._own.get(name)
        if tool is not None:
            return "write" if tool.writes else "read"
        stored = self._stored_names.get(name)
        if stored is None or not may_invoke(self._context, stored):
            return None
        return "write" if self._context.queries[stored].is_mutation else "read"

    def query_of(self, name: str) -> str | None:
        """The stored query that a tool of the actor runs."""
        stored = self._stored_names.get(name)
        is_own = name in self._own or stored is None or not may_invoke(self._context, stored)
        return None if is_own else stored

    @property
    def is_empty(self) -> bool:
        """Whether there is no tool for the actor."""
        names = self._context.queries
        return not self._own and not any(may_invoke(self._context, name) for name in names)

    @cached_property
    def _stored_names(self) -> Mapping[str, str]:
        """The stored queries by the names of their tools."""
        return {tool_name(query, self._own): query for query in self._context.queries}
