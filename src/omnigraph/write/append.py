"""Appends typed Arrow rows to a graph in one commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa

from omnigraph.commit.metadata import Receipt
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.schema.files import Contract
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import InputError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.write.conform import conform
from omnigraph.write.delta import Effect, TableDelta, TableRows
from omnigraph.write.stage import stage_deltas
from omnigraph.write.validate import Validator

Rows: TypeAlias = pa.Table | pa.RecordBatch


def append(
    store: GraphStore,
    contract: Contract,
    rows: Mapping[str, Rows],
    branch: str | None,
    actor: str | None,
) -> Receipt:
    """Commit Arrow rows by type name."""
    addition = Append(store, contract.catalog, rows)
    request = WriteRequest(
        WriterKind.LOAD,
        branch,
        addition.touches,
        addition.prepare,
        actor=actor,
        schema_hash=contract.schema_hash,
    )
    return commit_write(store, request)


class Append:
    """Rows by type name, in the columns of their types. Strict: ids must be new."""

    def __init__(self, store: GraphStore, catalog: Catalog, rows: Mapping[str, Rows]) -> None:
        deltas: dict[str, TableDelta] = {}
        for name, given in rows.items():
            entity_type, table = conform(catalog, name, given)
            if entity_type.table_key in deltas:
                raise InputError(
                    f"{entity_type.table_key} is given twice",
                    details={"table_key": entity_type.table_key},
                )
            if table.num_rows:
                deltas[entity_type.table_key] = TableDelta(
                    entity_type, Effect.APPEND, TableRows(table)
                )
        self.touches = frozenset(deltas)
        self._deltas = deltas
        self._validator = Validator(store, catalog, deltas)

    def prepare(self, view: WriteView) -> PreparedWrite:
        consulted = self._validator.check(view.snapshot)
        return PreparedWrite(stage_deltas(view, self._deltas), consulted, self._validator.check)
