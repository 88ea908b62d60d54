"""The rows of a snapshot by type: counting and reading them, single rows, and Blobs.

Everything here goes through the view of the snapshot: a row that its actor does not see is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

import omnigraph
from omnigraph.api.arguments import Natural, public
from omnigraph.api.blob_info import BLOB_PIECE, BlobInfo
from omnigraph.api.handle import Handle, SnapshotContext
from omnigraph.commit.snapshot import Pin
from omnigraph.commit.store import GraphStore, detect_removal
from omnigraph.errors import EntityNotFound, InputError, RestrictedView
from omnigraph.lang.query.typed import STRING
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.types import Scalar
from omnigraph.lang.values.columns import python_values
from omnigraph.storage.tables.table import ROW_ID, Table

if TYPE_CHECKING:
    from omnigraph.read.visible_rows import VisibleRows


class OpenBlob:
    """A Blob of a snapshot, found once and read in pieces."""

    def __init__(
        self, store: GraphStore, pin: Pin, table: Table, row: int, column: str, info: BlobInfo
    ) -> None:
        self._store = store
        self._pin = pin
        self._table = table
        self._row = row
        self._column = column
        self.info = info

    def read(self, offset: int, length: int) -> bytes:
        """A range of its bytes; short at its end."""
        wanted = min(length, max(self.info.size - offset, 0))
        if not wanted:
            return b""
        return self._table.read_blob(self._column, self._row, offset, wanted) or b""

    def digest(self, check: Callable[[], None] = lambda: None) -> str:
        """The digest of its bytes, which are read for it; ``check`` may raise in between."""
        return self._store.blob_digests.digest(
            self._table, self._column, self._row, self.info.size, self._pin.life, check
        )


class SnapshotRows:
    """The part of ``GraphSnapshot`` that reads the rows of a type."""

    def __init__(self, handle: Handle, context: SnapshotContext) -> None:
        self._handle = handle
        self._context = context
        self._store = handle.store

    # -- rows of a type ------------------------------------------------------------------

    @public
    def count(self, type_name: str) -> int:
        """The number of nodes or edges of a type.

        Raises:
            InputError: the type does not exist.

        >>> graph.snapshot().count("Knows")
        1
        """
        pin = self._pin(type_name)
        if self._context.view.is_whole:
            return pin.row_count
        with self._reading():
            return self._visible().count(_find_type(self._context.catalog, type_name))

    @public
    def read(
        self,
        type_name: str,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
    ) -> pa.Table:
        """The rows of a type as an Arrow table, in no particular order.

        Raises:
            InputError: the type or column does not exist, or the filter does not fit.

        >>> import pyarrow.compute as pc
        >>> graph.snapshot().read("Person", ["name"], pc.field("age") > 36).to_pylist()
        [{'name': 'Grace'}]
        """
        with self._reading():
            table = self._table(type_name, columns, filter)
            if self._sees_all(type_name):
                return table.read(columns, filter)
            entity_type = _find_type(self._context.catalog, type_name)
            return self._visible().read(entity_type, columns, filter)

    @public
    def scan(
        self,
        type_name: str,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a type batch by batch, in no particular order.

        Raises:
            InputError: the type or column does not exist, or the filter does not fit.

        >>> sum(batch.num_rows for batch in graph.snapshot().scan("Person"))
        2
        """
        with self._reading():
            table = self._table(type_name, columns, filter)

        def batches() -> Iterator[pa.RecordBatch]:
            with self._reading():
                if self._sees_all(type_name):
                    yield from table.scan(columns, filter)
                else:
                    entity_type = _find_type(self._context.catalog, type_name)
                    yield from self._visible().scan(entity_type, columns, filter)

        return batches()

    @public
    def dataset(self, type_name: str) -> omnigraph.ReadOnlyDataset:
        """The table of a type as a Lance dataset at this version, for DuckDB, Polars, Daft or Ray.

        It is read only: every method that writes raises ``ReadOnly``.

        Raises:
            InputError: the type does not exist.
            RestrictedView: a policy hides some of its rows from the actor.

        >>> import polars
        >>> frame = polars.scan_pyarrow_dataset(graph.snapshot().dataset("Person"))
        >>> frame.select("age").sum().collect().item()
        73
        """
        from omnigraph.storage.tables.read_only import open_read_only

        pin = self._pin(type_name)
        if not self._sees_all(type_name):
            raise RestrictedView(
                f"the table of '{type_name}' has rows that are not visible to this actor",
                hint="use read or scan, which return the visible rows",
                details={"type": type_name},
            )
        with self._reading():
            dataset = open_read_only(
                self._store.datasets, pin.ref, pin.version, keep=self._context.lease
            )
            self._store.check_life(pin)
        return dataset

    @public
    def entity(self, type_name: str, entity_id: str) -> dict[str, Any] | None:
        """One node or edge with all its columns; ``None`` if it does not exist. Blobs are null.

        Raises:
            InputError: the type does not exist.

        >>> graph.snapshot().entity("Person", "Ada")["age"]
        36
        """
        entity_type = _find_type(self._context.catalog, type_name)
        schema = entity_type.arrow_schema()
        blobs = {p.name for p in entity_type.properties.values() if p.type.scalar is Scalar.BLOB}
        plain = [name for name in schema.names if name not in blobs]
        with self._reading():
            rows = self._find(type_name, entity_id, plain)
        if not rows.num_rows:
            return None
        types = {name: prop.type for name, prop in entity_type.properties.items()}
        return {
            name: None
            if name in blobs
            else python_values(rows[name].combine_chunks(), types.get(name, STRING), name)[0]
            for name in schema.names
        }

    @public
    def neighbours(
        self,
        type_name: str,
        entity_id: str,
        *,
        edge: str | None = None,
        direction: Literal["out", "in", "both"] = "both",
        limit: Natural = 100,
    ) -> list[omnigraph.Neighbour]:
        """The edges of a node and the nodes at their other ends, at most ``limit``.

        By edge type, in alphabetical order; ``edge`` chooses one. Edges of a type that start at the
        node come before those that end there, and each by the ids of the other nodes.

        Raises:
            NotFound: the node does not exist.
            InputError: a type does not exist.

        >>> [(n.edge_type, n.node["name"]) for n in graph.snapshot().neighbours("Person", "Ada")]
        [('Knows', 'Grace')]
        """
        from omnigraph.api.neighbours import find_neighbours

        return find_neighbours(
            self, self._context.catalog, type_name, entity_id, edge, direction, limit
        )

    # -- Blobs ---------------------------------------------------------------------------

    @public
    def read_blob(
        self,
        type_name: str,
        entity_id: str,
        property_name: str,
        offset: Natural = 0,
        length: Natural | None = None,
    ) -> bytes | None:
        """The bytes of a Blob from an offset on; at most 4 MiB if no length is given.

        Raises:
            NotFound: the node or edge does not exist.
            InputError: the property is not a Blob.

        >>> graph.snapshot().read_blob("Person", "Grace", "photo")
        b'hi'
        """
        with self._reading():
            blob = self._open_blob(type_name, entity_id, property_name)
            wanted = BLOB_PIECE if length is None else length
            return None if blob is None else blob.read(offset, wanted)

    @public
    def blob_info(self, type_name: str, entity_id: str, property_name: str) -> BlobInfo | None:
        """The size and the address of a Blob; ``None`` if it is null.

        Raises:
            NotFound: the node or edge does not exist.
            InputError: the property is not a Blob.

        >>> graph.snapshot().blob_info("Person", "Grace", "photo").size
        2
        """
        blob = self._open_blob(type_name, entity_id, property_name)
        return None if blob is None else blob.info

    @public
    def blob_digest(self, type_name: str, entity_id: str, property_name: str) -> str | None:
        """A digest of the bytes of a Blob, all of which are read; ``None`` if it is null.

        It changes only if the bytes do. ``graph.blobs.put`` takes it as a condition.

        Raises:
            NotFound: the node or edge does not exist.
            InputError: the property is not a Blob.

        >>> graph.snapshot().blob_digest("Person", "Grace", "photo")
        '8f434346648f6b96df89dda901c5176b'
        """
        blob = self._open_blob(type_name, entity_id, property_name)
        with self._reading():
            return None if blob is None else blob.digest()

    def _open_blob(self, type_name: str, entity_id: str, property_name: str) -> OpenBlob | None:
        """A Blob, to be read in pieces; ``None`` if it is null."""
        with self._reading():
            table, row = self._blob_row(type_name, entity_id, property_name)
            location = table.blob_location(property_name, row)
        if location is None:
            return None
        pin, info = self._pin(type_name), BlobInfo(*location)
        return OpenBlob(self._store, pin, table, row, property_name, info)

    def _blob_row(self, type_name: str, entity_id: str, property_name: str) -> tuple[Table, int]:
        """The table of a type, and the row that has a Blob."""
        prop = _find_type(self._context.catalog, type_name).properties.get(property_name)
        if prop is None or prop.type.scalar is not Scalar.BLOB:
            raise InputError(f"{type_name}.{property_name} is not a Blob")
        rows = self._find(type_name, entity_id, ["id"])
        if not rows.num_rows:
            raise EntityNotFound(f"there is no {type_name} '{entity_id}'")
        return self._store.table(self._pin(type_name)), rows[ROW_ID][0].as_py()

    # -- inside --------------------------------------------------------------------------

    def _find(self, type_name: str, entity_id: str, columns: Sequence[str]) -> pa.Table:
        """Columns of one row, and its row id; empty if it does not exist or is not visible."""
        pin = self._pin(type_name)
        if self._sees_all(type_name):
            wanted = pc.field("id") == entity_id
            return self._store.table(pin).read(columns, wanted, row_ids=True)
        entity_type = _find_type(self._context.catalog, type_name)
        return self._visible().find(entity_type, entity_id, columns)

    def _sees_all(self, type_name: str) -> bool:
        view = self._context.view
        return view.is_whole or view.sees_all(
            _find_type(self._context.catalog, type_name).table_key
        )

    def _visible(self) -> VisibleRows:
        """The rows that the actor sees, for one call."""
        from omnigraph.read.visible_rows import VisibleRows

        context = self._context
        return VisibleRows(self._store, context.catalog, context.snapshot, context.view)

    def _table(
        self, type_name: str, columns: Sequence[str] | None, filter: pc.Expression | None
    ) -> Table:
        """The table of a type; raises if it does not have the requested columns."""
        entity_type = _find_type(self._context.catalog, type_name)
        schema = entity_type.arrow_schema()
        for column in columns or ():
            if column not in schema.names:
                raise InputError(
                    f"{type_name} has no column '{column}'",
                    hint=f"it has {', '.join(schema.names)}",
                )
        if filter is not None:
            try:
                schema.empty_table().filter(filter)
            except (pa.ArrowException, TypeError):
                raise InputError(
                    f"the filter does not fit the columns of {type_name}",
                    hint=f"it has {', '.join(schema.names)}",
                ) from None
            _refuse_unread_blobs(entity_type, columns, filter)
        return self._store.table(self._pin(type_name))

    def _reading(self) -> AbstractContextManager[None]:
        """Translates errors for rows that cleanup removed meanwhile to ``HistoryGone``."""
        return detect_removal(self._store, self._context.snapshot)

    def _pin(self, type_name: str) -> Pin:
        entity_type = _find_type(self._context.catalog, type_name)
        pin = self._context.snapshot.pin(entity_type.table_key)
        if pin is None:
            version = self._context.snapshot.manifest_version
            raise InputError(f"'{type_name}' did not exist at version {version}")
        return pin


