"""The graph at one moment, as users read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.api.arguments import public
from omnigraph.commit.names import branch_label
from omnigraph.commit.removed_snapshots import detect_removal
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.snapshot_leases import SnapshotLease
from omnigraph.commit.store import GraphStore
from omnigraph.errors import EntityNotFound, InputError
from omnigraph.lang.query.typed import STRING
from omnigraph.lang.types import Scalar
from omnigraph.lang.values.columns import python_values
from omnigraph.storage.tables.table import Table
from omnigraph.write.conform import find_type

if TYPE_CHECKING:
    from omnigraph.lang.schema.catalog import Catalog

BLOB_PIECE = 4 << 20
"""How much of a Blob is read at once unless the caller says otherwise."""


@dataclass(frozen=True, slots=True)
class BlobFacts:
    """What is known of a Blob without reading it."""

    size: int
    uri: str | None = None
    """Where it lies, when it is not kept with the graph."""


class GraphSnapshot:
    """The graph at one moment. Reading it never sees anything newer."""

    def __init__(self, store: GraphStore, catalog: Catalog, snapshot: Snapshot) -> None:
        self._store = store
        self._catalog = catalog
        self._snapshot = snapshot
        self._lease = SnapshotLease(store.root.uri, snapshot)

    @property
    def branch(self) -> str:
        return branch_label(self._snapshot.branch)

    @property
    def version(self) -> int:
        return self._snapshot.manifest_version

    @property
    def commit_id(self) -> str | None:
        head = self._snapshot.head
        return None if head is None else head.commit_id

    @property
    def snapshot_id(self) -> str:
        """A name for exactly this state of this life of the branch."""
        tag = f":etag:{self._snapshot.e_tag}" if self._snapshot.e_tag else ""
        return f"manifest:{self.branch}:v{self.version}{tag}"

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """For each table its place, its version, the branch that owns that version, its rows."""
        return {
            key: {
                "path": pin.location,
                "version": pin.version,
                "branch": branch_label(pin.branch),
                "rows": pin.row_count,
            }
            for key, pin in self._snapshot.pins.items()
        }

    @public
    def count(self, type_name: str) -> int:
        """How many nodes or edges of a type there are."""
        return self._pin(type_name).row_count

    @public
    def read(
        self,
        type_name: str,
        columns: Sequence[str] | None = None,
        condition: pc.Expression | None = None,
    ) -> pa.Table:
        """The rows of a type as an Arrow table, in no promised order."""
        with self._lasting():
            return self._table(type_name, columns, condition).read(columns, condition)

    @public
    def scan(
        self,
        type_name: str,
        columns: Sequence[str] | None = None,
        condition: pc.Expression | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """As ``read``, batch by batch."""
        with self._lasting():
            table = self._table(type_name, columns, condition)

        def batches() -> Iterator[pa.RecordBatch]:
            with self._lasting():
                yield from table.scan(columns, condition)

        return batches()

    @public
    def read_blob(
        self,
        type_name: str,
        entity_id: str,
        property_name: str,
        offset: int = 0,
        length: int | None = None,
    ) -> bytes | None:
        """The bytes of a Blob from an offset on; at most 4 MiB when no length is given."""
        if offset < 0 or (length is not None and length < 0):
            raise InputError("offset and length cannot be negative")
        with self._lasting():
            table, row = self._blob_row(type_name, entity_id, property_name)
            size = table.blob_size(property_name, row)
            if size is None:
                return None
            wanted = min(BLOB_PIECE if length is None else length, max(size - offset, 0))
            return table.read_blob(property_name, row, offset, wanted) if wanted else b""

    @public
    def blob_facts(self, type_name: str, entity_id: str, property_name: str) -> BlobFacts | None:
        """How large a Blob is and where it lies; none when it is null."""
        with self._lasting():
            table, row = self._blob_row(type_name, entity_id, property_name)
            found = table.blob_place(property_name, row)
        return None if found is None else BlobFacts(*found)

    def _blob_row(self, type_name: str, entity_id: str, property_name: str) -> tuple[Table, int]:
        """The table of a type, and the row that has a Blob."""
        prop = find_type(self._catalog, type_name).properties.get(property_name)
        if prop is None or prop.type.scalar is not Scalar.BLOB:
            raise InputError(f"{type_name}.{property_name} is not a Blob")
        table = self._store.table(self._pin(type_name))
        rows = table.read(["id"], pc.field("id") == entity_id, row_ids=True)
        if not rows.num_rows:
            raise EntityNotFound(f"there is no {type_name} '{entity_id}'")
        return table, rows["_rowid"][0].as_py()

    @public
    def entity(self, type_name: str, entity_id: str) -> dict[str, Any] | None:
        """One node or edge with all of its columns; none when it is not there. Blobs are null."""
        kind = find_type(self._catalog, type_name)
        schema = kind.arrow_schema()
        blobs = {p.name for p in kind.properties.values() if p.type.scalar is Scalar.BLOB}
        plain = [name for name in schema.names if name not in blobs]
        with self._lasting():
            rows = self._store.table(self._pin(type_name)).read(plain, pc.field("id") == entity_id)
        if not rows.num_rows:
            return None
        types = {name: prop.type for name, prop in kind.properties.items()}
        return {
            name: None
            if name in blobs
            else python_values(rows[name].combine_chunks(), types.get(name, STRING), name)[0]
            for name in schema.names
        }

    def _table(
        self, type_name: str, columns: Sequence[str] | None, condition: pc.Expression | None
    ) -> Table:
        """A table, once it is clear that it has what is asked for."""
        schema = find_type(self._catalog, type_name).arrow_schema()
        for column in columns or ():
            if column not in schema.names:
                raise InputError(
                    f"{type_name} has no column '{column}'",
                    hint=f"it has {', '.join(schema.names)}",
                )
        if condition is not None:
            if not isinstance(condition, pc.Expression):
                raise InputError("condition must be a pyarrow.compute expression")
            try:
                schema.empty_table().filter(condition)
            except (pa.ArrowException, TypeError):
                raise InputError(
                    f"the condition does not fit the columns of {type_name}",
                    hint=f"it has {', '.join(schema.names)}",
                ) from None
        return self._store.table(self._pin(type_name))

    def _lasting(self) -> AbstractContextManager[None]:
        """Rows that are not there any more were removed with the state, most likely."""
        return detect_removal(self._store, self._snapshot)

    def _pin(self, type_name: str) -> Pin:
        kind = find_type(self._catalog, type_name)
        pin = self._snapshot.pin(kind.table_key)
        if pin is None:
            raise InputError(f"'{type_name}' did not exist at version {self.version}")
        return pin

    def __repr__(self) -> str:
        return f"<GraphSnapshot {self.snapshot_id}>"
