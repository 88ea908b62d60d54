"""How a graph is: what it consists of, what is in anybody's way, and what to run.

Nothing is changed, and no row is read: all of it stands in manifests, names of files and the
recovery directory. What cannot be looked at is told, and keeps nothing else from being told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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
from omnigraph.maintain.cleanup.run import clean_up, policy_of
from omnigraph.maintain.doctor.advice import advice_for
from omnigraph.maintain.doctor.report import (
    Busy,
    CleanupEstimate,
    DoctorReport,
    Holder,
    ManifestHealth,
    TableHealth,
)
from omnigraph.maintain.optimize.indexes import DAMAGED, obstacle, types_of, wanted_indexes
from omnigraph.maintain.optimize.policy import DEFAULT_POLICY, MaintenancePolicy, reasons_for
from omnigraph.maintain.optimize.upkeep import threads
from omnigraph.maintain.optimize.upkeep_plan import plan_table
from omnigraph.maintain.optimize.vector_indexes import chosen, unfit
from omnigraph.storage.tables.compaction import fragment_states, stored_cleanup
from omnigraph.storage.tables.segments import index_facts, segments_of
from omnigraph.storage.tables.types import TableRef

KEEP = 10
"""How many versions the cleanup would keep of which is told what it frees."""
MOST_HOLDERS = 64
"""So many branches and tags are asked what they hold."""
MOST_VERSIONS = 5000
"""With more of them together, what cleanup would free is not looked for."""


def examine(
    store: GraphStore,
    catalog: Catalog,
    branch: str | None,
    policy: MaintenancePolicy = DEFAULT_POLICY,
) -> DoctorReport:
    """Look at a graph as a branch shows it."""
    now = datetime.now(UTC)
    writes = tuple(_writes(store, now))
    snapshot = store.manifest(branch).current()
    busy = {key for each in writes for key in each.tables}
    looking = _Tables(store, catalog, snapshot, policy, busy)
    tables = tuple(looking.health(key, pin) for key, pin in snapshot.pins.items())
    branches = tuple(Branches(store).list())
    manifests = tuple(_manifests(store, branches))
    tags = Tags(store).list()
    report = DoctorReport(
        uri=store.root.uri,
        branch=branch_label(branch),
        at=now,
        tables=tables,
        manifests=manifests,
        writes=writes,
        staging=tuple(_staging(store, now)),
        oldest=_oldest(store, branches),
        branches=branches,
        tags=len(tags),
        cleanup=_cleanup(store, tables, manifests, writes),
    )
    return report.advised(advice_for(report, policy))


# -- tables ---------------------------------------------------------------------------------------


class _Tables:
    """Looks at the tables of one snapshot."""

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
        self._specs = {kind.table_key: wanted_indexes(kind) for kind in types_of(catalog)}

    def health(self, key: str, pin: Pin) -> TableHealth:
        """One table; of one that cannot be read, only that."""
        owned = pin.branch == self._snapshot.branch
        found = TableHealth(key, branch_label(pin.branch), owned, pin.version, pin.row_count)
        try:
            return self._looked_at(found, pin)
        except OmniGraphError as error:
            return found.broken(error.message)

    def _looked_at(self, found: TableHealth, pin: Pin) -> TableHealth:
        store = self._store
        table = store.table(pin)
        parts, segments, facts = fragment_states(table), segments_of(table), index_facts(table)
        damaged = table.damaged_indexes()
        wanted, rebuilt, pending = [], {}, 0
        for spec in self._specs.get(found.table_key, ()):
            known = facts.get(spec.name)
            if known is None and obstacle(table, pin, spec) is not None:
                pending += 1
                continue
            choice = chosen(spec, pin.row_count).spec
            wanted.append(choice)
            why = None if known is None else unfit(known, choice, pin.row_count)
            if spec.name in damaged:
                why = DAMAGED
            if why is not None:
                rebuilt[spec.name] = why
        plan = plan_table(parts, segments, wanted, _young, stored_cleanup(table), rebuilt)
        again = {number for group in plan.groups for number in group}
        thin = (p for p in parts if p.number in again and p.deleted)
        names = [spec.name for spec in wanted]
        return found.filled(
            versions=_versions(store, pin.ref),
            head=self._drifted_to(found, pin),
            fragments=len(parts),
            small_fragments=sum(len(group) for group in plan.groups if len(group) > 1),
            deleted_rows=sum(part.deleted for part in parts),
            size=sum(part.size for part in parts),
            index_size=sum(each.size for each in facts.values()),
            uncovered_rows=max((facts[n].outside for n in names if n in facts), default=0),
            missing_indexes=tuple(n for n in names if n not in facts),
            pending_indexes=pending,
            reasons=reasons_for(plan, parts, segments, self._policy) if found.owned else (),
            saved=sum(p.size * p.deleted // (p.rows + p.deleted) for p in thin),
        )

    def _drifted_to(self, found: TableHealth, pin: Pin) -> int | None:
        """The newest version of a table that was written past the graph."""
        if not found.owned or found.table_key in self._busy:
            return None
        store = self._store
        head = store.tables.head(pin.ref, pin.version)
        if head <= pin.version:
            return None
        now = store.manifest(self._snapshot.branch).current().pin(found.table_key)
        if now is not None and now.version >= head:
            return None
        # A writer may have come in between.
        later = (each.tables for each in _writes(store, datetime.now(UTC)))
        return None if any(found.table_key in keys for keys in later) else head


def _young(parts: object) -> int:
    """Whether segments have to go is for an optimize to find out, by reading."""
    return 1 << 62


def _versions(store: GraphStore, ref: TableRef) -> int:
    names = store.objects.list(f"{ref.path}/_versions")
    return sum(name.endswith(".manifest") for name in names)


# -- the graph ------------------------------------------------------------------------------------


def _manifests(store: GraphStore, branches: Sequence[str]) -> Iterator[ManifestHealth]:
    for name in islice(branches, MOST_HOLDERS):
        branch = normal_branch(name)
        with suppress(OmniGraphError):
            manifest = store.manifest(branch)
            manifest.current()
            versions = _versions(store, TableRef(MANIFEST, branch))
            yield ManifestHealth(name, versions, len(manifest.fragments()))


def _writes(store: GraphStore, now: datetime) -> Iterator[Busy]:
    for operation in store.sidecars.list():
        age = _age(operation, now)
        try:
            found = store.sidecars.read(operation)
        except OmniGraphError as error:
            yield Busy(operation, age, error=error.message)
            continue
        if found is not None:
            keys = tuple(sorted(pin.table_key for pin in found.tables))
            label = branch_label(found.branch)
            yield Busy(operation, age, str(found.writer_kind), label, keys)


def _staging(store: GraphStore, now: datetime) -> Iterator[Busy]:
    try:
        found = markers(store)
    except OmniGraphError as error:
        yield Busy("?", 0, error=error.message)
        return
    for marker in found:
        age = max(0, int((now - marker.started).total_seconds()))
        yield Busy(marker.operation, age, tables=tuple(sorted(marker.tables)))


def _age(operation: str, now: datetime) -> int:
    """Seconds since a write began, by its id."""
    if not is_ulid(operation):
        return 0
    return max(0, int(now.timestamp() - ulid_time(operation) / 1000))


def _oldest(store: GraphStore, branches: Sequence[str]) -> Holder | None:
    """Who shows the version of a table that is farthest behind the newest of its copy."""
    shown = dict(_branch_pins(store, branches))
    newest: dict[TableRef, int] = {}
    for pins in shown.values():
        for pin in pins.values():
            newest[pin.ref] = max(newest.get(pin.ref, 0), pin.version)
    held = [Holder.of("branch", name, pins, newest) for name, pins in shown.items()]
    for tag in islice(sorted(Tags(store).list(), key=lambda tag: tag.created_at), MOST_HOLDERS):
        with suppress(OmniGraphError):
            pins = History(store).snapshot_of(tag.commit_id).pins
            held.append(Holder.of("tag", tag.name, pins, newest))
    found = [each for each in held if each is not None and each.behind]
    return max(found, key=lambda each: (each.behind, each.kind, each.name), default=None)


def _branch_pins(
    store: GraphStore, branches: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, Pin]]]:
    for name in islice(branches, MOST_HOLDERS):
        with suppress(OmniGraphError):
            yield name, store.manifest(normal_branch(name)).current().pins


def _cleanup(
    store: GraphStore,
    tables: Sequence[TableHealth],
    manifests: Sequence[ManifestHealth],
    writes: Sequence[Busy],
) -> CleanupEstimate:
    """What a cleanup that keeps the newest versions would free, now."""
    if writes:
        return CleanupEstimate(KEEP, why="a write is not settled")
    count = sum(t.versions for t in tables) + sum(m.versions for m in manifests)
    if count > MOST_VERSIONS:
        return CleanupEstimate(KEEP, why=f"there are {count} versions to look at")
    try:
        # It finds no write to settle, so it changes nothing.
        told = clean_up(store, policy_of(KEEP, None, None, None), threads(1).run, dry_run=True)
    except OmniGraphError as error:
        return CleanupEstimate(KEEP, why=error.message)
    versions = told.manifest.old_versions_removed
    versions += sum(table.old_versions_removed for table in told.tables)
    return CleanupEstimate(KEEP, versions, told.bytes_removed)
