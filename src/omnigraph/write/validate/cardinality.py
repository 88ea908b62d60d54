"""How many edges of a type leave a node, counted as it will be after the write."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.errors import CardinalityViolation
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.write.delta import Effect, TableDelta
from omnigraph.write.validate.finder import Finder
from omnigraph.write.validate.violations import Violation


def cardinality_violations(delta: TableDelta, finder: Finder) -> Iterator[Violation]:
    """Sources whose edges change and end up too many or too few.

    Only sources that gain, move or lose an edge are looked at, so a node that never had one does
    not break a minimum; a source that is deleted itself needs no edges.
    """
    kind = delta.kind
    if not isinstance(kind, EdgeType) or delta.effect is Effect.UPDATE:
        return
    low, high = kind.cardinality.min, kind.cardinality.max
    if not low and high is None:
        return
    for crowd in finder.cardinality_breaches(delta, kind):
        bound = f"max {high}" if high is not None and crowd.count > high else f"min {low}"
        text = (
            f"@card violation on edge {kind.name}: source '{crowd.source}' has {crowd.count} "
            f"edges ({bound})"
        )
        details = {"source": crowd.source, "count": crowd.count}
        yield Violation(
            CardinalityViolation,
            delta.table_key,
            crowd.source,
            text,
            crowd.row,
            None,
            details,
        )
