"""Optimize: fewer fragments, no deleted rows in them, and indexes that cover every row.

All tables are published in one commit, through the steps of every other writer; the content of the
graph does not change. Readers and writers are not blocked: a table that was written meanwhile is
surveyed again, and results that still apply are reused. Only the last of several attempts works
while it holds the leases of the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import branch_label
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.staging import staging_marker
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import OmniGraphError, VersionMismatch
from omnigraph.lang.schema.catalog import Catalog, entity_types
from omnigraph.logs import logger
from omnigraph.maintain.optimize.indexes import UNFIT, IndexState, declared_indexes
from omnigraph.maintain.optimize.plan import DEFAULT_POLICY, MaintenancePolicy
from omnigraph.maintain.optimize.stage import TableSurvey, WorkStager, survey_table
from omnigraph.maintain.report import Report, find_table
from omnigraph.maintain.running_writes import drifted_head, recover_writes
from omnigraph.records import dataclass
from omnigraph.representation import brief
from omnigraph.storage.checksums import MOST_RECORDS, fold_checksums
from omnigraph.storage.executor import Executor
from omnigraph.storage.tables.types import IndexKind

_LOG = logger(__name__)

RETRIES = 5
"""How often an optimize is repeated for tables that were written meanwhile."""
DRIFTED = "drift_needs_repair"
NOT_OWNED = "owned_by_another_branch"


@dataclass(frozen=True, slots=True)
class TableStats(Report):
    """What was done for one table. A drifted table reports its two versions."""

    table_key: str
    fragments_removed: int = 0
    fragments_added: int = 0
    committed: bool = False
    skipped: str | None = None
    manifest_version: int | None = None
    lance_head_version: int | None = None
    pending_indexes: tuple[IndexState, ...] = ()
    indexed: tuple[tuple[str, IndexKind], ...] = ()
    """The indexes that were built or extended."""
    reasons: tuple[str, ...] = ()
    """Why the policy called for it."""

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        pending = ({"column": s.column, "reason": s.reason} for s in self.pending_indexes)
        indexed = ({"column": column, "kind": str(kind)} for column, kind in self.indexed)
        return {**Report.to_json(self), "pending_indexes": list(pending), "indexed": list(indexed)}


@dataclass(frozen=True, slots=True)
class OptimizeReport(Report):
    """All tables by their keys, then the manifest. ``commit_id`` is None if nothing was done."""

    __repr__ = brief

    json_keys: ClassVar[tuple[str, ...]] = ("branch", "commit_id", "tables")

    branch: str
    tables: tuple[TableStats, ...]
    commit_id: str | None = None

    def table(self, table_key: str) -> TableStats:
        """The part of one table, such as ``node:Person``."""
        return find_table(self.tables, table_key)


class TableMoved(Exception):
    """A table was written after it was surveyed."""


class OptimizeJob:
    """One optimize of a branch."""

    def __init__(
        self,
        store: GraphStore,
        catalog: Catalog,
        branch: str | None,
        *,
        actor: str | None = None,
        if_needed: bool = False,
        policy: MaintenancePolicy = DEFAULT_POLICY,
    ) -> None:
        self._store = store
        self._policy = policy
        self._schema_hash = catalog.schema_hash
        self._specs = {
            entity_type.table_key: declared_indexes(entity_type)
            for entity_type in entity_types(catalog)
        }
        self._branch = branch
        self._actor = actor
        self._if_needed = if_needed
        self._stats: dict[str, TableStats] = {}
        self._reasons: dict[str, tuple[str, ...]] = {}
        recover_writes(store)

    # -- surveys -------------------------------------------------------------------------

    def survey(
        self, snapshot: Snapshot | None = None, only: Sequence[str] | None = None
    ) -> list[TableSurvey]:
        """The tables with work to do; the reasons for the others are recorded."""
        snapshot = snapshot or self._store.manifest(self._branch).current()
        surveys = []
        for key in snapshot.pins if only is None else only:
            pin = snapshot.pin(key)
            if pin is None or key not in self._specs:
                continue
            if pin.branch != self._branch:
                self._stats[key] = TableStats(key, skipped=NOT_OWNED)
                continue
            head = drifted_head(self._store, pin)
            if head is not None:
                self._stats[key] = TableStats(
                    key, skipped=DRIFTED, manifest_version=pin.version, lance_head_version=head
                )
                continue
            survey = survey_table(self._store, key, pin, self._specs[key], self._policy)
            self._stats[key] = TableStats(key, pending_indexes=survey.pending)
            if survey.plan.is_empty:
                continue
            reasons = survey.reasons(self._policy)
            if reasons or not self._if_needed:
                self._reasons[key] = reasons
                surveys.append(survey)
        return surveys

    # -- work ----------------------------------------------------------------------------

    def run(
        self, surveys: Sequence[TableSurvey], executor: Executor, index_rows: int | None = None
    ) -> OptimizeReport:
        """Do the surveyed work, or that of a new survey if tables were written meanwhile."""
        manifest = self._store.manifest(self._branch)
        self._store.publisher.forget_cleanup(manifest)
        stager = WorkStager(self._store, executor, index_rows)
        commit_id = None
        for attempt in range(RETRIES + 1):
            if attempt:
                surveys = self.survey()
            if not surveys:
                break
            try:
                commit_id = self._commit(stager, surveys, is_last=attempt == RETRIES)
                break
            except TableMoved:
                continue
            except VersionMismatch:
                if attempt == RETRIES:
                    raise
                # Its results may refer to a version that was committed and undone.
                stager = WorkStager(self._store, executor, index_rows)
        stats = [self._stats[key] for key in sorted(self._stats)]
        stats.append(self._manifest(is_committed=commit_id is not None))
        # Housekeeping: what fails now is merged next time.
        with suppress(OmniGraphError):
            fold_checksums(self._store.objects, MOST_RECORDS)
        return OptimizeReport(branch_label(self._branch), tuple(stats), commit_id)

    def _commit(
        self, stager: WorkStager, surveys: Sequence[TableSurvey], *, is_last: bool
    ) -> str | None:
        base = self._store.manifest(self._branch).current()
        pins: dict[str, Pin | None] = {survey.table_key: survey.pin for survey in surveys}
        with staging_marker(self._store, self._branch, base):
            works = stager.stage(surveys)

            def prepare(view: WriteView) -> PreparedWrite:
                moved = [key for key in sorted(pins) if view.snapshot.pin(key) != pins[key]]
                if moved and not is_last:
                    raise TableMoved
                for key in moved:
                    works.pop(key, None)
                    pins[key] = view.snapshot.pin(key)
                if moved:
                    works.update(stager.stage(self.survey(view.snapshot, moved)))
                return PreparedWrite({key: work.steps for key, work in sorted(works.items())})

            request = WriteRequest(
                WriterKind.OPTIMIZE,
                self._branch,
                frozenset(pins),
                prepare,
                actor=self._actor,
                schema_hash=self._schema_hash,
            )
            receipt = commit_write(self._store, request)
        for key, work in works.items():
            failed = (IndexState(key, s.column, s.kind, None, UNFIT) for s in work.failed)
            self._stats[key] = TableStats(
                key,
                work.fragments_removed,
                work.fragments_added,
                receipt.commit_id is not None,
                pending_indexes=(*work.survey.pending, *failed),
                indexed=tuple((index.spec.column, index.spec.kind) for index in work.built),
                reasons=self._reasons.get(key, ()),
            )
        return receipt.commit_id

    def _manifest(self, *, is_committed: bool) -> TableStats:
        """Compact the manifest, without a commit: its content does not change.

        After a commit a failure is only logged: the tables are published.
        """
        try:
            before, after = self._store.publisher.compact(self._store.manifest(self._branch))
        except OmniGraphError as error:
            if not is_committed:
                raise
            _LOG.warning("the manifest was not compacted: %s", error)
            return TableStats(MANIFEST)
        if before == after:
            return TableStats(MANIFEST)
        return TableStats(MANIFEST, before, after, committed=True)
