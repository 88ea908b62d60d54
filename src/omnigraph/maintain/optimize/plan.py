"""The work that one table needs: which fragments to rewrite, which rows to index; and a policy.

Pure functions. A second run finds nothing to do: fragments are merged so that no two of the
remaining ones would fit into one. And an index is not rebuilt for a few rows: new rows get a
segment of their own, unless some of them may be in an older segment too, where a text index would
still find them by their former words.

In embedded use nothing is maintained without a call, except for the manifest, which keeps itself
small, and the tails of tables if a handle asks for it (``maintain.background``).
``optimize(if_needed=True)``, the doctor and a server decide by a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields

from omnigraph.errors import InputError
from omnigraph.maintain.report import Report
from omnigraph.records import dataclass
from omnigraph.storage.tables.segments import Segment
from omnigraph.storage.tables.store import ROWS_PER_FRAGMENT
from omnigraph.storage.tables.table import FragmentInfo
from omnigraph.storage.tables.types import IndexSpec

SPARSE = 0.1
"""A fragment with a larger fraction of deleted rows is rewritten."""
MAX_SEGMENTS = 8
"""An index that would have more is rebuilt as one segment."""
LARGE_SEGMENT = 8 * ROWS_PER_FRAGMENT
"""Fragments are not merged across the boundary of a segment with so many rows."""

OldestVersion = Callable[[Iterable[int]], int]
"""The version that wrote the oldest row of some fragments."""


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """An index that does not cover all rows.

    ``fragments`` are to be indexed besides all rewritten ones; ``dropped`` are the segments whose
    rows are among them.
    """

    spec: IndexSpec
    fragments: frozenset[int]
    dropped: tuple[Segment, ...] = ()
    is_new: bool = False
    rebuild: str | None = None
    """Why an existing index is rebuilt."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The work for one table. Each group of fragments becomes one, or a few if it is large."""

    groups: tuple[tuple[int, ...], ...] = ()
    indexes: tuple[IndexPlan, ...] = ()
    settings: tuple[str, ...] = ()
    """Stored settings to remove."""

    @property
    def is_empty(self) -> bool:
        return not (self.groups or self.indexes or self.settings)

    @property
    def dropped(self) -> tuple[Segment, ...]:
        return tuple(segment for index in self.indexes for segment in index.dropped)


def plan_table(
    fragments: Sequence[FragmentInfo],
    existing: Mapping[str, Sequence[Segment]],
    wanted: Sequence[IndexSpec],
    oldest: OldestVersion,
    settings: Sequence[str] = (),
    rebuilt: Mapping[str, str] | None = None,
) -> TablePlan:
    """The plan for a table with these fragments and segments; ``wanted`` are its possible indexes.

    ``rebuilt`` gives the reason, by name, for each index that has to be rebuilt.
    """
    why = rebuilt or {}
    rows = {fragment.number: fragment.rows for fragment in fragments}
    ours = {spec.name for spec in wanted}
    own = [s for name, segments in existing.items() if name in ours for s in segments]
    # Indexes of other programs cannot be rebuilt here.
    fixed = [s for name, segments in existing.items() if name not in ours for s in segments]
    large = [s for s in own if sum(rows.get(n, 0) for n in s.fragments) >= LARGE_SEGMENT]
    replaced: set[str] = set()
    while True:
        barriers = [*fixed, *(s for s in large if s.uuid not in replaced)]
        groups = tuple(_groups(fragments, barriers))
        planned = (
            _index_plan(spec, existing.get(spec.name), rows, groups, oldest, why.get(spec.name))
            for spec in wanted
        )
        indexes = tuple(index for index in planned if index is not None)
        dropped = {s.uuid for index in indexes for s in index.dropped}
        if dropped <= replaced:
            return TablePlan(groups, indexes, tuple(settings))
        # A segment that is dropped anyway need not separate fragments: plan without it.
        replaced |= dropped


@dataclass(slots=True)
class _Bin:
    """Fragments that become one; too many rows become several, of which the last has room."""

    filled: int
    fragments: list[FragmentInfo]


