"""The route of agents, who speak MCP."""

from __future__ import annotations

from omnigraph.server.handlers import tooling
from omnigraph.server.routes.shape import Route, of_graph

AGENT_ROUTES: tuple[Route, ...] = (
    of_graph(
        "POST",
        "/mcp",
        "mcp",
        "Speak the Model Context Protocol (streamable HTTP, without sessions)",
        "agents",
        "read",
        tooling.serve_agent,
        authorize=tooling.authorize_agent,
        lane="inline",
        relays=tooling.runs_in_writer,
        statuses=(202, 406, 421, 501),
        since="1",
    ),
)
