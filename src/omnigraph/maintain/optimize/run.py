"""Optimize: fewer parts, no deleted rows in them, and indexes that know every row.

All tables become visible in one commit of the graph, through the steps of every other writer; what
the graph means is the same before and after. The work is done without keeping anybody out: when a
table moved meanwhile, it is looked at again, and what did not change is not done twice. Only the
last of several tries works while it holds the tables.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import branch_label
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.recovery import Recovery
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.staging import marked
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import OmniGraphError, RecoveryRequired, VersionMismatch
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.logs import logger
from omnigraph.maintain.optimize.indexes import UNFIT, IndexState, types_of, wanted_indexes
from omnigraph.maintain.optimize.policy import DEFAULT_POLICY, MaintenancePolicy
from omnigraph.maintain.optimize.upkeep import Survey, Upkeep, Upkeeping, Workforce, survey
from omnigraph.maintain.report import Report
from omnigraph.storage.checksums import MOST_RECORDS, fold_checksums
from omnigraph.storage.tables.types import IndexKind, IndexSpec

_LOG = logger(__name__)

RETRIES = 5
"""How often tables that moved are looked at again."""
DRIFTED = "drift_needs_repair"
NOT_OWNED = "owned_by_another_branch"
_PAUSE_SECONDS = 0.05


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
    """The indexes that were built, or learnt rows that they did not know."""
    reasons: tuple[str, ...] = ()
    """Why it was worth it, by the policy."""

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        pending = ({"column": s.column, "reason": s.reason} for s in self.pending_indexes)
        indexed = ({"column": column, "kind": str(kind)} for column, kind in self.indexed)
        return {
            **Report.to_json(self),
            "pending_indexes": list(pending),
            "indexed": list(indexed),
        }


@dataclass(frozen=True, slots=True)
class OptimizeReport(Report):
    """All tables by their keys, then the manifest. ``commit_id`` is None if nothing was done."""

    json_keys: ClassVar[tuple[str, ...]] = ("branch", "commit_id", "tables")

    branch: str
    tables: tuple[TableStats, ...]
    commit_id: str | None = None

    def table(self, table_key: str) -> TableStats:
        return next(table for table in self.tables if table.table_key == table_key)


class Moved(Exception):
    """A table is not any more what was worked on."""


class Optimizing:
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
        self._specs = {kind.table_key: wanted_indexes(kind) for kind in types_of(catalog)}
        self._branch = branch
        self._actor = actor
        self._if_needed = if_needed
        self._stats: dict[str, TableStats] = {}
        self._reasons: dict[str, tuple[str, ...]] = {}
        refuse_unsettled(store)

    # -- looking -------------------------------------------------------------------------

    def look(
        self, snapshot: Snapshot | None = None, only: Sequence[str] | None = None
    ) -> list[Survey]:
        """The tables that need something; about the others it is noted why not."""
        snapshot = snapshot or self._store.manifest(self._branch).current()
        found = []
        for key in snapshot.pins if only is None else only:
            pin = snapshot.pin(key)
            if pin is None or key not in self._specs:
                continue
            self._stats[key] = TableStats(key)
            skipped = self._skipped(key, pin)
            if skipped is not None:
                self._stats[key] = skipped
                continue
            each = survey(self._store, key, pin, self._specs[key], self._policy)
            self._stats[key] = TableStats(key, pending_indexes=each.pending)
            if each.plan.is_empty:
                continue
            reasons = each.reasons(self._policy)
            if reasons or not self._if_needed:
                self._reasons[key] = reasons
                found.append(each)
        return found

    def _skipped(self, key: str, pin: Pin) -> TableStats | None:
        if pin.branch != self._branch:
            return TableStats(key, skipped=NOT_OWNED)
        head = self._store.tables.head(pin.ref, pin.version)
        if head <= pin.version or self._is_being_written(key, head):
            return None
        return TableStats(
            key, skipped=DRIFTED, manifest_version=pin.version, lance_head_version=head
        )

    def _is_being_written(self, key: str, head: int) -> bool:
        """Whether a writer is just between its table and its publish, or behind it by now."""
        if any(
            entry.table_key == key and entry.table_branch == self._branch
            for sidecar in self._store.sidecars.load_all()
            for entry in sidecar.tables
        ):
            return True
        now = self._store.manifest(self._branch).current().pin(key)
        return now is not None and now.version >= head

    # -- doing ---------------------------------------------------------------------------

    def run(self, surveys: Sequence[Survey], force: Workforce) -> OptimizeReport:
        """Do what was found, or what is found instead when tables moved."""
        manifest = self._store.manifest(self._branch)
        self._store.publisher.forget_cleanup(manifest)
        work = Upkeeping(self._store, force)
        commit_id = None
        for attempt in range(RETRIES + 1):
            if attempt:
                surveys = self.look()
            if not surveys:
                break
            try:
                commit_id = self._commit(work, surveys, is_last=attempt == RETRIES)
                break
            except Moved:
                continue
            except VersionMismatch:
                if attempt == RETRIES:
                    raise
                work.forget()
        stats = [self._stats[key] for key in sorted(self._stats)]
        stats.append(self._manifest(is_committed=commit_id is not None))
        # Housekeeping: records that stay are put together next time.
        with suppress(OmniGraphError):
            fold_checksums(self._store.objects, MOST_RECORDS)
        return OptimizeReport(branch_label(self._branch), tuple(stats), commit_id)

    def _commit(self, work: Upkeeping, surveys: Sequence[Survey], *, is_last: bool) -> str | None:
        base = self._store.manifest(self._branch).current()
        with marked(self._store, self._branch, base):
            done = _Done(self, work, surveys, may_redo=is_last)
            request = WriteRequest(
                WriterKind.OPTIMIZE,
                self._branch,
                done.keys,
                done.prepare,
                actor=self._actor,
                schema_hash=self._schema_hash,
            )
            receipt = commit_write(self._store, request)
        for key, each in done.upkeep.items():
            done_for = _stats(each, is_committed=receipt.commit_id is not None)
            self._stats[key] = replace(done_for, reasons=self._reasons.get(key, ()))
        return receipt.commit_id

    def _manifest(self, *, is_committed: bool) -> TableStats:
        """The manifest has no commit: what it says is the same.

        After a commit a failure is only logged: the tables are done.
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


