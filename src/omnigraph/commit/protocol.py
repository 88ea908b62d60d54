"""The commit protocol: every write becomes part of the graph through ``commit_write``.

A writer provides a function that stages its tables; the steps are always the same. Tables are
staged without leases where possible, because staging may take long. Then, under the lease of each
(table, branch): compare the pins, and stage again if they moved; **A** write the sidecar; **B**
commit the tables, each exactly to its next version; **C** publish; **D** delete the sidecar. A live
process undoes a failure after A immediately; a process that dies leaves its sidecar to
``recovery``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from omnigraph.commit.checked_writes import BuiltUpon, ensure_readable
from omnigraph.commit.drift import Interrupted, drift_error
from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.intents import report_intent
from omnigraph.commit.metadata import CommitMetadata, count_rows, receipt_of
from omnigraph.commit.names import branch_label, publish_lease, table_lease
from omnigraph.commit.publisher import (
    AlreadyDone,
    CommitIntent,
    Publication,
    Published,
    check_head,
    refuse_repeat,
    stale,
)
from omnigraph.commit.receipts import Receipt
from omnigraph.commit.recovery import Recovery
from omnigraph.commit.removal import announce_hard_drop
from omnigraph.commit.rollback import are_pinned, find_ending, is_same_content, undo_write
from omnigraph.commit.rows import ROLLED_BACK, VersionRow
from omnigraph.commit.schema.staging import SchemaStaging
from omnigraph.commit.sidecar import (
    RecordedSchema,
    Registration,
    Sidecar,
    SidecarMember,
    SidecarPin,
    Tombstone,
    sidecar_path,
)
from omnigraph.commit.snapshot import Snapshot, SnapshotLease
from omnigraph.commit.store import GraphStore
from omnigraph.commit.table_commits import NothingMoved, commit_tables, is_built
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import (
    Conflict,
    HistoryGone,
    OmniGraphError,
    OutcomePending,
    PublishContention,
    SchemaChanging,
    StorageCorrupt,
    StorageMissing,
    StorageUnavailable,
    StorageUnknown,
)
from omnigraph.logs import logger
from omnigraph.storage.leases.local import LeaseGuard
from omnigraph.storage.tables.types import CommittedTable

_LOG = logger(__name__)
_HEAL_ATTEMPTS = 3
_PAUSE_SECONDS = 0.05


def commit_write(store: GraphStore, request: WriteRequest) -> Receipt:
    """Commit a write. A write that changes nothing makes no commit."""
    try:
        return run_healed(store, request.branch, lambda: Write(store, request).run())
    except AlreadyDone as done:
        return receipt_of(done.commit)


def run_healed(store: GraphStore, branch: str | None, run: Callable[[], Receipt]) -> Receipt:
    """Recover dead writers, then run a write; again where one that died meanwhile prevents it."""
    recovery = Recovery(store)
    recovery.heal()
    deadline = time.monotonic() + store.timeouts.lease
    attempt = 0
    is_repaired = False
    while True:
        try:
            return run()
        except StorageCorrupt:
            if is_repaired or not ensure_readable(store, branch):
                raise
            is_repaired = True
        except Interrupted as interrupted:
            # A writer died after we looked for sidecars and before we got the leases.
            recovery.heal()
            if recovery.waits and time.monotonic() < deadline:
                time.sleep(_PAUSE_SECONDS)
                continue
            attempt += 1
            if attempt >= _HEAL_ATTEMPTS:
                error = interrupted.error
                if recovery.waits:
                    error = Conflict(
                        f"{error.message}, and a running writer prevents its recovery",
                        hint="repeat the write later",
                        details=error.details,
                    )
                raise error from None


class Write:
    """The state of one write between its steps."""

    def __init__(self, store: GraphStore, request: WriteRequest) -> None:
        self._store = store
        self._request = request
        self._manifest = store.manifest(request.branch)
        self._intent = CommitIntent(
            new_ulid(), request.branch, now_micros(), request.actor, request.merged_parent
        )
        self._earlier: Sequence[CommitIntent] = ()
        """The other commits of a group, which precede that of the intent."""
        self._started = time.monotonic()
        """When it was known which writes are interrupted."""

    def run(self) -> Receipt:
        request = self._request
        seen = self._manifest.current()
        if not self._has_schema(seen):
            # The answer may have been asked for before the schema was read.
            seen = self._manifest.current()
            self._check_schema(seen)
        self._lease = SnapshotLease(self._store.root.uri, seen)
        # Checked after the snapshot is taken, so that an earlier call is not overlooked.
        if request.idempotency_key is not None:
            self._refuse_repeat(request.idempotency_key)
        check_head(seen.head, request.if_commit)
        prepared = None
        pins = filter(None, map(seen.pin, request.touches))
        if not request.waits and all(pin.branch == request.branch for pin in pins):
            # The branch has its own copy of every touched table.
            prepared = self._prepare(seen, may_fork=False)
            if prepared.is_empty:
                return self._unchanged(prepared, seen)
        leases = [table_lease(key, request.branch) for key in request.touches]
        timeout = self._store.timeouts.lease
        if request.lease_timeout is not None:
            timeout = request.lease_timeout
        with self._store.leases.acquire(leases, timeout) as guard:
            reached(Failpoint.WRITE_AFTER_LEASES)
            if not self._store.root.is_local:
                self._look_ahead(
                    seen, request.touches if prepared is None else self._tables_to_look_at(prepared)
                )
            now = self._manifest.current()
            if request.idempotency_key is not None:
                self._refuse_repeat(request.idempotency_key)
            self._check_schema(now)
            # Cheap to detect here; at the publish the tables would have to be restored.
            check_head(now.head, request.if_commit)
            if prepared is None or self._is_stale(prepared, seen, now):
                self._refuse_drift(now, request.touches)
                prepared = self._prepare(now, may_fork=True)
                if prepared.is_empty:
                    return self._unchanged(prepared, now)
            else:
                self._refuse_drift(now, self._tables_to_look_at(prepared))
            return self._commit(prepared, now, guard)

    def _tables_to_look_at(self, prepared: PreparedWrite) -> list[str]:
        """The tables that may be ahead of their pins without this writer noticing.

        Not those whose next version is created by one conditional request, which would fail. A
        writer whose sidecar was not there when this one began cannot have died and lost its lease
        since, unless this one had to wait for a while.
        """
        if time.monotonic() - self._started > self._store.timeouts.lease_ttl / 3:
            return sorted(prepared.tables)
        return sorted(key for key, steps in prepared.tables.items() if not is_built(steps))

    def _look_ahead(self, seen: Snapshot, keys: Iterable[str]) -> None:
        """Ask at once for newer versions of the manifest and of some tables; on S3 only."""
        pins = filter(None, map(seen.pin, keys))
        own = [pin for pin in pins if pin.branch == self._request.branch]
        paths = [pin.ref.version_path(pin.version + 1) for pin in own]
        self._store.objects.look_ahead([*self._manifest.probed_paths(), *paths])

    def _refuse_repeat(self, key: str) -> None:
        branch, fingerprint = self._request.branch, self._request.fingerprint
        self._manifest.with_state(lambda state, _: refuse_repeat(state, branch, key, fingerprint))

    def _prepare(self, snapshot: Snapshot, *, may_fork: bool) -> PreparedWrite:
        try:
            return self._request.prepare(WriteView(self._store, snapshot, may_fork=may_fork))
        except (StorageMissing, HistoryGone) as error:
            # Usually the branch was deleted concurrently, with its tables.
            if self._manifest.current().e_tag == snapshot.e_tag:
                raise
            raise Conflict(
                f"branch '{branch_label(self._request.branch)}' was deleted and recreated",
                hint="refresh and retry",
            ) from error

    def _has_schema(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot has the schema of the write, as far as its row says."""
        expected, row = self._request.schema_hash, snapshot.schema
        return expected is None or row is None or row.schema_hash == expected

    def _check_schema(self, snapshot: Snapshot) -> None:
        """Refuse a write that was prepared under another schema."""
        if self._has_schema(snapshot):
            return
        expected = self._request.schema_hash
        # Another program changes the schema without this row: then the files decide.
        current = self._store.schema_files.load(allow_missing=True).schema_hash
        if current != expected:
            raise SchemaChanging(
                "the schema was changed while this write was prepared",
                hint="repeat it under the new schema",
                details={"known": expected, "current": current},
            )

    def _is_stale(self, prepared: PreparedWrite, seen: Snapshot, now: Snapshot) -> bool:
        if now.manifest_version == seen.manifest_version and now.e_tag == seen.e_tag:
            return False
        moved = [
            key
            for key in sorted({*prepared.tables, *prepared.consulted})
            if seen.e_tag != now.e_tag or seen.table_version(key) != now.table_version(key)
        ]
        if self._request.strict:
            # Tables that were only consulted may move: they are validated again.
            for key in moved:
                if key not in self._request.touches:
                    continue
                if seen.e_tag != now.e_tag or not is_same_content(
                    self._store, seen.pin(key), now.pin(key)
                ):
                    raise stale(key, seen.version(key), now.version(key))
        return bool(moved)

    def _refuse_drift(self, snapshot: Snapshot, keys: Sequence[str] | Any) -> None:
        """Refuse a table that is ahead of its pin: it belongs to an interrupted write."""
        for key in sorted(keys):
            pin = snapshot.pin(key)
            if pin is None or pin.branch != self._request.branch:
                continue
            head = self._store.datasets.newest(pin.ref, pin.version)
            if head > pin.version:
                raise drift_error(self._store, pin, head)

    # -- A to D --------------------------------------------------------------------------

    def _commit(self, prepared: PreparedWrite, snapshot: Snapshot, guard: LeaseGuard) -> Receipt:
        receipt = self._receipt(prepared)
        self._describe(prepared, receipt)
        for steps in prepared.tables.values():
            self._store.tables.check_staged(steps)
        sidecar = self._sidecar(prepared, snapshot)
        report_intent(self._intent.commit_id)
        if prepared.moves:
            self._store.sidecars.write(sidecar)
        reached(Failpoint.WRITE_AFTER_SIDECAR)
        try:
            # Where a lease costs a request, that of the publish is taken meanwhile.
            guard.extend_ahead([publish_lease(self._request.branch)], self._store.timeouts.publish)
            committed = commit_tables(self._store, prepared.tables, snapshot)
            reached(Failpoint.WRITE_AFTER_TABLES)
            if prepared.schema is not None:
                reached(Failpoint.SCHEMA_BEFORE_STAGING)
                staging = SchemaStaging(self._store.objects)
                staging.stage(prepared.schema.catalog, prepared.schema.source)
                reached(Failpoint.SCHEMA_AFTER_STAGING)
            try:
                guard.check()
            except Conflict as error:
                # Without its leases a writer may neither publish nor undo: recovery will.
                raise self._pending("its leases were lost before it was published") from error
            version = self._publish(prepared, snapshot, committed, guard).version
        except (OutcomePending, BuiltUpon):
            raise
        except NothingMoved as lost:
            raise self._explain_lost(lost, sidecar, snapshot) from lost
        except PublishContention as error:
            raise self._pending("concurrent writers prevented its publish") from error
        except OmniGraphError as error:
            version = self._recover_or_undo(sidecar, error, guard)
        reached(Failpoint.WRITE_AFTER_PUBLISH)
        if prepared.schema is not None:
            self._promote_schema()
        self._delete_sidecar(sidecar, guard)
        if self._request.pins_only:
            return replace(receipt, commit_id=None, version=version)
        if self._store.on_commit is not None:
            self._store.on_commit(self._request.branch, prepared.tables)
        return replace(receipt, version=version)

    def _explain_lost(self, lost: NothingMoved, sidecar: Sidecar, seen: Snapshot) -> Exception:
        """The error of a write that found the next version of a table taken, and moved none."""
        self._store.sidecars.delete(sidecar.operation_id)
        now, key = self._manifest.current(), lost.table_key
        pin = now.pin(key)
        if pin is not None and now.version(key) == seen.version(key):
            head = self._store.tables.head(pin.ref, pin.version)
            if head > pin.version:
                return drift_error(self._store, pin, head)
        return stale(key, seen.version(key), now.version(key))

    def _describe(self, prepared: PreparedWrite, receipt: Receipt) -> None:
        """Put the metadata into the planned commit."""
        metadata = commit_metadata(self._request, prepared.extra, receipt)
        self._intent = replace(self._intent, extra=metadata.to_json())

    def _promote_schema(self) -> None:
        """Make the schema files agree with the manifest; the sidecar stays until they do."""
        reached(Failpoint.STAGING_BEFORE_PROMOTE)
        try:
            SchemaStaging(self._store.objects).promote()
            self._store.manifests.note_change()
        except OmniGraphError as error:
            raise self._pending("its schema files are not in place") from error

    def _unchanged(self, prepared: PreparedWrite, snapshot: Snapshot) -> Receipt:
        receipt = self._receipt(prepared)
        return replace(receipt, commit_id=None, version=snapshot.manifest_version)

    def _receipt(self, prepared: PreparedWrite) -> Receipt:
        """The receipt, except for the version."""
        return Receipt(
            self._intent.commit_id,
            0,
            branch_label(self._request.branch),
            {key: count_rows(prepared.tables[key]) for key in sorted(prepared.tables)},
            self._request.actor,
            prepared.met,
        )

    def _pending(self, why: str) -> OutcomePending:
        if self._request.pins_only:
            return OutcomePending(
                f"a compaction is written, but {why}; the next writer completes or undoes it"
            )
        return pending(self._intent.commit_id, why)

    def _recover_or_undo(self, sidecar: Sidecar, error: OmniGraphError, guard: LeaseGuard) -> int:
        """If a recovery took this writer for dead and completed the write, it succeeded.

        Otherwise the write is undone and the error raised. If the undo fails, the outcome is
        pending.
        """
        try:
            ended = find_ending(self._store, sidecar)
            snapshot = self._manifest.current() if sidecar.pins_only else None
        except OmniGraphError:
            raise self._pending("it is unknown whether it was published") from error
        if snapshot is not None and are_pinned(sidecar, snapshot):
            return snapshot.manifest_version
        if ended is not None and ended.extra.get(ROLLED_BACK) != sidecar.operation_id:
            return ended.manifest_version
        if ended is None:
            try:
                guard.check()
            except OmniGraphError:
                raise self._pending("its leases were lost") from error
        if ended is None and not undo_write(self._store, sidecar, error, guard):
            raise self._pending("it could neither be published nor undone") from error
        if isinstance(error, StorageUnknown):
            # After the undo the outcome is known.
            raise StorageUnavailable(
                "the store does not answer; the write was undone", hint="repeat the write"
            ) from error
        raise error

    def _sidecar(self, prepared: PreparedWrite, snapshot: Snapshot) -> Sidecar:
        request = self._request
        commits = (*self._earlier, self._intent) if self._earlier else ()
        pins = []
        for key in sorted(prepared.tables):
            steps, expected = prepared.tables[key], snapshot.version(key)
            pins.append(
                SidecarPin(
                    key,
                    self._store.root.path(steps[0].ref.location),
                    expected,
                    expected + len(steps),
                    None,
                    request.branch,
                    tuple(step.transaction_id for step in steps),
                )
            )
        return Sidecar(
            self._intent.commit_id,
            str(self._intent.created_at),
            request.branch,
            request.actor,
            request.kind,
            tuple(pins),
            request.merged_parent,
            tuple(
                Registration(row.table_key, row.location, request.branch)
                for row in prepared.registrations
            ),
            tuple(Tombstone(row.table_key, row.version) for row in prepared.tombstones),
            leased=True,
            intent={} if self._earlier else self._intent.extra,
            members=tuple(SidecarMember(one.commit_id, one.actor, one.extra) for one in commits),
            consulted=prepared.consulted,
            if_commit=request.if_commit,
            branch_identity=self._manifest.cached_identity,
            schemas=tuple(
                RecordedSchema(row.manifest_version, row.schema_hash, row.source, row.identity)
                for row in (prepared.schema.rows if prepared.schema else ())
            ),
            hard_drops=tuple(prepared.hard_drops),
            pins_only=request.pins_only,
        )

    def _publish(
        self,
        prepared: PreparedWrite,
        snapshot: Snapshot,
        committed: Mapping[str, CommittedTable],
        guard: LeaseGuard,
    ) -> Published:
        written = {key: snapshot.version(key) for key in committed}
        renames = prepared.renames
        pins = [VersionRow.of(renames.get(key, key), table) for key, table in committed.items()]
        for key, new_key in renames.items():
            pin = snapshot.pin(key)
            if key not in committed and pin is not None:
                pins.append(
                    VersionRow(new_key, pin.version, pin.branch, pin.row_count, pin.metadata)
                )
        schemas = prepared.schema.rows if prepared.schema else ()
        publication = Publication(
            {**prepared.consulted, **written},
            [*pins, *prepared.created],
            prepared.registrations,
            prepared.tombstones,
            [*prepared.rows, *schemas],
            None if self._request.pins_only else self._intent,
            prepared.revalidate,
            self._request.if_commit,
            self._earlier,
        )
        return self._store.publisher.publish(self._manifest, publication, guard, is_fresh=True)

    def _delete_sidecar(self, sidecar: Sidecar, guard: LeaseGuard) -> None:
        """Delete the sidecar; if that fails, the next writer finds it completed."""
        try:
            for drop in sidecar.hard_drops:
                announce_hard_drop(self._store, drop)
            # Not synced: if it is there again after a power failure, its commit is, too.
            if not guard.discard(sidecar_path(sidecar.operation_id)):
                self._store.sidecars.delete(sidecar.operation_id, synced=False)
        except OmniGraphError as error:
            _LOG.warning("the sidecar of commit %s stays: %s", sidecar.operation_id, error)
        reached(Failpoint.WRITE_AFTER_SIDECAR_DELETE)


def commit_metadata(
    request: WriteRequest, extra: Mapping[str, Any], receipt: Receipt
) -> CommitMetadata:
    """The metadata of the commit of a write."""
    metadata = replace(
        CommitMetadata.from_json(extra), writer=request.kind.value, job=request.job_id
    )
    if request.idempotency_key is None:
        return metadata
    return replace(
        metadata,
        idempotency_key=request.idempotency_key,
        fingerprint=request.fingerprint,
        receipt=receipt.remembered(),
    )


def pending(commit_id: str, why: str) -> OutcomePending:
    """The error of a commit that is neither published nor undone, as far as its writer knows."""
    return OutcomePending(
        f"commit {commit_id} is written, but {why}; the next writer completes or undoes it",
        hint="look the commit up later; do not repeat the write",
        details={"commit_id": commit_id},
    )
