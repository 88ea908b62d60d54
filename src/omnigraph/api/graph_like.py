"""What a graph in this process and a graph behind a server have in common, for type checkers.

A function that takes a ``GraphLike`` works with both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import omnigraph
from omnigraph.progress import OnProgress


class BranchesLike(Protocol):
    """The branches of either kind of graph."""

    def list(self) -> Sequence[str]:
        """``main`` first, then the others in alphabetical order."""
        ...

    def create(self, name: str, from_branch: str = "main") -> None:
        """Create a branch from the newest state of another."""
        ...

    def delete(self, name: str) -> None:
        """Delete a branch that no other branch depends on."""
        ...


class TagsLike(Protocol):
    """The tags of either kind of graph."""

    def list(self) -> Sequence[omnigraph.Tag]:
        """All tags, by name."""
        ...

    def create(
        self, name: str, commit: str | None = None, *, branch: str = "main", move: bool = False
    ) -> omnigraph.Tag:
        """Tag a commit, or the newest of a branch."""
        ...

    def delete(self, name: str) -> None:
        """Delete a tag; its commit stays."""
        ...


class ChangesLike(Protocol):
    """The change feed of either kind of graph."""

    def poll(
        self,
        branch: str = "main",
        cursor: str | None = None,
        *,
        start: str = "beginning",
        limit: int = 1_000,
        wait: float = 0.0,
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        ops: Collection[str] | None = None,
    ) -> omnigraph.ChangePage:
        """The next changes of a branch."""
        ...

    def follow(
        self,
        branch: str = "main",
        cursor: str | None = None,
        *,
        start: str = "beginning",
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        ops: Collection[str] | None = None,
    ) -> Iterator[omnigraph.ChangeBlock]:
        """The changes of a branch, commit by commit, without an end."""
        ...

    def of_commit(
        self,
        commit: str,
        cursor: str | None = None,
        *,
        limit: int = 1_000,
        kinds: Collection[str] | None = None,
        types: Collection[str] | None = None,
        ops: Collection[str] | None = None,
    ) -> omnigraph.ChangePage:
        """The changes of one commit."""
        ...

    def blame(self, type_name: str, entity_id: str, branch: str = "main") -> omnigraph.Blame:
        """The commit that last changed a node or an edge."""
        ...


class SchemaLike(Protocol):
    """The schema of either kind of graph."""

    def text(self) -> str:
        """The text of the newest schema."""
        ...

    def apply(
        self, schema: str, *, allow_data_loss: bool = False, allow_broken_queries: bool = False
    ) -> omnigraph.SchemaApplied:
        """Change the schema in one commit."""
        ...


class QueriesLike(Protocol):
    """The stored queries of either kind of graph."""

    def list(self) -> Sequence[omnigraph.StoredQuery]:
        """The stored queries, by name."""
        ...

    def get(self, name: str) -> omnigraph.StoredQuery:
        """One stored query."""
        ...

    def check(self) -> Mapping[str, str]:
        """Why stored queries do not fit the newest schema, by their names."""
        ...

    def invoke(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        branch: str | None = None,
        *,
        at: str | None = None,
        timeout: float | None = None,
        max_rows: int | None = None,
        cancel: omnigraph.Cancel | None = None,
    ) -> omnigraph.Result:
        """Run a stored query that reads."""
        ...

    def invoke_mutation(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        branch: str = "main",
        *,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
    ) -> omnigraph.Receipt:
        """Run a stored mutation."""
        ...


class SnapshotLike(Protocol):
    """One state of either kind of graph."""

    @property
    def branch(self) -> str:
        """The branch of the snapshot."""
        ...

    @property
    def version(self) -> int:
        """The version of the manifest of that branch."""
        ...

    @property
    def commit_id(self) -> str | None:
        """The newest commit that the snapshot includes."""
        ...

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """The path, version, owning branch and row count of each table."""
        ...

    def query(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        max_rows: int | None = None,
        cancel: omnigraph.Cancel | None = None,
    ) -> omnigraph.Result:
        """Run a query that reads."""
        ...

    def count(self, type_name: str) -> int:
        """The number of nodes or edges of a type."""
        ...

    def export(
        self,
        dest: None = None,
        format: Literal["ndjson"] = "ndjson",
        *,
        types: Sequence[str] | None = None,
    ) -> Iterator[str]:
        """All rows as lines of JSON."""
        ...


class GraphLike(Protocol):
    """A graph in this process (``Graph``) or behind a server (``RemoteGraph``)."""

    @property
    def uri(self) -> str:
        """The address of the graph."""
        ...

    @property
    def catalog(self) -> omnigraph.Catalog:
        """The types of the newest schema."""
        ...

    @property
    def branches(self) -> BranchesLike:
        """Create, list and delete branches."""
        ...

    @property
    def tags(self) -> TagsLike:
        """Names for commits."""
        ...

    @property
    def changes(self) -> ChangesLike:
        """The change feed, and the last change of a row."""
        ...

    @property
    def queries(self) -> QueriesLike:
        """The stored queries: list, check and invoke them by name."""
        ...

    @property
    def schema(self) -> SchemaLike:
        """The text of the schema; apply schema changes."""
        ...

    def query(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        branch: str = "main",
        *,
        timeout: float | None = None,
        max_rows: int | None = None,
        cancel: omnigraph.Cancel | None = None,
    ) -> omnigraph.Result:
        """Run a query that reads, on one snapshot."""
        ...

    def pages(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        branch: str = "main",
        *,
        page_size: int = 1_000,
        cursor: str | None = None,
        timeout: float | None = None,
        cancel: omnigraph.Cancel | None = None,
    ) -> Iterator[omnigraph.ResultPage]:
        """Run a query that reads, and return its rows in pages of one snapshot."""
        ...

    def mutate(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, Any] | None = None,
        branch: str = "main",
        *,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
    ) -> omnigraph.Receipt:
        """Run a mutation: all of its statements in one commit, or none."""
        ...

    def load(
        self,
        data: Any,
        mode: omnigraph.LoadMode | Literal["merge", "append", "overwrite"] = "merge",
        branch: str = "main",
        from_branch: str | None = None,
        *,
        format: str | None = None,
        strict_properties: bool = False,
        dry_run: bool = False,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> omnigraph.LoadReceipt:
        """Load files, streams, tables or records in one commit."""
        ...

    def append(self, rows: Mapping[str, Any], branch: str = "main") -> omnigraph.Receipt:
        """Add typed Arrow rows, by type name, in one commit."""
        ...

    def merge(
        self, source: str, into: str = "main", *, delete_branch: bool = False
    ) -> omnigraph.MergeReport:
        """Merge the changes of a branch into another, in one commit."""
        ...

    def commits(self, branch: str = "main") -> list[omnigraph.Commit]:
        """The commits of a branch, newest first."""
        ...

    def commit(self, commit_id: str) -> omnigraph.Commit:
        """One commit of any branch."""
        ...

    def snapshot(self, branch: str = "main", *, commit: str | None = None) -> SnapshotLike:
        """The newest state of a branch, or that of a commit."""
        ...

    def close(self) -> None:
        """Release the graph; every further call raises ``Closed``."""
        ...

    def __enter__(self) -> GraphLike: ...

    def __exit__(self, *error: object) -> None: ...
