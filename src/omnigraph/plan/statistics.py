"""What the planner knows about the tables of a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from omnigraph.lang.query.typed import ID_COLUMN
from omnigraph.lang.types import Scalar
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.lang.schema.catalog import Catalog, NodeType


@dataclass(frozen=True, slots=True)
class EdgeStatistics:
    """The size of an edge table, and of the node tables at its ends."""

    rows: float
    sources: float
    targets: float

    @property
    def fan_out(self) -> float:
        """The mean number of edges of a source."""
        return self.rows / max(self.sources, 1.0)

    @property
    def fan_in(self) -> float:
        """The mean number of edges of a target."""
        return self.rows / max(self.targets, 1.0)


class TableSizes:
    """The sizes of the tables of one query, to the nearest power of two."""

    __slots__ = ("_catalog", "_edges", "_key", "_nodes")

    def __init__(
        self,
        catalog: Catalog,
        nodes: Mapping[str, int],
        edges: Mapping[str, tuple[int, str, str]],
    ) -> None:
        """``nodes`` and ``edges`` have the numbers of bits of the row counts."""
        self._catalog = catalog
        self._nodes = nodes
        self._edges = edges
        self._key = (tuple(nodes.items()), tuple(edges.items()))

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        types: tuple[str, ...],
        edge_types: tuple[str, ...],
        rows: Callable[[str], int],
    ) -> TableSizes:
        """``rows`` is the number of rows of a table by its key."""
        nodes: dict[str, int] = {}
        edges: dict[str, tuple[int, str, str]] = {}
        for name in types:
            nodes[name] = rows(catalog.node_types[name].table_key).bit_length()
        for name in edge_types:
            edge = catalog.edge_types[name]
            edges[name] = (rows(edge.table_key).bit_length(), edge.from_type, edge.to_type)
            for end in (edge.from_type, edge.to_type):
                if end not in nodes:
                    nodes[end] = rows(catalog.node_types[end].table_key).bit_length()
        return cls(catalog, nodes, edges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableSizes) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def is_identity(self, type_name: str, column: str) -> bool:
        """Whether a column has another value for every node of a type, and is indexed as its id."""
        return column in (ID_COLUMN, text_key(self._catalog.node(type_name)))

    def nodes(self, type_name: str) -> float:
        """About how many nodes a type has."""
        return _rows(self._nodes[type_name])

    def edges(self, type_name: str) -> EdgeStatistics:
        """About how many edges a type has, and how many nodes are at its ends."""
        bits, src, dst = self._edges[type_name]
        return EdgeStatistics(_rows(bits), self.nodes(src), self.nodes(dst))


def text_key(node_type: NodeType | None) -> str | None:
    """The property that is the key of a node type alone, if it is a text."""
    if node_type is None or len(node_type.key) != 1:
        return None
    (key,) = node_type.key
    return key if node_type.properties[key].type.scalar is Scalar.STRING else None


def _rows(bits: int) -> float:
    """The middle of the numbers with so many bits."""
    return 0.75 * 2.0**bits if bits else 0.0
