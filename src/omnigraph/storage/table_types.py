"""What the table store takes and gives, in types of our own."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

AUTO_CLEANUP = "lance.auto_cleanup."
"""How the settings begin by which Lance removes versions on its own, in the middle of a commit."""


@dataclass(frozen=True, slots=True, order=True)
class TableRef:
    """One table on one branch: where its dataset lies under the root, and whose copy it is."""

    location: str
    branch: str | None = None

    @property
    def path(self) -> str:
        """The directory of this copy relative to the root."""
        return self.location if self.branch is None else f"{self.location}/tree/{self.branch}"


class Change(StrEnum):
    """What a staged write does to its table."""

    APPEND = "append"
    UPSERT = "upsert"
    UPDATE = "update"
    OVERWRITE = "overwrite"
    DELETE = "delete"
    INDEX = "index"
    COMPACT = "compact"
    SETTINGS = "settings"
    ALTER = "alter"


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """The file that makes a version of a table: where it lies and what identifies it."""

    version: int
    manifest_path: str
    manifest_size: int
    e_tag: str | None

    def to_json(self) -> dict[str, object]:
        """As the graph's manifest records it beside the pin."""
        return {
            "manifest_path": self.manifest_path,
            "manifest_size": self.manifest_size,
            "e_tag": self.e_tag,
            "naming_scheme": "V2",
        }


@dataclass(frozen=True, slots=True)
class CommittedTable:
    """A version that is there now, with what a pin says about it."""

    ref: TableRef
    version: int
    row_count: int
    info: VersionInfo


@dataclass(frozen=True, slots=True)
class StagedTable:
    """A write whose files lie on storage and whose commit is still to come.

    ``base`` is the version it was staged on; it may only become version ``base + 1``.
    """

    ref: TableRef
    change: Change
    base: int
    transaction_id: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    files: tuple[str, ...] = ()
    _transaction: object = field(default=None, repr=False, compare=False)


class IndexKind(StrEnum):
    """The kinds of index, by what they answer."""

    EQUALITY = "BTREE"
    TEXT = "INVERTED"
    VECTOR = "IVF_FLAT"


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An index to build on one column. ``metric`` and ``partitions`` are for vectors."""

    column: str
    kind: IndexKind
    metric: str = "cosine"
    partitions: int = 1

    @property
    def name(self) -> str:
        """One index of each kind on a column."""
        return f"{self.column}_{self.kind.name.lower()}"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a table an index knows."""

    covered: int
    fragments: int

    @property
    def complete(self) -> bool:
        return self.covered == self.fragments
