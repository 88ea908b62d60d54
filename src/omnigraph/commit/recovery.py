"""Recovery of dead writers: roll forward when everything landed, back otherwise.

A writer whose leases are free has finished or died, so a running writer is never touched, and a
long-lived process can roll back without a restart. All sidecars are classified before any of them
is rolled back, because a rollback would make another sidecar of the same table look completed.
Sidecars without leases come from the reference program; only a read-write open rolls them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any

from omnigraph.commit.audit import AuditRow, RecoveryKind, TableOutcome
from omnigraph.commit.checked_writes import ensure_readable
from omnigraph.commit.classify import (
    Classification,
    RecoveryDecision,
    classify,
    classify_exact,
    decide,
    mode_of,
)
from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.names import SCHEMA_LEASE, table_lease
from omnigraph.commit.publisher import AlreadyDone, CommitIntent
from omnigraph.commit.removal import announce_hard_drop
from omnigraph.commit.rollback import (
    RECOVERY_ACTOR,
    are_pinned,
    find_ending,
    landing_branch,
    landing_head,
    landing_ref,
    pin_restored,
    publish_pins,
    publish_recovery,
    publish_restored,
    restore_tables,
    was_undone,
)
from omnigraph.commit.rows import (
    COMPLETES,
    ROLLED_BACK,
    WRITER,
    CommitRow,
    SchemaRow,
    TableRow,
    TombstoneRow,
    VersionRow,
    WriterKind,
)
from omnigraph.commit.schema.files import FILES, SOURCE
from omnigraph.commit.schema.lock import release
from omnigraph.commit.schema.staging import SchemaStaging, reconcile_staging
from omnigraph.commit.sidecar import Sidecar, SidecarPin
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
from omnigraph.records import dataclass
from omnigraph.storage.leases.local import LeaseGuard
from omnigraph.storage.tables.made_versions import adopt_versions
from omnigraph.storage.tables.types import CommittedTable, TableRef


@dataclass(frozen=True, slots=True)
class Recovered:
    """The outcome of recovering one sidecar."""

    operation_id: str
    kind: RecoveryKind
    commit_id: str
    outcomes: tuple[TableOutcome, ...]


@dataclass(frozen=True, slots=True)
class _Verdict:
    """A sidecar and its classification, made before anything is changed."""

    sidecar: Sidecar
    decision: RecoveryDecision | None
    heads: Mapping[str, int]
    ended: CommitRow | None = None
    """The commit by which the sidecar was recovered or completed already."""


class Recovery:
    """Finds the sidecars of dead writers and rolls them forward or back."""

    def __init__(self, store: GraphStore) -> None:
        self._store = store
        self._guards: list[LeaseGuard] = []
        self.waits = False
        """Whether the last run skipped a sidecar because another writer holds a table of it."""

    def heal(self, *, full: bool = False) -> list[Recovered]:
        """Recover every sidecar whose writer is dead; returns the outcomes.

        ``full`` also rolls back sidecars of the reference program, as an open may.
        """
        self.waits = False
        if not self._store.sidecars.list():
            return []
        done: list[Recovered] = []
        with ExitStack() as leases:
            leases.callback(self._guards.clear)
            dead = self._take(leases)
            reached(Failpoint.RECOVERY_AFTER_LEASES)
            verdicts = [self._judge(sidecar) for sidecar in dead]
            # Forward first: a rollback of another sidecar must not hit what it publishes.
            verdicts.sort(key=lambda verdict: verdict.decision is not RecoveryDecision.ROLL_FORWARD)
            for verdict in verdicts:
                # Only a hanging publisher can prevent this.
                with suppress(PublishContention):
                    recovered = self._act(verdict, full=full)
                    if recovered is not None:
                        done.append(recovered)
        self._store.recoveries += len(done)
        return done

    def _take(self, leases: ExitStack) -> list[Sidecar]:
        """Acquire the leases of sidecars; returns those whose leases were all free."""
        taken: set[str] = set()
        dead: list[Sidecar] = []
        for operation_id in self._store.sidecars.list():
            sidecar = self._store.sidecars.read(operation_id)
            if sidecar is None:
                continue
            names = {table_lease(e.table_key, landing_branch(e)) for e in sidecar.tables}
            if sidecar.writer_kind is WriterKind.SCHEMA_APPLY:
                names.add(SCHEMA_LEASE)
            names -= taken
            try:
                guard = leases.enter_context(self._store.leases.acquire(names, timeout=0.0))
            except Conflict:
                self.waits = True
                continue
            taken |= names
            self._guards.append(guard)
            # The holder of the leases may have finished in the meantime.
            if self._store.sidecars.exists(operation_id):
                dead.append(sidecar)
        return dead

    # -- classification ------------------------------------------------------------------

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
        if ended is not None or are_pinned(sidecar, snapshot):
            return _Verdict(sidecar, RecoveryDecision.COMPLETED, {}, ended)
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
                landed = self._landed(entry, pin, head)
                classes.append(classify_exact(head, shown, entry, landed))
            else:
                classes.append(classify(head, shown, entry, mode_of(sidecar)))
        published = False if sidecar.leased else None
        decision = decide(classes, pins, published=published)
        if sidecar.undoing and decision is RecoveryDecision.ROLL_FORWARD:
            # Everything landed, but its writer was undoing it.
            decision = RecoveryDecision.ROLL_BACK
        return _Verdict(sidecar, decision, heads)

    def _landed(self, entry: SidecarPin, pin: Pin, head: int) -> int:
        """How many of the planned transactions landed, in order."""
        ref = landing_ref(entry, pin)
        for count, transaction in enumerate(entry.transactions):
            version = entry.expected_version + count + 1
            actual = None
            # A version that was there a moment ago is looked at twice: a store that fails once
            # must not undo the write.
            for _ in range(2 if version <= head else 1):
                with suppress(StorageMissing):
                    actual = self._store.tables.transaction_id(ref, version)
                    break
            if actual != transaction:
                return count
        return len(entry.transactions)

    # -- roll forward and back -----------------------------------------------------------

    def _act(self, verdict: _Verdict, *, full: bool) -> Recovered | None:
        sidecar = verdict.sidecar
        may_roll_back = full or sidecar.leased
        acts = verdict.decision in (RecoveryDecision.COMPLETED, RecoveryDecision.ROLL_FORWARD)
        if acts or (verdict.decision is RecoveryDecision.ROLL_BACK and may_roll_back):
            self._adopt(sidecar, verdict.ended)
        match verdict.decision:
            case None:
                return self._discard(sidecar)
            case RecoveryDecision.COMPLETED:
                return self._completed(sidecar, verdict.ended)
            case RecoveryDecision.ROLL_FORWARD:
                if sidecar.writer_kind is WriterKind.SCHEMA_APPLY and not self._is_staged():
                    return self._roll_back(sidecar) if may_roll_back else None
                return self._roll_forward(sidecar, verdict.heads)
            case RecoveryDecision.ROLL_BACK:
                return self._roll_back(sidecar) if may_roll_back else None
            case RecoveryDecision.ABORT:
                if full:
                    raise RecoveryRequired(
                        f"the tables of the interrupted write {sidecar.operation_id} are older "
                        "than the versions that the graph pins",
                        hint="restore the missing table versions from a backup",
                        details={"operation_id": sidecar.operation_id},
                    )
                return None

    def _roll_forward(self, sidecar: Sidecar, heads: Mapping[str, int]) -> Recovered | None:
        snapshot = self._store.manifest(sidecar.branch).current()
        rows = [
            self._row(entry.table_key, landing_ref(entry, pin), heads[entry.table_key])
            for entry in sidecar.tables
            if (pin := snapshot.pin(entry.table_key)) is not None
            # A renamed table is registered under its new name.
            and entry.table_key not in {gone.table_key for gone in sidecar.tombstones}
        ]
        expected = {entry.table_key: entry.expected_version for entry in sidecar.tables}
        outcomes = tuple(
            TableOutcome(row.table_key, expected[row.table_key], row.version) for row in rows
        )
        registrations, tombstones, more = self._schema_rows(sidecar, snapshot)
        reached(Failpoint.RECOVERY_BEFORE_PUBLISH)
        if sidecar.pins_only:
            try:
                publish_pins(self._store, sidecar.branch, expected, rows)
            except VersionMismatch:
                return self._lost_race(sidecar, heads)
            return self._completed(sidecar, None, outcomes=outcomes)
        try:
            published = publish_recovery(
                self._store,
                sidecar.branch,
                {**sidecar.consulted, **expected},
                [*rows, *more],
                _completion(sidecar),
                earlier=_member_intents(sidecar),
                merged_parent=sidecar.merge_source_commit_id,
                registrations=registrations,
                tombstones=tombstones,
                others=[
                    SchemaRow(r.version, r.hash, r.source, r.identity) for r in sidecar.schemas
                ],
                if_commit=sidecar.if_commit,
            )
        except (AlreadyDone, PreconditionFailed):
            return self._roll_back(sidecar)
        except VersionMismatch as error:
            if error.details["table_key"] not in expected:
                # A consulted table has changed, and only the writer could revalidate.
                return self._roll_back(sidecar)
            return self._lost_race(sidecar, heads)
        assert published.commit is not None
        return self._finish(
            sidecar, RecoveryKind.ROLLED_FORWARD, published.commit.commit_id, outcomes
        )

    def _row(self, table_key: str, ref: TableRef, version: int) -> VersionRow:
        """The row that pins a version of a table."""
        self._store.tables.check_landed(ref, version)
        # Its writer may have died before it was synced.
        self._store.datasets.sync_table(ref)
        info = self._store.datasets.info(ref, version)
        if info is None:
            raise StorageMissing(f"version {version} of '{table_key}' does not exist")
        count = self._store.tables.open(ref, version, info.e_tag).count()
        return VersionRow.of(table_key, CommittedTable(ref, version, count, info))

    def _schema_rows(
        self, sidecar: Sidecar, snapshot: Snapshot
    ) -> tuple[list[TableRow], list[TombstoneRow], list[VersionRow]]:
        """The registrations and tombstones of a sidecar that are not published yet."""
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
        """Another process published first: the same result, or versions to leave alone."""
        snapshot = self._store.manifest(sidecar.branch).current()
        pins = {entry.table_key: snapshot.pin(entry.table_key) for entry in sidecar.tables}
        is_published = (
            all(pin is not None and pin.version >= heads[key] for key, pin in pins.items())
            and all(snapshot.pin(e.table_key) for e in sidecar.additional_registrations)
            and not any(snapshot.pin(e.table_key) for e in sidecar.tombstones)
        )
        if not is_published or not self._store.sidecars.exists(sidecar.operation_id):
            return None
        return self._completed(sidecar, None)

    def _completed(
        self,
        sidecar: Sidecar,
        ended: CommitRow | None,
        kind: RecoveryKind = RecoveryKind.ROLLED_FORWARD,
        outcomes: tuple[TableOutcome, ...] = (),
    ) -> Recovered:
        """Record the outcome of a sidecar that needs no other action."""
        if ended is not None and ended.extra.get(ROLLED_BACK) == sidecar.operation_id:
            kind = RecoveryKind.ROLLED_BACK
        self._store.publisher.make_durable(self._store.manifest(sidecar.branch))
        commit = ended or self._latest_recovery(sidecar.branch)
        return self._finish(sidecar, kind, commit.commit_id if commit else "", outcomes)

    def _adopt(self, sidecar: Sidecar, ended: CommitRow | None) -> None:
        """Record checksums that the writer may not have recorded before it died."""
        datasets = self._store.datasets
        manifest = self._store.manifest(sidecar.branch)
        snapshot = manifest.current()
        for entry in sidecar.tables:
            pin = snapshot.pin(entry.table_key)
            if pin is not None:
                # The first version of a fork is the one it was created from.
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
        candidates = recoveries or commits
        return candidates[-1] if candidates else None

    def _roll_back(self, sidecar: Sidecar) -> Recovered:
        snapshot = self._store.manifest(sidecar.branch).current()
        if was_undone(self._store, sidecar, snapshot):
            return self._completed(sidecar, None, RecoveryKind.ROLLED_BACK)
        restored = restore_tables(
            self._store,
            sidecar,
            snapshot,
            unmoved_too=not self._store.root.is_local,
            before_restore=self._before_restore,
        )
        reached(Failpoint.RECOVERY_AFTER_RESTORE)
        outcomes = tuple(table.outcome for table in restored)
        if sidecar.ends_silently:
            pin_restored(self._store, sidecar.branch, restored)
            return self._completed(sidecar, None, RecoveryKind.ROLLED_BACK, outcomes)
        published = publish_restored(self._store, sidecar, restored)
        assert published.commit is not None
        return self._finish(sidecar, RecoveryKind.ROLLED_BACK, published.commit.commit_id, outcomes)

    def _before_restore(self) -> None:
        """Check the leases: Lance lets a late restore win, so it must not be late."""
        reached(Failpoint.RECOVERY_BEFORE_RESTORE)
        for guard in self._guards:
            guard.check()

    def _discard(self, sidecar: Sidecar) -> Recovered:
        """The branch was deleted, together with what was written on it."""
        main = self._store.manifest(None)
        ending = main.with_state(lambda state, _: state.endings.get(sidecar.operation_id))
        if ending is None and sidecar.ends_silently:
            ending = self._latest_recovery(None)
        if ending is not None:
            commit_id = ending.commit_id
        else:
            published = publish_recovery(
                self._store, None, {}, [], {ROLLED_BACK: sidecar.operation_id}
            )
            assert published.commit is not None
            commit_id = published.commit.commit_id
        return self._finish(sidecar, RecoveryKind.ORPHANED_BRANCH_DISCARDED, commit_id, ())

    # -- schema applies ------------------------------------------------------------------

    def _is_staged(self) -> bool:
        """Whether a schema apply staged all of its files."""
        present = SchemaStaging(self._store.objects).present()
        return len(present) == len(FILES) or bool(present and SOURCE not in present)

    def _end_apply(self, kind: RecoveryKind) -> None:
        """Promote or discard the schema files, then unlock the schema.

        Only after the tables are published: the other way round, a crash between the two would
        leave a schema without knowing whether its tables match.
        """
        store = self._store
        reached(Failpoint.STAGING_BEFORE_PROMOTE)
        if kind is RecoveryKind.ROLLED_FORWARD:
            tables = store.manifest(None).current().pins
            reconcile_staging(store.objects, apply_pending=True, live_tables=tables)
            store.manifests.note_change()
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
        """Record the recovery, then delete the sidecar; in this order, so that none is lost."""
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
            for drop in sidecar.hard_drops:
                announce_hard_drop(self._store, drop)
        self._store.sidecars.delete(sidecar.operation_id)
        reached(Failpoint.RECOVERY_AFTER_DELETE)
        return Recovered(sidecar.operation_id, kind, commit_id, outcomes)


def _completion(sidecar: Sidecar) -> dict[str, Any]:
    """The metadata of the commit by which a recovery completes a write, or all of a group."""
    if not sidecar.members:
        return {**sidecar.intent, COMPLETES: sidecar.operation_id}
    completes = [member.commit_id for member in sidecar.members]
    return {WRITER: sidecar.writer_kind.value, COMPLETES: completes}


def _member_intents(sidecar: Sidecar) -> list[CommitIntent]:
    """The commits of a group as their writers would have made them, but for the time."""
    now = now_micros()
    return [
        CommitIntent(
            member.commit_id, sidecar.branch, now + index, member.actor_id, None, member.intent
        )
        for index, member in enumerate(sidecar.members)
    ]