class _Done:
    """The work of one try, handed to the protocol as often as that asks for it."""

    def __init__(
        self, optimizing: Optimizing, work: Upkeeping, surveys: Sequence[Survey], may_redo: bool
    ) -> None:
        self._optimizing = optimizing
        self._work = work
        self._may_redo = may_redo
        self.keys = frozenset(each.table_key for each in surveys)
        self._seen = {each.table_key: each.pin for each in surveys}
        self.upkeep = work.do(surveys)

    def prepare(self, view: WriteView) -> PreparedWrite:
        moved = [key for key in sorted(self.keys) if view.snapshot.pin(key) != self._seen[key]]
        if moved:
            if not self._may_redo:
                raise Moved
            surveys = self._optimizing.look(view.snapshot, moved)
            for key in moved:
                self.upkeep.pop(key, None)
            self.upkeep |= self._work.do(surveys)
            pins = {key: view.snapshot.pin(key) for key in moved}
            self._seen |= {key: pin for key, pin in pins.items() if pin is not None}
        return PreparedWrite({key: each.steps for key, each in sorted(self.upkeep.items())})


def _stats(each: Upkeep, *, is_committed: bool) -> TableStats:
    key = each.survey.table_key
    failed = tuple(IndexState(key, s.column, s.kind, None, UNFIT) for s in each.failed)
    return TableStats(
        key,
        each.fragments_removed,
        each.fragments_added,
        is_committed,
        pending_indexes=(*each.survey.pending, *failed),
        indexed=tuple(_named(found.spec) for found in each.built),
    )


def _named(spec: IndexSpec) -> tuple[str, IndexKind]:
    return spec.column, spec.kind


def refuse_unsettled(store: GraphStore) -> None:
    """Settle what dead writers left; refuse when something of it stays.

    A writer that lives is waited for, as long as for any lease. Who came later is not: leases
    keep it apart from us, and where many write there is always one.
    """
    recovery = Recovery(store)
    deadline = time.monotonic() + store.timeouts.lease
    found = set(store.sidecars.list())
    while True:
        recovery.heal()
        left = [each for each in store.sidecars.list() if each in found]
        if not left:
            return
        if not recovery.waits or time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE_SECONDS)
    what = "is being finished by its writer" if recovery.waits else "could not be settled"
    raise RecoveryRequired(
        f"the write {left[0]} {what}",
        hint="repeat later" if recovery.waits else "reopen the graph read-write",
        details={"operations": left},
    )
