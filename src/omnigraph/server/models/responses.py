"""The bodies of successful responses.

A member that is ``UNSET`` is absent. Members that later releases added are absent on the deprecated
routes, whose responses are frozen.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from omnigraph.commit.commits import Commit
from omnigraph.commit.receipts import Receipt
from omnigraph.write.load.job import LoadMode

Count = Annotated[int, msgspec.Meta(ge=0)]
Json = dict[str, Any]


# -- the server ------------------------------------------------------------------------------


class HealthOutput(msgspec.Struct, frozen=True):
    """The process runs."""

    status: str
    version: str
    internal_schema_version: Count
    api_version: str
    source_version: str | UnsetType = UNSET


class UnservedOutput(msgspec.Struct, frozen=True):
    """How many graphs are not served for one reason."""

    code: str
    count: Count
    message: str


class KeptOutput(msgspec.Struct, frozen=True):
    """How many graphs keep an earlier state for one reason."""

    code: str
    count: Count
    message: str


class ReloadFailureOutput(msgspec.Struct, frozen=True):
    """What was wrong when the last reload failed, and when that was."""

    codes: list[str]
    since: str


class ReadinessOutput(msgspec.Struct, frozen=True):
    """What the server serves. It names no graph, branch or actor."""

    status: Literal["ready", "degraded", "draining"]
    run_state: Literal["open", "default_deny", "policy"]
    digest: str
    revision: int | None
    served: Count
    unserved: Count
    reasons: list[UnservedOutput]
    warnings: list[str]
    kept: Count = 0
    kept_reasons: list[KeptOutput] = []
    failure: ReloadFailureOutput | None = None


class GraphInfo(msgspec.Struct, frozen=True):
    """A served graph."""

    graph_id: str
    uri: str


class GraphListResponse(msgspec.Struct, frozen=True):
    """The served graphs, by id."""

    graphs: list[GraphInfo]


class ReloadOutput(msgspec.Struct, frozen=True):
    """The state in force after a reload."""

    digest: str
    revision: int | None
    served: Count
    unserved: Count


# -- reading ---------------------------------------------------------------------------------


class ReadTargetOutput(msgspec.Struct, frozen=True):
    """What was read: exactly one of both is set."""

    branch: str | None
    snapshot: str | None


class ReadOutput(msgspec.Struct, frozen=True):
    """The rows of a query."""

    query_name: str
    target: ReadTargetOutput
    row_count: Count
    rows: list[Json]
    columns: list[str] | UnsetType = UNSET
    graph_commit_id: str | UnsetType | None = UNSET
    cursor: str | UnsetType = UNSET
    """Of the next page; absent from the last one, and without pages."""


class SnapshotTableOutput(msgspec.Struct, frozen=True):
    """One table of a snapshot."""

    table_key: str
    table_path: str
    table_version: Count
    table_branch: str | None
    row_count: Count


class SnapshotOutput(msgspec.Struct, frozen=True):
    """The tables of a branch."""

    branch: str
    manifest_version: Count
    internal_schema_version: Count
    tables: list[SnapshotTableOutput]
    graph_commit_id: str | None = None


class SchemaOutput(msgspec.Struct, frozen=True):
    """The schema."""

    schema_source: str


class ParamKind(StrEnum):
    """The kinds of values that a parameter takes."""

    STRING = "string"
    BOOL = "bool"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DATE = "date"
    DATETIME = "datetime"
    BLOB = "blob"
    VECTOR = "vector"
    LIST = "list"


class ParamDescriptor(msgspec.Struct, frozen=True):
    """A parameter of a stored query."""

    name: str
    kind: ParamKind
    nullable: bool
    item_kind: ParamKind | UnsetType = UNSET
    vector_dim: Count | UnsetType = UNSET
    type: str | UnsetType = UNSET
    """As written in the query."""


class QueryCatalogEntry(msgspec.Struct, frozen=True):
    """A stored query."""

    name: str
    tool_name: str
    mutation: bool
    params: list[ParamDescriptor]
    description: str | UnsetType = UNSET
    instruction: str | UnsetType = UNSET
    params_schema: Json | UnsetType = UNSET
    """The JSON Schema of the parameters."""
    result_schema: Json | UnsetType = UNSET
    """That of the rows, or of what a mutation changed; absent from a broken query."""
    deprecated: str | UnsetType = UNSET
    broken: str | UnsetType = UNSET
    """Why the query does not fit the schema; invoking it is refused."""


class QueryOutput(QueryCatalogEntry, frozen=True):
    """A stored query with its text."""

    source: str = ""


class QueriesCatalogOutput(msgspec.Struct, frozen=True):
    """The stored queries, by name."""

    queries: list[QueryCatalogEntry]


# -- history ---------------------------------------------------------------------------------


class CommitGroupOutput(msgspec.Struct, frozen=True):
    """The group that a commit was published in."""

    id: str
    index: Count
    size: Count


class CommitOutput(msgspec.Struct, frozen=True):
    """One commit; ``created_at`` is in microseconds since 1970."""

    graph_commit_id: str
    manifest_branch: str | None
    manifest_version: Count
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int
    kind: str | UnsetType = UNSET
    completes: list[str] | UnsetType = UNSET
    group: CommitGroupOutput | UnsetType = UNSET

    @classmethod
    def of(cls, commit: Commit) -> CommitOutput:
        """A commit in the form of the contract."""
        group = commit.group
        return cls(
            commit.commit_id,
            None if commit.branch == "main" else commit.branch,
            commit.version,
            commit.parent,
            commit.merged_parent,
            commit.actor,
            commit.created_at,
            UNSET if commit.kind is None else commit.kind,
            list(commit.completes) if commit.completes else UNSET,
            UNSET if group is None else CommitGroupOutput(group.id, group.index, group.size),
        )


class CommitListOutput(msgspec.Struct, frozen=True):
    """The commits of a branch, newest first."""

    commits: list[CommitOutput]


# -- writing ---------------------------------------------------------------------------------


class TableChangeOutput(msgspec.Struct, frozen=True):
    """How many rows of a table a write changed."""

    inserted: Count
    updated: Count
    deleted: Count


class ReceiptOutput(msgspec.Struct, frozen=True):
    """The receipt of a write, as the embedded library returns it."""

    commit_id: str | None
    version: Count
    branch: str
    actor: str | None
    affected_nodes: Count
    affected_edges: Count
    tables: dict[str, TableChangeOutput]
    met: dict[str, int] | None
    base_branch: str | UnsetType | None = UNSET
    branch_created: bool | UnsetType = UNSET
    records: Count | UnsetType = UNSET
    rejected: Count | UnsetType = UNSET
    ignored: dict[str, int] | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET
    dry_run: bool | UnsetType = UNSET

    @classmethod
    def of(cls, receipt: Receipt) -> ReceiptOutput:
        """A receipt in the form of the contract."""
        return msgspec.convert(receipt.to_json(), cls)


class ChangeOutput(msgspec.Struct, frozen=True):
    """What a mutation changed."""

    branch: str
    query_name: str
    affected_nodes: Count
    affected_edges: Count
    actor_id: str | None
    commit: CommitOutput | UnsetType | None = UNSET
    receipt: ReceiptOutput | UnsetType = UNSET


class IngestTableOutput(msgspec.Struct, frozen=True):
    """How many rows of a table were loaded."""

    table_key: str
    rows_loaded: Count


class IngestOutput(msgspec.Struct, frozen=True):
    """What a load changed."""

    uri: str
    branch: str
    base_branch: str | None
    branch_created: bool
    mode: LoadMode
    tables: list[IngestTableOutput]
    actor_id: str | None
    commit: CommitOutput | UnsetType | None = UNSET
    receipt: ReceiptOutput | UnsetType = UNSET


class LoadedTypeOutput(msgspec.Struct, frozen=True):
    """How many nodes or edges of a type were loaded."""

    name: str
    entities_loaded: Count


class LoadOutput(msgspec.Struct, frozen=True):
    """What a load of a raw body changed."""

    uri: str
    branch: str
    base_branch: str | None
    branch_created: bool
    mode: LoadMode
    nodes: list[LoadedTypeOutput]
    edges: list[LoadedTypeOutput]
    total_entities: Count
    actor_id: str | None
    commit: CommitOutput | None
    receipt: ReceiptOutput
    indexes_built: Count | UnsetType = UNSET


class SchemaApplyOutput(msgspec.Struct, frozen=True):
    """The steps of a schema change."""

    uri: str
    supported: bool
    applied: bool
    step_count: Count
    manifest_version: Count
    steps: list[Json]
    commit_id: str | None = None
    cleared: list[str] = []
    broken_queries: list[str] = []
    violations: list[Json] | UnsetType = UNSET


class BranchListOutput(msgspec.Struct, frozen=True):
    """The branches, by name."""

    branches: list[str]


class BranchCreateOutput(msgspec.Struct, frozen=True):
    """A new branch."""

    uri: str
    from_: str = msgspec.field(name="from")
    name: str
    actor_id: str | None


class BranchDeleteOutput(msgspec.Struct, frozen=True):
    """A deleted branch."""

    uri: str
    name: str
    actor_id: str | None


class BranchMergeOutcome(StrEnum):
    """The outcome of a merge."""

    ALREADY_UP_TO_DATE = "already_up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"


class BranchMergeOutput(msgspec.Struct, frozen=True):
    """A merge."""

    source: str
    target: str
    outcome: BranchMergeOutcome
    actor_id: str | None
    commit: CommitOutput | None
    base_commit_id: str | None
    tables: dict[str, TableChangeOutput]
    manifest_version: Count
    branch_deleted: bool | UnsetType = UNSET
    branch_delete_error: str | UnsetType = UNSET
    dry_run: bool | UnsetType = UNSET
    conflicts: list[Json] | UnsetType = UNSET
    """Of a preview: every conflict, with the row in the base and on both sides."""
    resolved: Json | UnsetType = UNSET
    """The choice for each conflict that was resolved."""


# -- policies --------------------------------------------------------------------------------


class RuleVerdictOutput(msgspec.Struct, frozen=True):
    """What a rule for rows says about a row."""

    rule: str
    verdict: str


class RowExplanationOutput(msgspec.Struct, frozen=True):
    """Whether an actor sees a row, and what each rule says about it."""

    visible: bool
    actor: str
    type: str
    id: str
    branch: str
    rules: list[RuleVerdictOutput]
    message: str


class PolicyExplanationOutput(msgspec.Struct, frozen=True):
    """The decision about an action, the rule that made it, and whether a row is visible."""

    decision: Literal["allow", "deny"] | UnsetType = UNSET
    actor: str | UnsetType = UNSET
    action: str | UnsetType = UNSET
    branch: str | UnsetType = UNSET
    target_branch: str | UnsetType = UNSET
    query: str | UnsetType = UNSET
    matched_rule: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    row: RowExplanationOutput | UnsetType = UNSET
