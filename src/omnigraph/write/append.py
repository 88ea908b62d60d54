"""Adding typed Arrow rows to a graph in one commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa

from omnigraph.commit.protocol import Prepared, WriteView
from omnigraph.commit.store import GraphStore
from omnigraph.errors import InputError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.write.conform import conform
from omnigraph.write.delta import Effect, TableDelta, TableRows
from omnigraph.write.stage import stage_deltas
from omnigraph.write.validate import Validator

Rows: TypeAlias = "pa.Table | pa.RecordBatch"


class Append:
    """Rows by type name, in the columns of their types. Strict: ids must be new."""

    def __init__(self, store: GraphStore, catalog: Catalog, rows: Mapping[str, Rows]) -> None:
        deltas: dict[str, TableDelta] = {}
        for name, given in rows.items():
            kind, table = conform(catalog, name, given)
            if kind.table_key in deltas:
                raise InputError(
                    f"{kind.table_key} is given twice", details={"table_key": kind.table_key}
                )
            if table.num_rows:
                deltas[kind.table_key] = TableDelta(kind, Effect.APPEND, TableRows(table))
        self._deltas = deltas
        self._validator = Validator(store, catalog, deltas)

    @property
    def touches(self) -> frozenset[str]:
        return frozenset(self._deltas)

    def prepare(self, view: WriteView) -> Prepared:
        consulted = self._validator.check(view.snapshot)
        return Prepared(stage_deltas(view, self._deltas), consulted, self._validator.check)
