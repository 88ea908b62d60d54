"""The rows of ``__manifest``: the kinds of rows, and their encoding.

The columns, row kinds and ids are format v4, shared with the reference program. Rows of an unknown
kind are ignored and never changed.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, ClassVar

import pyarrow as pa

from omnigraph.commit.names import MAIN
from omnigraph.errors import StorageCorrupt
from omnigraph.records import dataclass
from omnigraph.storage.objects.paths import escaped, is_branch, is_location, refused
from omnigraph.storage.tables.types import CommittedTable

FORMAT_VERSION = 4
FORMAT_KEY = "omnigraph:internal_schema_version"

IDEMPOTENCY_KEY = "idempotency_key"
"""The key in a commit's metadata by which a repeated write is recognised."""
FINGERPRINT = "fingerprint"
"""The key in a commit's metadata that distinguishes writes of one idempotency key."""
COMPLETES = "completes"
"""The key in a recovery's commit that names the commit it completed, or several in a list."""
ROLLED_BACK = "rolled_back"
"""The key in a recovery's commit that names the commit it rolled back."""
RECEIPT = "receipt"
"""The key in a commit's metadata that holds the receipt of the first call."""
WRITER = "writer"
"""The key in a commit's metadata with the kind of the write."""
REVERTS, PICKS = "reverts", "picks"
"""The keys in a commit's metadata that name the commit it reverted, or cherry-picked."""

SCHEMA = pa.schema(
    [
        pa.field(
            "object_id",
            pa.string(),
            nullable=False,
            metadata={"lance-schema:unenforced-primary-key": "true"},
        ),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field("item", pa.string(), nullable=True))),
        pa.field("table_key", pa.string(), nullable=False),
        pa.field("table_version", pa.uint64()),
        pa.field("table_branch", pa.string()),
        pa.field("row_count", pa.uint64()),
    ],
    metadata={FORMAT_KEY: str(FORMAT_VERSION)},
)


class WriterKind(StrEnum):
    """The kind of a writer, as its sidecar and its commit record it."""

    MUTATION = "Mutation"
    LOAD = "Load"
    SCHEMA_APPLY = "SchemaApply"
    BRANCH_MERGE = "BranchMerge"
    ENSURE_INDICES = "EnsureIndices"
    OPTIMIZE = "Optimize"


@dataclass(frozen=True, slots=True)
class Row(ABC):
    """One row of the manifest."""

    kind: ClassVar[str]
    id_format: ClassVar[str]

    @property
    def object_id(self) -> str:
        """The key of the row."""
        return self.id_format.format(self)

    @abstractmethod
    def columns(self) -> dict[str, Any]:
        """The values of the columns that this kind uses."""


@dataclass(frozen=True, slots=True)
class TableRow(Row):
    """Registers a table and its location."""

    kind: ClassVar[str] = "table"
    id_format: ClassVar[str] = "{0.table_key}"
    table_key: str
    location: str

    def columns(self) -> dict[str, Any]:
        return {"table_key": self.table_key, "location": self.location}


@dataclass(frozen=True, slots=True)
class VersionRow(Row):
    """A pin: the visible version of a table, in the copy of this branch."""

    kind: ClassVar[str] = "table_version"
    id_format: ClassVar[str] = "{0.table_key}${0.version:020d}"
    table_key: str
    version: int
    branch: str | None
    row_count: int
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def columns(self) -> dict[str, Any]:
        return {
            "table_key": self.table_key,
            "table_version": self.version,
            "table_branch": self.branch,
            "row_count": self.row_count,
            "metadata": _json(self.metadata),
        }

    @staticmethod
    def of(table_key: str, table: CommittedTable) -> VersionRow:
        """The pin of a table at the version it was just given."""
        info = table.info.to_json()
        return VersionRow(table_key, table.version, table.ref.branch, table.row_count, info)


@dataclass(frozen=True, slots=True)
class TombstoneRow(Row):
    """Hides the versions of a table up to and including one."""

    kind: ClassVar[str] = "table_tombstone"
    id_format: ClassVar[str] = "{0.table_key}$tombstone${0.version:020d}"
    table_key: str
    version: int

    def columns(self) -> dict[str, Any]:
        return {"table_key": self.table_key, "table_version": self.version}


