"""What the rules about sets of rows ask, and the form of the answers.

A rule says what is wrong; a finder finds it. Finders differ in how many keys they can take: one
holds them, another has them joined elsewhere. All give the same answers in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.storage.tables.table import Table
from omnigraph.write.delta import Deltas, RowSource, TableDelta
from omnigraph.write.validate.committed import Committed


@dataclass(frozen=True, slots=True)
class Held:
    """A row whose values another row has."""

    row: int
    values: tuple[Any, ...]
    first: str
    """The id of the row that has them rightly."""
    second: str
    """The id of this row."""


@dataclass(frozen=True, slots=True)
class Dangling:
    """An edge with an end that is not there; it has a row if the write brings it."""

    edge_id: str
    value: str
    row: int | None = None


@dataclass(frozen=True, slots=True)
class CardinalityBreach:
    """A source that will have too many or too few edges, and the last row with one of them."""

    source: str
    count: int
    row: int | None


class Finder(Protocol):
    """Looks at the rows of one write and at those that are there."""

    at_once: int
    """How many questions it takes at the same time, from several threads."""

    def repeated_ids(self, delta: TableDelta) -> Iterator[tuple[int, str]]:
        """Rows that have the id of an earlier row of the delta."""

    def existing_ids(self, delta: TableDelta) -> Iterator[tuple[int, str]]:
        """Rows that have the id of a row that is there and stays."""

    def repeated_values(self, delta: TableDelta, columns: tuple[str, ...]) -> Iterator[Held]:
        """Rows that have the values of an earlier row of the delta; nulls are free."""

    def existing_values(self, delta: TableDelta, columns: tuple[str, ...]) -> Iterator[Held]:
        """Rows that have the values of a row that is there and is not replaced."""

    def missing_ends(self, delta: TableDelta, end: str, node_key: str) -> Iterator[Dangling]:
        """Edges of a delta whose end is neither there nor in the same write."""

    def left_behind(self, delta: TableDelta, edge: EdgeType, end: str) -> Iterator[Dangling]:
        """Edges that stay although the delta takes the node at one end away."""

    def cardinality_breaches(
        self, delta: TableDelta, kind: EdgeType
    ) -> Iterator[CardinalityBreach]:
        """Sources whose edges change and end up beyond the bounds of their type."""


class Keys(Protocol):
    """Whoever answers questions about many keys."""

    def finder(self, committed: Committed, deltas: Deltas) -> Finder:
        """For the rules, over one snapshot."""

    def superseded(self, rows: RowSource) -> Sequence[int]:
        """The positions of rows whose id a later row has too."""

    def meets(self, table: Table, rows: RowSource) -> bool:
        """Whether some row has an id that is in a table."""
