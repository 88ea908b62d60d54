"""The health of a graph: its size, its obstacles, and the commands to run.

Read-only, and no row is read: the facts come from manifests, file names and the recovery
directory. What cannot be read is reported and does not hide anything else.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice

from omnigraph.commit.branches import Branches
from omnigraph.commit.history import History
from omnigraph.commit.manifest import MANIFEST
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.commit.snapshot import Pin
from omnigraph.commit.staging import markers
from omnigraph.commit.store import GraphStore
from omnigraph.commit.tags import Tags
from omnigraph.commit.ulid import is_ulid, ulid_time
from omnigraph.errors import OmniGraphError
from omnigraph.lang.schema.catalog import Catalog, entity_types
from omnigraph.maintain.cleanup.retention import cleanup_policy
from omnigraph.maintain.cleanup.run import clean_up
from omnigraph.maintain.doctor.report import (
    Advice,
    CleanupEstimate,
    DoctorReport,
    Holder,
    ManifestHealth,
    PendingWrite,
    TableHealth,
)
from omnigraph.maintain.optimize.indexes import declared_indexes
from omnigraph.maintain.optimize.plan import DEFAULT_POLICY, MaintenancePolicy
from omnigraph.maintain.optimize.stage import survey_table
from omnigraph.maintain.running_writes import drifted_head
from omnigraph.maintain.units import format_bytes, format_duration, plural
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.storage.tables.segments import index_facts
from omnigraph.storage.tables.types import IndexSpec, TableRef

KEEP = 10
"""The cleanup whose effect is estimated keeps this many versions."""
MAX_HOLDERS = 64
"""How many branches and how many tags are examined for the oldest pin."""
MAX_VERSIONS = 5000
"""With more versions in total, the effect of a cleanup is not estimated."""
FRESH = 60
"""A write younger than this, in seconds, may still be in progress."""
ABANDONED = 24 * 3600
"""A write that stages for longer has probably died."""


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
    specs = {
        entity_type.table_key: declared_indexes(entity_type)
        for entity_type in entity_types(catalog)
    }
    tables = tuple(
        _table_health(store, pin, specs.get(key, ()), policy, owned=pin.branch == snapshot.branch)
        for key, pin in snapshot.pins.items()
    )
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
        cleanup=_estimate_cleanup(store, tables, manifests, writes),
    )
    return replace(report, advice=tuple(advice_for(report, policy)))


def _table_health(
    store: GraphStore,
    pin: Pin,
    specs: Sequence[IndexSpec],
    policy: MaintenancePolicy,
    *,
    owned: bool,
) -> TableHealth:
    """One table; an unreadable one with its error only."""
    branch = branch_label(pin.branch)
    health = TableHealth(pin.table_key, branch, owned, pin.version, pin.row_count)
    try:
        survey = survey_table(store, pin.table_key, pin, specs, policy, reads_rows=False)
        fragments, plan, facts = survey.fragments, survey.plan, index_facts(survey.table)
        rewritten = {number for group in plan.groups for number in group}
        sparse = (f for f in fragments if f.number in rewritten and f.deleted)
        outside = (facts[spec.name].outside for spec in specs if spec.name in facts)
        return replace(
            health,
            versions=_versions(store, pin.ref),
            head=drifted_head(store, pin) if owned else None,
            fragments=len(fragments),
            small_fragments=sum(len(group) for group in plan.groups if len(group) > 1),
            deleted_rows=sum(fragment.deleted for fragment in fragments),
            size=sum(fragment.size for fragment in fragments),
            index_size=sum(index.size for index in facts.values()),
            uncovered_rows=max(outside, default=0),
            missing_indexes=tuple(index.spec.name for index in plan.indexes if index.is_new),
            pending_indexes=len(survey.pending),
            reasons=survey.reasons(policy) if owned else (),
            saved=sum(f.size * f.deleted // (f.rows + f.deleted) for f in sparse),
        )
    except OmniGraphError as error:
        return replace(health, error=error.message)


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
            yield ManifestHealth(name, versions, len(manifest.fragments))


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
    by_branch: dict[str, Mapping[str, Pin]] = {}
    for name in islice(branches, MAX_HOLDERS):
        with suppress(OmniGraphError):
            by_branch[name] = store.manifest(normal_branch(name)).current().pins
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


def _estimate_cleanup(
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


# -- advice ---------------------------------------------------------------------------------------


def advice_for(report: DoctorReport, policy: MaintenancePolicy) -> Iterator[Advice]:
    """One entry per command that helps, most urgent first."""
    broken = [table.table_key for table in report.tables if table.error]
    if broken:
        yield Advice(_command(report, "verify"), f"cannot be read: {_first_of(broken)}")
    unreadable = [write for write in report.writes if write.error]
    if unreadable:
        count = plural(len(unreadable), "recovery file")
        why = f"{count} cannot be read; writes are refused"
        yield Advice(_command(report, "verify"), why)
    dead = [write for write in report.writes if not write.error and write.age >= FRESH]
    if dead:
        count = plural(len(dead), "interrupted write")
        oldest = format_duration(max(write.age for write in dead))
        why = f"{count} to recover, the oldest {oldest} old"
        yield Advice(_command(report, "repair"), why)
    drifted = [table.table_key for table in report.tables if table.head is not None]
    if drifted:
        command = _command(report, "repair", on_branch=True)
        yield Advice(command, f"written outside the graph: {_first_of(drifted)}")
    reasons = {table.table_key: table.reasons for table in report.tables if table.reasons}
    if reasons:
        first = next(iter(reasons))
        more = "" if len(reasons) == 1 else f"; and {plural(len(reasons) - 1, 'other table')}"
        command = _command(report, "optimize", on_branch=True)
        yield Advice(command, f"{first}: {reasons[first][0]}{more}")
    yield from _cleanup(report, policy)


def _cleanup(report: DoctorReport, policy: MaintenancePolicy) -> Iterator[Advice]:
    estimate = report.cleanup
    most = max((table.versions for table in report.tables), default=0)
    old = [write for write in report.staging if write.age >= ABANDONED]
    why = None
    if estimate.size > policy.bytes:
        why = f"frees {format_bytes(estimate.size)} > {format_bytes(policy.bytes)}"
    elif most > policy.versions and (estimate.versions or estimate.why):
        why = f"{most} versions of one table > {policy.versions}"
    elif old:
        why = f"{plural(len(old), 'staging marker')} of interrupted writes"
    if why is not None:
        yield Advice(_command(report, f"cleanup --keep {estimate.keep} --confirm"), why)


def _command(report: DoctorReport, words: str, *, on_branch: bool = False) -> str:
    verb, _, options = words.partition(" ")
    parts = ["omnigraph", verb, shlex.quote(report.uri), options]
    if on_branch and report.branch != "main":
        parts.append(f"--branch {shlex.quote(report.branch)}")
    return " ".join(part for part in parts if part)


def _first_of(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
