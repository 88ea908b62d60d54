"""Appends typed Arrow rows to a graph in one commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa

from omnigraph.commit.group import commit_grouped
from omnigraph.commit.receipts import Receipt
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.schema.files import Contract
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import InputError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.write.conform import conform
from omnigraph.write.delta import Effect, TableDelta, TableRows
from omnigraph.write.grouping import MOST_ROWS, Member, MemberRows, type_rows
from omnigraph.write.row_security import RowSecurity
from omnigraph.write.stage import stage_deltas
from omnigraph.write.validate import Validator

Rows: TypeAlias = pa.Table | pa.RecordBatch


def append(
    store: GraphStore,
    contract: Contract,
    rows: Mapping[str, Rows],
    branch: str | None,
    actor: str | None,
    security: RowSecurity | None = None,
) -> Receipt:
    """Commit Arrow rows by type name; ``security`` is given if the actor may not see all rows."""
    addition = Append(store, contract.catalog, rows, security)
    request = WriteRequest(
        WriterKind.LOAD,
        branch,
        addition.touches,
        addition.prepare,
        actor=actor,
        schema_hash=contract.schema_hash,
        member=addition.member(),
    )
    return commit_grouped(store, request)


class Append:
    """Rows by type name, in the columns of their types. Strict: ids must be new."""

    def __init__(
        self,
        store: GraphStore,
        catalog: Catalog,
        rows: Mapping[str, Rows],
        security: RowSecurity | None = None,
    ) -> None:
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
        self._store = store
        self._catalog = catalog
        self._deltas = deltas
        self._security = security
        self._validator = Validator(store, catalog, deltas, security=security)

    def member(self) -> Member | None:
        """The rows as a member of a group; none if there are none, or many."""
        rows = sum(delta.num_rows for delta in self._deltas.values())
        if not 0 < rows <= MOST_ROWS:
            return None
        return Member(self._store, self._catalog, self._content, self._security)

    def _content(self) -> MemberRows:
        return MemberRows({key: type_rows(delta) for key, delta in self._deltas.items()})

    def prepare(self, view: WriteView) -> PreparedWrite:
        consulted = self._validator.check(view.snapshot)
        return PreparedWrite(stage_deltas(view, self._deltas), consulted, self._validator.check)
