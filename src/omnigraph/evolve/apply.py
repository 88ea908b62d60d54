"""Applying a schema: one atomic commit of the graph, under the schema lock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from omnigraph.commit.branches import Branches
from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.lifecycle import recover
from omnigraph.commit.metadata import CommitMetadata, SchemaEvent
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.removal import Purpose, finish_removals, is_cleared
from omnigraph.commit.rows import SchemaRow, WriterKind
from omnigraph.commit.schema.files import Contract
from omnigraph.commit.schema.history import first_version_of, identified
from omnigraph.commit.schema.lock import lock_schema, refuse_branches
from omnigraph.commit.sidecar import HardDrop
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import NextSchema, PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import OmniGraphError, SchemaChangeRefused
from omnigraph.evolve.changes import changes_of, converted_values, schema_events
from omnigraph.evolve.check import MOST, violations_of
from omnigraph.evolve.tables import stage_changes
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.schema.catalog import Catalog, entity_types
from omnigraph.lang.schema.compile import compile_schema
from omnigraph.lang.schema.identified import IdentifiedSchema
from omnigraph.lang.schema.identity import evolve_identity
from omnigraph.lang.schema.migrate import MigrationPlan, plan_migration
from omnigraph.lang.schema.steps import Step
from omnigraph.logs import logger
from omnigraph.records import dataclass
from omnigraph.representation import brief
from omnigraph.write.validate.rules import Violation

_LOG = logger(__name__)

_NOT_FILLED = "OG-MF-104"


@dataclass(frozen=True, slots=True)
class SchemaApplied:
    """The outcome of an apply, or of a dry run.

    ``applied`` is false if the graph has the schema already, and for a dry run.
    ``manifest_version`` is the first version of the graph with the schema.
    """

    __repr__ = brief

    supported: bool
    applied: bool
    manifest_version: int
    steps: tuple[Step, ...]
    commit_id: str | None = None
    violations: tuple[Violation, ...] = ()
    """Data that violates the new schema; only in a dry run."""
    cleared: tuple[str, ...] = ()
    """The tables whose earlier versions were removed permanently."""
    broken_queries: tuple[str, ...] = ()
    """The stored queries that do not fit the new schema, and fit the one before."""

    def to_json(self) -> dict[str, Any]:
        """Plain data, keys in a fixed order."""
        return {
            "supported": self.supported,
            "applied": self.applied,
            "manifest_version": self.manifest_version,
            "steps": [step.to_json() for step in self.steps],
            "commit_id": self.commit_id,
            "violations": [_violation_json(violation) for violation in self.violations],
            "cleared": list(self.cleared),
            "broken_queries": list(self.broken_queries),
        }


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """The options of an apply."""

    allow_data_loss: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)
    actor: str | None = None
    require_view: Callable[[Catalog], None] | None = None
    """Raises unless the actor sees all rows under a schema."""
    broken_by: Callable[[Catalog, Catalog], Mapping[str, str]] | None = None
    """Why stored queries that fit one schema do not fit another, by their names."""
    allow_broken_queries: bool = False

    def broken_queries(self, before: Catalog, after: Catalog) -> Mapping[str, str]:
        return {} if self.broken_by is None else self.broken_by(before, after)

    def check_view(self, catalog: Catalog) -> None:
        if self.require_view is not None:
            self.require_view(catalog)


def plan_schema(accepted: Catalog, source: Source, options: ApplyOptions) -> MigrationPlan:
    """The steps from one schema to another; no data is read."""
    desired = compile_schema(source, is_new=True)
    return plan_migration(accepted, desired, options.allow_data_loss, options.values)


def preview_schema(
    store: GraphStore, contract: Contract, source: Source, options: ApplyOptions
) -> SchemaApplied:
    """The outcome that an apply would have; nothing is changed."""
    refuse_branches(Branches(store).list()[1:])
    options.check_view(contract.catalog)
    work = _Apply(contract, source, options)
    snapshot = store.manifest(None).current()
    violations = violations_of(store, snapshot, work.changes)
    return SchemaApplied(
        True,
        False,
        snapshot.manifest_version,
        work.plan.steps,
        violations=tuple(violations[:MOST]),
        broken_queries=tuple(sorted(options.broken_queries(contract.catalog, work.desired))),
    )


def apply_schema(store: GraphStore, source: Source, options: ApplyOptions) -> SchemaApplied:
    """Change the schema of a graph, or raise and change nothing."""
    # Before the lock is acquired: an invalid text blocks no writer.
    compile_schema(source, is_new=True)
    recover(store, full=False)
    with lock_schema(store):
        contract = store.schema_files.load()
        options.check_view(contract.catalog)
        work = _Apply(contract, source, options)
        before = store.manifest(None).current()
        if not work.plan.steps:
            return SchemaApplied(True, False, before.manifest_version, ())
        broken = options.broken_queries(contract.catalog, work.desired)
        if broken and not options.allow_broken_queries:
            raise _breaks(broken)
        types = [*entity_types(contract.catalog), *entity_types(work.desired)]
        request = WriteRequest(
            WriterKind.SCHEMA_APPLY,
            None,
            frozenset({*before.pins, *(entity_type.table_key for entity_type in types)}),
            lambda view: work.prepare(store, view),
            strict=True,
            actor=options.actor,
            waits=True,
        )
        receipt = commit_write(store, request)
        cleared = _clear(store, work.hard_drops)
        return SchemaApplied(
            True,
            True,
            receipt.version,
            work.plan.steps,
            receipt.commit_id,
            cleared=cleared,
            broken_queries=tuple(sorted(broken)),
        )


class _Apply:
    """One schema apply."""

    def __init__(self, contract: Contract, source: Source, options: ApplyOptions) -> None:
        self._contract = contract
        self._source = source
        self.desired = compile_schema(source, is_new=True)
        self.plan = plan_migration(
            contract.catalog, self.desired, options.allow_data_loss, options.values
        )
        if not self.plan.supported:
            raise _unsupported(self.plan)
        self._values = converted_values(self.desired, self.plan.steps, options.values)
        self.changes = changes_of(contract.catalog, self.desired, self.plan.steps, self._values)
        self.hard_drops: tuple[HardDrop, ...] = ()
        """Set by ``prepare``."""

    def prepare(self, store: GraphStore, view: WriteView) -> PreparedWrite:
        violations = violations_of(store, view.snapshot, self.changes)
        if violations:
            raise _violated(violations)
        staged = stage_changes(store, view, self.changes)
        self.hard_drops = tuple(staged.hard_drops)
        rows, events = self._rows(store, view.snapshot)
        return PreparedWrite(
            staged.tables,
            staged.consulted,
            registrations=staged.registrations,
            tombstones=staged.tombstones,
            created=staged.created,
            renames=staged.renames,
            hard_drops=staged.hard_drops,
            schema=NextSchema(self._source.text, self.desired, rows),
            extra=CommitMetadata(schema_events=tuple(events)).to_json(),
        )

    def _rows(
        self, store: GraphStore, snapshot: Snapshot
    ) -> tuple[list[SchemaRow], list[SchemaEvent]]:
        """The rows of the new schema, and of the old one if it was not recorded.

        Also returns the events of the commit, since both need the stable ids.
        """
        row, accepted, rows = snapshot.schema, self._contract.catalog, []
        before = identified(store, snapshot, accepted)
        if row is None or row.schema_hash != accepted.schema_hash:
            since = first_version_of(store, snapshot, accepted)
            rows.append(_row(since, before, self._contract.source))
        evolved = evolve_identity(before.identity, self.plan.steps, self.desired)
        after = IdentifiedSchema(self.desired, evolved)
        rows.append(_row(0, after, self._source.text))
        return rows, schema_events(before, after, self.plan.steps, self._values)


def _row(version: int, schema: IdentifiedSchema, source: str) -> SchemaRow:
    return SchemaRow(version, schema.catalog.schema_hash, source, schema.identity.to_json())


def _clear(store: GraphStore, drops: Sequence[HardDrop]) -> tuple[str, ...]:
    """Remove dropped data; the next writable open removes data that cannot be removed now."""
    cleared: list[str] = []
    try:
        reached(Failpoint.SCHEMA_BEFORE_CLEANUP)
        if drops:
            finish_removals(store, Purpose.DROP, store.timeouts.lease)
        cleared += [drop.table_key for drop in drops if is_cleared(store, drop)]
    except OmniGraphError as error:
        _LOG.warning("data that was dropped for good is still on storage: %s", error)
    return tuple(cleared)


def _unsupported(plan: MigrationPlan) -> SchemaChangeRefused:
    refusals = plan.refusals
    hints = {
        "OG-MF-103": "make it optional, or give a value for existing rows",
        "OG-MF-106": "add a property of the new type, copy the values, and drop the old one",
    }
    return SchemaChangeRefused(
        refusals[0].message,
        hint=hints.get(refusals[0].code or ""),
        details={"refusals": [step.to_json() for step in refusals]},
    )


def _breaks(queries: Mapping[str, str]) -> SchemaChangeRefused:
    return SchemaChangeRefused(
        "the schema breaks stored queries: "
        + "; ".join(f"'{name}': {reason}" for name, reason in sorted(queries.items())),
        hint="change the queries first, keep what they use, or set allow_broken_queries; broken "
        "queries are refused until they fit again",
        details={"queries": sorted(queries)},
    )


def _violated(violations: list[Violation]) -> SchemaChangeRefused:
    shown = violations[:MOST]
    count = f"{len(shown)} or more" if len(violations) > MOST else str(len(shown))
    missing = [v for v in shown if v.message.endswith("has no value")]
    code = f"[{_NOT_FILLED}] " if missing and missing[0] is shown[0] else ""
    more = f" ({count} violations)" if len(violations) > 1 else ""
    return SchemaChangeRefused(
        f"{code}the data does not fit the new schema: {shown[0].message}{more}",
        hint=f"give a value for '{_property(missing[0])}'" if code else "change the data first",
        details={
            "violations": [_violation_json(violation) for violation in shown],
            "more": len(violations) > MOST,
        },
    )


def _property(violation: Violation) -> str:
    return f"{violation.table_key.partition(':')[2]}.{violation.details['property']}"


def _violation_json(violation: Violation) -> dict[str, Any]:
    return {
        "code": violation.error_class.code,
        "table_key": violation.table_key,
        "id": violation.row_id,
        "message": violation.message,
        **violation.details,
    }
