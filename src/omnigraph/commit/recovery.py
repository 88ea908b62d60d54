"""Finishing what a dead writer began: forward when all of it landed, back otherwise.

Whoever can take the leases of a sidecar knows its writer to be finished or dead, so a writer that
lives is never touched, and a long-lived process need not wait for a restart to roll back. All
sidecars are judged before the first is acted on, because rolling one back would make another over
the same table look completed. Sidecars without our leases come from the reference program; they
are rolled back on a read-write open only.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from omnigraph.commit.audit import AuditRow, RecoveryKind, TableOutcome
from omnigraph.commit.classify import (
    Classification,
    Decision,
    classify,
    classify_exact,
    decide,
    mode_of,
)
from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.manifest_repair import ensure_readable
from omnigraph.commit.names import SCHEMA_LEASE, table_lease
from omnigraph.commit.publisher import AlreadyDone
from omnigraph.commit.removal import announce_hard_drops
from omnigraph.commit.rollback import (
    RECOVERY_ACTOR,
    find_ending,
    landing_branch,
    landing_head,
    landing_ref,
    publish_pins,
    publish_recovery,
    publish_restored,
    restore_tables,
    was_undone,
)
from omnigraph.commit.rows import (
    COMPLETES,
    ROLLED_BACK,
    CommitRow,
    SchemaRow,
    TableRow,
    TombstoneRow,
    VersionRow,
)
from omnigraph.commit.schema.files import FILES, SOURCE
from omnigraph.commit.schema.lock import release
from omnigraph.commit.schema.staging import SchemaStaging, reconcile_staging
from omnigraph.commit.sidecar import Sidecar, SidecarPin, WriterKind
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import now_micros
from omnigraph.errors import (
    BranchNotFound,
    Conflict,
    PreconditionFailed,
    PublishContention,
    RecoveryRequired,
    StorageMissing,
    VersionMismatch,
)
from omnigraph.storage.leases.local import LeaseGuard
from omnigraph.storage.tables.ledger import adopt_versions
from omnigraph.storage.tables.types import CommittedTable, TableRef


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was done about one sidecar."""

    operation_id: str
    kind: RecoveryKind
    commit_id: str
    outcomes: tuple[TableOutcome, ...]


@dataclass(frozen=True, slots=True)
class _Verdict:
    """A sidecar with what was found before anything was touched."""

    sidecar: Sidecar
    decision: Decision | None
    heads: Mapping[str, int]
    ended: CommitRow | None = None
    """The commit that shows that the sidecar is settled already."""


