"""Edges end at nodes that exist, before and after."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import OrphanEdge
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.storage.tables import KEY
from omnigraph.write.delta import NO_IDS, Deltas, Effect, TableDelta
from omnigraph.write.validate.committed import Committed
from omnigraph.write.validate.violations import Violation


def added_edge_violations(
    delta: TableDelta, deltas: Deltas, committed: Committed
) -> Iterator[Violation]:
    """Edges of a delta whose source or target is neither there nor in the same write."""
    kind = delta.kind
    if not isinstance(kind, EdgeType) or delta.rows is None or delta.effect is Effect.UPDATE:
        return
    for end, node in (("src", kind.from_type), ("dst", kind.to_type)):
        column = delta.column(end)
        missing = _missing(f"node:{node}", column, deltas, committed)
        if not len(missing):
            continue
        mask = pc.is_in(column, value_set=missing)
        ids = delta.column(KEY)
        for position in pc.indices_nonzero(mask).to_pylist():
            value = column[position].as_py()
            yield Violation(
                OrphanEdge,
                delta.table_key,
                ids[position].as_py(),
                f"edge {kind.name}: {end} '{value}' not found in {node}",
                position,
                f"add the {node} in the same write, or before it",
                {"end": end, "missing": value},
            )


def _missing(
    node_key: str, column: pa.ChunkedArray, deltas: Deltas, committed: Committed
) -> pa.Array:
    wanted = pc.unique(column)
    delta = deltas.get(node_key)
    if delta is not None and delta.num_rows:
        new = delta.column(KEY).combine_chunks()
        wanted = wanted.filter(pc.invert(pc.is_in(wanted, value_set=new)))
    if not len(wanted):
        return NO_IDS
    known = committed.present(node_key, wanted)
    return wanted.filter(pc.invert(pc.is_in(wanted, value_set=known)))


def removed_node_violations(
    catalog: Catalog, delta: TableDelta, deltas: Deltas, committed: Committed
) -> Iterator[Violation]:
    """Edges that stay although a node they need goes away."""
    if not isinstance(delta.kind, NodeType):
        return
    gone = _gone(delta, committed)
    if not len(gone):
        return
    for edge in catalog.edge_types.values():
        ends = [
            end
            for end, node in (("src", edge.from_type), ("dst", edge.to_type))
            if f"node:{node}" == delta.table_key
        ]
        for end in ends:
            left = committed.matching(edge.table_key, end, gone, [KEY, end])
            changed = deltas.get(edge.table_key)
            if changed is not None and changed.num_rows:
                mine = changed.column(KEY).combine_chunks()
                left = left.filter(pc.invert(pc.is_in(left[KEY], value_set=mine)))
            for row_id, value in zip(left[KEY].to_pylist(), left[end].to_pylist(), strict=True):
                yield Violation(
                    OrphanEdge,
                    edge.table_key,
                    row_id,
                    f"edge {edge.name}: {end} '{value}' not found in {delta.kind.name}",
                    None,
                    "delete or replace the edge in the same write",
                    {"end": end, "missing": value},
                )


def _gone(delta: TableDelta, committed: Committed) -> pa.Array:
    """The nodes that exist now and will not."""
    if not delta.replaces:
        return delta.deleted
    before = committed.everything(delta.table_key, [KEY])
    if before is None:
        return NO_IDS
    ids = before[KEY].combine_chunks()
    kept = delta.column(KEY).combine_chunks()
    return ids.filter(pc.invert(pc.is_in(ids, value_set=kept)))