def _groups(
    fragments: Sequence[FragmentInfo], barriers: Sequence[Segment]
) -> Iterator[tuple[int, ...]]:
    """Fragments that fit into one, and fragments with many deleted rows.

    First fit over all fragments: rewritten ones come last, so adjacency does not matter. No two
    bins can then be merged, in whatever order a later run visits them.
    """
    bins: dict[frozenset[str], list[_Bin]] = {}
    for fragment in fragments:
        if fragment.rows >= ROWS_PER_FRAGMENT and not _is_sparse(fragment):
            continue
        side = frozenset(b.uuid for b in barriers if fragment.number in b.fragments)
        same_side = bins.setdefault(side, [])
        # The last fragment of a rewritten large one: the others are full.
        rows = (fragment.rows - 1) % ROWS_PER_FRAGMENT + 1
        room = next((b for b in same_side if b.filled + rows <= ROWS_PER_FRAGMENT), None)
        if room is None:
            same_side.append(_Bin(rows, [fragment]))
        else:
            room.filled += rows
            room.fragments.append(fragment)
    for group in (b.fragments for same_side in bins.values() for b in same_side):
        if len(group) > 1 or _is_sparse(group[0]):
            yield tuple(fragment.number for fragment in group)


def _is_sparse(fragment: FragmentInfo) -> bool:
    return fragment.deleted > SPARSE * (fragment.rows + fragment.deleted)


def _index_plan(
    spec: IndexSpec,
    segments: Sequence[Segment] | None,
    rows: Mapping[int, int],
    groups: Sequence[Sequence[int]],
    oldest: OldestVersion,
    rebuild: str | None = None,
) -> IndexPlan | None:
    """The fragments that an index lacks, and the segments that a new one replaces."""
    rewritten = {number for group in groups for number in group}
    if segments is None:
        return IndexPlan(spec, frozenset(rows.keys() - rewritten), is_new=True)
    if rebuild is not None:
        return IndexPlan(spec, frozenset(rows.keys() - rewritten), tuple(segments), rebuild=rebuild)
    kept = [segment for segment in segments if not segment.is_misnamed]
    covered = {number for segment in kept for number in segment.fragments}
    lacking = (rows.keys() - covered) | rewritten
    if not lacking:
        return None
    while True:
        age = oldest(lacking)
        replaced = [
            s
            for s in kept
            if s.version >= age or s.fragments & rewritten or not s.fragments & rows.keys()
        ]
        if not replaced and len(kept) >= MAX_SEGMENTS:
            replaced = kept
        if not replaced:
            break
        kept = [segment for segment in kept if segment not in replaced]
        lacking |= {n for segment in replaced for n in segment.fragments & rows.keys()}
    dropped = tuple(segment for segment in segments if segment not in kept)
    return IndexPlan(spec, frozenset(lacking - rewritten), dropped)


# -- when it is worthwhile ------------------------------------------------------------------------

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
    """Fewer missing rows are ignored, however small the table: scanning them is fast."""
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
    fragments: Sequence[FragmentInfo],
    segments: Mapping[str, Sequence[Segment]],
    policy: MaintenancePolicy = DEFAULT_POLICY,
) -> tuple[str, ...]:
    """Why a plan is worth a commit; empty if it is not."""
    reasons = []
    if plan.settings:
        reasons.append("settings that let Lance remove versions on its own")
    small = sum(len(group) for group in plan.groups if len(group) > 1)
    if small > policy.small_fragments:
        reasons.append(f"{small} small fragments > {policy.small_fragments}")
    worst = max((f.deleted / (f.rows + f.deleted or 1) for f in fragments), default=0.0)
    if worst > policy.deleted_fraction and plan.groups:
        reasons.append(f"{worst:.0%} of a fragment deleted > {policy.deleted_fraction:.0%}")
    for index in plan.indexes:
        if index.is_new:
            reasons.append(f"index {index.spec.name} is missing")
        elif index.rebuild is not None:
            reasons.append(f"index {index.spec.name}: {index.rebuild}")
    return (*reasons, *_uncovered(plan, fragments, segments, policy))


def _uncovered(
    plan: TablePlan,
    fragments: Sequence[FragmentInfo],
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
