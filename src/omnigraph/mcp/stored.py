"""Stored queries as tools: their parameters are the arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from omnigraph.api.stored_queries import RegisteredQuery
from omnigraph.errors import OmniGraphError
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query import typed
from omnigraph.mcp.branching import WRITE_OPTIONS
from omnigraph.mcp.context import AT, BRANCH, CURSOR, LIMIT, AgentContext
from omnigraph.mcp.json_schemas import JsonSchema, object_schema, rows_schema, type_schema
from omnigraph.mcp.results import ToolResult
from omnigraph.mcp.tools import AgentTool, Arguments
from omnigraph.plan import plan_query
from omnigraph.plan.nodes import ReadPlan

_READ_OPTIONS: Mapping[str, JsonSchema] = {
    "limit": LIMIT,
    "cursor": CURSOR,
    "branch": BRANCH,
    "at": AT,
}


def stored_tool(context: AgentContext, name: str, built_in: Collection[str]) -> AgentTool | None:
    """The tool of a stored query; ``None`` if the actor may not invoke it, or it is broken.

    A query that does not fit the schema of today is left out: it could not be run. One with the
    name of a tool of the graph gets a prefix.
    """
    stored = context.queries[name]
    if not context.grants.allows("invoke_query", query=name):
        return None
    if stored.query.is_mutation and context.settings.read_only:
        return None
    return _tool(context, stored, tool_name(name, built_in))


def tool_name(query_name: str, built_in: Collection[str]) -> str:
    """The name of the tool of a stored query.

    >>> tool_name("people", ["graph_query"]), tool_name("graph_query", ["graph_query"])
    ('people', 'stored_graph_query')
    """
    return f"stored_{query_name}" if query_name in built_in else query_name


def _tool(context: AgentContext, stored: RegisteredQuery, name: str) -> AgentTool | None:
    query = stored.query
    try:
        plan = plan_query(context.graph.catalog, Source(f"{query.name}.gq", stored.text), query)
    except OmniGraphError:
        return None
    params = {param.name: type_schema(param.type) for param in query.params}
    own: Mapping[str, JsonSchema] = WRITE_OPTIONS if query.is_mutation else _READ_OPTIONS
    # A parameter keeps its name; an option of the same name gets an underscore.
    spelled = {option: f"_{option}" if option in params else option for option in own}
    required = [param.name for param in query.params if not param.type.nullable]
    if query.is_mutation:
        required.append(spelled["branch"])
    describe = [text for text in (query.description, query.instruction) if text]
    kind = "Writes to the graph." if query.is_mutation else "Reads the graph."

    def run(given: Arguments) -> ToolResult:
        values = {key: value for key, value in given.items() if key in params}
        options = {option: given.get(word) for option, word in spelled.items()}
        run_query = context.write if query.is_mutation else context.read
        return run_query(stored.text, stored.name, values, options, stored.name)

    return AgentTool(
        name,
        query.description or query.name,
        " ".join([*describe, kind]),
        object_schema(
            {**params, **{word: own[option] for option, word in spelled.items()}}, required
        ),
        run,
        writes=query.is_mutation,
        destroys=query.is_mutation,
        output_schema=rows_schema(_columns(plan)) if isinstance(plan, ReadPlan) else None,
    )


def _columns(plan: ReadPlan) -> Iterator[tuple[str, JsonSchema]]:
    for column in plan.columns:
        expr = column.expr
        if isinstance(expr, typed.Entity):
            yield column.name, {"type": "object"}
        else:
            yield column.name, type_schema(expr.type)
