"""Stored queries as tools: their parameters are the arguments."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from omnigraph.api.stored_queries import CheckedQuery, broken_query, result_types
from omnigraph.lang.values.json_schemas import JsonSchema, object_schema, row_schema
from omnigraph.mcp.branching import WRITE_OPTIONS
from omnigraph.mcp.context import AT, BRANCH, CURSOR, LIMIT, AgentContext
from omnigraph.mcp.results import ToolResult, page_schema
from omnigraph.mcp.tools import AgentTool, Arguments
from omnigraph.plan.nodes import ReadPlan

_READ_OPTIONS: Mapping[str, JsonSchema] = {
    "limit": LIMIT,
    "cursor": CURSOR,
    "branch": BRANCH,
    "at": AT,
}


def stored_tool(context: AgentContext, name: str, built_in: Collection[str]) -> AgentTool | None:
    """The tool of a stored query; ``None`` if the actor may not invoke it.

    A query that does not fit the schema of today is not listed, and refused. One with the name of
    a tool of the graph gets a prefix.
    """
    if not may_invoke(context, name):
        return None
    checked = context.queries.checked(context.graph.catalog)[name]
    return _tool(context, checked, tool_name(name, built_in))


def may_invoke(context: AgentContext, name: str) -> bool:
    """Whether there is a tool for a stored query."""
    if context.queries[name].is_mutation and context.settings.read_only:
        return False
    return context.grants.may("invoke_query", query=name)


def tool_name(query_name: str, built_in: Collection[str]) -> str:
    """The name of the tool of a stored query.

    >>> tool_name("people", ["graph_query"]), tool_name("graph_query", ["graph_query"])
    ('people', 'stored_graph_query')
    """
    return f"stored_{query_name}" if query_name in built_in else query_name


def _tool(context: AgentContext, checked: CheckedQuery, name: str) -> AgentTool:
    stored, query = checked.stored, checked.stored.query
    params: Mapping[str, JsonSchema] = stored.params_schema["properties"]
    own: Mapping[str, JsonSchema] = WRITE_OPTIONS if query.is_mutation else _READ_OPTIONS
    # A parameter keeps its name; an option of the same name gets an underscore.
    spelled = {option: f"_{option}" if option in params else option for option in own}
    required = list(stored.params_schema["required"])
    if query.is_mutation:
        required.append(spelled["branch"])
    kind = "Writes to the graph." if query.is_mutation else "Reads the graph."
    outdated = None if query.deprecated is None else f"Deprecated: {query.deprecated}"
    texts = (query.description, query.instruction, outdated, kind)

    def run(given: Arguments) -> ToolResult:
        if checked.problem is not None:
            raise broken_query(stored.name, checked.problem)
        values = {key: value for key, value in given.items() if key in params}
        options = {option: given.get(word) for option, word in spelled.items()}
        run_query = context.write if query.is_mutation else context.read
        with stored.refused_if_broken():
            return run_query(stored.text, stored.name, values, options, stored.name)

    plan = checked.plan
    return AgentTool(
        name,
        query.description or query.name,
        " ".join(text for text in texts if text),
        object_schema(
            {**params, **{word: own[option] for option, word in spelled.items()}}, required
        ),
        run,
        writes=query.is_mutation,
        destroys=query.is_mutation,
        output_schema=page_schema(row_schema(result_types(plan)))
        if isinstance(plan, ReadPlan)
        else None,
        is_listed=checked.problem is None,
    )
