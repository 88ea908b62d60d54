"""What to run for a graph, most urgent first, from what the doctor found."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from omnigraph.maintain.doctor.report import Advice, DoctorReport
from omnigraph.maintain.optimize.policy import MaintenancePolicy
from omnigraph.maintain.wording import age_text, counted, size_text

FRESH = 60
"""A write that is younger, in seconds, may just be under way."""
ABANDONED = 24 * 3600
"""A write that stages for longer has probably died."""


def advice_for(report: DoctorReport, policy: MaintenancePolicy) -> list[Advice]:
    """One line for each command that helps."""
    return [*_broken(report), *_unsettled(report), *_drifted(report), *_worn(report, policy)]


def _broken(report: DoctorReport) -> Iterator[Advice]:
    broken = [table.table_key for table in report.tables if table.error]
    if broken:
        yield Advice(_command(report, "verify"), f"cannot be read: {_listed(broken)}")


def _unsettled(report: DoctorReport) -> Iterator[Advice]:
    unreadable = [each for each in report.writes if each.error]
    dead = [each for each in report.writes if not each.error and each.age >= FRESH]
    if unreadable:
        yield Advice(
            _command(report, "verify"),
            f"{counted(len(unreadable), 'recovery file')} cannot be read; no write is taken",
        )
    if dead:
        oldest = age_text(max(each.age for each in dead))
        yield Advice(
            _command(report, "repair"),
            f"{counted(len(dead), 'interrupted write')} to settle, the oldest {oldest} old",
        )


def _drifted(report: DoctorReport) -> Iterator[Advice]:
    drifted = [table.table_key for table in report.tables if table.head is not None]
    if drifted:
        command = _command(report, "repair", on_branch=True)
        yield Advice(command, f"written past the graph: {_listed(drifted)}")


def _worn(report: DoctorReport, policy: MaintenancePolicy) -> Iterator[Advice]:
    worn = {table.table_key: table.reasons for table in report.tables if table.reasons}
    if worn:
        first = next(iter(worn))
        more = "" if len(worn) == 1 else f"; and {counted(len(worn) - 1, 'other table')}"
        yield Advice(
            _command(report, "optimize", on_branch=True), f"{first}: {worn[first][0]}{more}"
        )
    found = report.cleanup
    most = max((table.versions for table in report.tables), default=0)
    old = [each for each in report.staging if each.age >= ABANDONED]
    why = None
    if found.size > policy.bytes:
        why = f"frees {size_text(found.size)} > {size_text(policy.bytes)}"
    elif most > policy.versions and (found.versions or found.why):
        why = f"{most} versions of one table > {policy.versions}"
    elif old:
        why = f"{counted(len(old), 'marker')} of writes that died while they staged"
    if why is not None:
        yield Advice(_command(report, f"cleanup --keep {found.keep} --confirm"), why)


def _command(report: DoctorReport, words: str, *, on_branch: bool = False) -> str:
    verb, _, options = words.partition(" ")
    parts = ["omnigraph", verb, shlex.quote(report.uri), options]
    if on_branch and report.branch != "main":
        parts.append(f"--branch {shlex.quote(report.branch)}")
    return " ".join(part for part in parts if part)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
