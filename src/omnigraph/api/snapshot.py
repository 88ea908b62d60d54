"""``GraphSnapshot``: the graph at one point in time, with all methods that read it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from typing import Any, Literal, overload

import pyarrow as pa
import pyarrow.compute as pc

import omnigraph
from omnigraph.api.arguments import Location, Natural, Params, QuerySource, public
from omnigraph.api.engines import Engine, SparkLike, runs_on_spark
from omnigraph.api.handle import Handle, SnapshotContext
from omnigraph.api.query import Explanation, explain_query, profile_query, run_query
from omnigraph.commit.commits import CommitGroup
from omnigraph.commit.history import group_position
from omnigraph.commit.names import branch_label
from omnigraph.commit.snapshot import Pin
from omnigraph.commit.store import detect_removal
from omnigraph.errors import EntityNotFound, InputError
from omnigraph.lang.query.typed import STRING
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.types import Scalar
from omnigraph.lang.values.columns import python_values
from omnigraph.read.limits import MEMORY, Cancel, Limits
from omnigraph.records import dataclass
from omnigraph.representation import html_table
from omnigraph.result.result import Result
from omnigraph.storage.tables.table import Table

BLOB_PIECE = 4 << 20
"""The bytes of a Blob that are read if no length is given."""


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """The metadata of a Blob."""

    size: int
    uri: str | None = None
    """The address of a Blob that is not stored with the graph."""


class GraphSnapshot:
    """The graph at one point in time, from ``graph.snapshot``. It never changes."""

    def __init__(self, handle: Handle, context: SnapshotContext) -> None:
        self._handle = handle
        self._context = context
        self._store = handle.store

    # -- identity ------------------------------------------------------------------------

    @property
    def branch(self) -> str:
        """The branch of the snapshot."""
        return branch_label(self._context.snapshot.branch)

    @property
    def version(self) -> int:
        """The version of the manifest of that branch."""
        return self._context.snapshot.manifest_version

    @property
    def commit_id(self) -> str | None:
        """The newest commit that the snapshot includes."""
        head = self._context.snapshot.head
        return None if head is None else head.commit_id

    @property
    def group(self) -> CommitGroup | None:
        """Set if the snapshot was requested by commit and also includes later ones of its group.

        The commits of a group were published at once; there is no state between them.
        """
        member = self._context.snapshot.member
        return None if member is None else group_position(member)

    @property
    def snapshot_id(self) -> str:
        """An id of exactly this state; a branch that is deleted and created again gets new ids."""
        e_tag = self._context.snapshot.e_tag
        return f"manifest:{self.branch}:v{self.version}{f':etag:{e_tag}' if e_tag else ''}"

    @property
    def catalog(self) -> Catalog:
        """The types of the schema of this snapshot."""
        return self._context.catalog

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """The path, version, owning branch and row count of each table."""
        return {
            key: {
                "path": pin.location,
                "version": pin.version,
                "branch": branch_label(pin.branch),
                "rows": pin.row_count,
            }
            for key, pin in self._context.snapshot.pins.items()
        }

    # -- queries -------------------------------------------------------------------------

    @public
    def query(
        self,
        source: QuerySource,
        name: str | None = None,
        params: Params | None = None,
        *,
        engine: Engine = "auto",
        spark: SparkLike = None,
        timeout: float | None = None,
        max_rows: int | None = None,
        max_memory: int | None = MEMORY,
        cancel: Cancel | None = None,
    ) -> Result:
        """Run a query that reads; see ``Graph.query`` for the parameters.

        Raises:
            QueryError: the query is invalid, or changes the graph.
            ParameterError: a parameter is missing or does not fit.
            LimitExceeded: a limit was reached.
            Cancelled: ``cancel`` was set.

        >>> before = graph.snapshot()
        >>> receipt = graph.mutate('query q() { delete Person where name = "Ada" }')
        >>> before.query("query q() { match { $p: Person } return { count($p) as people } }").rows()
        [{'people': 2}]
        """
        limits = Limits(timeout, max_rows, max_memory, cancel)

        def resolve() -> SnapshotContext:
            self._handle.check()
            return self._context

        return run_query(self._handle, resolve, source, name, params, limits, engine, spark)

    @public
    def explain(
        self,
        source: QuerySource,
        name: str | None = None,
        params: Params | None = None,
        *,
        profile: bool = False,
        timeout: float | None = None,
        cancel: Cancel | None = None,
    ) -> Explanation:
        """The plan of a query or a mutation, which is not run.

        With ``profile`` a query is run, and the plan has the rows, the time and the storage
        operations of each step.

        Raises:
            QueryError: the query is invalid.
            NotFound: the query does not exist.

        >>> plan = graph.snapshot().explain("query q() { match { $p: Person } return { $p.name } }")
        >>> plan.to_json()["name"]
        'q'
        """
        self._handle.check()
        if not profile:
            return explain_query(self._handle, self._context, source, name)
        limits = Limits(timeout, cancel=cancel)
        return profile_query(self._handle, self._context, source, name, params, limits)

    @public
    def diff(
        self,
        other: GraphSnapshot,
        *,
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        ops: Collection[str] | None = None,
        summary: bool = False,
    ) -> omnigraph.Diff:
        """The net changes from this snapshot to another one of the same graph.

        Changed types and properties first, then every changed row before and after; with
        ``summary`` only the numbers of rows. ``kinds`` (node, edge), ``types`` and ``ops`` (insert,
        update, delete, schema) restrict the comparison.

        Raises:
            InputError: the snapshot belongs to another graph, or the filter names an unknown type.
            HistoryGone: cleanup has removed one of the states.

        >>> before = graph.snapshot()
        >>> receipt = graph.mutate('query q() { insert Person { name: "Alan" } }')
        >>> [(change.op.value, change.id) for change in before.diff(graph.snapshot()).changes]
        [('insert', 'Alan')]
        """
        from omnigraph.commit.schema.history import identified
        from omnigraph.merge.change_filter import ChangeFilter
        from omnigraph.merge.diff import SchemaSnapshot, find_diff

        self._handle.check()
        store, after = self._store, context_of(other, self._handle)
        wanted = ChangeFilter.of(kinds, types, ops)
        with self._reading(), detect_removal(store, after.snapshot):
            states = [
                SchemaSnapshot(state.snapshot, identified(store, state.snapshot, state.catalog))
                for state in (self._context, after)
            ]
            return find_diff(store, states[0], states[1], wanted, summary=summary)

    # -- all rows ------------------------------------------------------------------------

    @overload
    def export(
        self,
        dest: None = None,
        format: Literal["ndjson"] = "ndjson",
        *,
        types: Sequence[str] | None = None,
    ) -> Iterator[str]: ...
    @overload
    def export(
        self,
        dest: str | PathLike[str],
        format: Literal["ndjson", "parquet"] = "ndjson",
        *,
        types: Sequence[str] | None = None,
        engine: Engine = "auto",
        spark: SparkLike = None,
    ) -> int: ...
    @public
    def export(
        self,
        dest: Location | None = None,
        format: Literal["ndjson", "parquet"] = "ndjson",
        *,
        types: Sequence[str] | None = None,
        engine: Engine = "auto",
        spark: SparkLike = None,
    ) -> Iterator[str] | int:
        """Export all rows, in a form that ``Graph.load`` reads back exactly.

        Without ``dest`` an iterator over JSON lines is returned; with it, a file of JSON lines or a
        directory of Parquet files is written, and the number of rows is returned. On Spark a
        directory is written in either format, with several files per type.

        Raises:
            InputError: a type does not exist, or the destination cannot be written.

        >>> graph.snapshot().export(folder / "people.ndjson", types=["Person"])
        2
        """
        from omnigraph.write.export import Export

        self._handle.check()
        self._handle.check_local_file("dest", dest)
        context = self._context
        job = Export(self._store, context.catalog, context.snapshot, types)
        if runs_on_spark(engine, spark):
            if dest is None:
                raise InputError("an export on Spark needs a directory", hint="pass dest")
            from omnigraph.spark.export import export_files
            from omnigraph.spark.session.tasks import SparkExecutor

            with self._handle.spark.start(spark) as running:
                executor = SparkExecutor(running)
                return export_files(job, context.catalog, Path(dest), format, executor)
        if format == "parquet":
            if dest is None:
                raise InputError("a Parquet export needs a directory", hint="pass dest")
            return job.write_parquet(Path(dest))
        return job.lines() if dest is None else job.write_lines(Path(dest))

    # -- rows of a type ------------------------------------------------------------------

    @public
    def count(self, type_name: str) -> int:
        """The number of nodes or edges of a type.

        Raises:
            InputError: the type does not exist.

        >>> graph.snapshot().count("Knows")
        1
        """
        return self._pin(type_name).row_count

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
            return self._table(type_name, columns, filter).read(columns, filter)

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
                yield from table.scan(columns, filter)

        return batches()

    @public
    def dataset(self, type_name: str) -> omnigraph.ReadOnlyDataset:
        """The table of a type as a Lance dataset at this version, for DuckDB, Polars, Daft or Ray.

        It is read only: every method that writes raises ``ReadOnly``.

        Raises:
            InputError: the type does not exist.

        >>> import polars
        >>> frame = polars.scan_pyarrow_dataset(graph.snapshot().dataset("Person"))
        >>> frame.select("age").sum().collect().item()
        73
        """
        from omnigraph.storage.tables.read_only import open_read_only

        pin = self._pin(type_name)
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
            rows = self._store.table(self._pin(type_name)).read(plain, pc.field("id") == entity_id)
        if not rows.num_rows:
            return None
        types = {name: prop.type for name, prop in entity_type.properties.items()}
        return {
            name: None
            if name in blobs
            else python_values(rows[name].combine_chunks(), types.get(name, STRING), name)[0]
            for name in schema.names
        }

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
            table, row = self._blob_row(type_name, entity_id, property_name)
            size = table.blob_size(property_name, row)
            if size is None:
                return None
            wanted = min(BLOB_PIECE if length is None else length, max(size - offset, 0))
            return table.read_blob(property_name, row, offset, wanted) if wanted else b""

    @public
    def blob_info(self, type_name: str, entity_id: str, property_name: str) -> BlobInfo | None:
        """The size and the address of a Blob; ``None`` if it is null.

        Raises:
            NotFound: the node or edge does not exist.
            InputError: the property is not a Blob.

        >>> graph.snapshot().blob_info("Person", "Grace", "photo").size
        2
        """
        with self._reading():
            table, row = self._blob_row(type_name, entity_id, property_name)
            location = table.blob_location(property_name, row)
        return None if location is None else BlobInfo(*location)

    def _blob_row(self, type_name: str, entity_id: str, property_name: str) -> tuple[Table, int]:
        """The table of a type, and the row that has a Blob."""
        prop = _find_type(self._context.catalog, type_name).properties.get(property_name)
        if prop is None or prop.type.scalar is not Scalar.BLOB:
            raise InputError(f"{type_name}.{property_name} is not a Blob")
        table = self._store.table(self._pin(type_name))
        rows = table.read(["id"], pc.field("id") == entity_id, row_ids=True)
        if not rows.num_rows:
            raise EntityNotFound(f"there is no {type_name} '{entity_id}'")
        return table, rows["_rowid"][0].as_py()

    # -- inside --------------------------------------------------------------------------

    def _table(
        self, type_name: str, columns: Sequence[str] | None, filter: pc.Expression | None
    ) -> Table:
        """The table of a type; raises if it does not have the requested columns."""
        schema = _find_type(self._context.catalog, type_name).arrow_schema()
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
        return self._store.table(self._pin(type_name))

    def _reading(self) -> AbstractContextManager[None]:
        """Translates errors for rows that cleanup removed meanwhile to ``HistoryGone``."""
        return detect_removal(self._store, self._context.snapshot)

    def _pin(self, type_name: str) -> Pin:
        entity_type = _find_type(self._context.catalog, type_name)
        pin = self._context.snapshot.pin(entity_type.table_key)
        if pin is None:
            raise InputError(f"'{type_name}' did not exist at version {self.version}")
        return pin

    def __repr__(self) -> str:
        return f"<GraphSnapshot {self.snapshot_id}>"

    def _repr_html_(self) -> str:
        rows = [(key, table["rows"]) for key, table in self.tables.items()]
        title = f"{self.branch}, version {self.version}, commit {self.commit_id}"
        return html_table(title, ("table", "rows"), rows)


def context_of(snapshot: GraphSnapshot, handle: Handle) -> SnapshotContext:
    """The context of a snapshot that a caller passes; raises if it is of another graph."""
    if snapshot._handle.uri != handle.uri:
        raise InputError("the snapshot belongs to another graph")
    return snapshot._context


def _find_type(catalog: Catalog, name: str) -> NodeType | EdgeType:
    # Most reading processes never look up a type by name.
    from omnigraph.write.conform import find_type

    return find_type(catalog, name)
