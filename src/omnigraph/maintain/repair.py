"""Repair: tables whose newest version is not the pinned one.

Another program wrote to a table outside the graph. The transactions decide: maintenance that
changed no row may be adopted when confirmed, anything else only by force. Data is never rewritten;
the newest version is published. The branches of a moved or copied graph get its new addresses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum

from omnigraph.commit.names import branch_label, table_lease
from omnigraph.commit.publisher import CommitIntent, Publication
from omnigraph.commit.relocation import heal_everything, misplaced
from omnigraph.commit.removal import finish_removals
from omnigraph.commit.rows import VersionRow
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.errors import InputError, OmniGraphError
from omnigraph.maintain.report import Report
from omnigraph.maintain.running_writes import recover_writes
from omnigraph.records import dataclass
from omnigraph.representation import brief
from omnigraph.storage.tables.versions import operations_between

ACTOR, FORCED_ACTOR = "omnigraph:repair", "omnigraph:repair:force"

_MAINTENANCE = frozenset({"Rewrite", "ReserveFragments"})
"""Operations of Lance that change no row."""


class Drift(StrEnum):
    """The classification of the transactions after a pin."""

    NONE = "no_drift"
    MAINTENANCE = "verified_maintenance"
    SUSPICIOUS = "suspicious"
    UNVERIFIABLE = "unverifiable"


class Action(StrEnum):
    """What was done about a table."""

    NO_OP = "no_op"
    PREVIEW = "preview"
    HEALED = "healed"
    FORCED = "forced"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class TableRepair(Report):
    """One table: its pinned and its newest version, and the action."""

    table_key: str
    manifest_version: int
    lance_head_version: int
    classification: Drift
    action: Action
    operations: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RepairReport:
    """All tables of a branch, by their keys."""

    __repr__ = brief

    branch: str
    confirm: bool
    force: bool
    tables: tuple[TableRepair, ...]
    manifest_version: int | None = None
    """None when nothing was published."""
    commit_id: str | None = None
    misplaced: int = 0
    """Version files of branches with addresses of the graph's former location."""

    @property
    def refused(self) -> tuple[str, ...]:
        """The tables that only ``force`` would adopt."""
        return tuple(t.table_key for t in self.tables if t.action is Action.REFUSED)


def repair(
    store: GraphStore, branch: str | None, *, confirm: bool = False, force: bool = False
) -> RepairReport:
    """Find drift, and publish what may be published if confirmed."""
    if force and not confirm:
        raise InputError("force needs confirm", hint="pass confirm=True too")
    recover_writes(store)
    finish_removals(store)
    elsewhere = heal_everything(store) if confirm else misplaced(store)
    snapshot = store.manifest(branch).current()
    own = [pin for pin in snapshot.pins.values() if pin.branch == branch]
    label = branch_label(branch)
    if not confirm:
        tables = tuple(_examine(store, pin, confirm=False, force=False) for pin in own)
        if all(table.classification is Drift.NONE for table in tables):
            return RepairReport(label, confirm, force, tables, misplaced=elsewhere)
    # A table is ahead for a moment during a write; the leases exclude writers.
    leases = [table_lease(pin.table_key, branch) for pin in own]
    with store.leases.acquire(leases, store.timeouts.lease):
        now = store.manifest(branch).current()
        pins = [pin for pin in now.pins.values() if pin.branch == branch]
        tables = tuple(_examine(store, pin, confirm=confirm, force=force) for pin in pins)
        report = RepairReport(label, confirm, force, tables, misplaced=elsewhere)
        return _publish(store, now, report) if confirm else report


def _examine(store: GraphStore, pin: Pin, *, confirm: bool, force: bool) -> TableRepair:
    head, error = pin.version, None
    try:
        head = store.tables.head(pin.ref, pin.version)
        operations = operations_between(store.datasets, pin.ref, pin.version, head)
        drift = _classify(operations)
    except OmniGraphError as failure:
        operations, drift, error = (), Drift.UNVERIFIABLE, failure.message
    action = _action(drift, confirm=confirm, force=force and error is None)
    return TableRepair(pin.table_key, pin.version, head, drift, action, operations, error)


def _classify(operations: Iterable[str]) -> Drift:
    distinct = set(operations)
    if not distinct:
        return Drift.NONE
    if "" in distinct:
        return Drift.UNVERIFIABLE
    return Drift.MAINTENANCE if distinct <= _MAINTENANCE else Drift.SUSPICIOUS


def _action(drift: Drift, *, confirm: bool, force: bool) -> Action:
    if drift is Drift.NONE:
        return Action.NO_OP
    if not confirm:
        return Action.PREVIEW
    if drift is Drift.MAINTENANCE:
        return Action.HEALED
    return Action.FORCED if force else Action.REFUSED


def _publish(store: GraphStore, snapshot: Snapshot, report: RepairReport) -> RepairReport:
    """Pin the newest versions, all in one commit."""
    adopted = [t for t in report.tables if t.action in (Action.HEALED, Action.FORCED)]
    if not adopted:
        return report
    actor = FORCED_ACTOR if any(t.action is Action.FORCED for t in adopted) else ACTOR
    rows, expected = [], {}
    for table in adopted:
        pin = snapshot.pins[table.table_key]
        state = store.tables.open(pin.ref, table.lance_head_version)
        info = store.datasets.info(pin.ref, table.lance_head_version)
        metadata = {} if info is None else info.to_json()
        rows.append(
            VersionRow(
                table.table_key, table.lance_head_version, pin.branch, state.count(), metadata
            )
        )
        expected[table.table_key] = pin.version
    intent = CommitIntent(new_ulid(), snapshot.branch, now_micros(), actor)
    manifest = store.manifest(snapshot.branch)
    done = store.publisher.publish(manifest, Publication(expected, rows, commit=intent))
    return replace(report, manifest_version=done.version, commit_id=intent.commit_id)
