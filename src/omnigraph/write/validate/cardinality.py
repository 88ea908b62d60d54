"""How many edges of a type leave a node, counted as it will be after the write."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import CardinalityViolation
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.storage.tables import KEY
from omnigraph.write.delta import NO_IDS, Deltas, Effect, TableDelta
from omnigraph.write.validate.committed import Committed
from omnigraph.write.validate.violations import Violation


def cardinality_violations(
    delta: TableDelta, deltas: Deltas, committed: Committed
) -> Iterator[Violation]:
    """Sources whose edges change and end up too many or too few.

    Only sources that gain, move or lose an edge are looked at, so a node that never had one does
    not break a minimum; a source that is deleted itself needs no edges.
    """
    kind = delta.kind
    if not isinstance(kind, EdgeType) or delta.effect is Effect.UPDATE:
        return
    if not kind.cardinality.min and kind.cardinality.max is None:
        return
    affected = _affected(delta, committed)
    affected = _alive(kind, affected, deltas)
    if not len(affected):
        return
    counts = _counts(delta, affected, committed)
    low, high = kind.cardinality.min, kind.cardinality.max
    for source in affected.to_pylist():
        count = counts.get(source, 0)
        if high is not None and count > high:
            yield _found(delta, source, count, f"max {high}")
        elif count < low:
            yield _found(delta, source, count, f"min {low}")


def _affected(delta: TableDelta, committed: Committed) -> pa.Array:
    """New sources of the edges in the delta, and the old ones of what it moves or deletes."""
    parts = [NO_IDS]
    if delta.rows is not None:
        parts.append(delta.column("src").combine_chunks())
    if delta.replaces:
        before = committed.everything(delta.table_key, ["src"])
        if before is not None:
            parts.append(before["src"].combine_chunks())
    else:
        touched = delta.deleted
        if not delta.new_ids:
            touched = pa.concat_arrays([delta.column(KEY).combine_chunks(), touched])
        parts.append(_before(delta, touched, committed))
    return pc.unique(pa.concat_arrays([part.cast(pa.string()) for part in parts]))


def _before(delta: TableDelta, ids: pa.Array, committed: Committed) -> pa.Array:
    if not len(ids):
        return NO_IDS
    found = committed.raw_matching(delta.table_key, KEY, ids, ["src"])
    return found["src"].combine_chunks() if found is not None else NO_IDS


def _alive(kind: EdgeType, sources: pa.Array, deltas: Deltas) -> pa.Array:
    node = deltas.get(f"node:{kind.from_type}")
    if node is not None and node.replaces:
        return sources.filter(pc.is_in(sources, value_set=node.column(KEY).combine_chunks()))
    if node is None or not len(node.deleted):
        return sources
    return sources.filter(pc.invert(pc.is_in(sources, value_set=node.deleted)))


def _counts(delta: TableDelta, affected: pa.Array, committed: Committed) -> dict[str, int]:
    there = committed.matching(delta.table_key, "src", affected, [KEY, "src"])
    mine = delta.column(KEY).combine_chunks()
    sources = [there.filter(pc.invert(pc.is_in(there[KEY], value_set=mine)))["src"]]
    if delta.rows is not None:
        sources.append(delta.column("src"))
    chunks = [chunk for column in sources for chunk in column.chunks]
    counted = pc.value_counts(pa.chunked_array(chunks, pa.string()))
    return {entry["values"]: entry["counts"] for entry in counted.to_pylist()}


def _found(delta: TableDelta, source: str, count: int, bound: str) -> Violation:
    position = None
    if delta.rows is not None:
        mask = pc.equal(delta.column("src"), source)
        hits = pc.indices_nonzero(mask)
        position = hits[len(hits) - 1].as_py() if len(hits) else None
    text = (
        f"@card violation on edge {delta.kind.name}: source '{source}' has {count} edges ({bound})"
    )
    details = {"source": source, "count": count}
    return Violation(CardinalityViolation, delta.table_key, source, text, position, None, details)
