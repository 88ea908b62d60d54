"""The rows that are there, as the validator looks at them.

Few keys are looked up, which an index answers; many are found in one pass over the columns that
count. What was looked at is remembered: the publish asserts it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.upserts import coalesce_batches
from omnigraph.write.delta import NO_IDS, Deltas

# So many keys an index answers as fast as a pass over a small table does; more of them, up to a
# number, only where there are many rows for each.
_FEW, _MANY = 100, 1_000
_ROWS_PER_KEY = 200
_SAMPLE = 16


class Committed:
    """One snapshot under the deltas of a write."""

    def __init__(self, store: GraphStore, snapshot: Snapshot, deltas: Deltas) -> None:
        self._store = store
        self._snapshot = snapshot
        self._deltas = deltas
        self._seen: set[str] = set()

    @property
    def consulted(self) -> dict[str, int]:
        """The tables that were looked at and are not written, by the version seen."""
        written = {key for key, delta in self._deltas.items() if not delta.is_empty}
        found = {key: self._snapshot.pin(key) for key in sorted(self._seen - written)}
        return {key: pin.version for key, pin in found.items() if pin is not None}

    def matching(
        self, table_key: str, column: str, values: pa.Array, columns: Sequence[str]
    ) -> pa.Table:
        """The rows that have one of the values and stay, in their ``id`` and more columns."""
        table = self.staying(table_key)
        if table is None:
            return _nothing(columns)
        found = _lookup(table, column, values, columns)
        delta = self._deltas.get(table_key)
        if delta is None or not len(delta.deleted):
            return found
        return found.filter(pc.invert(pc.is_in(found[KEY], value_set=delta.deleted)))

    def raw_matching(
        self, table_key: str, column: str, values: pa.Array, columns: Sequence[str]
    ) -> pa.Table | None:
        """The rows that have one of the values now, whatever the write does to them."""
        table = self.before(table_key)
        return None if table is None else _lookup(table, column, values, columns)

    def everything(self, table_key: str, columns: Sequence[str]) -> pa.Table | None:
        """All rows of a table as they are, also those that a write replaces."""
        table = self.before(table_key)
        return None if table is None else table.read(columns)

    def present(self, table_key: str, ids: pa.Array) -> pa.Array:
        """Which of the ids have a row that stays."""
        found = self.matching(table_key, KEY, ids, [KEY])
        return found[KEY].combine_chunks() if found.num_rows else NO_IDS

    def before(self, table_key: str) -> Table | None:
        """The table as it is, or none when it has no rows."""
        self._seen.add(table_key)
        pin = self._snapshot.pin(table_key)
        return None if pin is None or not pin.row_count else self._store.table(pin)

    def staying(self, table_key: str) -> Table | None:
        """The same, or none when all rows are replaced."""
        delta = self._deltas.get(table_key)
        if delta is not None and delta.replaces:
            self._seen.add(table_key)
            return None
        return self.before(table_key)


def any_present(table: Table, ids: pa.Array) -> bool:
    """Whether one of the ids has a row in a table; of many, a few often tell."""
    if len(ids) > _FEW:
        some = np.linspace(0, len(ids) - 1, _SAMPLE).astype(np.int64)
        if any_present(table, ids.take(pa.array(some))):
            return True
    return bool(_lookup(table, KEY, ids, [KEY]).num_rows)


def _lookup(table: Table, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
    wanted = pc.unique(values).drop_null()
    names = list(dict.fromkeys((*columns, column)))
    if not len(wanted):
        return table.read(columns, limit=0)
    if _is_lookup(table, len(wanted)):
        return table.read(names, pc.field(column).isin(wanted)).select(list(columns))
    found = [
        rows.filter(pc.is_in(rows[column], value_set=wanted))
        for rows in coalesce_batches(table.scan(names), len(wanted))
    ]
    if not found:
        return table.read(columns, limit=0)
    return pa.concat_tables(found).select(list(columns))


def _is_lookup(table: Table, keys: int) -> bool:
    return keys <= _FEW or (keys <= _MANY and table.count() > keys * _ROWS_PER_KEY)


def _nothing(columns: Sequence[str]) -> pa.Table:
    return pa.schema([(name, pa.string()) for name in columns]).empty_table()
