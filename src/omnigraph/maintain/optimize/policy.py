"""When upkeep is worth it: the numbers that ``optimize(if_needed=True)`` and the doctor go by.

In embedded use nobody runs upkeep unasked, but for the manifest, which keeps itself small. A
server, or whoever runs ``optimize`` by the clock, decides by a policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from omnigraph.errors import InputError
from omnigraph.maintain.optimize.upkeep_plan import TablePlan
from omnigraph.maintain.report import Report
from omnigraph.storage.tables.compaction import FragmentState
from omnigraph.storage.tables.segments import Segment

_SHARES = ("deleted_share", "uncovered_share", "recall")


@dataclass(frozen=True, slots=True)
class MaintenancePolicy(Report):
    """What a table may have before something is done about it.

    >>> MaintenancePolicy(small_fragments=100).recall
    0.9
    """

    small_fragments: int = 8
    """Small parts that could go into others."""
    deleted_share: float = 0.1
    """Of the rows of one part, those that are deleted."""
    uncovered_share: float = 0.1
    """Of the rows of a table, those that one of its indexes does not know."""
    uncovered_rows: int = 1000
    """Fewer of them are no reason, however small the table: they are looked through in no time."""
    versions: int = 1000
    """Versions of one table: more are a reason for cleanup."""
    bytes: int = 1 << 30
    """Bytes that cleanup would free: more are a reason for it."""
    recall: float = 0.9
    """Of the near rows, those that an index which is not exact has to find."""

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not value >= 0 or (name in _SHARES and value > 1):
                wanted = "from 0 to 1" if name in _SHARES else "that is not negative"
                raise InputError(
                    f"the policy has {name}={value!r}", hint=f"{name} is a number {wanted}"
                )


DEFAULT_POLICY = MaintenancePolicy()


def reasons_for(
    plan: TablePlan,
    parts: Sequence[FragmentState],
    known: Mapping[str, Sequence[Segment]],
    policy: MaintenancePolicy = DEFAULT_POLICY,
) -> tuple[str, ...]:
    """Why a plan is worth a commit, one sentence each; nothing when it is not."""
    return tuple(_reasons(plan, parts, known, policy))


def _reasons(
    plan: TablePlan,
    parts: Sequence[FragmentState],
    known: Mapping[str, Sequence[Segment]],
    policy: MaintenancePolicy,
) -> Iterator[str]:
    if plan.settings:
        yield "settings by which Lance removes versions on its own"
    small = sum(len(group) for group in plan.groups if len(group) > 1)
    if small > policy.small_fragments:
        yield f"{small} small fragments > {policy.small_fragments}"
    worst = max((part.deleted / (part.rows + part.deleted or 1) for part in parts), default=0.0)
    if worst > policy.deleted_share and plan.groups:
        yield f"{worst:.0%} of a fragment deleted > {policy.deleted_share:.0%}"
    for index in plan.indexes:
        if index.is_new:
            yield f"index {index.spec.name} is missing"
        elif index.rebuild is not None:
            yield f"index {index.spec.name}: {index.rebuild}"
    yield from _uncovered(plan, parts, known, policy)


def _uncovered(
    plan: TablePlan,
    parts: Sequence[FragmentState],
    known: Mapping[str, Sequence[Segment]],
    policy: MaintenancePolicy,
) -> Iterator[str]:
    """The index that lacks most, for all of them."""
    total = sum(part.rows for part in parts)
    lacking: dict[str, int] = {}
    for name in (index.spec.name for index in plan.indexes if not index.is_new):
        covered = {n for s in known.get(name, ()) for n in s.parts}
        rows = sum(part.rows for part in parts if part.number not in covered)
        if rows >= policy.uncovered_rows and rows > policy.uncovered_share * total:
            lacking[name] = rows
    if lacking:
        worst = max(lacking, key=lambda name: lacking[name])
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        share, most = lacking[worst] / total, policy.uncovered_share
        yield f"{share:.0%} of the rows not in index {worst}{more} > {most:.0%}"
