"""``RemoteSnapshot``: a graph behind a server at one commit."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import omnigraph
from omnigraph.api.arguments import Location, Natural, Params, QuerySource, public
from omnigraph.api.engines import Engine, SparkLike
from omnigraph.client.http import NoResponse, OpenResponse
from omnigraph.client.server import ServerRequest, no_response
from omnigraph.commit.commits import Commit, CommitGroup
from omnigraph.errors import EntityNotFound, InputError, OmniGraphError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.remote import documents, requests, unserved
from omnigraph.remote.blobs import (
    BlobState,
    RemoteCell,
    cut,
    refused_bytes,
    refused_state,
    state_of,
)
from omnigraph.remote.documents import BranchTables
from omnigraph.remote.unserved import not_served, refuse_arguments, refuse_engine

if TYPE_CHECKING:
    from omnigraph.remote.calls import RemoteCalls


class RemoteSnapshot:
    """The graph at one commit, from ``graph.snapshot``. It never changes."""

    def __init__(
        self,
        calls: RemoteCalls,
        state: BranchTables | Commit,
        commit_id: str,
        name: str | None = None,
    ) -> None:
        """``name`` is that by which a caller found the commit, such as a tag."""
        self._calls = calls
        self._state = state
        self._commit_id = commit_id
        self._name = name
        self._tables: BranchTables | None = None if isinstance(state, Commit) else state

    # -- identity ------------------------------------------------------------------------

    @property
    def branch(self) -> str:
        """The branch of the snapshot."""
        return self._state.branch

    @property
    def version(self) -> int:
        """The version of the manifest of that branch."""
        return self._state.version

    @property
    def commit_id(self) -> str | None:
        """The commit that the snapshot is pinned to."""
        return self._commit_id

    @property
    def group(self) -> CommitGroup | None:
        """Set if the snapshot was requested by commit and also includes later ones of its group."""
        group = self._state.group if isinstance(self._state, Commit) else None
        return None if group is None or group.index == group.size - 1 else group

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """The path, version, owning branch and row count of each table.

        Only rows that the actor sees are counted.
        """
        if self._tables is None:
            from omnigraph.remote import history_requests

            request = history_requests.tables(self._commit_id)
            self._tables = self._calls.send(request, documents.branch_tables)
        return {key: dict(table) for key, table in self._tables.tables.items()}

    @property
    def catalog(self) -> Catalog:
        """The types of the newest schema.

        Raises:
            NotServed: the snapshot is not of the head of a branch.
        """
        if isinstance(self._state, Commit):
            raise not_served("snapshot.catalog", "the schema of an earlier commit")
        return self._calls.catalog()

    # -- reading -------------------------------------------------------------------------

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
        cancel: omnigraph.Cancel | None = None,
    ) -> omnigraph.Result:
        """Run a query that reads; see ``RemoteGraph.query``.

        Raises:
            QueryError: the query is invalid, or changes the graph.
            ParameterError: a parameter is missing or does not fit.
            LimitExceeded: a limit was reached, here or in the server.
        """
        refuse_engine("query", engine, spark)
        request = requests.read_query(
            requests.query_source(source),
            name,
            params,
            None,
            self._commit_id,
            accept=requests.ARROW_STREAM,
            timeout=timeout,
        )
        return run_read(self._calls, request, timeout, max_rows, cancel, self._target)

    @property
    def _target(self) -> dict[str, str] | None:
        """What a result names as its target; ``None`` for the commit."""
        if isinstance(self._state, Commit):
            return None if self._name is None else {"snapshot": self._name}
        return {"branch": self.branch}

    @public
    def explain(
        self,
        source: QuerySource,
        name: str | None = None,
        params: Params | None = None,
        *,
        profile: bool = False,
        timeout: float | None = None,
        cancel: omnigraph.Cancel | None = None,
    ) -> omnigraph.Explanation:
        """The plan of a query or a mutation, which is not run; see ``GraphSnapshot.explain``.

        Raises:
            QueryError: the query is invalid.
            NotFound: the query does not exist.
        """
        from omnigraph.remote import history_documents, history_requests

        refuse_arguments("explain", cancel=cancel)
        request = history_requests.explain(
            requests.query_source(source), name, params, self._commit_id, profile, timeout
        )
        return self._calls.send(request, history_documents.explanation)

    @public
    def diff(
        self,
        other: RemoteSnapshot,
        *,
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        ops: Collection[str] | None = None,
        summary: bool = False,
    ) -> omnigraph.Diff:
        """The net changes from this snapshot to another one of the same graph.

        Raises:
            InputError: the snapshot belongs to another graph, or the filter names an unknown type.
            HistoryGone: cleanup has removed one of the states.
            LimitExceeded: there are more changes than the server sends.
        """
        from omnigraph.remote import history_documents, history_requests

        if other._calls.connection.base != self._calls.connection.base:
            raise InputError("the snapshot belongs to another graph")
        wanted = {"kinds": kinds, "types": types, "ops": ops}
        request = history_requests.diff(self._commit_id, other._commit_id, wanted, summary)
        difference = self._calls.send(request, history_documents.diff)
        # A branch without own commits is at a commit of another branch.
        return replace(
            difference, from_version=self.version, to_version=other.version, branch=other.branch
        )

    # -- single rows ---------------------------------------------------------------------

    @public
    def entity(self, type_name: str, entity_id: str) -> dict[str, Any] | None:
        """One node or edge with all its columns; ``None`` if it does not exist. Blobs are null.

        Raises:
            InputError: the type does not exist.
        """
        from omnigraph.remote import history_documents, history_requests

        request = history_requests.entity(type_name, entity_id, self._commit_id)
        try:
            return self._calls.send(request, history_documents.entity)
        except EntityNotFound:
            return None

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

        Raises:
            NotFound: the node does not exist.
            InputError: a type does not exist.
        """
        from omnigraph.remote import history_documents, history_requests

        request = history_requests.neighbours(
            type_name, entity_id, edge, direction, limit, self._commit_id
        )
        return self._calls.send(request, history_documents.neighbours)

    @public
    def count(self, type_name: str) -> int:
        """The number of nodes or edges of a type.

        Raises:
            InputError: the type does not exist.
        """
        keys = [type_name, f"node:{type_name}", f"edge:{type_name}"]
        tables = self.tables
        counts = [tables[key]["rows"] for key in keys if key in tables]
        if not counts:
            raise InputError(f"unknown type '{type_name}'")
        return int(counts[0])

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

        Without ``dest`` an iterator over JSON lines is returned; with it, a file is written here,
        and the number of rows is returned. ``types`` are names of types or table keys.

        Raises:
            InputError: a type does not exist, or the destination cannot be written.
            NotServed: the format is Parquet.
        """
        refuse_engine("export", engine, spark)
        refuse_arguments("export", format=format if format != "ndjson" else None)
        keys = [name for name in types or () if ":" in name]
        names = [name for name in types or () if ":" not in name]
        lines = export_lines(self._calls, requests.export(None, self._commit_id, names, keys))
        return lines if dest is None else write_lines(lines, Path(dest))

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
            NotServed: the Blob is not stored with the graph.
        """
        cell = RemoteCell(type_name, entity_id, property_name, self._commit_id)
        request = cell.read(offset, length)
        self._calls.check_open()
        try:
            with self._calls.connection.open(request) as answer:
                return cut(answer.read_all(), answer.status, offset, length)
        except NoResponse as error:
            raise no_response(self._calls.connection.base, error.failure, request) from None
        except OmniGraphError as error:
            return refused_bytes(error)

    @public
    def blob_info(
        self, type_name: str, entity_id: str, property_name: str
    ) -> omnigraph.BlobInfo | None:
        """The size and the address of a Blob; ``None`` if it is null.

        Raises:
            NotFound: the node or edge does not exist.
            InputError: the property is not a Blob.
        """
        state = self._blob_state(type_name, entity_id, property_name)
        return None if state is None else state.info

    @public
    def blob_digest(self, type_name: str, entity_id: str, property_name: str) -> str | None:
        """A digest of the bytes of a Blob, which changes only if they do; ``None`` if it is null.

        Raises:
            NotFound: the node or edge does not exist.
            InputError: the property is not a Blob.
        """
        state = self._blob_state(type_name, entity_id, property_name)
        return None if state is None else state.digest

    def _blob_state(self, *cell: str) -> BlobState | None:
        type_name, entity_id, property_name = cell
        request = RemoteCell(type_name, entity_id, property_name, self._commit_id).stat()
        self._calls.check_open()
        try:
            with (
                self._calls.connection.open(request) as answer,
                documents.decoding(self._calls.connection.base),
            ):
                return state_of(answer.headers)
        except OmniGraphError as error:
            return refused_state(error)

    def __repr__(self) -> str:
        return f"<RemoteSnapshot {self.branch}:{self._commit_id}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in unserved.SNAPSHOT:
                raise not_served(f"snapshot.{name}", unserved.SNAPSHOT[name])
            raise AttributeError(f"'RemoteSnapshot' object has no attribute {name!r}")


