"""A write as its writer describes it: what it touches, how it is staged, what was staged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.forks import fork_table
from omnigraph.commit.rows import Row, SchemaRow, TableRow, TombstoneRow, VersionRow
from omnigraph.commit.sidecar import HardDrop, WriterKind
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.errors import InternalError
from omnigraph.lang.schema import Catalog
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
    """What a writer staged, by table key, and what it looked at to judge that it may.

    ``consulted`` are the tables whose content the judgement rests on, by the version seen.
    ``revalidate`` judges again on a newer snapshot and gives the versions seen then.
    """

    tables: Mapping[str, Sequence[StagedTable]]
    consulted: Mapping[str, int] = field(default_factory=dict)
    revalidate: Callable[[Snapshot], Mapping[str, int]] | None = None
    registrations: Sequence[TableRow] = ()
    tombstones: Sequence[TombstoneRow] = ()
    rows: Sequence[Row] = ()
    met: Mapping[str, int] | None = None
    """How many rows the statements of a mutation met, for the receipt."""
    always: bool = False
    """Whether there is a commit even when it changes nothing."""
    created: Sequence[VersionRow] = ()
    """The pins of tables that are registered and were made on the way, where no one sees them."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """Tables that go on under another key, by the one they have."""
    schema: NextSchema | None = None
    """The schema that the graph has from this write on."""
    hard_drops: Sequence[HardDrop] = ()
    """What is removed from storage once it is published."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What the commit says beside what every commit says, see ``metadata``."""

    @property
    def is_empty(self) -> bool:
        return not (self.moves or self.rows or self.always)

    @property
    def moves(self) -> bool:
        """Whether something happens before the publish that a crash could leave half done."""
        return bool(self.tables or self.registrations or self.tombstones or self.schema)


@dataclass(frozen=True, slots=True)
class NextSchema:
    """A schema on its way: what stands in the manifest about it, and its files."""

    source: str
    catalog: Catalog
    rows: Sequence[SchemaRow]


class WriteView:
    """What a writer stages on: one snapshot, and its tables opened for writing."""

    def __init__(self, store: GraphStore, snapshot: Snapshot, *, may_fork: bool) -> None:
        self.snapshot = snapshot
        self.stage: TableStore = store.tables
        self._store = store
        self._may_fork = may_fork

    def table(self, table_key: str) -> Table:
        """A table as the snapshot shows it, to read and to stage on.

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
        """A table as the snapshot shows it, only to read."""
        pin = self.snapshot.pin(table_key)
        return None if pin is None else self._store.table(pin)

    def require_fragment_files(self, table: Table, parts: Iterable[StagedFragment]) -> None:
        """Make sure that rows which others wrote for a table are still there."""
        require_fragment_files(self._store.datasets, table.ref, parts)

    def locate_table(self, table: Table) -> TableLocator:
        """A table for processes that open it themselves."""
        return locate_table(self._store.datasets, table)


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """One write: what it touches at most, and how it is staged.

    A strict writer (update, delete, overwrite) decides on what it read, so it is refused when a
    table moved; any other is staged again. ``prepare`` may be called more than once.
    """

    kind: WriterKind
    branch: str | None
    touches: frozenset[str]
    prepare: Callable[[WriteView], PreparedWrite]
    strict: bool = False
    actor: str | None = None
    merged_parent: str | None = None
    if_commit: str | None = None
    """Only on top of this commit."""
    idempotency_key: str | None = None
    """Only once on this branch: a repeat is told what the first call was told."""
    fingerprint: str | None = None
    """What tells this write from another under the same key."""
    schema_hash: str | None = None
    """The schema that the writer knows; under another it is refused."""
    waits: bool = False
    """Whether nothing is staged before the leases are held."""
