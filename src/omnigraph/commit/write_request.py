"""The description of a write: the tables it touches, how it is staged, and the staged result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from omnigraph.commit.branches import fork_table
from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.job_ids import current_job
from omnigraph.commit.receipts import TableCounts
from omnigraph.commit.rows import Row, SchemaRow, TableRow, TombstoneRow, VersionRow, WriterKind
from omnigraph.commit.sidecar import HardDrop
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import InternalError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.records import dataclass
from omnigraph.storage.tables.fragments import (
    StagedFragment,
    TableLocator,
    locate_table,
    require_fragment_files,
)
from omnigraph.storage.tables.store import TableStore
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import StagedTable


@dataclass(frozen=True, slots=True)
class PreparedWrite:
    """The staged tables of a write, by table key, and what its validation read.

    ``consulted`` has the versions of the tables that the validation depends on. ``revalidate``
    validates again on a newer snapshot and returns the versions it read.
    """

    tables: Mapping[str, Sequence[StagedTable]]
    consulted: Mapping[str, int] = field(default_factory=dict)
    revalidate: Callable[[Snapshot], Mapping[str, int]] | None = None
    registrations: Sequence[TableRow] = ()
    tombstones: Sequence[TombstoneRow] = ()
    rows: Sequence[Row] = ()
    met: Mapping[str, int] | None = None
    """The number of rows that the statements of a mutation matched, for the receipt."""
    always: bool = False
    """Whether to commit even when nothing changes."""
    created: Sequence[VersionRow] = ()
    """The pins of newly registered tables, which are not visible yet."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """The new keys of renamed tables, by their old keys."""
    schema: NextSchema | None = None
    """The new schema of the graph, if the write changes it."""
    hard_drops: Sequence[HardDrop] = ()
    """Data to remove from storage after the publish."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further metadata of the commit, see ``metadata``."""

    @property
    def is_empty(self) -> bool:
        return not (self.moves or self.rows or self.always)

    @property
    def moves(self) -> bool:
        """Whether anything happens before the publish that a crash could interrupt."""
        return bool(self.tables or self.registrations or self.tombstones or self.schema)


@dataclass(frozen=True, slots=True)
class NextSchema:
    """A new schema: its rows in the manifest, and the content of its files."""

    source: str
    catalog: Catalog
    rows: Sequence[SchemaRow]


class WriteView:
    """One snapshot, with its tables opened for writing, on which a writer stages."""

    def __init__(self, store: GraphStore, snapshot: Snapshot, *, may_fork: bool) -> None:
        self.snapshot = snapshot
        self.stage: TableStore = store.tables
        self._store = store
        self._may_fork = may_fork

    def table(self, table_key: str) -> Table:
        """A table at the version of the snapshot, to read and to stage on.

        On a branch that does not own the table yet, this forks it.
        """
        pin = self.snapshot.pin(table_key)
        if pin is None:
            raise InternalError(f"'{table_key}' is not in the snapshot")
        branch = self.snapshot.branch
        if branch is None or pin.branch == branch:
            return self._store.table(pin)
        if not self._may_fork:
            raise InternalError(f"'{table_key}' cannot be forked without its lease")
        ref = fork_table(self._store, pin, branch)
        reached(Failpoint.WRITE_AFTER_FORK)
        return self._store.tables.open(ref, pin.version)

    def read(self, table_key: str) -> Table | None:
        """A table at the version of the snapshot, for reading only."""
        pin = self.snapshot.pin(table_key)
        return None if pin is None else self._store.table(pin)

    def require_fragment_files(self, table: Table, fragments: Iterable[StagedFragment]) -> None:
        """Check that the files of fragments written by other processes still exist."""
        require_fragment_files(self._store.datasets, table.ref, fragments)

    def locate_table(self, table: Table) -> TableLocator:
        """The address of a table, for processes that open it themselves."""
        return locate_table(self._store.datasets, table)


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """One write: the tables it may touch, and how it is staged.

    A strict writer (update, delete, overwrite) depends on what it read, so it is refused if the
    rows of a table changed; any other is staged again. ``prepare`` may be called more than once.
    """

    kind: WriterKind
    branch: str | None
    touches: frozenset[str]
    prepare: Callable[[WriteView], PreparedWrite]
    strict: bool = False
    actor: str | None = None
    merged_parent: str | None = None
    if_commit: str | None = None
    """The write is only valid on top of this commit."""
    idempotency_key: str | None = None
    """Applied once per branch: a repeated call gets the receipt of the first one."""
    fingerprint: str | None = None
    """Distinguishes this write from another under the same key."""
    schema_hash: str | None = None
    """The schema that the writer expects; the write is refused under any other."""
    waits: bool = False
    """Whether to stage only under the leases."""
    member: GroupMember | None = None
    """The write as a member of a group; none for one that is always committed by itself."""
    pins_only: bool = False
    """Whether to publish the versions of its tables without a commit: their rows stay the same."""
    lease_timeout: float | None = None
    """How many seconds to wait for the leases, if not as long as other writers."""
    job_id: str | None = field(default_factory=current_job)
    """The job that the write is a part of."""


# -- groups -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemberPart:
    """What one member of a group brings: the ids it writes and its counts, by table key."""

    ids: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, TableCounts]
    met: Mapping[str, int] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


class GroupMember(Protocol):
    """A write that may share the commits of its tables with others."""

    def get_ready(self) -> None:
        """Do what needs no snapshot, before another thread takes the write into its group."""

    def begin_group(self, view: WriteView) -> GroupBuilder:
        """A group without members on a snapshot."""


class GroupBuilder(Protocol):
    """Collects members and stages their tables once.

    Members of all kinds of writers come from one module, so a builder knows them all.
    """

    def expect(self, members: Sequence[Any]) -> None:
        """Read what is needed to validate some members, all at once."""

    def add(self, member: Any) -> bool:
        """Add a member, valid on the snapshot and the members before it; raises if it is not.

        ``False`` if it overlaps with one of them: it has to wait until they are published.
        """

    def stage(self) -> tuple[PreparedWrite, Sequence[MemberPart]]:
        """The staged tables of all members, and the part of each, in order."""
