"""Edges end at existing nodes, before and after the write."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.errors import OrphanEdge
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.write.delta import Effect, TableDelta
from omnigraph.write.validate.finder import Dangling, Finder
from omnigraph.write.validate.violations import Violation


def added_edge_violations(delta: TableDelta, finder: Finder) -> Iterator[Violation]:
    """Edges of a delta whose source or target is neither committed nor in the same write."""
    kind = delta.kind
    if not isinstance(kind, EdgeType) or delta.rows is None or delta.effect is Effect.UPDATE:
        return
    for end, node in (("src", kind.from_type), ("dst", kind.to_type)):
        for dangling in finder.missing_ends(delta, end, f"node:{node}"):
            hint = f"add the {node} in the same write, or before it"
            yield _orphan(kind, dangling, end, node, hint)


def removed_node_violations(
    catalog: Catalog, delta: TableDelta, finder: Finder
) -> Iterator[Violation]:
    """Committed edges that stay although one of their nodes is removed."""
    node = delta.kind
    if not isinstance(node, NodeType) or not (delta.replaces or len(delta.deleted)):
        return
    for edge in catalog.edge_types.values():
        for end, name in (("src", edge.from_type), ("dst", edge.to_type)):
            if name == node.name:
                for dangling in finder.left_behind(delta, edge, end):
                    hint = "delete or replace the edge in the same write"
                    yield _orphan(edge, dangling, end, name, hint)


def _orphan(kind: EdgeType, dangling: Dangling, end: str, node: str, hint: str) -> Violation:
    text = f"edge {kind.name}: {end} '{dangling.value}' not found in {node}"
    details = {"end": end, "missing": dangling.value}
    return Violation(
        OrphanEdge, kind.table_key, dangling.edge_id, text, dangling.row, hint, details
    )
