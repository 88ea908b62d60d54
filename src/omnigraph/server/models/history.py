"""The bodies of the operations on the history of a graph: changes, diffs, tags, merged commits."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from omnigraph.merge.diff import Change
from omnigraph.merge.pages import ChangeBlock
from omnigraph.server.models.responses import CommitOutput, Count, Json, TableChangeOutput

PageLimit = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Resolution: TypeAlias = Literal["ours", "theirs"] | dict[str, str | dict[str, Any]]
"""A side for all conflicts, or a side or the values of the row for each, by conflict id."""


# -- requests --------------------------------------------------------------------------------


class ChangesParameters(msgspec.Struct, frozen=True):
    """From where a change feed is read, and which of its changes.

    ``kind``, ``type`` and ``op`` are lists with commas.
    """

    branch: str | None = None
    cursor: str | None = None
    start: str | None = None
    page_token: str | None = None
    limit: PageLimit | None = None
    kind: str | None = None
    type: str | None = None
    op: str | None = None
    wait: str | None = None
    """How long to wait for changes if there are none, such as ``25s``."""


class CommitChangesParameters(msgspec.Struct, frozen=True):
    """Which changes of a commit."""

    page_token: str | None = None
    limit: PageLimit | None = None
    kind: str | None = None
    type: str | None = None
    op: str | None = None


class BaselineRequest(msgspec.Struct, frozen=True):
    """A state to begin a copy with."""

    branch: str | None = None
    rows: bool | None = None
    """Without rows there is only the last line."""


class StateName(msgspec.Struct, frozen=True):
    """A state of the graph: that of a branch, a tag or a commit."""

    branch: str | None = None
    tag: str | None = None
    commit: str | None = None

    def __post_init__(self) -> None:
        if sum(name is not None for name in (self.branch, self.tag, self.commit)) != 1:
            raise ValueError("Expected one of `branch`, `tag` and `commit`")


class DiffRequest(msgspec.Struct, frozen=True):
    """Two states; a text is the name of a branch, a tag or a commit, looked up in this order."""

    from_: str | StateName = msgspec.field(name="from")
    to: str | StateName
    kinds: list[str] | None = None
    types: list[str] | None = None
    ops: list[str] | None = None
    summary: bool | None = None


class ReplayRequest(msgspec.Struct, frozen=True):
    """A commit to revert or to apply."""

    commit: str
    branch: str | None = None
    resolve: Resolution | None = None
    dry_run: bool | None = None


class TagCreateRequest(msgspec.Struct, frozen=True):
    """A new tag, of a commit or of the newest one of a branch."""

    name: str
    commit: str | None = None
    branch: str | None = None
    move: bool | None = None

    def __post_init__(self) -> None:
        if self.commit is not None and self.branch is not None:
            raise ValueError("Expected one of `commit` and `branch`")


class ExplainRequest(msgspec.Struct, frozen=True):
    """A query to explain, or to run and to measure."""

    query: str
    name: str | None = None
    params: Any = None
    branch: str | None = None
    snapshot: str | None = None
    profile: bool | None = None


class EntityParameters(msgspec.Struct, frozen=True):
    """One node or edge of a state."""

    type: str
    id: str
    branch: str | None = None
    snapshot: str | None = None


class NeighbourParameters(msgspec.Struct, frozen=True):
    """One node of a state, and which of its edges."""

    type: str
    id: str
    edge: str | None = None
    direction: Literal["out", "in", "both"] | None = None
    limit: PageLimit | None = None
    branch: str | None = None
    snapshot: str | None = None


class BlameParameters(msgspec.Struct, frozen=True):
    """One node or edge of a branch."""

    type: str
    id: str
    branch: str | None = None


# -- responses -------------------------------------------------------------------------------


class RowChangeOutput(msgspec.Struct, frozen=True):
    """A changed node or edge, before and after."""

    table_key: str
    kind: str
    type_name: str
    id: str
    op: str
    before: Json | None
    after: Json | None
    endpoints: dict[str, str] | UnsetType = UNSET

    @classmethod
    def of(cls, change: Change) -> RowChangeOutput:
        """A change in the form of the contract."""
        return cls(
            change.table_key,
            change.kind,
            change.type_name,
            change.id,
            change.op.value,
            _finite(change.before),
            _finite(change.after),
            UNSET if change.endpoints is None else change.endpoints,
        )


def _finite(row: Any) -> Any:
    """A row whose NaN and infinities are texts, which JSON has no numbers for."""
    if row is None:
        return None
    return {name: _finite_value(value) for name, value in row.items()}


def _finite_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite_value(item) for item in value]
    if isinstance(value, float) and value - value != 0.0:
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


class ChangeBlockOutput(msgspec.Struct, frozen=True):
    """The changes of one commit, or a part of them, and the cursor after them."""

    cause: CommitOutput
    schema_events: list[Json]
    changes: list[RowChangeOutput]
    is_complete: bool
    cursor: str

    @classmethod
    def of(cls, block: ChangeBlock) -> ChangeBlockOutput:
        """A block in the form of the contract."""
        return cls(
            CommitOutput.of(block.commit),
            [event.to_json() for event in block.schema_events],
            [RowChangeOutput.of(change) for change in block.changes],
            block.is_complete,
            block.cursor,
        )


class ChangesOutput(msgspec.Struct, frozen=True):
    """A page of a change feed; without ``caught_up`` there is more at once."""

    blocks: list[ChangeBlockOutput]
    cursor: str
    caught_up: bool
    next_page_token: str | UnsetType = UNSET


class CommitChangesOutput(msgspec.Struct, frozen=True):
    """A page of the changes of one commit."""

    cause: CommitOutput
    schema_events: list[Json]
    changes: list[RowChangeOutput]
    next_page_token: str | UnsetType = UNSET


class StateOutput(msgspec.Struct, frozen=True):
    """One of two compared states."""

    branch: str
    manifest_version: Count
    graph_commit_id: str | None


class DiffOutput(msgspec.Struct, frozen=True):
    """The net changes between two states; without rows if a summary was requested."""

    from_: StateOutput = msgspec.field(name="from")
    to: StateOutput
    stats: Json
    tables: dict[str, TableChangeOutput]
    schema_events: list[Json]
    changes: list[RowChangeOutput]


class BlameOutput(msgspec.Struct, frozen=True):
    """The commit that changed a row last, and the one that it was merged from."""

    type_name: str
    id: str
    op: str
    commit: CommitOutput
    origin: CommitOutput | None


class TagOutput(msgspec.Struct, frozen=True):
    """A name for a commit; it shows the state of another one of its group if ``shows`` is set."""

    name: str
    graph_commit_id: str
    created_at: int
    actor_id: str | None
    shows: str | UnsetType = UNSET


class TagListOutput(msgspec.Struct, frozen=True):
    """The tags, by name."""

    tags: list[TagOutput]


class TagDeleteOutput(msgspec.Struct, frozen=True):
    """A deleted tag."""

    uri: str
    name: str
    actor_id: str | None


class ExplainOutput(msgspec.Struct, frozen=True):
    """The plan of a query, as text and as data."""

    text: str
    plan: Json


class EntityOutput(msgspec.Struct, frozen=True):
    """One node or edge, and the types of its properties."""

    type_name: str
    kind: str
    id: str
    entity: Json
    types: dict[str, str]
    graph_commit_id: str | None


class NeighbourOutput(msgspec.Struct, frozen=True):
    """An edge of a node, and the node at its other end."""

    edge_type: str
    direction: str
    edge: Json
    node_type: str
    node: Json


class NeighboursOutput(msgspec.Struct, frozen=True):
    """The edges of a node with the nodes at their other ends; ``types`` are by type name."""

    neighbours: list[NeighbourOutput]
    types: dict[str, dict[str, str]]
    truncated: bool
    graph_commit_id: str | None
