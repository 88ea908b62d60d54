"""Group commit: small writes that arrive while another commits on their branch share one publish.

The first write on a branch commits by itself, as ever. Those that arrive meanwhile wait; then the
first of them leads, and commits all of them at once: every table is staged and moved once, by
exactly one version, under one sidecar; one publish has a commit row for each write. So a group
ends as one write does: as a whole, or not at all. Who cannot take part commits by itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import TypeAlias

from omnigraph.commit.metadata import Group
from omnigraph.commit.names import branch_label, table_lease
from omnigraph.commit.protocol import Write, commit_metadata, commit_write, pending, run_healed
from omnigraph.commit.publisher import CommitIntent, refuse_repeat
from omnigraph.commit.receipts import Receipt
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.commit.write_queue import QueuedWrite, WriteQueue
from omnigraph.commit.write_request import (
    GroupBuilder,
    MemberPart,
    PreparedWrite,
    WriteRequest,
    WriteView,
)
from omnigraph.errors import (
    Conflict,
    InternalError,
    OmniGraphError,
    OutcomePending,
    StorageError,
    VersionMismatch,
)

MOST_MEMBERS = 16
_Take: TypeAlias = Callable[[frozenset[str] | None], list[QueuedWrite]]


def commit_grouped(store: GraphStore, request: WriteRequest) -> Receipt:
    """Commit a write, with others that wait on its branch if it may be a member of a group."""
    if request.member is None:
        return commit_write(store, request)
    queue, entry = store.queues.of(request.branch), QueuedWrite(request)
    if queue.is_led_here:
        # It would wait for itself.
        return commit_write(store, request)
    if queue.is_led or queue.was_shared:
        try:
            request.member.get_ready()
        except OmniGraphError:
            return commit_write(store, request)
    try:
        leads = queue.enter(entry)
        if leads and not queue.was_shared:
            return commit_write(store, request)
        if leads or queue.wait(entry, store.timeouts.lease):
            _lead(store, queue, entry)
    finally:
        queue.leave(entry)
    outcome = entry.outcome
    if isinstance(outcome, OmniGraphError):
        raise outcome
    # A write that did not fit into a group, or whose group was undone, commits alone, once.
    return commit_write(store, request) if outcome is None else outcome


class _Membership(Enum):
    """The outcome of a write that a leader has taken."""

    OPEN = "open"
    """Not known yet."""
    IN = "in"
    LATER = "later"
    """It overlaps with a member: it leads or joins the next group."""
    ALONE = "alone"


def _lead(store: GraphStore, queue: WriteQueue, leader: QueuedWrite) -> None:
    """Commit a group; every write that was taken has an outcome or waits again at the end."""
    group = _Group(store, queue, leader)
    try:
        receipt = run_healed(store, leader.request.branch, group.attempt)
    except OmniGraphError as error:
        group.fail(error)
    except BaseException:
        group.abandon()
        raise
    else:
        group.succeed(receipt.version)


class _Group:
    """The writes that a leader has taken."""

    def __init__(self, store: GraphStore, queue: WriteQueue, leader: QueuedWrite) -> None:
        self._store = store
        self._queue = queue
        self._leader = leader
        self._entries = [leader]
        self._write: _GroupWrite | None = None

    def _take(self, touches: frozenset[str] | None) -> list[QueuedWrite]:
        """Take what waits, under the same schema; only writes of some tables, if given."""
        schema = self._leader.request.schema_hash

        def fits(request: WriteRequest) -> bool:
            is_inside = touches is None or request.touches <= touches
            return is_inside and request.schema_hash == schema

        taken = self._queue.take(MOST_MEMBERS - len(self._entries), fits)
        self._entries += taken
        return taken

    def attempt(self) -> Receipt:
        """Commit the group once; raises if it was not published, or if that is unknown."""
        self._take(None)
        self._write = _GroupWrite(self._store, self._entries, self._take)
        return self._write.run()

    # -- the end -------------------------------------------------------------------------

    def succeed(self, version: int) -> None:
        write = self._write
        assert write is not None
        receipts = write.receipts(version)
        self._queue.was_shared = len(receipts) > 1
        for entry in self._sorted_out():
            self._queue.end(entry, receipts.get(entry))

    def fail(self, error: OmniGraphError) -> None:
        """End a group that was not published, or whose outcome is unknown.

        An error that a write would have met alone is its own; after others it is committed alone.
        """
        for entry in self._sorted_out():
            self._queue.end(entry, self._error_of(entry, error))

    def abandon(self) -> None:
        """The leader's thread was interrupted, or met an unexpected error."""
        why = "the thread that commits it was interrupted"
        for entry in self._sorted_out():
            intent = self._intent(entry)
            self._queue.end(entry, None if intent is None else pending(intent.commit_id, why))

    def _sorted_out(self) -> list[QueuedWrite]:
        """Put writes back that have to wait for the next group; the others have to be ended."""
        later = [] if self._write is None else self._write.at(_Membership.LATER)
        self._queue.put_back(later)
        return [entry for entry in self._entries if entry not in later]

    def _excluded(self) -> list[QueuedWrite]:
        return [] if self._write is None else self._write.at(_Membership.ALONE)

    def _intent(self, entry: QueuedWrite) -> CommitIntent | None:
        return None if self._write is None else self._write.intents.get(entry)

    def _error_of(self, entry: QueuedWrite, error: OmniGraphError) -> OmniGraphError | None:
        intent, touches = self._intent(entry), entry.request.touches
        leases = {table_lease(key, entry.request.branch) for key in touches}
        match error:
            case OutcomePending() if intent is not None:
                text = error.message.replace(str(error.details["commit_id"]), intent.commit_id)
                return OutcomePending(
                    text, hint=error.hint, details={"commit_id": intent.commit_id}
                )
            case StorageError() if entry not in self._excluded():
                # The disk has just failed: a second attempt is for the caller to decide.
                return copy.copy(error)
            case VersionMismatch() if error.details["table_key"] in touches:
                return copy.copy(error)
            case Conflict() if error.details.get("lease") in leases:
                return copy.copy(error)
        return None


