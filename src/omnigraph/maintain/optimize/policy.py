"""When maintenance is worthwhile: the thresholds of ``optimize(if_needed=True)`` and the doctor.

In embedded use nothing is maintained without a call, except for the manifest, which keeps itself
small. A server, or a scheduled ``optimize``, decides by a policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from omnigraph.errors import InputError
from omnigraph.maintain.optimize.plan import TablePlan
from omnigraph.maintain.report import Report
from omnigraph.storage.tables.compaction import FragmentState
from omnigraph.storage.tables.segments import Segment

_FRACTIONS = ("deleted_fraction", "uncovered_fraction", "recall")


@dataclass(frozen=True, slots=True)
class MaintenancePolicy(Report):
    """The thresholds of a table above which maintenance is worthwhile.

    >>> MaintenancePolicy(small_fragments=100).recall
    0.9
    """

    small_fragments: int = 8
    """Small fragments that could be merged."""
    deleted_fraction: float = 0.1
    """The fraction of deleted rows in one fragment."""
    uncovered_fraction: float = 0.1
    """The fraction of a table's rows missing from one of its indexes."""
    uncovered_rows: int = 1000
    """Fewer missing rows are no reason, however small the table: scanning them is fast."""
    versions: int = 1000
    """Versions of one table; more are a reason for cleanup."""
    bytes: int = 1 << 30
    """Bytes that cleanup would free; more are a reason for it."""
    recall: float = 0.9
    """The fraction of the nearest rows that an approximate index has to find."""

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not value >= 0 or (name in _FRACTIONS and value > 1):
                expected = "from 0 to 1" if name in _FRACTIONS else "of at least 0"
                raise InputError(
                    f"invalid policy: {name}={value!r}", hint=f"{name} is a number {expected}"
                )


DEFAULT_POLICY = MaintenancePolicy()


def reasons_for(
    plan: TablePlan,
    fragments: Sequence[FragmentState],
    segments: Mapping[str, Sequence[Segment]],
    policy: MaintenancePolicy = DEFAULT_POLICY,
) -> tuple[str, ...]:
    """Why a plan is worth a commit; empty if it is not."""
    return tuple(_reasons(plan, fragments, segments, policy))


def _reasons(
    plan: TablePlan,
    fragments: Sequence[FragmentState],
    segments: Mapping[str, Sequence[Segment]],
    policy: MaintenancePolicy,
) -> Iterator[str]:
    if plan.settings:
        yield "settings that let Lance remove versions on its own"
    small = sum(len(group) for group in plan.groups if len(group) > 1)
    if small > policy.small_fragments:
        yield f"{small} small fragments > {policy.small_fragments}"
    worst = max((f.deleted / (f.rows + f.deleted or 1) for f in fragments), default=0.0)
    if worst > policy.deleted_fraction and plan.groups:
        yield f"{worst:.0%} of a fragment deleted > {policy.deleted_fraction:.0%}"
    for index in plan.indexes:
        if index.is_new:
            yield f"index {index.spec.name} is missing"
        elif index.rebuild is not None:
            yield f"index {index.spec.name}: {index.rebuild}"
    yield from _uncovered(plan, fragments, segments, policy)


def _uncovered(
    plan: TablePlan,
    fragments: Sequence[FragmentState],
    segments: Mapping[str, Sequence[Segment]],
    policy: MaintenancePolicy,
) -> Iterator[str]:
    """The least complete index, on behalf of all."""
    total = sum(fragment.rows for fragment in fragments)
    lacking: dict[str, int] = {}
    for name in (index.spec.name for index in plan.indexes if not index.is_new):
        covered = {n for s in segments.get(name, ()) for n in s.fragments}
        rows = sum(f.rows for f in fragments if f.number not in covered)
        if rows >= policy.uncovered_rows and rows > policy.uncovered_fraction * total:
            lacking[name] = rows
    if lacking:
        worst = max(lacking, key=lambda name: lacking[name])
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        fraction, limit = lacking[worst] / total, policy.uncovered_fraction
        yield f"{fraction:.0%} of the rows not in index {worst}{more} > {limit:.0%}"
