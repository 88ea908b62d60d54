"""What the planner knows about the tables of a snapshot.

The number of rows of every table is known from the manifest. Degrees of edges and values of columns
are known for tables that a query has used before: they are measured where adjacencies and columns
are made, never for a plan. All numbers are rounded, so that a plan holds for many versions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from omnigraph.lang.query.checked import Direction
from omnigraph.lang.query.typed import ID_COLUMN
from omnigraph.lang.types import Scalar
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.lang.schema.catalog import Catalog, NodeType


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """About how many distinct values a column has, and the share of nulls."""

    distinct: float
    nulls: float


@dataclass(frozen=True, slots=True)
class Degrees:
    """The degrees of the nodes of an edge table.

    ``squares`` are the mean degrees of the end of an edge: of sources outwards and of targets
    inwards. ``through`` is the mean number of edges that leave the target of an edge, if both ends
    have the same type.
    """

    means: tuple[float, float]
    """The mean number of edges of a source, and of a target."""
    fractions: tuple[float, float]
    """The share of possible sources, and of possible targets, that have edges."""
    squares: tuple[float, float]
    through: float | None
    most: tuple[float, float]
    """The greatest number of edges of a source, and of a target."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What was measured of a table. ``degrees`` are those of an edge table."""

    columns: Mapping[str, ColumnFacts]
    degrees: Degrees | None = None

    def to_json(self) -> dict[str, float]:
        facts: dict[str, float] = {}
        degrees = self.degrees
        if degrees is not None:
            facts["mean_out"], facts["mean_in"] = degrees.means
            facts["sources"], facts["targets"] = degrees.fractions
            facts["next_out"], facts["next_in"] = degrees.squares
            if degrees.through is not None:
                facts["through"] = degrees.through
            facts["most_out"], facts["most_in"] = degrees.most
        for name, column in sorted(self.columns.items()):
            facts[f"{name}.distinct"], facts[f"{name}.nulls"] = column.distinct, column.nulls
        return facts


@dataclass(frozen=True, slots=True)
class EdgeStatistics:
    """The size of an edge table and of the node tables at its ends, and what is known of it."""

    rows: float
    sources: float
    targets: float
    degrees: Degrees | None = None
    is_functional: bool = False
    """Whether the schema allows a source at most one edge."""

    def mean(self, direction: Direction) -> float:
        """The mean number of edges of a node."""
        if self.degrees is not None:
            out, into = self.degrees.means
        else:
            out, into = self.rows / max(self.sources, 1.0), self.rows / max(self.targets, 1.0)
        if self.is_functional:
            out = min(out, 1.0)
        if direction is Direction.BOTH:
            return out + into
        return out if direction is Direction.OUT else into

    def most(self, direction: Direction) -> float:
        """The greatest number of edges of a node, as far as it is known."""
        out, into = (math.inf, math.inf) if self.degrees is None else self.degrees.most
        if self.is_functional:
            out = 1.0
        if direction is Direction.BOTH:
            return out + into
        return out if direction is Direction.OUT else into

    def fraction(self, direction: Direction) -> float:
        """The expected share of nodes that have an edge."""
        if self.degrees is None:
            return min(self.mean(direction), 1.0)
        out, into = self.degrees.fractions
        if direction is Direction.BOTH:
            return 1.0 - (1.0 - out) * (1.0 - into)
        return out if direction is Direction.OUT else into

    def skew(self, one: Direction, other: Direction) -> float:
        """How many more edges a node has in one direction if it was reached against another.

        Nodes with many edges are reached more often than others. 1 if nothing is known.
        """
        if self.degrees is None:
            return 1.0
        means = (self.mean(Direction.OUT), self.mean(Direction.IN))
        moments = (
            (means[0] * self.degrees.squares[0], means[0] * (self.degrees.through or 0.0)),
            (means[0] * (self.degrees.through or 0.0), means[1] * self.degrees.squares[1]),
        )
        ends, others = _ENDS[one], _ENDS[other]
        if self.degrees.through is None and ends != others:
            return 1.0
        mean = sum(means[i] for i in ends) * sum(means[j] for j in others)
        return sum(moments[i][j] for i in ends for j in others) / mean if mean else 1.0


_ENDS = {Direction.OUT: (0,), Direction.IN: (1,), Direction.BOTH: (0, 1)}


