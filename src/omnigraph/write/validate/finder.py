"""How rules about sets of rows find violations.

A rule words a violation; a finder finds it. One finder keeps keys in memory, another joins them by
Spark. Both return the same results in the same order.
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
class DuplicateValue:
    """A row with the unique values of another row."""

    row: int
    values: tuple[Any, ...]
    first: str
    """The id of the first row with the values."""
    second: str
    """The id of this row."""


@dataclass(frozen=True, slots=True)
class Dangling:
    """An edge with a missing end; ``row`` is set if the edge is in the write."""

    edge_id: str
    value: str
    row: int | None = None


@dataclass(frozen=True, slots=True)
class CardinalityBreach:
    """A source with too many or too few edges after the write, and the last row with one."""

    source: str
    count: int
    row: int | None


class Finder(Protocol):
    """Finds violations among the rows of one write and the committed rows."""

    at_once: int
    """How many rules may run at the same time, in several threads."""

    def repeated_ids(self, delta: TableDelta) -> Iterator[tuple[int, str]]:
        """Rows with the id of an earlier row of the delta."""

    def existing_ids(self, delta: TableDelta) -> Iterator[tuple[int, str]]:
        """Rows with the id of a committed row that stays."""

    def repeated_values(
        self, delta: TableDelta, columns: tuple[str, ...]
    ) -> Iterator[DuplicateValue]:
        """Rows with the values of an earlier row of the delta; nulls are not compared."""

    def existing_values(
        self, delta: TableDelta, columns: tuple[str, ...]
    ) -> Iterator[DuplicateValue]:
        """Rows with the values of a committed row that is not replaced."""

    def missing_ends(self, delta: TableDelta, end: str, node_key: str) -> Iterator[Dangling]:
        """Edges of a delta whose end is neither committed nor in the same write."""

    def left_behind(self, delta: TableDelta, edge: EdgeType, end: str) -> Iterator[Dangling]:
        """Committed edges that stay although the delta removes one of their nodes."""

    def cardinality_breaches(
        self, delta: TableDelta, kind: EdgeType
    ) -> Iterator[CardinalityBreach]:
        """Sources whose edges change and violate the bounds of the edge type."""


class Keys(Protocol):
    """Answers queries about many keys."""

    def finder(self, committed: Committed, deltas: Deltas) -> Finder:
        """The finder of the rules over one snapshot."""

    def superseded(self, rows: RowSource) -> Sequence[int]:
        """The positions of rows whose id a later row repeats."""

    def meets(self, table: Table, rows: RowSource) -> bool:
        """Whether some row has the id of a row of the table."""