@dataclass(frozen=True, slots=True)
class CommitRow(Row):
    """One commit of the graph. ``extra`` holds keys that only we write."""

    kind: ClassVar[str] = "graph_commit"
    id_format: ClassVar[str] = "{0.commit_id}"
    commit_id: str
    manifest_version: int
    branch: str | None
    created_at: int
    parent: str | None = None
    merged_parent: str | None = None
    actor: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def order(self) -> tuple[int, int, str]:
        """The sort key of commits: the newest of a manifest has the greatest."""
        return self.manifest_version, self.created_at, self.commit_id

    def columns(self) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "parent_commit_id": self.parent,
            "merged_parent_commit_id": self.merged_parent,
            "actor_id": self.actor,
        }
        present = {key: value for key, value in payload.items() if value is not None}
        return {
            "table_version": self.manifest_version,
            "table_branch": self.branch,
            "metadata": _json({**present, "created_at": self.created_at, **self.extra}),
        }


@dataclass(frozen=True, slots=True)
class HeadRow(Row):
    """The newest commit of a branch; overwritten in place, which makes the history linear."""

    kind: ClassVar[str] = "graph_head"
    branch: str | None
    commit_id: str
    parent: str | None = None

    @property
    def object_id(self) -> str:
        return head_id(self.branch)

    def columns(self) -> dict[str, Any]:
        payload: dict[str, Any] = {"head_commit_id": self.commit_id}
        if self.parent is not None:
            payload["parent_commit_id"] = self.parent
        return {"metadata": _json(payload)}


def head_id(branch: str | None) -> str:
    """The key of the row of a branch's head."""
    return f"graph_head:{branch or MAIN}"


@dataclass(frozen=True, slots=True)
class TagRow(Row):
    """A name for a commit. Our own row kind; a deleted tag names no commit."""

    kind: ClassVar[str] = "graph_tag"
    id_format: ClassVar[str] = "graph_tag:{0.name}"
    name: str
    commit_id: str | None
    created_at: int
    actor: str | None = None
    shows: str | None = None
    """The last commit of a group whose state the tag shows."""
    key: str | None = None
    """The idempotency key of the call that made the tag."""
    fingerprint: str | None = None
    """Distinguishes that call from another under the same key."""

    def columns(self) -> dict[str, Any]:
        created_at, actor = self.created_at, self.actor
        payload = {"commit_id": self.commit_id, "created_at": created_at, "actor_id": actor}
        if self.shows is not None:
            payload["shows"] = self.shows
        if self.key is not None:
            payload |= {IDEMPOTENCY_KEY: self.key, FINGERPRINT: self.fingerprint}
        return {"metadata": _json(payload)}


@dataclass(frozen=True, slots=True)
class SchemaRow(Row):
    """The schema from a manifest version on, with its stable ids. Our own row kind.

    Version 0 means the version that a publish is about to make.
    """

    kind: ClassVar[str] = "graph_schema"
    id_format: ClassVar[str] = "graph_schema:{0.manifest_version:020d}"
    manifest_version: int
    schema_hash: str
    source: str
    identity: Mapping[str, Any]

    def columns(self) -> dict[str, Any]:
        payload = {"hash": self.schema_hash, "source": self.source, "identity": self.identity}
        return {"table_version": self.manifest_version, "metadata": _json(payload)}


@dataclass(frozen=True, slots=True)
class VoidRow(Row):
    """A version of a branch's manifest that was damaged when it was written, and replaced.

    Our own row kind. Nothing that such a version published was acknowledged.
    """

    kind: ClassVar[str] = "graph_void"
    branch: str | None
    manifest_version: int
    created_at: int
    reason: str

    @property
    def object_id(self) -> str:
        return f"graph_void:{self.branch or MAIN}:{self.manifest_version:020d}"

    def columns(self) -> dict[str, Any]:
        payload = {"created_at": self.created_at, "reason": self.reason}
        return {
            "table_version": self.manifest_version,
            "table_branch": self.branch,
            "metadata": _json(payload),
        }


