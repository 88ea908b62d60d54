"""The committed rows, as the validator reads them.

Few keys are looked up by an index; many are found in one scan of the needed columns. The tables
that were read are recorded: the publish asserts their versions.
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

# Up to _FEW keys an index is as fast as a scan of a small table; up to _MANY only if there are
# many rows for each key.
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
        """The versions of tables that were read and are not written."""
        written = {key for key, delta in self._deltas.items() if not delta.is_empty}
        pins = {key: self._snapshot.pin(key) for key in sorted(self._seen - written)}
        return {key: pin.version for key, pin in pins.items() if pin is not None}

    def matching(
        self, table_key: str, column: str, values: pa.Array, columns: Sequence[str]
    ) -> pa.Table:
        """The rows with one of the values that the write neither deletes nor overwrites."""
        table = self.staying(table_key)
        if table is None:
            return _nothing(columns)
        rows = _lookup(table, column, values, columns)
        delta = self._deltas.get(table_key)
        if delta is None or not len(delta.deleted):
            return rows
        return rows.filter(pc.invert(pc.is_in(rows[KEY], value_set=delta.deleted)))

    def raw_matching(
        self, table_key: str, column: str, values: pa.Array, columns: Sequence[str]
    ) -> pa.Table | None:
        """The rows with one of the values before the write."""
        table = self.before(table_key)
        return None if table is None else _lookup(table, column, values, columns)

    def everything(self, table_key: str, columns: Sequence[str]) -> pa.Table | None:
        """All rows of a table before the write."""
        table = self.before(table_key)
        return None if table is None else table.read(columns)

    def present(self, table_key: str, ids: pa.Array) -> pa.Array:
        """The ids that have a remaining row."""
        rows = self.matching(table_key, KEY, ids, [KEY])
        return rows[KEY].combine_chunks() if rows.num_rows else NO_IDS

    def before(self, table_key: str) -> Table | None:
        """The table before the write; none if it has no rows."""
        self._seen.add(table_key)
        pin = self._snapshot.pin(table_key)
        return None if pin is None or not pin.row_count else self._store.table(pin)

    def staying(self, table_key: str) -> Table | None:
        """The same; none if the write overwrites the table."""
        delta = self._deltas.get(table_key)
        if delta is not None and delta.replaces:
            self._seen.add(table_key)
            return None
        return self.before(table_key)


def any_present(table: Table, ids: pa.Array) -> bool:
    """Whether one of the ids has a row in a table; of many ids a sample is tried first."""
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
    matches = [
        rows.filter(pc.is_in(rows[column], value_set=wanted))
        for rows in coalesce_batches(table.scan(names), len(wanted))
    ]
    if not matches:
        return table.read(columns, limit=0)
    return pa.concat_tables(matches).select(list(columns))


def _is_lookup(table: Table, keys: int) -> bool:
    return keys <= _FEW or (keys <= _MANY and table.count() > keys * _ROWS_PER_KEY)


def _nothing(columns: Sequence[str]) -> pa.Table:
    return pa.schema([(name, pa.string()) for name in columns]).empty_table()
