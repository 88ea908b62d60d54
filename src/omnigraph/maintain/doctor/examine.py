"""The health of a graph: its size, its obstacles, and the commands to run.

Read-only, and no row is read: the facts come from manifests, file names and the recovery
directory. What cannot be read is reported and does not hide anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice

from omnigraph.commit.branches import Branches
from omnigraph.commit.history import History, Tags
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.snapshot import Pin, Snapshot
from omnigraph.commit.staging import markers
from omnigraph.commit.store import GraphStore
from omnigraph.commit.ulid import is_ulid, ulid_time
from omnigraph.errors import OmniGraphError
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.maintain.cleanup.run import clean_up, cleanup_policy
from omnigraph.maintain.doctor.advice import advice_for
from omnigraph.maintain.doctor.report import (
    CleanupEstimate,
    DoctorReport,
    Holder,
    ManifestHealth,
    PendingWrite,
    TableHealth,
)
from omnigraph.maintain.optimize.indexes import DAMAGED, declared_indexes, obstacle
from omnigraph.maintain.optimize.plan import plan_table
from omnigraph.maintain.optimize.policy import DEFAULT_POLICY, MaintenancePolicy, reasons_for
from omnigraph.maintain.optimize.vector_indexes import choose_index, rebuild_reason
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.storage.tables.compaction import fragment_states, stored_cleanup
from omnigraph.storage.tables.segments import index_facts, segments_of
from omnigraph.storage.tables.types import TableRef
from omnigraph.write.delta import kinds_of

KEEP = 10
"""The cleanup whose effect is estimated keeps this many versions."""
MAX_HOLDERS = 64
"""How many branches and how many tags are examined for the oldest pin."""
MAX_VERSIONS = 5000
"""With more versions in total, the effect of a cleanup is not estimated."""


def examine(
    store: GraphStore,
    catalog: Catalog,
    branch: str | None,
    policy: MaintenancePolicy = DEFAULT_POLICY,
) -> DoctorReport:
    """Examine a graph as a branch shows it."""
    now = datetime.now(UTC)
    writes = tuple(_writes(store, now))
    snapshot = store.manifest(branch).current()
    examiner = _TableExaminer(store, catalog, snapshot, policy, _tables_of(writes))
    tables = tuple(examiner.health(key, pin) for key, pin in snapshot.pins.items())
    branches = tuple(Branches(store).list())
    manifests = tuple(_manifests(store, branches))
    report = DoctorReport(
        uri=store.root.uri,
        branch=branch_label(branch),
        at=now.replace(microsecond=0),
        tables=tables,
        manifests=manifests,
        writes=writes,
        staging=tuple(_staging(store, now)),
        oldest=_oldest(store, branches),
        branches=branches,
        tags=len(Tags(store).list()),
        cleanup=_cleanup(store, tables, manifests, writes),
    )
    return replace(report, advice=tuple(advice_for(report, policy)))


# -- tables ---------------------------------------------------------------------------------------


class _TableExaminer:
    """Examines the tables of one snapshot."""

    def __init__(
        self,
        store: GraphStore,
        catalog: Catalog,
        snapshot: Snapshot,
        policy: MaintenancePolicy,
        busy: set[str],
    ) -> None:
        self._store = store
        self._snapshot = snapshot
        self._policy = policy
        self._busy = busy
        self._specs = {kind.table_key: declared_indexes(kind) for kind in kinds_of(catalog)}

    def health(self, key: str, pin: Pin) -> TableHealth:
        """One table; an unreadable one with its error only."""
        owned = pin.branch == self._snapshot.branch
        health = TableHealth(key, branch_label(pin.branch), owned, pin.version, pin.row_count)
        try:
            return self._examine(health, pin)
        except OmniGraphError as error:
            return replace(health, error=error.message)

    def _examine(self, health: TableHealth, pin: Pin) -> TableHealth:
        store = self._store
        table = store.table(pin)
        fragments, segments, facts = fragment_states(table), segments_of(table), index_facts(table)
        damaged = table.damaged_indexes()
        wanted, rebuilt, pending = [], {}, 0
        for spec in self._specs.get(health.table_key, ()):
            existing = facts.get(spec.name)
            if existing is None and obstacle(table, pin, spec) is not None:
                pending += 1
                continue
            choice = choose_index(spec, pin.row_count).spec
            wanted.append(choice)
            why = None if existing is None else rebuild_reason(existing, choice, pin.row_count)
            if spec.name in damaged:
                why = DAMAGED
            if why is not None:
                rebuilt[spec.name] = why
        plan = plan_table(fragments, segments, wanted, _young, stored_cleanup(table), rebuilt)
        rewritten = {number for group in plan.groups for number in group}
        sparse = (f for f in fragments if f.number in rewritten and f.deleted)
        names = [spec.name for spec in wanted]
        return replace(
            health,
            versions=_versions(store, pin.ref),
            head=self._drifted_head(health, pin),
            fragments=len(fragments),
            small_fragments=sum(len(group) for group in plan.groups if len(group) > 1),
            deleted_rows=sum(fragment.deleted for fragment in fragments),
            size=sum(fragment.size for fragment in fragments),
            index_size=sum(index.size for index in facts.values()),
            uncovered_rows=max((facts[n].outside for n in names if n in facts), default=0),
            missing_indexes=tuple(n for n in names if n not in facts),
            pending_indexes=pending,
            reasons=reasons_for(plan, fragments, segments, self._policy) if health.owned else (),
            saved=sum(f.size * f.deleted // (f.rows + f.deleted) for f in sparse),
        )

    def _drifted_head(self, health: TableHealth, pin: Pin) -> int | None:
        """The newest version of a table that was written outside the graph."""
        if not health.owned or health.table_key in self._busy:
            return None
        store = self._store
        head = store.tables.head(pin.ref, pin.version)
        if head <= pin.version:
            return None
        current = store.manifest(self._snapshot.branch).current().pin(health.table_key)
        if current is not None and current.version >= head:
            return None
        # A writer may have started in between.
        busy = _tables_of(_writes(store, datetime.now(UTC)))
        return None if health.table_key in busy else head


def _young(parts: object) -> int:
    """An optimize decides which segments to replace, by reading them."""
    return 1 << 62


def _tables_of(writes: Iterable[PendingWrite]) -> set[str]:
    return {key for write in writes for key in write.tables}


def _versions(store: GraphStore, ref: TableRef) -> int:
    names = store.objects.list(f"{ref.path}/_versions")
    return sum(name.endswith(".manifest") for name in names)


# -- the graph ------------------------------------------------------------------------------------


def _manifests(store: GraphStore, branches: Sequence[str]) -> Iterator[ManifestHealth]:
    for name in islice(branches, MAX_HOLDERS):
        branch = normal_branch(name)
        with suppress(OmniGraphError):
            manifest = store.manifest(branch)
            manifest.current()
            versions = _versions(store, TableRef(MANIFEST, branch))
            yield ManifestHealth(name, versions, len(manifest.fragments()))


def _writes(store: GraphStore, now: datetime) -> Iterator[PendingWrite]:
    for operation in store.sidecars.list():
        age = _age(operation, now)
        try:
            sidecar = store.sidecars.read(operation)
        except OmniGraphError as error:
            yield PendingWrite(operation, age, error=error.message)
            continue
        if sidecar is not None:
            keys = tuple(sorted(pin.table_key for pin in sidecar.tables))
            label = branch_label(sidecar.branch)
            yield PendingWrite(operation, age, str(sidecar.writer_kind), label, keys)


def _staging(store: GraphStore, now: datetime) -> Iterator[PendingWrite]:
    try:
        existing = markers(store)
    except OmniGraphError as error:
        yield PendingWrite("?", 0, error=error.message)
        return
    for marker in existing:
        age = max(0, int((now - marker.started).total_seconds()))
        yield PendingWrite(marker.operation, age, tables=tuple(sorted(marker.tables)))


def _age(operation: str, now: datetime) -> int:
    """Seconds since a write began, by its id."""
    if not is_ulid(operation):
        return 0
    return max(0, int(now.timestamp() - ulid_time(operation) / 1000))


def _oldest(store: GraphStore, branches: Sequence[str]) -> Holder | None:
    """The branch or tag whose pin is the farthest behind the newest one of its table fork."""
    by_branch = dict(_branch_pins(store, branches))
    newest: dict[TableRef, int] = {}
    for pins in by_branch.values():
        for pin in pins.values():
            newest[pin.ref] = max(newest.get(pin.ref, 0), pin.version)
    holders = [Holder.of("branch", name, pins, newest) for name, pins in by_branch.items()]
    for tag in islice(sorted(Tags(store).list(), key=lambda tag: tag.created_at), MAX_HOLDERS):
        with suppress(OmniGraphError):
            pins = History(store).snapshot_of(tag.commit_id).pins
            holders.append(Holder.of("tag", tag.name, pins, newest))
    behind = [holder for holder in holders if holder is not None and holder.behind]
    return max(behind, key=lambda holder: (holder.behind, holder.kind, holder.name), default=None)


def _branch_pins(
    store: GraphStore, branches: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, Pin]]]:
    for name in islice(branches, MAX_HOLDERS):
        with suppress(OmniGraphError):
            yield name, store.manifest(normal_branch(name)).current().pins


def _cleanup(
    store: GraphStore,
    tables: Sequence[TableHealth],
    manifests: Sequence[ManifestHealth],
    writes: Sequence[PendingWrite],
) -> CleanupEstimate:
    """What a cleanup that keeps the newest versions would free now."""
    if writes:
        return CleanupEstimate(KEEP, why="an interrupted write has to be recovered first")
    count = sum(t.versions for t in tables) + sum(m.versions for m in manifests)
    if count > MAX_VERSIONS:
        return CleanupEstimate(KEEP, why=f"there are {count} versions to examine")
    try:
        # There is no write to recover, so it changes nothing.
        dry = clean_up(
            store, cleanup_policy(KEEP, None, None, None), ThreadExecutor(1), dry_run=True
        )
    except OmniGraphError as error:
        return CleanupEstimate(KEEP, why=error.message)
    versions = dry.manifest.old_versions_removed
    versions += sum(table.old_versions_removed for table in dry.tables)
    return CleanupEstimate(KEEP, versions, dry.bytes_removed)