class TableStatistics:
    """The statistics of the tables of one query."""

    __slots__ = ("_catalog", "_edges", "_facts", "_key", "_made", "_nodes")

    def __init__(
        self,
        catalog: Catalog,
        nodes: Mapping[str, float],
        edges: Mapping[str, float],
        facts: Mapping[str, TableFacts | None],
    ) -> None:
        """``nodes`` and ``edges`` are numbers of rows by type."""
        self._catalog = catalog
        self._nodes = nodes
        self._edges = edges
        self._facts = facts
        self._made: dict[str, EdgeStatistics] = {}
        # Facts are never changed, and measured once for many versions.
        self._key = (tuple(nodes.items()), tuple(edges.items()), tuple(map(id, facts.values())))

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        types: tuple[str, ...],
        edge_types: tuple[str, ...],
        rows: Callable[[str], int],
        facts: Callable[[str], TableFacts | None],
        magnitude: Callable[[int], float] | None = None,
    ) -> TableStatistics:
        """``rows`` is the number of rows of a table by its key, ``facts`` what was measured.

        The numbers of rows are rounded by ``magnitude``, as a rule to a power of two.
        """
        magnitude = magnitude or power_of_two
        nodes: dict[str, float] = {}
        edges: dict[str, float] = {}
        measured: dict[str, TableFacts | None] = {}
        for name in edge_types:
            edge = catalog.edge_types[name]
            edges[name] = magnitude(rows(edge.table_key))
            measured[name] = facts(edge.table_key)
            types = (*types, edge.from_type, edge.to_type)
        for name in types:
            if name not in nodes:
                key = catalog.node_types[name].table_key
                nodes[name] = magnitude(rows(key))
                measured[name] = facts(key)
        return cls(catalog, nodes, edges, measured)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableStatistics) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def is_identity(self, type_name: str, column: str) -> bool:
        """Whether a column has another value for every node of a type, and is indexed as its id."""
        return column in (ID_COLUMN, text_key(self._catalog.node(type_name)))

    def nodes(self, type_name: str) -> float:
        """About how many nodes a type has."""
        return self._nodes[type_name]

    def edges(self, type_name: str) -> EdgeStatistics:
        """What is known about the edges of a type."""
        statistics = self._made.get(type_name)
        if statistics is None:
            edge = self._catalog.edge_types[type_name]
            facts = self._facts.get(type_name)
            statistics = self._made[type_name] = EdgeStatistics(
                self._edges[type_name],
                self.nodes(edge.from_type),
                self.nodes(edge.to_type),
                None if facts is None else facts.degrees,
                edge.cardinality.max == 1,
            )
        return statistics

    def measured(self) -> dict[str, dict[str, float]]:
        """What was measured of each table, for explain."""
        return {
            name: facts.to_json()
            for name, facts in sorted(self._facts.items())
            if facts is not None and (facts.columns or facts.degrees is not None)
        }

    def column(self, type_name: str, column: str) -> ColumnFacts | None:
        """What is known about the values of a column of a node or edge type."""
        facts = self._facts.get(type_name)
        return None if facts is None else facts.columns.get(column)


def table_keys(
    catalog: Catalog, types: tuple[str, ...], edge_types: tuple[str, ...]
) -> tuple[str, ...]:
    """The keys of the tables whose statistics order the steps of a query."""
    edges = [catalog.edge_types[name] for name in edge_types]
    ends = [name for edge in edges for name in (edge.from_type, edge.to_type)]
    nodes = [catalog.node_types[name] for name in dict.fromkeys([*types, *ends])]
    return tuple(table.table_key for table in (*edges, *nodes))


def text_key(node_type: NodeType | None) -> str | None:
    """The property that is the key of a node type alone, if it is a text."""
    if node_type is None or len(node_type.key) != 1:
        return None
    (key,) = node_type.key
    return key if node_type.properties[key].type.scalar is Scalar.STRING else None


def power_of_two(rows: int) -> float:
    """The middle of the numbers with as many bits.

    >>> power_of_two(0), power_of_two(1_700)
    (0.0, 1536.0)
    """
    return 0.75 * 2.0 ** rows.bit_length() if rows else 0.0


def rounded(number: float) -> float:
    """A measured number to the nearest power of the square root of two.

    >>> rounded(0.0), rounded(1.1), rounded(20.0)
    (0.0, 1.0, 22.63)
    """
    return 0.0 if number <= 0 else round(2.0 ** (round(2 * math.log2(number)) / 2), 2)
