"""Tools that read: the schema, searches, queries, single nodes and edges, history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.snapshot import GraphSnapshot
from omnigraph.errors import EntityNotFound, InputError
from omnigraph.lang.closest import closest
from omnigraph.lang.schema.catalog import Catalog, EdgeType, EntityType, NodeType
from omnigraph.lang.types import Scalar
from omnigraph.lang.values.columns import json_values
from omnigraph.lang.values.json_schemas import JsonSchema, object_schema
from omnigraph.mcp.context import AT, BRANCH, CURSOR, LIMIT, MAIN, AgentContext
from omnigraph.mcp.results import ToolResult, bounded, page_schema
from omnigraph.mcp.tools import AgentTool, Arguments

_TYPE: JsonSchema = {"type": "string", "description": "the name of a node or edge type"}
# Letters of a text that a hit shows.
_SHOWN = 300
_ID: JsonSchema = {"type": "string", "description": "the id; of a node with a key, its key"}


def reading_tools(context: AgentContext) -> Iterator[AgentTool]:
    """The tools of an actor who may read."""
    reader = _ReadingTools(context)
    yield AgentTool(
        "graph_schema",
        "Schema",
        "The types of the graph: nodes, edges, their properties, keys and indexes, as the text of "
        "the schema. Read it before you write a query.",
        object_schema({"branch": BRANCH, "at": AT}),
        reader.schema,
    )
    yield AgentTool(
        "graph_search",
        "Search texts",
        "Nodes whose texts contain any of the words, best first. Searches the indexed text "
        "properties of all node types, or of one type.",
        object_schema(
            {
                "text": {"type": "string", "description": "the words to look for"},
                "type": {"type": "string", "description": "only nodes of this type"},
                "property": {"type": "string", "description": "only this property"},
                "limit": LIMIT,
                "branch": BRANCH,
                "at": AT,
            },
            ["text"],
        ),
        reader.search,
    )
    yield AgentTool(
        "graph_entity",
        "One node or edge",
        "All properties of one node or edge, by its type and id.",
        object_schema({"type": _TYPE, "id": _ID, "branch": BRANCH, "at": AT}, ["type", "id"]),
        reader.entity,
    )
    yield AgentTool(
        "graph_neighbours",
        "Neighbours of a node",
        "The edges of a node and the nodes at their other ends, by edge type and direction.",
        object_schema(
            {
                "type": {"type": "string", "description": "the type of the node"},
                "id": _ID,
                "edge": {"type": "string", "description": "only edges of this type"},
                "direction": {"type": "string", "enum": ["out", "in", "both"]},
                "limit": LIMIT,
                "branch": BRANCH,
                "at": AT,
            },
            ["type", "id"],
        ),
        reader.neighbours,
    )
    if context.settings.free_text:
        yield AgentTool(
            "graph_query",
            "Query",
            "Run a query of your own in the query language of the graph, for example: "
            "query q($name: String) { match { $p: Person { name: $name }  $p knows $f } "
            "return { $f.name } limit 10 }. An error names the place and how to mend it.",
            object_schema(
                {
                    "query": {"type": "string", "description": "the text of the query"},
                    "name": {"type": "string", "description": "which query, if there are several"},
                    "params": {"type": "object", "description": "parameters by name"},
                    "limit": LIMIT,
                    "cursor": CURSOR,
                    "branch": BRANCH,
                    "at": AT,
                },
                ["query"],
            ),
            lambda given: context.read(
                given["query"], given.get("name"), given.get("params"), given
            ),
            output_schema=page_schema(),
        )
    yield AgentTool(
        "commit_list",
        "Commits",
        "The newest commits of a branch: id, time, author and kind of write.",
        object_schema({"branch": BRANCH, "limit": LIMIT}),
        reader.commits,
    )
    yield AgentTool(
        "graph_blame",
        "Last change",
        "The commit, and so the author, that last changed a node or an edge.",
        object_schema({"type": _TYPE, "id": _ID, "branch": BRANCH}, ["type", "id"]),
        reader.blame,
    )
    yield AgentTool(
        "graph_changes",
        "Changes since a cursor",
        "What changed on a branch, commit by commit: the rows before and after. Without a cursor "
        "it begins at `start`; keep the returned cursor for the next call.",
        object_schema(
            {
                "branch": BRANCH,
                "cursor": {"type": "string", "description": "the cursor of the call before"},
                "start": {
                    "type": "string",
                    "description": "'now', 'beginning' or 'after:' and a commit id",
                },
                "types": {"type": "array", "items": {"type": "string"}},
                "limit": LIMIT,
            }
        ),
        reader.changes,
    )


class _ReadingTools:
    """The functions of the tools that read."""

    def __init__(self, context: AgentContext) -> None:
        self._context = context

    def schema(self, given: Arguments) -> ToolResult:
        snapshot = self._context.snapshot(given)
        is_newest = given.get("at") is None
        text = self._context.graph.schema.text() if is_newest else None
        catalog = snapshot.catalog
        data: dict[str, Any] = {
            "node_types": {name: _described(row) for name, row in catalog.node_types.items()},
            "edge_types": {name: _described(row) for name, row in catalog.edge_types.items()},
        }
        return ToolResult(data if text is None else {"schema": text, **data})

    # -- search ------------------------------------------------------------------------------

    def search(self, given: Arguments) -> ToolResult:
        context, snapshot = self._context, self._context.snapshot(given)
        limits = context.limits(given.get("limit"))
        fields = _text_fields(snapshot.catalog, given.get("type"), given.get("property"))
        hits: list[dict[str, Any]] = []
        for type_name, name in fields:
            text = (
                f"query search_{name}($words: String) {{ match {{ $n: {type_name} "
                f"search($n.{name}, $words) }} return {{ $n as node, $n.{name} as text, "
                f"bm25($n.{name}, $words) as score }} order {{ bm25($n.{name}, $words) }} "
                f"limit {limits[0]} }}"
            )
            params = {"words": given["text"]}
            with snapshot.query(
                text, None, params, engine="local", timeout=context.settings.timeout
            ) as result:
                hits += (
                    {"type": type_name, "id": row["node"], "property": name}
                    | {"text": row["text"][:_SHOWN], "score": row["score"]}
                    for row in result.json_rows("sdk")
                )
        hits.sort(key=lambda hit: -hit["score"])
        kept, is_cut = bounded(hits, limits)
        return ToolResult(
            {
                "hits": kept,
                "truncated": is_cut,
                "searched": [f"{type_name}.{name}" for type_name, name in fields],
                "commit": snapshot.commit_id,
            }
        )

    # -- nodes and edges ---------------------------------------------------------------------

    def entity(self, given: Arguments) -> ToolResult:
        snapshot = self._context.snapshot(given)
        entity_type = _entity_type(snapshot.catalog, given["type"])
        rows = _rows(snapshot, entity_type, pc.field("id") == given["id"])
        if not rows:
            raise EntityNotFound(
                f"there is no {entity_type.name} '{given['id']}'", details={"id": given["id"]}
            )
        return ToolResult(
            {"type": entity_type.name, "entity": rows[0], "commit": snapshot.commit_id}
        )

    def neighbours(self, given: Arguments) -> ToolResult:
        snapshot = self._context.snapshot(given)
        node_type = _node_type(snapshot.catalog, given["type"])
        if not _rows(snapshot, node_type, pc.field("id") == given["id"], limit=1):
            raise EntityNotFound(
                f"there is no {node_type.name} '{given['id']}'", details={"id": given["id"]}
            )
        direction = given.get("direction") or "both"
        limits = self._context.limits(given.get("limit"))
        reached: list[dict[str, Any]] = []
        for edge_type in _edge_types(snapshot.catalog, given.get("edge")):
            for way, near, far, near_type, far_type in (
                ("out", "src", "dst", edge_type.from_type, edge_type.to_type),
                ("in", "dst", "src", edge_type.to_type, edge_type.from_type),
            ):
                if direction in (way, "both") and near_type == node_type.name:
                    edges = _rows(
                        snapshot, edge_type, pc.field(near) == given["id"], limit=limits[0] + 1
                    )
                    reached += _joined(snapshot, edge_type, way, edges, far, far_type)
        kept, is_cut = bounded(reached, limits)
        return ToolResult({"neighbours": kept, "truncated": is_cut, "commit": snapshot.commit_id})

    # -- history -----------------------------------------------------------------------------

    def commits(self, given: Arguments) -> ToolResult:
        branch = given.get("branch") or MAIN
        self._context.require("read_history", branch)
        limit = given.get("limit") or 20
        listed = [
            {
                "commit_id": commit.commit_id,
                "branch": commit.branch,
                "created_at": commit.created_at,
                "actor": commit.actor,
                "kind": commit.kind,
                "parent": commit.parent,
                "merged_parent": commit.merged_parent,
            }
            for commit in self._context.graph.commits(branch)
        ]
        kept, is_cut = bounded(listed, self._context.limits(limit))
        return ToolResult({"commits": kept, "truncated": is_cut})

    def blame(self, given: Arguments) -> ToolResult:
        branch = given.get("branch") or MAIN
        self._context.require("read_history", branch)
        blame = self._context.graph.changes.blame(given["type"], given["id"], branch)
        commits = {"commit": blame.commit, "origin": blame.origin}
        return ToolResult(
            {"op": blame.op}
            | {
                name: None
                if commit is None
                else {
                    "commit_id": commit.commit_id,
                    "actor": commit.actor,
                    "created_at": commit.created_at,
                    "branch": commit.branch,
                }
                for name, commit in commits.items()
            }
        )

    def changes(self, given: Arguments) -> ToolResult:
        branch = given.get("branch") or MAIN
        self._context.require("read", branch)
        most, most_bytes = self._context.limits(given.get("limit"))
        cursor, start = given.get("cursor"), given.get("start") or "beginning"
        # A page that is too long is asked for again with fewer changes.
        while True:
            page = self._context.graph.changes.poll(
                branch, cursor, start=start, limit=most, types=given.get("types")
            )
            result = ToolResult(
                {
                    "blocks": [block.to_json() for block in page.blocks],
                    "cursor": page.cursor,
                    "caught_up": page.caught_up,
                }
            )
            if len(result.text) <= most_bytes or most == 1:
                return result
            most = max(most // 2, 1)


def _described(entity_type: EntityType) -> dict[str, Any]:
    """A type for a model."""
    described: dict[str, Any] = {
        "properties": {name: str(prop.type) for name, prop in entity_type.properties.items()}
    }
    if isinstance(entity_type, EdgeType):
        return {"from": entity_type.from_type, "to": entity_type.to_type, **described}
    return {"key": list(entity_type.key), **described}


def _text_fields(
    catalog: Catalog, type_name: str | None, property_name: str | None
) -> list[tuple[str, str]]:
    """The indexed text properties to search; all texts of a type that has no indexed one."""
    types = [_node_type(catalog, type_name)] if type_name else list(catalog.node_types.values())
    fields: list[tuple[str, str]] = []
    for node_type in types:
        texts = [
            name
            for name, prop in node_type.properties.items()
            if prop.type.scalar is Scalar.STRING
            and not prop.type.is_list
            and prop.type.enum_values is None
        ]
        indexed = {name for group in node_type.indexes for name in group} - set(node_type.key)
        wanted = [name for name in texts if name in indexed]
        if type_name and not wanted:
            wanted = texts
        if property_name is not None:
            wanted = [name for name in texts if name == property_name]
        fields += ((node_type.name, name) for name in wanted)
    if not fields:
        raise InputError(
            "there is no text property to search",
            hint="graph_schema lists the properties; `@index` on a String makes it searchable here",
        )
    return fields


def _node_type(catalog: Catalog, name: str) -> NodeType:
    node_type = catalog.node(name)
    if node_type is None:
        raise _unknown_type(name, list(catalog.node_types))
    return node_type


def _entity_type(catalog: Catalog, name: str) -> EntityType:
    entity_type = catalog.node(name) or catalog.edge(name)
    if entity_type is None:
        raise _unknown_type(name, [*catalog.node_types, *catalog.edge_types])
    return entity_type


def _edge_types(catalog: Catalog, name: str | None) -> list[EdgeType]:
    if name is None:
        return list(catalog.edge_types.values())
    edge_type = catalog.edge(name)
    if edge_type is None:
        raise _unknown_type(name, list(catalog.edge_types))
    return [edge_type]


def _unknown_type(name: str, names: list[str]) -> InputError:
    close = closest(name, names)
    hint = f"did you mean `{close}`?" if close else f"there are {', '.join(names)}"
    return InputError(f"there is no type `{name}`", hint=hint, details={"type": name})


def _rows(
    snapshot: GraphSnapshot,
    entity_type: EntityType,
    condition: pc.Expression,
    limit: int | None = None,
) -> list[dict[str, Any]]:
    """Rows of a table as JSON, without Blobs."""
    types = {name: prop.type for name, prop in entity_type.properties.items()}
    names = [
        *entity_type.hidden,
        *(name for name, type_ in types.items() if type_.scalar is not Scalar.BLOB),
    ]
    rows: list[dict[str, Any]] = []
    for batch in snapshot.scan(entity_type.name, names, condition):
        wanted = batch if limit is None else batch.slice(0, limit - len(rows))
        columns = [
            json_values(wanted[name], types[name], name, "sdk")
            if name in types
            else wanted[name].to_pylist()
            for name in names
        ]
        rows += (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        if limit is not None and len(rows) >= limit:
            break
    return rows


def _joined(
    snapshot: GraphSnapshot,
    edge_type: EdgeType,
    way: str,
    edges: list[dict[str, Any]],
    far: str,
    far_type: str,
) -> Iterator[dict[str, Any]]:
    """Edges with the nodes at their other ends."""
    if not edges:
        return
    ids = sorted({edge[far] for edge in edges})
    wanted = pc.field("id").isin(pa.array(ids, pa.string()))
    nodes: Mapping[str, Any] = {
        row["id"]: row for row in _rows(snapshot, snapshot.catalog.node_types[far_type], wanted)
    }
    for edge in sorted(edges, key=lambda row: (row[far], row["id"])):
        yield {
            "edge_type": edge_type.name,
            "direction": way,
            "edge": edge,
            "node_type": far_type,
            "node": nodes.get(edge[far]),
        }
