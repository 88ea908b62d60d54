"""The argument and result types of the table store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from omnigraph.records import dataclass
from omnigraph.storage.checksums import FileSum, Sums
from omnigraph.storage.lance_format.files import NewFile
from omnigraph.storage.objects.paths import version_file

if TYPE_CHECKING:
    from lance import Transaction

    from omnigraph.storage.objects.uploads import Upload
    from omnigraph.storage.tables.next_version import NextVersion
    from omnigraph.storage.tables.table import Table

ROW_ID = "_rowid"
ROW_ADDRESS = "_rowaddr"
KEY = "id"
"""The column that identifies a row of a table of a type."""
ROWS_PER_FRAGMENT = 50_000
"""Small fragments keep single-row upserts fast; see the commit benchmark."""
AUTO_CLEANUP = "lance.auto_cleanup."
"""The prefix of the settings that make Lance remove versions on its own during a commit."""


@dataclass(frozen=True, slots=True, order=True)
class TableRef:
    """One table on one branch: the location of its dataset under the root, and the branch."""

    location: str
    branch: str | None = None

    @property
    def path(self) -> str:
        """The directory of this copy relative to the root."""
        return self.location if self.branch is None else f"{self.location}/tree/{self.branch}"

    def version_path(self, version: int) -> str:
        """The file of a version relative to the root."""
        return f"{self.path}/{version_file(version)}"


class TableVersion(NamedTuple):
    """One version of one copy of a table.

    The tag of the version file distinguishes it from that of a recreated branch; it is empty where
    that does not matter.
    """

    location: str
    branch: str | None
    version: int
    e_tag: str = ""

    @property
    def ref(self) -> TableRef:
        return TableRef(self.location, self.branch)


FILE_FOLDERS = frozenset({"_versions", "_transactions", "data", "_deletions", "_indices", "_refs"})
"""The subdirectories of a copy of a table; their parent is the copy."""


def split_file(path: str) -> tuple[str, str] | None:
    """Split the path of a table file into its copy and the path relative to that copy.

    The last such directory counts: a branch may have the same name.

    >>> split_file("nodes/40d7/tree/team/data/_versions/7.manifest")
    ('nodes/40d7/tree/team/data', '_versions/7.manifest')
    """
    segments = path.split("/")
    for at in range(len(segments) - 2, -1, -1):
        if segments[at] in FILE_FOLDERS:
            return "/".join(segments[:at]), "/".join(segments[at:])
    return None


class TableChange(StrEnum):
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
    """The version file of a table version: its path and its identity."""

    version: int
    manifest_path: str
    manifest_size: int
    e_tag: str | None

    def to_json(self) -> dict[str, object]:
        """The form in which the graph's manifest stores it with the pin."""
        return {
            "manifest_path": self.manifest_path,
            "manifest_size": self.manifest_size,
            "e_tag": self.e_tag,
            "naming_scheme": "V2",
        }


@dataclass(frozen=True, slots=True)
class CommittedTable:
    """A committed version, with the facts of its pin."""

    ref: TableRef
    version: int
    row_count: int
    info: VersionInfo


class RowCounts(TypedDict, total=False):
    """The numbers of rows that a staged write changes."""

    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True, slots=True)
class StagedTable:
    """A write whose files are on storage and that is not committed yet.

    ``base`` is the version it was staged on; it may only become version ``base + 1``.
    """

    ref: TableRef
    change: TableChange
    base: int
    transaction_id: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    files: tuple[NewFile, ...] = ()
    sums: Mapping[str, FileSum] = field(default_factory=dict, repr=False, compare=False)
    """Sums of files, from the processes that wrote them."""
    transaction: object = field(default=None, repr=False, compare=False)
    dataset: object = field(default=None, repr=False, compare=False)
    """The handle of the version it was staged on, if that is ``base`` and open."""
    upload: Upload | None = field(default=None, repr=False, compare=False)
    """The files, if they are still on their way to the store."""
    built: NextVersion | None = field(default=None, repr=False, compare=False)
    """The version that it becomes, if that was built locally."""


class IndexKind(StrEnum):
    """The kinds of index, by the queries they support."""

    EQUALITY = "BTREE"
    TEXT = "INVERTED"
    VECTOR = "IVF_FLAT"


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An index to build on one column. The fields after the kind are for vector indexes."""

    column: str
    kind: IndexKind
    metric: str = "cosine"
    partitions: int = 1
    """``None``: not chosen yet."""
    method: str = IndexKind.VECTOR.value
    sub_vectors: int | None = None
    """The number of subvectors of product quantization, each stored as one code."""
    probes: int | None = None
    """The number of partitions that a search probes first; all by default."""
    dimension: int = 0

    @property
    def name(self) -> str:
        """The name of the index; a column has at most one index of each kind."""
        return f"{self.column}_{self.kind.name.lower()}"

    @property
    def lance_type(self) -> str:
        return self.method if self.kind is IndexKind.VECTOR else self.kind.value

    @property
    def is_exact(self) -> bool:
        """Whether a search with the index returns the same rows as one without."""
        return self.method == IndexKind.VECTOR.value and self.probes is None


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a table an index covers."""

    covered: int
    fragments: int

    @property
    def complete(self) -> bool:
        return self.covered == self.fragments


def staged_table(
    table: Table,
    change: TableChange,
    transaction: Transaction,
    *,
    base: int | None = None,
    inserted: int = 0,
    updated: int = 0,
    deleted: int = 0,
    sums: Sums | None = None,
) -> StagedTable:
    """A staged write to a table, with the new files of its transaction.

    ``base`` is the version that it must follow, if not that of the table.
    """
    return StagedTable(
        table.ref,
        change,
        table.version if base is None else base,
        str(transaction.uuid),
        inserted,
        updated,
        deleted,
        tuple(new_files(transaction.operation)),
        sums or {},
        transaction,
        table.opened if base in (None, table.version) else None,
    )


def is_blob_folder(file: NewFile) -> bool:
    """Whether a pattern matches the blobs beside a data file."""
    return file.name.startswith("data/") and file.name.endswith("/*")


def new_files(operation: Any) -> Iterator[NewFile]:
    """The files that a write added to its own copy of a table."""
    for group in (operation, *(getattr(operation, "groups", None) or ())):
        for name in ("fragments", "new_fragments"):
            for fragment in getattr(group, name, None) or ():
                for data in fragment.files:
                    if data.base_id is None:
                        yield NewFile(f"data/{data.path}", data.file_size_bytes)
                        # Large blobs are in a directory beside the data file.
                        yield NewFile(f"data/{data.path.removesuffix('.lance')}/*")
    rewritten = set(getattr(operation, "fields_modified", None) or ())
    for fragment in getattr(operation, "updated_fragments", None) or ():
        marks = fragment.deletion_file
        if marks is not None and marks.base_id is None:
            yield NewFile(marks.path(fragment.id), deleted=marks.num_deleted_rows)
        # Replaced columns are in separate files.
        for data in fragment.files:
            if data.base_id is None and rewritten.intersection(data.fields):
                yield NewFile(f"data/{data.path}", data.file_size_bytes)
    for index in getattr(operation, "new_indices", None) or ():
        folder = f"_indices/{index.uuid}"
        if not index.files:
            yield NewFile(f"{folder}/*")
        for file in index.files or ():
            yield NewFile(f"{folder}/{file.path}", file.size_bytes)
