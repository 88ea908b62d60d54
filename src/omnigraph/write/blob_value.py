"""Sets one Blob of one row, in a commit of its own, if its present value fulfils a condition.

The condition is checked on the snapshot that the write is staged on, and the write is refused if
the table changes before its commit: of two writers with the same condition one wins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.protocol import commit_write
from omnigraph.commit.receipts import Receipt
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.schema.files import Contract
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import EntityNotFound, InputError, PreconditionFailed
from omnigraph.lang.diagnostics import Span
from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import ROW, CheckedStatement, StatementKind
from omnigraph.lang.query.typed import ID_COLUMN, STRING, EntityKind, Relation
from omnigraph.lang.schema.catalog import NodeType
from omnigraph.lang.types import Scalar
from omnigraph.plan.nodes import MutationPlan
from omnigraph.records import dataclass
from omnigraph.storage.tables.blob_digests import digest_of
from omnigraph.storage.tables.store import KEY
from omnigraph.storage.tables.table import ROW_ID, Table
from omnigraph.write.conform import find_type
from omnigraph.write.mutation import Mutation
from omnigraph.write.pending import scan_visible
from omnigraph.write.row_security import RowSecurity
from omnigraph.write.validate.lookup import look_up

_NAME = "blob"
_UNKNOWN = "unknown"
"""In place of a digest that no condition asks for, or of bytes that are stored elsewhere."""


@dataclass(frozen=True, slots=True)
class BlobCell:
    """A property of a node or an edge; the type by its name or its table key."""

    type_name: str
    entity_id: str
    property_name: str


@dataclass(frozen=True, slots=True)
class BlobCondition:
    """What the present value of a Blob must fulfil."""

    among: frozenset[str] | None = None
    """The digests that it may have."""
    is_null: bool | None = None
    """Whether it must be null, or must not be."""
    not_among: frozenset[str] = frozenset()
    """The digests that it must not have."""

    @property
    def needs_digest(self) -> bool:
        return self.among is not None or bool(self.not_among)

    def check(self, digest: str | None) -> None:
        """Raise unless a value of this digest, or null, fulfils the condition."""
        is_met = self.is_null in (None, digest is None)
        if self.among is not None:
            is_met = is_met and digest in self.among
        if not is_met or digest in self.not_among:
            raise blob_changed(digest)


NO_CONDITION = BlobCondition()


_UNFULFILLED = "the Blob does not fulfil the condition"


def blob_changed(digest: str | None) -> PreconditionFailed:
    """The error of a write, or a read, whose condition a Blob does not fulfil."""
    state = "it is null" if digest is None else f"its digest is {digest}"
    return PreconditionFailed(
        f"{_UNFULFILLED}: {state}",
        hint="read it again, and decide on its present content",
        details={"digest": digest},
    )


def without_digest(error: PreconditionFailed) -> PreconditionFailed:
    """The same for somebody who may not read the Blob: nothing of its content."""
    return PreconditionFailed(_UNFULFILLED) if "digest" in error.details else error


@dataclass(frozen=True, slots=True)
class WrittenBlob:
    """The receipt of a Blob that was set, and whether it was null before."""

    receipt: Receipt
    was_null: bool


def write_blob(
    store: GraphStore,
    contract: Contract,
    cell: BlobCell,
    data: bytes | None,
    branch: str | None,
    actor: str | None,
    condition: BlobCondition = NO_CONDITION,
    *,
    if_commit: str | None = None,
    idempotency_key: str | None = None,
    security: RowSecurity | None = None,
) -> WrittenBlob:
    """Set a Blob to bytes, or to null; null over null makes no commit."""
    write = _BlobWrite(store, contract, cell, data, condition, security)
    digest = write.fingerprint() if idempotency_key else None
    request = WriteRequest(
        WriterKind.MUTATION,
        branch,
        write.touches,
        write.prepare,
        strict=True,
        actor=actor,
        if_commit=if_commit,
        idempotency_key=idempotency_key,
        fingerprint=digest if security is None else security.own_fingerprint(digest),
        schema_hash=contract.schema_hash,
    )
    return WrittenBlob(commit_write(store, request), write.was_null)


class _BlobWrite:
    """One write of a Blob, which can be staged more than once."""

    def __init__(
        self,
        store: GraphStore,
        contract: Contract,
        cell: BlobCell,
        data: bytes | None,
        condition: BlobCondition,
        security: RowSecurity | None,
    ) -> None:
        self._store = store
        self._cell = cell
        self._data = data
        self._condition = condition
        self._security = security
        self._type = find_type(contract.catalog, cell.type_name)
        prop = self._type.properties.get(cell.property_name)
        if prop is None or prop.type.scalar is not Scalar.BLOB:
            raise InputError(f"{self._type.name}.{cell.property_name} is not a Blob")
        self._matches = typed.Compare(
            Relation.EQ,
            typed.Column(ROW, ID_COLUMN, STRING),
            typed.Constant(cell.entity_id, STRING),
        )
        # Bytes are a value of this type alone, and only a mutation looks at it.
        value = typed.Constant(cast(typed.Value, data), prop.type)
        kind = EntityKind.NODE if isinstance(self._type, NodeType) else EntityKind.EDGE
        step = CheckedStatement(
            StatementKind.UPDATE,
            kind,
            self._type.name,
            ((cell.property_name, value),),
            self._matches,
            Span(0, 0),
        )
        plan = MutationPlan(_NAME, {}, (step,))
        self._mutation = Mutation(store, contract.catalog, plan, security=security)
        self.touches = self._mutation.touches
        self.was_null = False

    def fingerprint(self) -> str:
        """A digest of what is written, for the idempotency key."""
        cell, data = self._cell, self._data
        content = None if data is None else digest_of(data)
        parts = (_NAME, self._type.table_key, cell.entity_id, cell.property_name, content)
        return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def prepare(self, view: WriteView) -> PreparedWrite:
        self._check(view)
        if self._data is None and self.was_null:
            return PreparedWrite({}, met={})
        return self._mutation.prepare(view)

    def _check(self, view: WriteView) -> None:
        """Raise unless the row exists and its Blob fulfils the condition."""
        column, key = self._cell.property_name, self._type.table_key
        table = self._readable(view, key)
        row = None if table is None else self._row(view, table)
        if table is None or row is None:
            raise EntityNotFound(f"there is no {self._type.name} '{self._cell.entity_id}'")
        location = table.blob_location(column, row)
        self.was_null = location is None
        if location is None:
            self._condition.check(None)
            return
        digest, (size, uri) = _UNKNOWN, location
        if self._condition.needs_digest and uri is None:
            pin = view.snapshot.pin(key)
            life = None if pin is None else pin.life
            digest = self._store.blob_digests.digest(table, column, row, size, life)
        self._condition.check(digest)

    def _row(self, view: WriteView, table: Table) -> int | None:
        """The row, if it exists and the actor sees it."""

        def fetch(key: str, ids: pa.Array, columns: Sequence[str]) -> pa.Table | None:
            nodes = self._readable(view, key)
            return None if nodes is None else look_up(nodes, KEY, ids, columns)

        names = [KEY]
        visible = scan_visible(
            table, self._type.table_key, names, self._matches, self._security, fetch
        )
        if not visible.num_rows:
            return None
        rows = table.read(names, pc.field(KEY) == self._cell.entity_id, row_ids=True)
        return int(rows[ROW_ID][0].as_py())

    @staticmethod
    def _readable(view: WriteView, key: str) -> Table | None:
        pin = view.snapshot.pin(key)
        return None if pin is None or not pin.row_count else view.read(key)
