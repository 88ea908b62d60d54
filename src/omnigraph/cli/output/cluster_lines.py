"""The reports of ``omnigraph cluster`` as lines for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omnigraph.cluster.diagnostics import ClusterDiagnostic

if TYPE_CHECKING:
    from omnigraph.cluster.diff import ResourceChange
    from omnigraph.cluster.drift import DriftReport
    from omnigraph.cluster.lock import LockRead
    from omnigraph.cluster.reports import (
        ApproveReport,
        PlanReport,
        StateReport,
        UnlockReport,
        ValidateReport,
    )


def _problems(diagnostics: Iterable[ClusterDiagnostic]) -> Iterator[str]:
    for diagnostic in diagnostics:
        yield diagnostic.line


def validate_lines(report: ValidateReport) -> Iterator[str]:
    if report.ok:
        resources, edges = len(report.resources), len(report.dependencies)
        yield f"cluster config valid: {resources} resource(s), {edges} dependency edge(s)"
    else:
        yield "cluster config invalid"
    yield from _problems(report.diagnostics)


def _change_line(change: ResourceChange) -> str:
    suffix = " [bindings]" if change.is_binding_change else ""
    return f"  {change.operation.capitalize()} {change.resource}{suffix}"


def plan_lines(report: PlanReport) -> Iterator[str]:
    if not report.ok:
        yield "cluster plan failed"
        yield from _problems(report.diagnostics)
        return
    changes, gates = len(report.changes), len(report.gates)
    yield f"cluster plan: {changes} change(s), {gates} approval gate(s)"
    affected = _affected(report)
    for change in report.changes:
        yield _change_line(change)
        yield from _migration_lines(change)
        if change.metadata == "embedding_profile":
            yield "    other settings of the provider"
        if change.disposition in ("blocked", "deferred"):
            yield f"    {change.disposition}: {change.reason}"
        if change.resource in affected:
            yield f"    affects {', '.join(affected[change.resource])}"
    if not report.changes:
        yield "  no changes"
    for gate in report.gates:
        state = "approved" if gate.is_satisfied else "needs approval"
        yield f"  {state}: {gate.resource} ({gate.reason})"
    for query in report.broken_queries:
        suffix = " (changed by this plan)" if query["replaced"] else ""
        yield f"  breaks {query['query']}{suffix}: {query['message']}"
    yield from _policy_lines(report)
    yield from _problems(report.diagnostics)


def _affected(report: PlanReport) -> dict[str, list[str]]:
    """What depends on each change; what comes or goes by the same plan has a line of its own."""
    own = {change.resource for change in report.changes if change.operation != "update"}
    affected = {
        entry.resource: [address for address in entry.affected if address not in own]
        for entry in report.blast
    }
    return {resource: addresses for resource, addresses in affected.items() if addresses}


def _migration_lines(change: ResourceChange) -> Iterator[str]:
    migration = change.migration
    if migration is None:
        return
    if not migration["supported"]:
        yield "    migration UNSUPPORTED:"
    for step in migration["steps"]:
        yield f"    {json.dumps(step, ensure_ascii=False)}"
    for table, rows in migration.get("rows", {}).items():
        yield f"    {table}: {rows} row(s)"
    for violation in migration.get("violations", ()):
        yield f"    does not fit: {violation['table_key']}: {violation['message']}"


def _policy_lines(report: PlanReport) -> Iterator[str]:
    for change in report.policy_changes:
        if change["bound_before"] != change["bound_after"]:
            before, after = (
                ", ".join(change[key]) or "nothing" for key in ("bound_before", "bound_after")
            )
            yield f"  {change['policy']}: bound to {after}, formerly {before}"
        for key, one, several in (("gains", "gains", "gain"), ("losses", "loses", "lose")):
            actors: dict[str, list[str]] = {}
            for entry in change["actors"]:
                if entry[key]:
                    actors.setdefault(", ".join(entry[key]), []).append(entry["actor"])
            for what, names in actors.items():
                verb = one if len(names) == 1 else several
                yield f"  {change['policy']}: {', '.join(names)} {verb} {what}"


def apply_lines(
    report: Mapping[str, Any], deployment: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """The lines of the JSON of a report, so that a served apply looks like a local one.

    ``deployment`` is the record of a server.
    """
    yield from _applied_lines(report)
    if deployment is not None:
        in_force = "in force on the server, " if report["ok"] and deployment["in_force"] else ""
        yield f"  {in_force}deployment {deployment['id']}"
    elif report["ok"] and report["state_written"]:
        yield "  servers of this release pick it up by themselves, others on restart"
    yield from _noted_lines(report)


def _applied_lines(report: Mapping[str, Any]) -> Iterator[str]:
    is_ok = report["ok"]
    if is_ok:
        applied, waiting = report["applied_count"], report["deferred_count"]
        yield f"cluster apply: {applied} applied, {waiting} deferred/blocked"
    else:
        yield "cluster apply failed"
    for change in report["changes"]:
        suffix = " [bindings]" if change.get("binding_change") else ""
        label = change.get("disposition", "").capitalize()
        reason = f": {change['reason']}" if "reason" in change else ""
        operation = change["operation"].capitalize()
        yield f"  {operation} {change['resource']}{suffix} [{label}{reason}]"
    if is_ok:
        converged, written = _word(report["converged"]), _word(report["state_written"])
        revision = report["state_observations"]["state_revision"]
        yield f"  state: revision {revision}, converged: {converged}, written: {written}"


def _noted_lines(report: Mapping[str, Any]) -> Iterator[str]:
    for entry in report["diagnostics"]:
        yield ClusterDiagnostic(
            entry["code"], entry["path"], entry["message"], entry["severity"]
        ).line


def deployments_lines(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"cluster deployments: {len(records)}"
    for record in records:
        yield f"  {record['id']} {record['started_at']} {record['outcome']}{_details(record)}"


def deployment_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """One deployment; its report as ``apply`` prints it."""
    yield f"deployment {record['id']}: {record['outcome']}{_details(record)}"
    yield f"  started {record['started_at']}, ended {record['ended_at'] or 'never'}"
    for name, digest in record["files"].items():
        yield f"  file {digest} {name}"
    if record.get("report") is not None:
        yield from _applied_lines(record["report"])
        yield from _noted_lines(record["report"])


def _details(record: Mapping[str, Any]) -> str:
    parts = [] if record["actor"] is None else [f"by {record['actor']}"]
    if record["revision"] is not None:
        parts.append(f"revision {record['revision']}")
    if record["in_force"] is not None:
        parts.append("in force" if record["in_force"] else "not in force")
    return "".join(f", {part}" for part in parts)


def _word(value: bool) -> str:
    return "true" if value else "false"


def approve_lines(report: ApproveReport) -> Iterator[str]:
    if report.ok:
        yield (
            f"cluster approve: {report.operation} {report.resource} approved by "
            f"{report.approved_by} (approval {report.approval_id})"
        )
    else:
        yield "cluster approve failed"
    yield from _problems(report.diagnostics)


def _lock_text(lock: LockRead) -> str:
    record = lock.record
    return (
        f"id={record.lock_id}, operation={record.operation}, pid={record.pid}, "
        f"created_at={record.created_at}, age_seconds={lock.age_seconds}"
    )


def status_lines(report: StateReport) -> Iterator[str]:
    state = report.state
    if not report.ok:
        yield "cluster status failed"
    elif not state.has_state:
        yield "cluster state missing"
    else:
        yield f"cluster state: revision {state.revision}, {state.resource_count} resource(s)"
        yield f"  applied config: {state.config_digest or 'none'}"
    lock = state.foreign_lock
    yield "  lock: not held" if lock is None else f"  lock: held ({_lock_text(lock)})"
    for address, status in report.statuses.items():
        if status["status"] != "applied":
            conditions = ", ".join(status.get("conditions", ()))
            yield f"  {address}: {status['status']} ({conditions})"
    yield from _problems(report.diagnostics)


def observed_lines(report: StateReport) -> Iterator[str]:
    state = report.state
    if not report.ok:
        yield f"cluster {report.operation} failed"
    else:
        revision, count = state.revision, state.resource_count
        yield f"cluster {report.operation}: revision {revision}, {count} resource(s)"
        yield f"  state_cas: {state.cas}"
        lock = "not acquired" if state.acquired is None else f"acquired ({state.acquired})"
        yield f"  lock: {lock}"
    yield from _problems(report.diagnostics)


def drift_lines(report: DriftReport) -> Iterator[str]:
    if not report.ok:
        yield "cluster drift failed"
    else:
        yield f"cluster drift: {len(report.findings)} finding(s)"
    for finding in report.findings:
        yield f"  {finding.resource}: {finding.condition}: {finding.message}"
    yield from _problems(report.diagnostics)


def unlock_lines(report: UnlockReport) -> Iterator[str]:
    lock = report.state.foreign_lock
    if report.ok and lock is not None:
        yield f"cluster force-unlock: removed lock ({_lock_text(lock)})"
    else:
        yield "cluster force-unlock failed"
        if lock is not None:
            yield f"  lock: held ({_lock_text(lock)})"
    yield from _problems(report.diagnostics)