class _GroupWrite(Write):
    """One attempt to commit a group: the steps of one write, with several commits."""

    def __init__(self, store: GraphStore, entries: Sequence[QueuedWrite], take: _Take) -> None:
        first = entries[0].request
        request = WriteRequest(
            first.kind,
            first.branch,
            frozenset().union(*(entry.request.touches for entry in entries)),
            self._prepare_members,
            schema_hash=first.schema_hash,
            waits=True,
        )
        super().__init__(store, request)
        self._entries = list(entries)
        self._take = take
        self._memberships: dict[QueuedWrite, _Membership] = {}
        self._parts: list[MemberPart] = []
        self.intents: dict[QueuedWrite, CommitIntent] = {}
        """The commits of the members by their entries, once they are decided."""

    def at(self, membership: _Membership) -> list[QueuedWrite]:
        return [
            entry
            for entry in self._entries
            if self._memberships.get(entry, _Membership.OPEN) is membership
        ]

    # -- members -------------------------------------------------------------------------

    def _prepare_members(self, view: WriteView) -> PreparedWrite:
        """Collect the members on the newest state, under the leases, and stage their tables.

        Writes that arrive meanwhile are taken too: they would have to wait for this group.
        """
        member = self._entries[0].request.member
        if member is None:
            raise InternalError("a write without members leads a group")
        builder = member.begin_group(view)
        keys: set[str] = set()
        waiting = self._entries
        while waiting:
            self._collect(waiting, view.snapshot, builder, keys)
            waiting = self._take(self._request.touches)
            self._entries += waiting
        prepared, parts = builder.stage()
        self._parts = list(parts)
        return prepared

    def _collect(
        self, entries: list[QueuedWrite], snapshot: Snapshot, builder: GroupBuilder, keys: set[str]
    ) -> None:
        """Decide about some writes, in order; ``keys`` are the idempotency keys so far."""
        members = []
        for entry in entries:
            if self._may_join(entry.request, snapshot):
                members.append(entry)
            else:
                self._memberships[entry] = _Membership.ALONE
        builder.expect([entry.request.member for entry in members])
        for entry in members:
            request = entry.request
            is_repeated = request.idempotency_key in keys
            try:
                is_in = not is_repeated and builder.add(request.member)
            except Exception:
                # Whatever it is: by itself the write meets it again, and reports it.
                self._memberships[entry] = _Membership.ALONE
                continue
            self._memberships[entry] = _Membership.IN if is_in else _Membership.LATER
            if is_in and request.idempotency_key is not None:
                keys.add(request.idempotency_key)

    def _may_join(self, request: WriteRequest, snapshot: Snapshot) -> bool:
        """Whether a write is neither a repeat nor the first to a table on its branch."""
        owners = {pin.branch for pin in map(snapshot.pin, request.touches) if pin is not None}
        if request.member is None or owners - {request.branch}:
            return False
        try:
            request.member.get_ready()
            if request.idempotency_key is not None:
                self._refuse_repeat_of(request, request.idempotency_key)
        except Exception:
            return False
        return True

    def _refuse_repeat_of(self, request: WriteRequest, key: str) -> None:
        self._manifest.with_state(
            lambda state, _: refuse_repeat(state, request.branch, key, request.fingerprint)
        )

    # -- commits -------------------------------------------------------------------------

    def _describe(self, prepared: PreparedWrite, receipt: Receipt) -> None:
        """Plan a commit for each member: times strictly rising, ids in order."""
        members, now = self.at(_Membership.IN), now_micros()
        ids = [new_ulid() for _ in members]
        intents: list[CommitIntent] = []
        for index, (entry, part) in enumerate(zip(members, self._parts, strict=True)):
            request = entry.request
            metadata = commit_metadata(request, part.extra, self._receipt_of(request, part, ""))
            if len(members) > 1:
                group = Group(ids[-1], index, len(members), part.ids)
                metadata = replace(metadata, group=group)
            intent = CommitIntent(
                ids[index], request.branch, now + index, request.actor, None, metadata.to_json()
            )
            intents.append(intent)
            self.intents[entry] = intent
        self._earlier, self._intent = tuple(intents[:-1]), intents[-1]
        actors = {intent.actor for intent in intents}
        # For the sidecar: writes that were left out are not in it.
        self._request = replace(
            self._request,
            kind=members[0].request.kind,
            actor=intents[0].actor if len(actors) == 1 else None,
        )

    def receipts(self, version: int) -> Mapping[QueuedWrite, Receipt]:
        """The receipts of the members by their entries."""
        return {
            entry: replace(
                self._receipt_of(entry.request, part, self.intents[entry].commit_id),
                version=version,
            )
            for entry, part in zip(self.at(_Membership.IN), self._parts, strict=True)
        }

    def _receipt_of(self, request: WriteRequest, part: MemberPart, commit_id: str) -> Receipt:
        tables = {key: part.tables[key] for key in sorted(part.tables)}
        label = branch_label(request.branch)
        return Receipt(commit_id, 0, label, tables, request.actor, part.met)
