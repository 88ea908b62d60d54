"""Adding typed Arrow rows to a graph in one commit.

Strict: an id that is there already, or an edge to a node that is not, refuses the whole write.
The nodes that an edge relies on are part of what the commit asserts, so a concurrent delete of
one of them makes it judge again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.protocol import Prepared, WriteRequest, WriteView, commit_write
from omnigraph.commit.receipts import Receipt
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import KeyConflict, OrphanEdge, UniqueViolation
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.storage.tables import KEY, Table
from omnigraph.write.conform import conform

Rows: TypeAlias = "pa.Table | pa.RecordBatch"
# Up to here keys are looked up one by one, which an index serves; beyond, by one pass.
_LOOKUPS = 1_000


def append_rows(
    store: GraphStore,
    catalog: Catalog,
    rows: Mapping[str, Rows],
    *,
    branch: str | None = None,
    actor: str | None = None,
) -> Receipt | None:
    """Append rows by type name; ``None`` when there are none."""
    batch = _Batch(store, catalog, rows)
    if not batch.tables:
        return None
    return commit_write(
        store,
        WriteRequest(WriterKind.LOAD, branch, frozenset(batch.tables), batch.prepare, actor=actor),
    )


class _Batch:
    """Rows that fit the schema and do not contradict each other, by table key."""

    def __init__(self, store: GraphStore, catalog: Catalog, rows: Mapping[str, Rows]) -> None:
        self._store = store
        self._kinds: dict[str, NodeType | EdgeType] = {}
        self.tables: dict[str, pa.Table] = {}
        for name, given in rows.items():
            kind, table = conform(catalog, name, given)
            if table.num_rows:
                self._kinds[kind.table_key] = kind
                self.tables[kind.table_key] = table
                _refuse_repeats(kind.table_key, table[KEY])

    def prepare(self, view: WriteView) -> Prepared:
        consulted = self.check(view.snapshot)
        staged = {
            key: (view.stage.stage_append(view.table(key), self.tables[key]),)
            for key in sorted(self.tables)
        }
        return Prepared(staged, consulted, self.check)

    def check(self, snapshot: Snapshot) -> dict[str, int]:
        """Judge the rows against a snapshot; gives the tables consulted but not written."""
        consulted: dict[str, int] = {}
        for key in sorted(self.tables):
            kind = self._kinds[key]
            self._refuse_known(snapshot, key)
            if isinstance(kind, EdgeType):
                self._refuse_dangling(snapshot, kind, "src", kind.from_type)
                self._refuse_dangling(snapshot, kind, "dst", kind.to_type)
                for end in (kind.from_type, kind.to_type):
                    pin = snapshot.pin(f"node:{end}")
                    if pin is not None and pin.table_key not in self.tables:
                        consulted[pin.table_key] = pin.version
        return consulted

    def _refuse_known(self, snapshot: Snapshot, key: str) -> None:
        found = _present(self._table(snapshot, key), self.tables[key][KEY])
        if len(found):
            raise KeyConflict(
                f"{key}: there is a row with id '{found[0].as_py()}' already",
                hint="append adds new rows only",
                details={"table_key": key, "id": found[0].as_py()},
            )

    def _refuse_dangling(self, snapshot: Snapshot, kind: EdgeType, end: str, node: str) -> None:
        key = f"node:{node}"
        wanted = pc.unique(self.tables[kind.table_key][end])
        if key in self.tables:
            new = self.tables[key][KEY]
            wanted = wanted.filter(pc.invert(pc.is_in(wanted, value_set=new.combine_chunks())))
        known = _present(self._table(snapshot, key), wanted)
        missing = wanted.filter(pc.invert(pc.is_in(wanted, value_set=known)))
        if len(missing):
            raise OrphanEdge(
                f"edge {kind.name}: {end} '{missing[0].as_py()}' is not a {node}",
                hint=f"add the {node} in the same write, or before it",
                details={"table_key": kind.table_key, "end": end, "id": missing[0].as_py()},
            )

    def _table(self, snapshot: Snapshot, key: str) -> Table | None:
        pin = snapshot.pin(key)
        return None if pin is None or not pin.row_count else self._store.table(pin)


def _present(table: Table | None, ids: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Which of the ids have a row."""
    if table is None or not len(ids):
        return pa.array([], pa.string())
    wanted = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    if len(wanted) <= _LOOKUPS:
        found = table.read([KEY], pc.field(KEY).isin(wanted))
        return found[KEY].combine_chunks()
    parts = [
        batch[KEY].filter(pc.is_in(batch[KEY], value_set=wanted)) for batch in table.scan([KEY])
    ]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.string())


def _refuse_repeats(key: str, ids: pa.ChunkedArray) -> None:
    if len(pc.unique(ids)) == len(ids):
        return
    counts = pc.value_counts(ids)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1))
    value = repeated.field("values")[0].as_py()
    raise UniqueViolation(
        f"{key}: the id '{value}' appears more than once in the rows to add",
        details={"table_key": key, "id": value},
    )
