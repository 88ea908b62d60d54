"""The number of edges of a type per source after the write."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.errors import CardinalityViolation
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.write.delta import Effect, TableDelta
from omnigraph.write.validate.finder import Finder
from omnigraph.write.validate.violations import Violation


def cardinality_violations(delta: TableDelta, finder: Finder) -> Iterator[Violation]:
    """Sources whose edges change and are then too many or too few.

    Only sources that gain, move or lose an edge are checked, so a node that never had one does
    not violate a minimum, nor does a deleted source.
    """
    kind = delta.kind
    if not isinstance(kind, EdgeType) or delta.effect is Effect.UPDATE:
        return
    low, high = kind.cardinality.min, kind.cardinality.max
    if not low and high is None:
        return
    for breach in finder.cardinality_breaches(delta, kind):
        bound = f"max {high}" if high is not None and breach.count > high else f"min {low}"
        text = (
            f"@card violation on edge {kind.name}: source '{breach.source}' has {breach.count} "
            f"edges ({bound})"
        )
        details = {"source": breach.source, "count": breach.count}
        yield Violation(
            CardinalityViolation,
            delta.table_key,
            breach.source,
            text,
            breach.row,
            None,
            details,
        )
