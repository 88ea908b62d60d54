"""Publishing: one upsert into the manifest makes everything a write did visible at once.

All writers of a branch change its ``graph_head`` row, so their commits form one chain; a writer
that is late detects it by that row and retries on the new state. Writers of this program queue for
a lease first, so that they lose only to other programs, not to each other.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import field, replace
from typing import Any

from omnigraph.commit.checked_writes import NotTakenBack, upsert_checked, write_checked
from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.manifest import KEY, Manifest, check_stamp
from omnigraph.commit.metadata import key_reused
from omnigraph.commit.names import publish_lease
from omnigraph.commit.rows import (
    FINGERPRINT,
    IDEMPOTENCY_KEY,
    CommitRow,
    HeadRow,
    Row,
    SchemaRow,
    TableRow,
    TombstoneRow,
    VersionRow,
    head_id,
)
from omnigraph.commit.snapshot import ManifestState, Snapshot
from omnigraph.errors import (
    Conflict,
    InternalError,
    OmniGraphError,
    OutcomePending,
    PreconditionFailed,
    PublishContention,
    StorageError,
    StorageUnavailable,
    StorageUnknown,
    VersionMismatch,
)
from omnigraph.records import dataclass
from omnigraph.storage.leases.local import LeaseGuard, Leases
from omnigraph.storage.tables.ledger import Ledger
from omnigraph.storage.tables.ledger_reader import RowAddress
from omnigraph.storage.tables.store import ROWS_PER_FRAGMENT

RETRIES = 5
_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.25
# A fragment costs every publish about 0.1 ms; a rewrite has a one-time cost that grows with the
# rows.
_MAX_FRAGMENTS = 16
_MANIFEST_ROWS_PER_FRAGMENT = 5_000
_LOOKUP_ATTEMPTS = 5
_UNKNOWN = RowAddress(-1, -1)


@dataclass(frozen=True, slots=True)
class CommitIntent:
    """A commit of the graph before its position in the history is known."""

    commit_id: str
    branch: str | None
    created_at: int
    actor: str | None = None
    merged_parent: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Publication:
    """Rows that become visible together, and the versions they rely on.

    ``expected`` has the version seen of every table that was written or consulted; 0 means that the
    table did not exist. If a consulted table moved, ``revalidate`` validates again on the new
    snapshot: it returns the versions that it consulted, or raises.
    """

    expected: Mapping[str, int]
    versions: Sequence[VersionRow] = ()
    registrations: Sequence[TableRow] = ()
    tombstones: Sequence[TombstoneRow] = ()
    others: Sequence[Row] = ()
    commit: CommitIntent | None = None
    revalidate: Callable[[Snapshot], Mapping[str, int]] | None = None
    if_commit: str | None = None
    """The commit that must still be the newest of the branch."""
    earlier: Sequence[CommitIntent] = ()
    """The commits of a group before ``commit``, in order; each is the parent of the next."""


@dataclass(frozen=True, slots=True)
class Published:
    """The manifest version that a publish made, and its commit if it has one."""

    version: int
    commit: CommitRow | None


class Publisher:
    """Publishes on the branches of one graph."""

    def __init__(self, leases: Leases, limit: float) -> None:
        self._leases = leases
        self._limit = limit

    def publish(
        self,
        manifest: Manifest,
        publication: Publication,
        guard: LeaseGuard | None = None,
        *,
        is_fresh: bool = False,
    ) -> Published:
        """Make a publication visible, or raise and change nothing.

        ``guard`` holds the leases of the caller. ``is_fresh``: the caller looked for newer versions
        of the manifest under them.

        Raises ``VersionMismatch`` if an expected version does not match, ``PublishContention`` if
        concurrent writers won until the timeout, and ``OutcomePending`` if the outcome is unknown.
        """
        deadline = time.monotonic() + self._limit
        with ExitStack() as lease:
            names = [publish_lease(manifest.branch)]
            try:
                is_leased = guard is not None and guard.extend(names, self._limit)
                if not is_leased:
                    lease.enter_context(self._leases.acquire(names, self._limit))
            except Conflict as error:
                raise _contention(0) from error
            asks = not (is_leased and is_fresh)
            lease.callback(manifest.reveal)
            done = _Attempts(manifest, publication, deadline, asks=asks).run()
        manifest.datasets.checksums.record()
        return done

    def forget_cleanup(self, manifest: Manifest) -> None:
        """Remove the settings that make Lance delete versions during a publish."""
        self._rewrite_until(
            manifest, lambda writer: not writer.stored_cleanup, Ledger.forget_cleanup
        )

    def compact(self, manifest: Manifest) -> tuple[int, int]:
        """Rewrite the manifest in few fragments; returns their number before and after."""
        before = len(manifest.fragments)

        def is_compact(writer: Ledger) -> bool:
            rows = manifest.with_state(lambda state, _: state.rows)
            return len(writer.fragments) <= max(1, -(-rows // ROWS_PER_FRAGMENT))

        def rewrite(writer: Ledger) -> int:
            reached(Failpoint.PUBLISH_COMPACT)
            return writer.rewrite()

        writer = self._rewrite_until(manifest, is_compact, rewrite)
        return before, len(writer.fragments)

    def _rewrite_until(
        self, manifest: Manifest, is_done: Callable[[Ledger], bool], work: Callable[[Ledger], int]
    ) -> Ledger:
        """Rewrite the newest version unless ``is_done``; concurrent publishers go first."""
        attempt = 0
        while True:
            version = manifest.current().manifest_version
            writer = Ledger.open(manifest.datasets, manifest.ref, version)
            if is_done(writer):
                return writer
            try:
                with self._leases.acquire([publish_lease(manifest.branch)], self._limit):
                    write_checked(manifest, writer, work)
                    writer.sync()
                    manifest.published((), writer.version, writer.fragments)
                writer.note()
                manifest.datasets.checksums.record()
                return writer
            except Conflict as error:
                attempt += 1
                if attempt > RETRIES:
                    raise _contention(attempt) from error
                _pause(attempt)

    def make_durable(self, manifest: Manifest) -> None:
        """Sync the newest version: its publisher may have died before doing so."""
        version = manifest.current().manifest_version
        Ledger.open(manifest.datasets, manifest.ref, version).sync()


class _Attempts:
    """One publish, with its retries."""

    def __init__(
        self, manifest: Manifest, publication: Publication, deadline: float, *, asks: bool
    ) -> None:
        self._manifest = manifest
        self._publication = publication
        self._deadline = deadline
        self._asks = asks
        # The caller holds the publish lease, so no other thread uses the last writer.
        self._writer, manifest.writer = manifest.writer, None

    def run(self) -> Published:
        attempt = 0
        while True:
            try:
                reached(Failpoint.PUBLISH_BEFORE)
                return self._once()
            except (VersionMismatch, PublishContention, PreconditionFailed):
                raise
            except (Conflict, StorageUnavailable) as error:
                attempt += 1
                if attempt > RETRIES:
                    is_local = self._manifest.datasets.root.is_local
                    if is_local and isinstance(error, StorageUnavailable):
                        # Nothing was written, so the write can be undone.
                        raise
                    if time.monotonic() >= self._deadline:
                        raise _contention(attempt) from error
                self._writer = None
                _pause(attempt)

    def _once(self) -> Published:
        manifest = self._manifest
        # A publish on top of an older version is refused, and the next attempt asks.
        state = manifest.with_state if self._asks else manifest.with_cached_state
        self._asks = True
        try:
            rows, version, commit, replaced = state(self._rows)
        except VersionMismatch as error:
            self._revalidate(error)
            rows, version, commit, replaced = manifest.with_state(self._rows)
        if not rows:
            return Published(version, None)
        writer = self._writer
        try:
            if writer is None or writer.version != version:
                self._writer = writer = Ledger.open(manifest.datasets, manifest.ref, version)
                check_stamp(writer)
            if replaced is _UNKNOWN:
                replaced = writer.find_row(KEY, head_id(manifest.branch))
            manifest.hide(version + 1)
            landed, head_address = upsert_checked(manifest, writer, rows, replaced)
        except NotTakenBack as error:
            raise self._undecided("is visible, but damaged") from error
        except StorageUnknown as error:
            return self._look_up(error)
        reached(Failpoint.PUBLISH_AFTER)
        self._make_durable(writer)
        manifest.published(rows, landed, writer.fragments, head_address)
        writer.note()
        # A failure after this point must not look like a failed publish.
        with suppress(OmniGraphError):
            self._compact(writer)
            manifest.writer = writer
            if self._publication.commit is not None and landed != version + 1:
                # A publish without a commit came between; the row still says version + 1, and
                # lookups of the commit step forward from there.
                manifest.current()
        return Published(landed, commit)

    def _make_durable(self, writer: Ledger) -> None:
        """Sync the rows, which are visible already, before the write is acknowledged."""
        try:
            writer.sync()
        except StorageError as error:
            raise self._undecided("is visible, but could not be synced to disk") from error

    def _revalidate(self, error: VersionMismatch) -> None:
        """A consulted table may move if the write is still valid on the new version."""
        publication = self._publication
        written = {row.table_key for row in publication.versions}
        if error.details["table_key"] in written or publication.revalidate is None:
            raise error
        consulted = publication.revalidate(self._manifest.current())
        kept = {key: seen for key, seen in publication.expected.items() if key in written}
        self._publication = replace(publication, expected={**consulted, **kept})

    def _look_up(self, error: StorageUnknown) -> Published:
        """The store did not answer: look the rows up, never write them again."""
        publication = self._publication
        if publication.commit is None and not publication.versions:
            raise error
        for attempt in range(1, _LOOKUP_ATTEMPTS + 1):
            _pause(attempt)
            try:
                published = self._landed()
            except StorageError:
                continue
            if published is not None:
                assert self._writer is not None
                self._writer.advance(self._manifest.current().manifest_version)
                self._make_durable(self._writer)
                return published
        raise self._undecided("may be published; the store did not answer") from error

    def _landed(self) -> Published | None:
        """The publication in the manifest, looked up by its commit or else by a pinned version."""
        publication = self._publication
        if publication.commit is not None:
            commit = self._manifest.commit(publication.commit.commit_id)
            return None if commit is None else Published(commit.manifest_version, commit)
        if not self._manifest.has_row(publication.versions[0].object_id):
            return None
        return Published(self._manifest.current().manifest_version, None)

    def _undecided(self, state: str) -> OmniGraphError:
        """The error of a publish whose outcome is unknown."""
        intent = self._publication.commit
        if intent is None:
            return StorageUnknown(f"what was written to '{self._manifest.ref.path}' {state}")
        return OutcomePending(
            f"commit {intent.commit_id} {state}",
            hint="look the commit up later; do not repeat the write",
            details={"commit_id": intent.commit_id},
        )

    def _compact(self, writer: Ledger) -> None:
        """Keep the manifest in few fragments. Housekeeping: a failure loses nothing."""
        rows = self._manifest.with_cached_state(lambda state, _: state.rows)
        if len(self._manifest.fragments) < max(_MAX_FRAGMENTS, rows // _MANIFEST_ROWS_PER_FRAGMENT):
            return
        reached(Failpoint.PUBLISH_COMPACT)
        self._manifest.hide(writer.version + 1)
        write_checked(self._manifest, writer, Ledger.rewrite)
        writer.sync()
        self._manifest.published((), writer.version, writer.fragments)
        writer.note()

    # -- rows ----------------------------------------------------------------------------

    def _rows(
        self, state: ManifestState, version: int
    ) -> tuple[list[Row], int, CommitRow | None, RowAddress | None]:
        """The rows, the version they follow, the commit, and the address of the replaced head.

        The address is ``None`` if more than the head may be replaced.
        """
        publication = self._publication
        check_head(state.head, publication.if_commit)
        intents = [] if publication.commit is None else [*publication.earlier, publication.commit]
        for intent in intents:
            key = intent.extra.get(IDEMPOTENCY_KEY)
            if isinstance(key, str):
                refuse_repeat(state, intent.branch, key, intent.extra.get(FINGERPRINT))
        for table_key, expected in sorted(publication.expected.items()):
            actual = state.visible_version(table_key)
            if actual != expected:
                raise stale(table_key, expected, actual)
        rows = [
            replace(row, manifest_version=version + 1)
            if isinstance(row, SchemaRow) and not row.manifest_version
            else row
            for row in self._content(state)
        ]
        commit = state.head
        for intent in intents:
            commit = CommitRow(
                intent.commit_id,
                version + 1,
                intent.branch,
                intent.created_at,
                commit.commit_id if commit else None,
                intent.merged_parent,
                intent.actor,
                intent.extra,
            )
            rows.append(commit)
        replaced = self._manifest.head_address or _UNKNOWN if self._adds_only(state) else None
        if commit is None or not rows:
            return rows, version, None, None
        if not intents and (replaced in (None, _UNKNOWN) or commit.branch != self._manifest.branch):
            return rows, version, None, None
        # Without a commit the head stays, and is written again: Lance refuses the version if
        # another publisher has replaced the head meanwhile, and no row has to be read.
        head = HeadRow(commit.branch, commit.commit_id, commit.parent)
        return [*rows, head], version, commit if intents else None, replaced

    def _adds_only(self, state: ManifestState) -> bool:
        """Whether every row is new, except for the head of the branch."""
        publication = self._publication
        if publication.registrations or publication.tombstones or publication.others:
            return False
        return state.head is not None and all(
            row.version > state.visible_version(row.table_key) for row in publication.versions
        )

    def _content(self, state: ManifestState) -> list[Row]:
        publication = self._publication
        for registration in publication.registrations:
            location = state.locations.get(registration.table_key)
            if location not in (None, registration.location) and not state.is_gone(
                registration.table_key
            ):
                raise InternalError(f"'{registration.table_key}' is registered elsewhere already")
        registered = {row.table_key for row in publication.registrations} | set(state.locations)
        for row in publication.versions:
            if row.table_key not in registered:
                raise InternalError(f"'{row.table_key}' is not registered")
            self._check_new(state, row)
        for tombstone in publication.tombstones:
            if tombstone.table_key not in registered:
                raise InternalError(f"'{tombstone.table_key}' is not registered")
            if state.tombstones.get(tombstone.table_key, 0) >= tombstone.version:
                raise InternalError(f"'{tombstone.table_key}' has this tombstone already")
        rows: list[Row] = [
            *publication.registrations,
            *publication.versions,
            *publication.tombstones,
            *publication.others,
        ]
        # Lance would store both of two rows with one key.
        for object_id, count in Counter(row.object_id for row in rows).items():
            if count > 1:
                raise InternalError(f"'{object_id}' is published twice in one request")
        return rows

    def _check_new(self, state: ManifestState, row: VersionRow) -> None:
        """A version is published once; only its owner may change, not its row count."""
        published = state.versions.get(row.table_key)
        if published is None or row.version > published.version:
            return
        if row.version == published.version:
            if published.branch != row.branch and published.row_count == row.row_count:
                return
        elif not self._manifest.has_row(row.object_id):
            return
        raise VersionMismatch(
            f"version {row.version} of '{row.table_key}' is published already",
            hint="refresh and retry",
            details={
                "table_key": row.table_key,
                "expected": row.version - 1,
                "actual": published.version,
            },
        )


def check_head(head: CommitRow | None, if_commit: str | None) -> None:
    """Check the condition of a write that is only valid on top of one commit."""
    newest = None if head is None else head.commit_id
    if if_commit is not None and if_commit != newest:
        raise PreconditionFailed(
            f"the branch is no longer at commit '{if_commit}'",
            hint="read again and decide",
            details={"expected": if_commit, "actual": newest},
        )


def refuse_repeat(
    state: ManifestState, branch: str | None, key: str, fingerprint: str | None
) -> None:
    """Raise if a write with this idempotency key exists, or if the key belongs to another write."""
    first = state.repeats.get((branch, key))
    if first is None:
        return
    if first.extra.get(FINGERPRINT) != fingerprint:
        raise key_reused(key, {"commit_id": first.commit_id})
    raise AlreadyDone(first)


class AlreadyDone(OmniGraphError):
    """A write with this idempotency key exists; caught by the protocol, never shown."""

    def __init__(self, commit: CommitRow) -> None:
        super().__init__(f"the write exists as commit {commit.commit_id}")
        self.commit = commit


def stale(table_key: str, expected: int, actual: int) -> VersionMismatch:
    """The conflict of a writer whose view of a table is out of date."""
    return VersionMismatch(
        f"stale view of '{table_key}': expected manifest table version {expected} "
        f"but current is {actual} — refresh and retry",
        hint="refresh and retry",
        details={"table_key": table_key, "expected": expected, "actual": actual},
    )


def _contention(attempts: int) -> PublishContention:
    return PublishContention(
        f"manifest publish exhausted {RETRIES} retries against concurrent writers",
        hint="retry later",
        details={"attempts": attempts},
    )


def _pause(attempt: int) -> None:
    longest = min(_PAUSE_SECONDS * 2**attempt, _LONGEST_PAUSE_SECONDS)
    time.sleep(random.uniform(longest / 4, longest))
