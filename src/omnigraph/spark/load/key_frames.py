"""The key columns of rows as Spark frames: of new rows, and of tables.

Keys are strings, one for each value: two values are equal if their strings are. Splits travel
inside the function, which no plan and no log shows.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.spark.session.failures import carrying
from omnigraph.storage.tables.fragments import TableLocator, open_version, row_addresses
from omnigraph.storage.tables.store import KEY
from omnigraph.write.fragments import RowsSplit, read_rows
from omnigraph.write.validate.in_memory_keys import one_zero

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LABEL = "checking"


@dataclass(frozen=True, slots=True)
class TableSplit:
    """Some fragments of a table, and the number of the split."""

    locator: TableLocator
    fragments: tuple[int, ...]
    number: int


def waiting_frame(
    session: SparkSession, splits: Sequence[RowsSplit], columns: Sequence[str]
) -> DataFrame:
    """``row``, ``id`` and the keys ``k0``, ``k1``, … of rows without null keys."""
    return _frame(session, _ReadNew(tuple(columns)), splits, f"row long, id string{_keys(columns)}")


def table_frame(
    session: SparkSession, splits: Sequence[TableSplit], columns: Sequence[str]
) -> DataFrame:
    """``seq``, which is the order of the rows, ``id`` and the keys of a table."""
    return _frame(
        session, _ReadTable(tuple(columns)), splits, f"seq long, id string{_keys(columns)}"
    )


def address_frame(session: SparkSession, splits: Sequence[TableSplit]) -> DataFrame:
    """The row addresses of a table by id."""
    return _frame(session, _addresses, splits, "id string, fragment long, address long, rowid long")


def _keys(columns: Sequence[str]) -> str:
    return "".join(f", k{number} string" for number in range(len(columns)))


def _frame(session: SparkSession, work: Any, splits: Sequence[Any], schema: str) -> DataFrame:
    packed = pickle.dumps((work, list(splits)))

    def read(positions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read_split, splits_here = pickle.loads(packed)
        for batch in positions:
            for position in batch.column(0).to_pylist():
                yield from read_split(splits_here[position])

    count = len(splits)
    tasks = session.range(0, count, 1, max(count, 1))
    return tasks.mapInArrow(carrying(read, _LABEL), schema)


@dataclass(frozen=True, slots=True)
class _ReadNew:
    columns: tuple[str, ...]

    def __call__(self, split: RowsSplit) -> Iterator[pa.RecordBatch]:
        for positions, batch in read_rows(split, [KEY, *self.columns]):
            yield from _keyed(pa.array(positions), batch, "row", self.columns)


@dataclass(frozen=True, slots=True)
class _ReadTable:
    columns: tuple[str, ...]

    def __call__(self, split: TableSplit) -> Iterator[pa.RecordBatch]:
        table = open_version(split.locator)
        count = split.number << 40
        names = list(dict.fromkeys((KEY, *self.columns)))
        for batch in table.scan(names, fragments=split.fragments):
            order = np.arange(count, count + batch.num_rows)
            count += batch.num_rows
            yield from _keyed(pa.array(order), batch, "seq", self.columns)


def _keyed(
    order: pa.Array, batch: pa.RecordBatch, name: str, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    rows = one_zero(pa.Table.from_batches([batch]))
    keys = [_texts(rows[column].combine_chunks()) for column in columns]
    names = [name, KEY, *(f"k{number}" for number in range(len(keys)))]
    ids = rows[KEY].combine_chunks().cast(pa.string())
    keyed = pa.table([order, ids, *keys], names)
    for number in range(len(keys)):
        keyed = keyed.filter(pc.is_valid(keyed[f"k{number}"]))
    yield from keyed.to_batches()


def _texts(column: pa.Array) -> pa.Array:
    if pa.types.is_temporal(column.type):
        width = pa.int32() if column.type.bit_width == 32 else pa.int64()
        column = column.cast(width)
    return column.cast(pa.string())


def _addresses(split: TableSplit) -> Iterator[pa.RecordBatch]:
    for number, rows in row_addresses(split.locator, split.fragments, KEY):
        fragment = pa.array(np.full(rows.num_rows, number, np.int64))
        names = [KEY, "fragment", "address", "rowid"]
        yield from pa.table([rows[KEY], fragment, rows[1], rows[2]], names).to_batches()
