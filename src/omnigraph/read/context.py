"""What queries and expressions need to run: ``QueryContext`` and ``EvalContext``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from omnigraph.lang.query import typed
from omnigraph.read.frame import Frame

if TYPE_CHECKING:
    from omnigraph.commit.snapshot import Snapshot
    from omnigraph.commit.store import GraphStore
    from omnigraph.embed import Embedders
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.topology.cache import Codes
    from omnigraph.topology.store import Topology

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
    """The cheaper mode, CSR on a tie; hops of an edge between two types count as one.

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


@dataclass(frozen=True, slots=True)
class QueryContext:
    """The graph state and settings that a query runs against."""

    store: GraphStore
    catalog: Catalog
    snapshot: Snapshot
    topology: Topology
    traversal: TraversalSettings = TraversalSettings()
    embedders: Embedders | None = None


class SearchEvaluator(Protocol):
    """The values of search expressions, one for each row of a frame."""

    def matches(self, frame: Frame, expr: typed.TextMatch, *, exact: bool) -> Any:
        """Whether the text of each row matches; null where there is no text."""

    def distances(self, frame: Frame, expr: typed.Nearest) -> pa.Array:
        """The distance of each row's vector; null where there is none."""

    def scores(self, frame: Frame, expr: typed.Bm25) -> pa.Array:
        """The BM25 score of each row; null where the text does not match."""

    def fused(self, frame: Frame, expr: typed.Rrf) -> pa.Array:
        """The fused score of each row; null where neither ranking has it."""


class EvalContext(Protocol):
    """Evaluates expressions over frames.

    Implemented by the embedded engine (``read.run.Run``) and by Spark workers
    (``spark.query.rows.WorkerRun``); ``read.values`` works with either.
    """

    types: Mapping[str, str]
    """The node type of each variable."""

    @property
    @abstractmethod
    def searches(self) -> SearchEvaluator:
        """The searches of the query."""

    @abstractmethod
    def read_columns(
        self, frame: Frame, variable: str, names: Sequence[str]
    ) -> Mapping[str, pa.Array]:
        """Columns of a variable, one value for each row."""

    @abstractmethod
    def codes(self, frame: Frame, expr: typed.TypedExpr) -> Codes | None:
        """Integer codes that are equal where the values of a column are, if available."""

    def column(self, frame: Frame, variable: str, name: str) -> pa.Array:
        """One column of a variable; read once and kept in the frame."""
        key = (variable, name)
        if key not in frame.values:
            frame.values[key] = self.read_columns(frame, variable, [name])[name]
        return frame.values[key]

    def fetch(self, frame: Frame, exprs: Iterable[typed.TypedExpr]) -> None:
        """Read the columns that expressions need into the frame, one read for each variable."""
        missing: dict[str, dict[str, None]] = {}
        for expr in exprs:
            for variable, name in columns_read(expr):
                if (variable, name) not in frame.values:
                    missing.setdefault(variable, {})[name] = None
        for variable, names in missing.items():
            for name, values in self.read_columns(frame, variable, list(names)).items():
                frame.values[variable, name] = values


def columns_read(expr: typed.TypedExpr, *, searched: bool = False) -> Iterator[tuple[str, str]]:
    """The (variable, column) pairs that an expression reads.

    Searches read their own columns; ``searched`` includes the texts that a word search looks at.
    """
    match expr:
        case typed.Column():
            yield expr.variable, expr.name
        case typed.Entity():
            yield expr.variable, typed.ID_COLUMN
        case typed.TextMatch():
            if searched:
                yield expr.field.variable, expr.field.name
        case typed.Score():
            return
        case _:
            for operand in typed.children(expr):
                yield from columns_read(operand, searched=searched)
