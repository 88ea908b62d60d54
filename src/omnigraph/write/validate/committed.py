"""The rows that are there, as the validator looks at them.

Few keys are looked up, which an index answers; many are found in one pass over the columns that
count. What was looked at is remembered: the publish asserts it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.storage.table import Table
from omnigraph.storage.tables import KEY
from omnigraph.write.delta import NO_IDS, Deltas

# An index answers so many keys faster than a pass over a million rows does.
_LOOKUPS = 1_000


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
        table = self._table(table_key)
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
        self._seen.add(table_key)
        pin = self._snapshot.pin(table_key)
        if pin is None or not pin.row_count:
            return None
        return _lookup(self._store.table(pin), column, values, columns)

    def everything(self, table_key: str, columns: Sequence[str]) -> pa.Table | None:
        """All rows of a table as they are, also those that a write replaces."""
        pin = self._snapshot.pin(table_key)
        self._seen.add(table_key)
        if pin is None or not pin.row_count:
            return None
        return self._store.table(pin).read(columns)

    def present(self, table_key: str, ids: pa.Array) -> pa.Array:
        """Which of the ids have a row that stays."""
        found = self.matching(table_key, KEY, ids, [KEY])
        return found[KEY].combine_chunks() if found.num_rows else NO_IDS

    def _table(self, table_key: str) -> Table | None:
        """The table, or none when there are no rows, or none that stay."""
        self._seen.add(table_key)
        pin = self._snapshot.pin(table_key)
        delta = self._deltas.get(table_key)
        if pin is None or not pin.row_count or (delta is not None and delta.replaces):
            return None
        return self._store.table(pin)


def _lookup(table: Table, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
    wanted = pc.unique(values).drop_null()
    names = list(dict.fromkeys((*columns, column)))
    if not len(wanted):
        return table.read(columns, limit=0)
    if len(wanted) <= _LOOKUPS:
        return table.read(names, pc.field(column).isin(wanted)).select(list(columns))
    batches = [
        batch.filter(pc.is_in(batch[column], value_set=wanted)) for batch in table.scan(names)
    ]
    if not batches:
        return table.read(columns, limit=0)
    return pa.Table.from_batches(batches).select(list(columns))


def _nothing(columns: Sequence[str]) -> pa.Table:
    return pa.schema([(name, pa.string()) for name in columns]).empty_table()