class Recovery:
    """Finds and settles the sidecars of dead writers."""

    def __init__(self, store: GraphStore) -> None:
        self._store = store
        self._held: list[LeaseGuard] = []
        self.waits = False
        """Whether the last look left a sidecar alone because somebody holds a table of it."""

    def heal(self, *, full: bool = False) -> list[Recovered]:
        """Settle every sidecar whose writer is dead; gives what was done, mostly nothing.

        ``full`` also rolls back sidecars of the reference program, as an open may.
        """
        self.waits = False
        if not self._store.sidecars.list():
            return []
        done: list[Recovered] = []
        with ExitStack() as leases:
            leases.callback(self._held.clear)
            dead = self._take(leases)
            reached(Failpoint.RECOVERY_AFTER_LEASES)
            verdicts = [self._judge(sidecar) for sidecar in dead]
            # Forward first: a roll-back of another sidecar must not hit what it publishes.
            verdicts.sort(key=lambda verdict: verdict.decision is not Decision.ROLL_FORWARD)
            for verdict in verdicts:
                # Who publishes and does not come to an end keeps us from it, nothing else.
                with suppress(PublishContention):
                    settled = self._settle(verdict, full=full)
                    if settled is not None:
                        done.append(settled)
        return done

    def _take(self, leases: ExitStack) -> list[Sidecar]:
        """The sidecars whose leases are all free; they are held from here on."""
        taken: set[str] = set()
        dead: list[Sidecar] = []
        for operation_id in self._store.sidecars.list():
            sidecar = self._store.sidecars.read(operation_id)
            if sidecar is None:
                continue
            names = set(_lease_names(sidecar)) - taken
            try:
                held = leases.enter_context(self._store.leases.acquire(names, timeout=0.0))
            except Conflict:
                self.waits = True
                continue
            taken |= names
            self._held.append(held)
            # Who had the leases may have finished in the meantime.
            if self._store.sidecars.exists(operation_id):
                dead.append(sidecar)
        return dead

    # -- judging -------------------------------------------------------------------------

    def _judge(self, sidecar: Sidecar) -> _Verdict:
        manifest = self._store.manifest(sidecar.branch)
        try:
            ensure_readable(self._store, sidecar.branch)
            snapshot = manifest.current()
            if sidecar.branch_identity not in (None, manifest.identity()):
                return _Verdict(sidecar, None, {})
        except BranchNotFound:
            return _Verdict(sidecar, None, {})
        ended = find_ending(self._store, sidecar)
        if ended is not None:
            return _Verdict(sidecar, Decision.COMPLETED, {}, ended)
        heads: dict[str, int] = {}
        classes: list[Classification] = []
        pins: list[tuple[int, int]] = []
        for entry in sidecar.tables:
            pin = snapshot.pin(entry.table_key)
            shown = pin.version if pin else 0
            pins.append((shown, entry.expected_version))
            if pin is None:
                classes.append(Classification.NO_MOVEMENT)
                continue
            heads[entry.table_key] = head = landing_head(self._store, entry, pin)
            if entry.transactions:
                landed = self._landed(entry, pin)
                classes.append(classify_exact(head, shown, entry, landed))
            else:
                classes.append(classify(head, shown, entry, mode_of(sidecar)))
        published = False if sidecar.leased else None
        decision = decide(classes, pins, published=published)
        if sidecar.undoing and decision is Decision.ROLL_FORWARD:
            # All of it landed, but its writer gave up.
            decision = Decision.ROLL_BACK
        return _Verdict(sidecar, decision, heads)

    def _landed(self, entry: SidecarPin, pin: Pin) -> int:
        """How many of the planned transactions are there, in order."""
        ref = landing_ref(entry, pin)
        for count, transaction in enumerate(entry.transactions):
            try:
                found = self._store.tables.transaction_id(ref, entry.expected_version + count + 1)
            except StorageMissing:
                return count
            if found != transaction:
                return count
        return len(entry.transactions)

    # -- acting --------------------------------------------------------------------------

    def _settle(self, verdict: _Verdict, *, full: bool) -> Recovered | None:
        sidecar = verdict.sidecar
        may_roll_back = full or sidecar.leased
        acts = verdict.decision in (Decision.COMPLETED, Decision.ROLL_FORWARD)
        if acts or (verdict.decision is Decision.ROLL_BACK and may_roll_back):
            self._adopt(sidecar, verdict.ended)
        match verdict.decision:
            case None:
                return self._discard(sidecar)
            case Decision.COMPLETED:
                return self._completed(sidecar, verdict.ended)
            case Decision.ROLL_FORWARD:
                if sidecar.writer_kind is WriterKind.SCHEMA_APPLY and not self._is_staged():
                    return self._roll_back(sidecar) if may_roll_back else None
                return self._roll_forward(sidecar, verdict.heads)
            case Decision.ROLL_BACK:
                return self._roll_back(sidecar) if may_roll_back else None
            case Decision.ABORT:
                if full:
                    raise RecoveryRequired(
                        f"the tables of the interrupted write {sidecar.operation_id} are older "
                        "than the graph says",
                        hint="restore the missing table versions from a backup",
                        details={"operation_id": sidecar.operation_id},
                    )
                return None

    def _roll_forward(self, sidecar: Sidecar, heads: Mapping[str, int]) -> Recovered | None:
        snapshot = self._store.manifest(sidecar.branch).current()
        rows = [
            self._pinned(entry, pin, heads[entry.table_key])
            for entry in sidecar.tables
            if (pin := snapshot.pin(entry.table_key)) is not None
            # A table that goes on under another name is registered under it.
            and entry.table_key not in {gone.table_key for gone in sidecar.tombstones}
        ]
        expected = {entry.table_key: entry.expected_version for entry in sidecar.tables}
        outcomes = tuple(
            TableOutcome(row.table_key, expected[row.table_key], row.version) for row in rows
        )
        registrations, tombstones, more = self._schema_rows(sidecar, snapshot)
        reached(Failpoint.RECOVERY_BEFORE_PUBLISH)
        try:
            published = publish_recovery(
                self._store,
                sidecar.branch,
                {**sidecar.consulted, **expected},
                [*rows, *more],
                {**sidecar.intent, COMPLETES: sidecar.operation_id},
                merged_parent=sidecar.merge_source_commit_id,
                registrations=registrations,
                tombstones=tombstones,
                others=[SchemaRow.from_json(row) for row in sidecar.schemas],
                if_commit=sidecar.if_commit,
            )
        except (AlreadyDone, PreconditionFailed):
            return self._roll_back(sidecar)
        except VersionMismatch as error:
            if error.details["table_key"] not in expected:
                # What the writer judged by has changed, and only the writer could judge again.
                return self._roll_back(sidecar)
            return self._lost_race(sidecar, heads)
        assert published.commit is not None
        return self._finish(
            sidecar, RecoveryKind.ROLLED_FORWARD, published.commit.commit_id, outcomes
        )

    def _pinned(self, entry: SidecarPin, pin: Pin, head: int) -> VersionRow:
        """The row that pins the head of a table."""
        return self._row(entry.table_key, landing_ref(entry, pin), head)

    def _row(self, table_key: str, ref: TableRef, version: int) -> VersionRow:
        self._store.tables.check_landed(ref, version)
        # Its writer may have died before it was on the disk.
        self._store.datasets.sync_table(ref)
        info = self._store.tables.info(ref, version)
        if info is None:
            raise StorageMissing(f"version {version} of '{table_key}' does not exist")
        count = self._store.tables.open(ref, version, info.e_tag).count()
        return VersionRow.of(table_key, CommittedTable(ref, version, count, info))

    def _schema_rows(
        self, sidecar: Sidecar, snapshot: Snapshot
    ) -> tuple[list[TableRow], list[TombstoneRow], list[VersionRow]]:
        """The registrations and tombstones of a sidecar that are not there yet."""
        registrations: list[TableRow] = []
        versions: list[VersionRow] = []
        for entry in sidecar.additional_registrations:
            if snapshot.pin(entry.table_key) is None:
                ref = TableRef(entry.table_path, entry.table_branch)
                registrations.append(TableRow(entry.table_key, entry.table_path))
                head = self._store.tables.head(ref)
                adopt_versions(self._store.datasets, ref, 1, head)
                versions.append(self._row(entry.table_key, ref, head))
        tombstones = [
            TombstoneRow(entry.table_key, entry.tombstone_version)
            for entry in sidecar.tombstones
            if snapshot.pin(entry.table_key) is not None
        ]
        return registrations, tombstones, versions

    def _lost_race(self, sidecar: Sidecar, heads: Mapping[str, int]) -> Recovered | None:
        """Somebody published first: the same result, or something else that we leave alone."""
        snapshot = self._store.manifest(sidecar.branch).current()
        pins = {entry.table_key: snapshot.pin(entry.table_key) for entry in sidecar.tables}
        reached_goal = (
            all(pin is not None and pin.version >= heads[key] for key, pin in pins.items())
            and all(snapshot.pin(e.table_key) for e in sidecar.additional_registrations)
            and not any(snapshot.pin(e.table_key) for e in sidecar.tombstones)
        )
        if not reached_goal or not self._store.sidecars.exists(sidecar.operation_id):
            return None
        return self._completed(sidecar, None)

    def _completed(
        self,
        sidecar: Sidecar,
        ended: CommitRow | None,
        kind: RecoveryKind = RecoveryKind.ROLLED_FORWARD,
        outcomes: tuple[TableOutcome, ...] = (),
    ) -> Recovered:
        """Nothing is left to do but to record how it ended."""
        if ended is not None and ended.extra.get(ROLLED_BACK) == sidecar.operation_id:
            kind = RecoveryKind.ROLLED_BACK
        self._store.publisher.make_durable(self._store.manifest(sidecar.branch))
        commit = ended or self._latest_recovery(sidecar.branch)
        return self._finish(sidecar, kind, commit.commit_id if commit else "", outcomes)

    def _adopt(self, sidecar: Sidecar, ended: CommitRow | None) -> None:
        """Its writer may have died before it recorded what its files are."""
        datasets = self._store.datasets
        manifest = self._store.manifest(sidecar.branch)
        snapshot = manifest.current()
        for entry in sidecar.tables:
            pin = snapshot.pin(entry.table_key)
            if pin is not None:
                # The first version of a fork is the one that it was made from.
                first = entry.expected_version + (landing_branch(entry) is None)
                head = landing_head(self._store, entry, pin)
                adopt_versions(datasets, landing_ref(entry, pin), first, head)
        if ended is not None:
            version = ended.manifest_version
            adopt_versions(datasets, manifest.ref, version, version)
        datasets.checksums.record()

    def _latest_recovery(self, branch: str | None) -> CommitRow | None:
        commits = self._store.manifest(branch).commits()
        recoveries = [commit for commit in commits if commit.actor == RECOVERY_ACTOR]
        known = recoveries or commits
        return known[-1] if known else None

    def _roll_back(self, sidecar: Sidecar) -> Recovered:
        snapshot = self._store.manifest(sidecar.branch).current()
        if was_undone(self._store, sidecar, snapshot):
            return self._completed(sidecar, None, RecoveryKind.ROLLED_BACK)
        restored = restore_tables(
            self._store,
            sidecar,
            snapshot,
            unmoved_too=not self._store.root.is_local,
            before_each=self._before_restore,
        )
        reached(Failpoint.RECOVERY_AFTER_RESTORE)
        outcomes = tuple(each.outcome for each in restored)
        if sidecar.undoing:
            publish_pins(self._store, sidecar.branch, restored)
            return self._completed(sidecar, None, RecoveryKind.ROLLED_BACK, outcomes)
        published = publish_restored(self._store, sidecar, restored)
        assert published.commit is not None
        return self._finish(sidecar, RecoveryKind.ROLLED_BACK, published.commit.commit_id, outcomes)

    def _before_restore(self) -> None:
        """Lance lets a late restore win, so one must not be late: the leases have to be ours."""
        reached(Failpoint.RECOVERY_BEFORE_RESTORE)
        for held in self._held:
            held.check()

    def _discard(self, sidecar: Sidecar) -> Recovered:
        """The branch is gone, and what was written on it with it."""
        main = self._store.manifest(None)
        known = main.with_state(lambda state, _: state.endings.get(sidecar.operation_id))
        if known is None and sidecar.undoing:
            known = self._latest_recovery(None)
        if known is not None:
            commit_id = known.commit_id
        else:
            published = publish_recovery(
                self._store, None, {}, [], {ROLLED_BACK: sidecar.operation_id}
            )
            assert published.commit is not None
            commit_id = published.commit.commit_id
        return self._finish(sidecar, RecoveryKind.ORPHANED_BRANCH_DISCARDED, commit_id, ())

    # -- schema applies ------------------------------------------------------------------

    def _is_staged(self) -> bool:
        """Whether a schema apply came so far that all of its files are there."""
        present = SchemaStaging(self._store.objects).present()
        return len(present) == len(FILES) or bool(present and SOURCE not in present)

    def _end_apply(self, kind: RecoveryKind) -> None:
        """Let the schema files follow the tables, then let writers in again.

        Only when the tables are published: the other way round, a crash between the two would
        leave a schema whose tables nobody knows to be the right ones.
        """
        store = self._store
        reached(Failpoint.STAGING_BEFORE_PROMOTE)
        if kind is RecoveryKind.ROLLED_FORWARD:
            tables = store.manifest(None).current().pins
            reconcile_staging(store.objects, apply_pending=True, live_tables=tables)
        else:
            SchemaStaging(store.objects).discard()
        release(store)

    # -- the end -------------------------------------------------------------------------

    def _finish(
        self,
        sidecar: Sidecar,
        kind: RecoveryKind,
        commit_id: str,
        outcomes: tuple[TableOutcome, ...],
    ) -> Recovered:
        """Record the recovery, then let the sidecar go; in this order, so that none is lost."""
        reached(Failpoint.RECOVERY_AFTER_PUBLISH)
        if sidecar.writer_kind is WriterKind.SCHEMA_APPLY:
            self._end_apply(kind)
        self._store.audit.record_once(
            AuditRow(
                commit_id,
                kind,
                sidecar.actor_id,
                sidecar.operation_id,
                sidecar.writer_kind.value,
                outcomes,
                now_micros(),
            )
        )
        reached(Failpoint.RECOVERY_AFTER_AUDIT)
        if kind is RecoveryKind.ROLLED_FORWARD:
            announce_hard_drops(self._store, sidecar)
        self._store.sidecars.delete(sidecar.operation_id)
        reached(Failpoint.RECOVERY_AFTER_DELETE)
        return Recovered(sidecar.operation_id, kind, commit_id, outcomes)


def _lease_names(sidecar: Sidecar) -> list[str]:
    names = [table_lease(entry.table_key, landing_branch(entry)) for entry in sidecar.tables]
    if sidecar.writer_kind is WriterKind.SCHEMA_APPLY:
        names.append(SCHEMA_LEASE)
    return names
