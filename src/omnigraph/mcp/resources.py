"""What a model may read without calling a tool: the schema, the stored queries, recent commits."""

from __future__ import annotations

import json
from collections.abc import Mapping

from omnigraph.errors import NotFound
from omnigraph.mcp.context import AgentContext
from omnigraph.mcp.stored import may_invoke
from omnigraph.records import dataclass

_COMMITS = 20


@dataclass(frozen=True, slots=True)
class AgentResource:
    """One resource."""

    uri: str
    name: str
    description: str
    media_type: str


RESOURCES: Mapping[str, AgentResource] = {
    resource.uri: resource
    for resource in (
        AgentResource("omnigraph://schema", "schema", "The schema of the graph.", "text/plain"),
        AgentResource(
            "omnigraph://queries", "queries", "The stored queries with their texts.", "text/plain"
        ),
        AgentResource(
            "omnigraph://commits",
            "commits",
            f"The newest {_COMMITS} commits of main.",
            "application/json",
        ),
    )
}


def visible_resources(context: AgentContext) -> list[AgentResource]:
    """The resources of an actor."""
    may = context.grants.may
    needed = {
        "omnigraph://schema": may("read", "main"),
        "omnigraph://queries": may("read", "main"),
        "omnigraph://commits": may("read", "main"),
    }
    return [resource for uri, resource in RESOURCES.items() if needed[uri]]


def read_resource(context: AgentContext, uri: str) -> tuple[AgentResource, str]:
    """The text of a resource; raises ``NotFound`` for one that the actor may not read."""
    visible = {resource.uri: resource for resource in visible_resources(context)}
    resource = visible.get(uri)
    if resource is None:
        raise NotFound(f"unknown resource: {uri}", hint=f"there are {', '.join(visible)}")
    if resource.name == "schema":
        return resource, _cut(context, context.graph.schema.text())
    if resource.name == "queries":
        names = [name for name in context.queries if may_invoke(context, name)]
        # Only their own declarations: other queries of a file may be hidden from the actor.
        return resource, _cut(
            context, "\n\n".join(context.queries[name].own_text for name in names)
        )
    commits = [
        {
            "commit_id": commit.commit_id,
            "created_at": commit.created_at,
            "actor": commit.actor,
            "kind": commit.kind,
        }
        for commit in context.rights.visible(context.graph.commits())[:_COMMITS]
    ]
    return resource, json.dumps(commits)


def _cut(context: AgentContext, text: str) -> str:
    """A text that is not longer than a result may be, and says if it was."""
    most = context.settings.max_bytes
    encoded = text.encode("utf-8")
    if len(encoded) <= most:
        return text
    return encoded[:most].decode("utf-8", "ignore") + "\n// cut here: the whole text is too long"
