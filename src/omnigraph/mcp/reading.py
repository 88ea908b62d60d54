"""Tools that read: the schema, searches, queries, single nodes and edges, history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from omnigraph.api.changes import read_blame, read_page
from omnigraph.api.neighbours import find_entity, find_neighbours, find_node_type
from omnigraph.api.snapshot import GraphSnapshot
from omnigraph.errors import InputError
from omnigraph.lang.schema.catalog import Catalog, EdgeType, EntityType
from omnigraph.lang.types import Scalar
from omnigraph.lang.values.columns import json_values
from omnigraph.lang.values.json_schemas import JsonSchema, object_schema
from omnigraph.mcp.context import AT, BRANCH, CURSOR, LIMIT, MAIN, AgentContext
from omnigraph.mcp.lists import ListReader
from omnigraph.mcp.results import ToolResult, page_schema, size_of
from omnigraph.mcp.tools import AgentTool, Arguments
from omnigraph.merge.change_filter import ChangeFilter
from omnigraph.merge.feed import AFTER, BEGINNING

_TYPE: JsonSchema = {"type": "string", "description": "the name of a node or edge type"}
# Letters of a text that a hit shows.
_SHOWN = 300
_COMMITS = 20
_CUT = "long values were cut; a query that returns one of them reads it whole, if it fits"
_VALUES = partial(json_values, form="sdk")
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
                "cursor": CURSOR,
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
                "cursor": CURSOR,
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
        object_schema({"branch": BRANCH, "limit": LIMIT, "cursor": CURSOR}),
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
        if text is None or size_of(text) + size_of(data) > self._context.settings.max_bytes:
            return ToolResult(data)
        return ToolResult({"schema": text, **data})

    def _state(self, given: Arguments, pages: ListReader) -> GraphSnapshot:
        """The state of the arguments; that of the first page, if there was one before."""
        snapshot = self._context.snapshot(given)
        if pages.state is None or pages.state == snapshot.commit_id:
            return snapshot
        return self._context.state(pages.state)

    # -- search ------------------------------------------------------------------------------

    def search(self, given: Arguments) -> ToolResult:
        context, pages = self._context, ListReader(self._context, "graph_search", given)
        snapshot = self._state(given, pages)
        fields = _text_fields(snapshot.catalog, given.get("type"), given.get("property"))
        hits: list[dict[str, Any]] = []
        for type_name, name in fields:
            text = (
                f"query search_{name}($words: String) {{ match {{ $n: {type_name} "
                f"search($n.{name}, $words) }} return {{ $n as node, $n.{name} as text, "
                f"bm25($n.{name}, $words) as score }} order {{ bm25($n.{name}, $words) }} "
                f"limit {pages.most} }}"
            )
            limits = context.query_limits()
            with snapshot.query(
                text,
                None,
                {"words": given["text"]},
                engine="local",
                timeout=limits.timeout,
                max_memory=limits.max_memory,
                cancel=limits.cancel,
            ) as result:
                hits += (
                    {"type": type_name, "id": row["node"], "property": name}
                    | {"text": row["text"][:_SHOWN], "score": row["score"]}
                    for row in result.json_rows("sdk")
                )
        hits.sort(key=lambda hit: (-hit["score"], hit["type"], hit["id"]))
        return ToolResult(
            {
                **pages.page("hits", hits, snapshot.commit_id, snapshot._context.view),
                "searched": [f"{type_name}.{name}" for type_name, name in fields],
                "commit": snapshot.commit_id,
            }
        )

    # -- nodes and edges ---------------------------------------------------------------------

    def entity(self, given: Arguments) -> ToolResult:
        snapshot = self._context.snapshot(given)
        entity_type, row = find_entity(
            snapshot, snapshot.catalog, given["type"], given["id"], _VALUES
        )
        entity, cut = _shortened(row, self._context.settings.max_bytes)
        shown = {"type": entity_type.name, "entity": entity, "commit": snapshot.commit_id}
        return ToolResult({**shown, "cut": cut, "note": _CUT} if cut else shown)

    def neighbours(self, given: Arguments) -> ToolResult:
        pages = ListReader(self._context, "graph_neighbours", given)
        snapshot = self._state(given, pages)
        reached = find_neighbours(
            snapshot,
            snapshot.catalog,
            given["type"],
            given["id"],
            given.get("edge"),
            given.get("direction") or "both",
            pages.room,
            _VALUES,
            pages.offset,
        )
        shown = [asdict(neighbour) for neighbour in reached]
        page = pages.rest("neighbours", shown, snapshot.commit_id, snapshot._context.view)
        return ToolResult({**page, "commit": snapshot.commit_id})

    # -- history -----------------------------------------------------------------------------

    def commits(self, given: Arguments) -> ToolResult:
        branch = given.get("branch") or MAIN
        # Without leave for the history, the engine leaves the authors out.
        self._context.grants.require("read", branch)
        pages = ListReader(
            self._context, "commit_list", {**given, "limit": given.get("limit") or _COMMITS}
        )
        commits = self._context.rights.visible(self._context.graph.commits(branch))
        ids = [commit.commit_id for commit in commits]
        newest = pages.state or (ids[0] if ids else None)
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
            for commit in commits[ids.index(newest) if newest in ids else 0 :][: pages.most]
        ]
        return ToolResult(pages.page("commits", listed, newest))

    def blame(self, given: Arguments) -> ToolResult:
        branch = given.get("branch") or MAIN
        context = self._context
        context.grants.require("read_history", branch)
        context.grants.require("read", branch)
        handle = context.graph._handle
        blame = read_blame(handle, given["type"], given["id"], branch, context.rights)
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
        context = self._context
        context.grants.require("read", branch)
        most, most_bytes = context.limits(given.get("limit"))
        cursor, start = given.get("cursor"), given.get("start") or BEGINNING
        if cursor is None and start.startswith(AFTER):
            context.snapshot({"at": start.removeprefix(AFTER)})
        wanted = ChangeFilter.of(types=given.get("types"))
        # A page that is too long is asked for again with fewer changes.
        while True:
            page = read_page(
                context.graph._handle,
                branch,
                cursor,
                start,
                most,
                wanted,
                context.is_over,
                context.rights,
            )
            result = ToolResult(
                {
                    "blocks": [block.to_json() for block in page.blocks],
                    "cursor": page.cursor,
                    "caught_up": page.caught_up,
                }
            )
            if size_of(result.data) <= most_bytes or most == 1:
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
    types = [find_node_type(catalog, type_name)] if type_name else list(catalog.node_types.values())
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


def _shortened(row: dict[str, Any], most_bytes: int) -> tuple[dict[str, Any], list[str]]:
    """A row whose long values are cut if it is longer than a result may be, and their names."""
    if size_of(row) <= most_bytes:
        return row, []
    most = max(most_bytes // (2 * len(row)), 1)
    cut = [name for name, value in row.items() if size_of(value) > most]
    # A letter has up to four bytes.
    short = {name: row[name][: most // 4] if isinstance(row[name], str) else None for name in cut}
    return {**row, **short}, cut