def to_records(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The values of the columns of each row, as far as it uses them."""
    return [
        {"table_key": "", "object_id": row.object_id, "object_type": row.kind, **row.columns()}
        for row in rows
    ]


def to_arrow(rows: Iterable[Row]) -> pa.Table:
    """Rows as a table with the columns of the manifest."""
    return pa.Table.from_pylist(to_records(rows), schema=SCHEMA)


def from_arrow(table: pa.Table) -> Iterator[Row]:
    """The rows of a manifest with a known kind, in the order of the table."""
    return from_records(table.to_pylist())


def from_records(records: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    """The same from the values of the columns."""
    for record in records:
        read = _READERS.get(record["object_type"])
        if read is None:
            continue
        try:
            yield read(record)
        except (KeyError, TypeError, ValueError) as error:
            raise StorageCorrupt(
                f"the manifest row '{record['object_id']}' cannot be read",
                hint="restore the graph from a backup, or export what another branch still has",
            ) from error


def completed_ids(value: Any) -> tuple[str, ...]:
    """The commits that the key ``completes`` names.

    >>> completed_ids("01A"), completed_ids(["01A", "01B"])
    (('01A',), ('01A', '01B'))
    """
    ids = [value] if isinstance(value, str) else value
    if not isinstance(ids, list) or not all(isinstance(commit_id, str) for commit_id in ids):
        raise TypeError("completes is neither a text nor a list of texts")
    return tuple(ids)


def checked_location(record: Mapping[str, Any]) -> str:
    """The location in a row; ``StorageCorrupt`` if it is not a valid table path."""
    location = record["location"]
    if location and not is_location(location):
        raise refused(location, f"the manifest row {escaped(record['table_key'])}")
    return str(location or "")


def checked_branch(record: Mapping[str, Any]) -> str | None:
    """The branch in a row; ``StorageCorrupt`` if it is not a valid branch name."""
    branch = record["table_branch"]
    if branch is not None and not is_branch(branch):
        raise refused(branch, f"the manifest row {escaped(record['table_key'])}")
    return None if branch is None else str(branch)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), separators=(",", ":"), ensure_ascii=False)


def _payload(record: Mapping[str, Any]) -> dict[str, Any]:
    payload = json.loads(record["metadata"] or "{}")
    if not isinstance(payload, dict):
        raise TypeError("metadata is not an object")
    return payload


def _read_version(record: Mapping[str, Any]) -> Row:
    return VersionRow(
        record["table_key"],
        int(record["table_version"]),
        checked_branch(record),
        int(record["row_count"] or 0),
        _payload(record),
    )


_COMMIT_KEYS = ("parent_commit_id", "merged_parent_commit_id", "actor_id", "created_at")


def _read_commit(record: Mapping[str, Any]) -> Row:
    payload = _payload(record)
    completed_ids(payload.get(COMPLETES, []))
    return CommitRow(
        record["object_id"],
        int(record["table_version"]),
        checked_branch(record),
        int(payload["created_at"]),
        payload.get("parent_commit_id"),
        payload.get("merged_parent_commit_id"),
        payload.get("actor_id"),
        {key: value for key, value in payload.items() if key not in _COMMIT_KEYS},
    )


def _read_head(record: Mapping[str, Any]) -> Row:
    payload = _payload(record)
    name = str(record["object_id"]).removeprefix("graph_head:")
    branch = None if name == MAIN else name
    return HeadRow(branch, str(payload["head_commit_id"]), payload.get("parent_commit_id"))


def _read_tag(record: Mapping[str, Any]) -> Row:
    payload = _payload(record)
    name = str(record["object_id"]).removeprefix("graph_tag:")
    created_at = int(payload["created_at"])
    actor, shows = payload.get("actor_id"), payload.get("shows")
    key, fingerprint = payload.get(IDEMPOTENCY_KEY), payload.get(FINGERPRINT)
    return TagRow(name, payload.get("commit_id"), created_at, actor, shows, key, fingerprint)


def _read_schema(record: Mapping[str, Any]) -> Row:
    payload = _payload(record)
    return SchemaRow(
        int(record["table_version"]), payload["hash"], payload["source"], payload["identity"]
    )


def _read_void(record: Mapping[str, Any]) -> Row:
    payload = _payload(record)
    return VoidRow(
        checked_branch(record),
        int(record["table_version"]),
        int(payload["created_at"]),
        str(payload["reason"]),
    )


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Row]] = {
    TableRow.kind: lambda record: TableRow(record["table_key"], checked_location(record)),
    VersionRow.kind: _read_version,
    TombstoneRow.kind: lambda row: TombstoneRow(row["table_key"], int(row["table_version"])),
    CommitRow.kind: _read_commit,
    HeadRow.kind: _read_head,
    TagRow.kind: _read_tag,
    SchemaRow.kind: _read_schema,
    VoidRow.kind: _read_void,
}