def run_read(
    calls: RemoteCalls,
    request: ServerRequest,
    timeout: float | None,
    max_rows: int | None,
    cancel: omnigraph.Cancel | None,
    target: dict[str, str] | None = None,
) -> omnigraph.Result:
    """The rows of a query, as a stream."""
    from omnigraph.read.limits import Limits
    from omnigraph.remote.results import check_limits, streamed_result

    calls.check_open()
    limits = Limits(timeout, max_rows, None, cancel)
    check_limits(limits)
    answer = calls.connection.open(request)
    return streamed_result(answer, calls.connection, request, limits, target)


def read_document(
    calls: RemoteCalls, request: ServerRequest, max_rows: int | None = None
) -> dict[str, Any]:
    """The rows of a query as one document, without loading Arrow."""
    document = calls.send(request, documents.read_output)
    check_count(document, max_rows)
    return document


def check_count(document: Mapping[str, Any], max_rows: int | None) -> None:
    """Raise if a document has more rows than the caller accepts."""
    if max_rows is not None and document["row_count"] > max_rows:
        from omnigraph.remote.results import check_rows

        check_rows(document["row_count"], max_rows)


def export_lines(calls: RemoteCalls, request: ServerRequest) -> Iterator[str]:
    """The lines of an export, without line ends; errors at the start are raised at once."""
    calls.check_open()
    answer = calls.connection.open(request)
    try:
        check_state(answer.headers.get(requests.STATE), request)
    except BaseException:
        answer.close()
        raise
    lines = _lines(answer, calls.connection.base, request)
    # A generator that is never started closes nothing itself.
    weakref.finalize(lines, answer.close)
    return lines


def check_state(exported: str | None, request: ServerRequest) -> None:
    """Raise if a server has exported another state: older ones know only heads of branches."""
    wanted = request.body.get("snapshot") if isinstance(request.body, Mapping) else None
    if wanted not in (None, exported):
        raise not_served("snapshot.export", "this server exports only the head of a branch")


def _lines(answer: OpenResponse, base: str, request: ServerRequest) -> Iterator[str]:
    rest = b""
    with answer:
        try:
            for piece in answer:
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    yield line.decode("utf-8")
        except NoResponse as error:
            raise no_response(base, error.failure, request) from None
    if rest:
        yield rest.decode("utf-8")


def write_lines(lines: Iterator[str], path: Path) -> int:
    """Write the lines of an export to a file; returns their number."""
    from omnigraph.write.destinations import replaced_file

    count = 0
    with replaced_file(path) as write:
        for line in lines:
            write(f"{line}\n".encode())
            count += 1
    return count
