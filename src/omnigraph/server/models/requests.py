"""The bodies and query strings that clients send.

Unknown members are ignored. An optional member may be absent or null.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from omnigraph.policy.actions import Action
from omnigraph.write.load.job import LoadMode

EngineName = Literal["auto", "local", "spark"]
Count = Annotated[int, msgspec.Meta(ge=0)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=10_000)]


class QueryRequest(msgspec.Struct, frozen=True):
    """A query that reads, on a branch or at a commit."""

    query: str
    name: str | None = None
    params: Any = None
    branch: str | None = None
    snapshot: str | None = None
    page_size: Limit | None = None
    cursor: str | None = None
    """That of the page before, with otherwise the same members."""


class ReadRequest(msgspec.Struct, frozen=True):
    """A query that reads, in the spelling of earlier releases."""

    query_source: str
    query_name: str | None = None
    params: Any = None
    branch: str | None = None
    snapshot: str | None = None

    def renamed(self) -> QueryRequest:
        """The same request in the newer spelling."""
        return QueryRequest(
            self.query_source, self.query_name, self.params, self.branch, self.snapshot
        )


class ChangeRequest(msgspec.Struct, frozen=True):
    """A query that writes, in either spelling."""

    query: str | msgspec.UnsetType = msgspec.UNSET
    query_source: str | msgspec.UnsetType = msgspec.UNSET
    name: str | msgspec.UnsetType | None = msgspec.UNSET
    query_name: str | msgspec.UnsetType | None = msgspec.UNSET
    params: Any = None
    branch: str | None = None

    def __post_init__(self) -> None:
        for new, old in (("query", "query_source"), ("name", "query_name")):
            if msgspec.UNSET not in (getattr(self, new), getattr(self, old)):
                raise ValueError(f"duplicate field `{new}`: it is also given as `{old}`")
        if self.query is msgspec.UNSET and self.query_source is msgspec.UNSET:
            raise ValueError("Object missing required field `query`")

    @property
    def text(self) -> str:
        """The text of the query."""
        given = self.query_source if self.query is msgspec.UNSET else self.query
        return "" if given is msgspec.UNSET else given

    @property
    def chosen(self) -> str | None:
        """The name of the query, if one was given."""
        given = self.query_name if self.name is msgspec.UNSET else self.name
        return None if given is msgspec.UNSET else given


class InvokeStoredQueryRequest(msgspec.Struct, frozen=True):
    """The parameters of a stored query."""

    params: Any = None
    branch: str | None = None
    snapshot: str | None = None
    expect_mutation: bool | None = None
    page_size: Limit | None = None
    cursor: str | None = None
    """That of the page before, with otherwise the same members."""


class IngestRequest(msgspec.Struct, frozen=True):
    """Rows to load: lines of JSON in one text."""

    data: str
    branch: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    mode: LoadMode | None = None


class ExportRequest(msgspec.Struct, frozen=True):
    """What to export; everything if neither types nor tables are named."""

    branch: str | None = None
    type_names: list[str] | None = None
    table_keys: list[str] | None = None
    snapshot: str | None = None


class SchemaApplyRequest(msgspec.Struct, frozen=True):
    """A new schema."""

    schema_source: str
    allow_data_loss: bool | None = None
    allow_broken_queries: bool | None = None
    values: dict[str, Any] | None = None
    """The values of newly required properties for existing rows, by ``Type.property``."""
    dry_run: bool | None = None
    """Whether only to report the steps, and rows that violate the new schema."""


class BranchCreateRequest(msgspec.Struct, frozen=True):
    """A new branch."""

    name: str
    from_: str | None = msgspec.field(default=None, name="from")


class BranchMergeRequest(msgspec.Struct, frozen=True):
    """A merge of one branch into another."""

    source: str
    target: str | None = None
    delete_branch: bool | None = None
    dry_run: bool | None = None
    """Only shows what the merge would do, with every conflict."""
    resolve: Literal["ours", "theirs"] | dict[str, str | dict[str, Any]] | None = None
    """A side for all conflicts, or a side or the values of the row for each, by conflict id."""


# -- query strings ---------------------------------------------------------------------------


class StateParameters(msgspec.Struct, frozen=True):
    """``?branch=`` or ``?snapshot=``, which is a commit."""

    branch: str | None = None
    snapshot: str | None = None


class CommitFilter(msgspec.Struct, frozen=True):
    """Which commits of a branch to list."""

    branch: str | None = None
    actor: str | None = None
    kind: str | None = None
    limit: Limit | None = None


class LoadParameters(msgspec.Struct, frozen=True):
    """The destination of rows whose lines are the body, and how they are checked."""

    branch: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    mode: LoadMode | None = None
    dry_run: bool = False
    strict_properties: bool = False
    max_rejects: Count | None = None
    indexes: bool = False
    """Whether missing indexes are built afterwards, in a commit of their own."""
    engine: EngineName | None = None
    """``spark`` only with ``Prefer: respond-async``."""


# -- policies --------------------------------------------------------------------------------


class RowName(msgspec.Struct, frozen=True):
    """A node or an edge."""

    type: str
    id: str


class ExplainPolicyRequest(msgspec.Struct, frozen=True):
    """What an actor wants to do, or to see; without an action only the row is explained."""

    actor: str
    groups: list[str] | None = None
    """Those of a token; the groups of the bundle are known."""
    attributes: dict[str, Any] | None = None
    """Those of a token."""
    action: Action | None = None
    branch: str | None = None
    target_branch: str | None = None
    query: str | None = None
    row: RowName | None = None
