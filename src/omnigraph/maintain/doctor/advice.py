"""The commands to run for a graph, most urgent first."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from omnigraph.maintain.doctor.report import Advice, DoctorReport
from omnigraph.maintain.optimize.policy import MaintenancePolicy
from omnigraph.maintain.units import format_bytes, format_duration, plural

FRESH = 60
"""A write younger than this, in seconds, may still be in progress."""
ABANDONED = 24 * 3600
"""A write that stages for longer has probably died."""


def advice_for(report: DoctorReport, policy: MaintenancePolicy) -> Iterator[Advice]:
    """One entry per command that helps."""
    yield from _unreadable(report)
    yield from _interrupted(report)
    yield from _drifted(report)
    yield from _optimize(report)
    yield from _cleanup(report, policy)


def _unreadable(report: DoctorReport) -> Iterator[Advice]:
    broken = [table.table_key for table in report.tables if table.error]
    if broken:
        yield Advice(_command(report, "verify"), f"cannot be read: {_first_of(broken)}")


def _interrupted(report: DoctorReport) -> Iterator[Advice]:
    unreadable = [write for write in report.writes if write.error]
    dead = [write for write in report.writes if not write.error and write.age >= FRESH]
    if unreadable:
        yield Advice(
            _command(report, "verify"),
            f"{plural(len(unreadable), 'recovery file')} cannot be read; writes are refused",
        )
    if dead:
        oldest = format_duration(max(write.age for write in dead))
        yield Advice(
            _command(report, "repair"),
            f"{plural(len(dead), 'interrupted write')} to recover, the oldest {oldest} old",
        )


def _drifted(report: DoctorReport) -> Iterator[Advice]:
    drifted = [table.table_key for table in report.tables if table.head is not None]
    if drifted:
        command = _command(report, "repair", on_branch=True)
        yield Advice(command, f"written outside the graph: {_first_of(drifted)}")


def _optimize(report: DoctorReport) -> Iterator[Advice]:
    reasons = {table.table_key: table.reasons for table in report.tables if table.reasons}
    if reasons:
        first = next(iter(reasons))
        more = "" if len(reasons) == 1 else f"; and {plural(len(reasons) - 1, 'other table')}"
        command = _command(report, "optimize", on_branch=True)
        yield Advice(command, f"{first}: {reasons[first][0]}{more}")


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
