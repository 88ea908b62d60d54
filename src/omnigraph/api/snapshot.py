"""``GraphSnapshot``: the graph at one point in time, with all methods that read it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import omnigraph
from omnigraph.api.arguments import Location, Params, QuerySource, public
from omnigraph.api.engines import Engine, SparkLike, runs_on_spark
from omnigraph.api.handle import Handle, SnapshotContext
from omnigraph.api.query import Explanation, explain_query, profile_query, run_query
from omnigraph.api.snapshot_rows import SnapshotRows
from omnigraph.commit.commits import CommitGroup
from omnigraph.commit.history import group_position
from omnigraph.commit.names import branch_label
from omnigraph.commit.store import detect_removal
from omnigraph.errors import InputError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.read.limits import MEMORY, Cancel, Limits
from omnigraph.representation import html_table
from omnigraph.result.result import Result

if TYPE_CHECKING:
    from omnigraph.merge.change_filter import ChangeFilter


class GraphSnapshot(SnapshotRows):
    """The graph at one point in time, from ``graph.snapshot``. It never changes."""

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
        """The path, version, owning branch and row count of each table.

        Only rows that the actor sees are counted.
        """
        pins = self._context.snapshot.pins
        rows = {key: pin.row_count for key, pin in pins.items()}
        if not self._context.view.is_whole:
            with self._reading():
                rows = self._visible().counts()
        return {
            key: {
                "path": pin.location,
                "version": pin.version,
                "branch": branch_label(pin.branch),
                "rows": rows.get(key, 0),
            }
            for key, pin in pins.items()
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
        from omnigraph.merge.change_filter import ChangeFilter

        return diff_snapshots(self, other, ChangeFilter.of(kinds, types, ops), summary=summary)

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
            RestrictedView: on Spark, if a policy hides some of the rows from the actor.

        >>> graph.snapshot().export(folder / "people.ndjson", types=["Person"])
        2
        """
        from omnigraph.write.export import Export

        self._handle.check()
        self._handle.check_local_file("dest", dest)
        context = self._context
        job = Export(self._store, context.catalog, context.snapshot, types, context.view)
        if runs_on_spark(engine, spark):
            if dest is None:
                raise InputError("an export on Spark needs a directory", hint="pass dest")
            from omnigraph.spark.export import export_files
            from omnigraph.spark.session.tasks import SparkExecutor

            job.require_whole()
            with self._handle.spark.start(spark) as running:
                executor = SparkExecutor(running)
                return export_files(job, context.catalog, Path(dest), format, executor)
        if format == "parquet":
            if dest is None:
                raise InputError("a Parquet export needs a directory", hint="pass dest")
            return job.write_parquet(Path(dest))
        return job.lines() if dest is None else job.write_lines(Path(dest))

    def __repr__(self) -> str:
        return f"<GraphSnapshot {self.snapshot_id}>"

    def _repr_html_(self) -> str:
        rows = [(key, table["rows"]) for key, table in self.tables.items()]
        title = f"{self.branch}, version {self.version}, commit {self.commit_id}"
        return html_table(title, ("table", "rows"), rows)


def diff_snapshots(
    before: GraphSnapshot,
    other: GraphSnapshot,
    wanted: ChangeFilter,
    *,
    summary: bool = False,
    max_changes: int | None = None,
) -> omnigraph.Diff:
    """The net changes between two snapshots of a graph; refused above ``max_changes``."""
    from omnigraph.commit.schema.history import identified
    from omnigraph.merge.diff import find_diff
    from omnigraph.merge.states import SchemaSnapshot

    handle, own = before._handle, before._context
    handle.check()
    store, after = handle.store, context_of(other, handle)
    with detect_removal(store, own.snapshot), detect_removal(store, after.snapshot):
        states = [
            SchemaSnapshot(
                state.snapshot, identified(store, state.snapshot, state.catalog), state.view
            )
            for state in (own, after)
        ]
        return find_diff(
            store, states[0], states[1], wanted, summary=summary, max_changes=max_changes
        )


def context_of(snapshot: GraphSnapshot, handle: Handle) -> SnapshotContext:
    """The context of a snapshot that a caller passes; raises if it is of another graph.

    The actor of the handle sees its own part of it, whoever took the snapshot.
    """
    if snapshot._handle.uri != handle.uri:
        raise InputError("the snapshot belongs to another graph")
    context = snapshot._context
    if snapshot._handle is handle:
        return context
    return replace(context, view=handle.view(context.snapshot.branch, context.catalog))
