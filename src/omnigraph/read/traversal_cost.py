"""The cost model of traversals: through the index of the edge table, or through an adjacency.

Both modes return the same rows. The index is queried hop by hop for the edges of a few nodes. An
adjacency (CSR) is built once, in one pass over the edge table, and then shared by all traversals.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from omnigraph.records import dataclass

# The cost of adding an edge to an adjacency, in edges read through the index.
_CSR_FACTOR = 1.5


class TraversalMode(StrEnum):
    INDEXED = "indexed"
    CSR = "csr"


@dataclass(frozen=True, slots=True)
class TraversalSettings:
    """The traversal mode of the caller or the environment, and its thresholds."""

    mode: TraversalMode | None = None
    max_hops: int = 6
    max_frontier: int = 1024


@dataclass(frozen=True, slots=True)
class TraversalChoice:
    """The chosen mode with the numbers behind it, for explain."""

    mode: TraversalMode
    reason: str
    frontier: int
    hops: int
    edges: int
    indexed_cost: float | None = None
    csr_cost: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "strategy": str(self.mode),
            "reason": self.reason,
            "frontier": self.frontier,
            "hops": self.hops,
            "edges": self.edges,
            "indexed_cost": self.indexed_cost,
            "csr_cost": self.csr_cost,
        }


def choose(
    settings: TraversalSettings,
    *,
    hops: int,
    frontier: int,
    edges: int,
    sources: int,
    is_covered: bool,
    is_built: bool,
) -> TraversalChoice:
    """The cheaper mode, CSR on a tie; ``hops`` is 1 for an edge between two types.

    >>> choose(TraversalSettings(), hops=1, frontier=1, edges=2_000_000, sources=100_000,
    ...        is_covered=True, is_built=False).mode
    <TraversalMode.INDEXED: 'indexed'>
    """
    indexed: float | None = None
    csr: float | None = None
    if settings.mode is not None:
        mode, reason = settings.mode, "forced"
    elif hops > settings.max_hops:
        mode, reason = TraversalMode.CSR, "many hops"
    elif frontier > settings.max_frontier:
        mode, reason = TraversalMode.CSR, "many starts"
    else:
        per_hop = frontier * edges / max(sources, 1) if is_covered else edges
        indexed = hops * per_hop
        csr = 0.0 if is_built else _CSR_FACTOR * edges
        mode = TraversalMode.INDEXED if indexed < csr else TraversalMode.CSR
        reason = "built already" if mode is TraversalMode.CSR and is_built else "cheaper"
    return TraversalChoice(mode, reason, frontier, hops, edges, indexed, csr)