def open_blob(
    snapshot: SnapshotRows, type_name: str, entity_id: str, property_name: str
) -> OpenBlob | None:
    """A Blob of a snapshot, to be read in pieces; ``None`` if it is null.

    If cleanup removes the state meanwhile, reading raises an error of the storage.
    """
    return snapshot._open_blob(type_name, entity_id, property_name)


def _refuse_unread_blobs(
    entity_type: NodeType | EdgeType, columns: Sequence[str] | None, filter: pc.Expression
) -> None:
    """Raise for a filter on a Blob that is not read: storage cannot evaluate it."""
    properties = entity_type.properties.items()
    blobs = [name for name, prop in properties if prop.type.scalar is Scalar.BLOB]
    unread = [] if columns is None else [name for name in blobs if name not in columns]
    if not unread:
        return
    try:
        entity_type.arrow_schema().empty_table().drop_columns(unread).filter(filter)
    except pa.ArrowException:
        raise InputError(
            f"the filter uses a Blob of {entity_type.name} that is not read",
            hint=f"add it to the columns: {', '.join(unread)}",
        ) from None


def _find_type(catalog: Catalog, name: str) -> NodeType | EdgeType:
    # Most reading processes never look up a type by name.
    from omnigraph.write.conform import find_type

    return find_type(catalog, name)
