"""The changes of a write, table by table, before anything is staged.

Mutations, loads and merges all produce deltas: the validator checks them, and staging turns them
into table commits. The rows of a delta are in memory, in a spool on disk or in fragments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import LimitExceeded
from omnigraph.lang.schema.catalog import EntityType
from omnigraph.lang.types import MOST_DIMENSIONS
from omnigraph.records import dataclass
from omnigraph.storage.tables.store import Data

NO_IDS = pa.array([], pa.string())


class Effect(StrEnum):
    """What the rows of a delta do to existing rows."""

    APPEND = "append"
    """New rows; an existing id is a conflict."""
    UPSERT = "upsert"
    """New rows and whole replacements of rows with the same id."""
    UPDATE = "update"
    """Some columns of existing rows; an edge keeps its ends."""
    OVERWRITE = "overwrite"
    """All rows of the table from now on."""
    DELETE = "delete"
    """No rows, only deletions."""


class RowSource(Protocol):
    """The rows of a delta, readable more than once."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""

    @property
    def names(self) -> Sequence[str]:
        """The names of the columns."""

    def select(self, columns: Sequence[str]) -> pa.Table:
        """Some columns of all rows, in memory."""

    def distinct(self, column: str) -> pa.Array:
        """The values of a column, each once; there may be more after rows were dropped."""

    def data(self) -> Data:
        """All columns, to be staged; a stream for many rows."""

    @property
    def is_large(self) -> bool:
        """Whether the rows do not fit into memory."""

    @property
    def is_judged(self) -> bool:
        """Whether the rules about single rows have been checked already."""

    def rows_at(self, positions: np.ndarray) -> pa.RecordBatchReader:
        """Some rows by their positions, ascending."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows in memory."""

    table: pa.Table
    is_large: ClassVar[bool] = False
    is_judged: ClassVar[bool] = False

    @property
    def num_rows(self) -> int:
        return int(self.table.num_rows)

    @property
    def names(self) -> Sequence[str]:
        return list(self.table.column_names)

    def select(self, columns: Sequence[str]) -> pa.Table:
        return self.table.select(list(columns))

    def distinct(self, column: str) -> pa.Array:
        return pc.unique(self.table[column])

    def data(self) -> Data:
        return self.table

    def rows_at(self, positions: np.ndarray) -> pa.RecordBatchReader:
        return self.table.take(pa.array(positions)).to_reader()


@dataclass(frozen=True, slots=True)
class TableDelta:
    """The changes of one table. ``deleted`` are ids of existing rows.

    ``new_ids``: no committed row has one of the ids, so they need not be looked up;
    ``made_ids``: the ids were generated, so no two are equal either.
    """

    entity_type: EntityType
    effect: Effect
    rows: RowSource | None = None
    deleted: pa.Array = field(default_factory=lambda: NO_IDS)
    new_ids: bool = False
    made_ids: bool = False

    @property
    def table_key(self) -> str:
        return self.entity_type.table_key

    @property
    def num_rows(self) -> int:
        return 0 if self.rows is None else self.rows.num_rows

    @property
    def replaces(self) -> bool:
        """Whether the existing rows are deleted."""
        return self.effect is Effect.OVERWRITE

    def column(self, name: str) -> pa.ChunkedArray:
        """One column of the rows; empty when there are none."""
        if self.rows is None:
            return self.entity_type.arrow_schema().empty_table()[name]
        return self.rows.select([name])[name]

    def distinct(self, name: str) -> pa.Array:
        """The values of a column of the rows, see ``RowSource.distinct``."""
        if self.rows is None:
            return pc.unique(self.column(name))
        return self.rows.distinct(name)

    @property
    def is_empty(self) -> bool:
        return not self.num_rows and not len(self.deleted) and not self.replaces


Deltas: TypeAlias = Mapping[str, TableDelta]


def refuse_wide(entity_type: EntityType) -> None:
    """Refuse rows of a type whose vectors, declared by another program, are too wide.

    Even a null in such a column takes the memory of a value.
    """
    for prop in entity_type.properties.values():
        if prop.type.is_vector and (prop.type.dimension or 0) > MOST_DIMENSIONS:
            raise LimitExceeded(
                f"{entity_type.name}.{prop.name} is {prop.type}, and rows with more than "
                f"{MOST_DIMENSIONS} dimensions cannot be written",
                hint="drop the property, or write with the program that declared it",
                details={"property": prop.name, "dimension": prop.type.dimension},
            )
