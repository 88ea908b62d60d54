"""What a write is about to do, table by table, before anything is staged.

A delta is the common language of mutations, loads and merges: the validator judges deltas, and
staging turns them into table commits. Its rows may lie in memory or in a spool on disk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.storage.tables.store import Data

Kind: TypeAlias = NodeType | EdgeType
NO_IDS = pa.array([], pa.string())


class Effect(StrEnum):
    """How the rows of a delta meet the rows that are there."""

    APPEND = "append"
    """New rows; an id that is there already is a conflict."""
    UPSERT = "upsert"
    """New rows and whole replacements of rows with the same id."""
    UPDATE = "update"
    """Some columns of rows that are there; an edge keeps its ends."""
    OVERWRITE = "overwrite"
    """All rows of the table from now on."""
    DELETE = "delete"
    """No rows, only deletions."""


class RowSource(Protocol):
    """The rows of a delta, readable more than once."""

    @property
    def num_rows(self) -> int:
        """How many rows there are."""

    @property
    def names(self) -> Sequence[str]:
        """The columns there are."""

    def select(self, columns: Sequence[str]) -> pa.Table:
        """Some columns of all rows, in memory."""

    def data(self) -> Data:
        """All columns, to be staged; a stream when they are many."""

    @property
    def is_large(self) -> bool:
        """Whether there are too many rows to be held at once."""

    @property
    def is_judged(self) -> bool:
        """Whether the rules about a row alone were applied as the rows came."""

    def rows_at(self, positions: np.ndarray) -> pa.RecordBatchReader:
        """Some rows by their positions, which ascend."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows in memory."""

    table: pa.Table

    @property
    def num_rows(self) -> int:
        return int(self.table.num_rows)

    @property
    def names(self) -> Sequence[str]:
        return list(self.table.column_names)

    def select(self, columns: Sequence[str]) -> pa.Table:
        return self.table.select(list(columns))

    def data(self) -> Data:
        return self.table

    @property
    def is_large(self) -> bool:
        return False

    @property
    def is_judged(self) -> bool:
        return False

    def rows_at(self, positions: np.ndarray) -> pa.RecordBatchReader:
        return self.table.take(pa.array(positions)).to_reader()


@dataclass(frozen=True, slots=True)
class TableDelta:
    """What happens to one table. ``deleted`` are ids of rows that are there.

    ``new_ids`` says that no row can have an id of these rows yet, so nobody needs to look;
    ``made_ids`` that each was made for its row, so that no two are the same either.
    """

    kind: Kind
    effect: Effect
    rows: RowSource | None = None
    deleted: pa.Array = field(default_factory=lambda: NO_IDS)
    new_ids: bool = False
    made_ids: bool = False

    @property
    def table_key(self) -> str:
        return self.kind.table_key

    @property
    def num_rows(self) -> int:
        return 0 if self.rows is None else self.rows.num_rows

    @property
    def replaces(self) -> bool:
        """Whether the rows that are there no longer count."""
        return self.effect is Effect.OVERWRITE

    def column(self, name: str) -> pa.ChunkedArray:
        """One column of the rows; empty when there are none."""
        if self.rows is None:
            return self.kind.arrow_schema().empty_table()[name]
        return self.rows.select([name])[name]

    @property
    def is_empty(self) -> bool:
        return not self.num_rows and not len(self.deleted) and not self.replaces


Deltas: TypeAlias = Mapping[str, TableDelta]
