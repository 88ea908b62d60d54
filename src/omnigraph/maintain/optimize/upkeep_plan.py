"""What there is to do for one table: which parts are written again, which rows are indexed.

Nothing here reads or writes. Two things are kept in mind. A second run finds nothing to do: parts
are put together so that no two of those left would fit into one. And an index is not built anew
for a few rows: new ones get a segment of their own, as long as no row in it can be in an older one
too, which a text index would then find by words that it had before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from omnigraph.storage.tables.compaction import FragmentState
from omnigraph.storage.tables.segments import Segment
from omnigraph.storage.tables.store import ROWS_PER_FRAGMENT
from omnigraph.storage.tables.types import IndexSpec

THIN = 0.1
"""A part of which more than this is deleted is written again."""
MOST_SEGMENTS = 8
"""An index that would have more is built anew as one."""
LARGE_SEGMENT = 8 * ROWS_PER_FRAGMENT
"""Parts are not put together across the edge of a segment that knows so many rows."""

Oldest = Callable[[Iterable[int]], int]
"""The version that made the oldest row of some parts."""


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """An index that does not know everything yet.

    ``parts`` are to be indexed besides all that are written again; ``dropped`` are the segments
    whose rows are among them.
    """

    spec: IndexSpec
    parts: frozenset[int]
    dropped: tuple[Segment, ...] = ()
    is_new: bool = False
    rebuild: str | None = None
    """Why it is built anew, if it is there and does not fit."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What one table needs. Each group of parts becomes one, or a few if it has many rows."""

    groups: tuple[tuple[int, ...], ...] = ()
    indexes: tuple[IndexPlan, ...] = ()
    settings: tuple[str, ...] = ()
    """Stored settings that have to go."""

    @property
    def is_empty(self) -> bool:
        return not (self.groups or self.indexes or self.settings)

    @property
    def dropped(self) -> tuple[Segment, ...]:
        return tuple(segment for index in self.indexes for segment in index.dropped)


def plan_table(
    parts: Sequence[FragmentState],
    known: Mapping[str, Sequence[Segment]],
    wanted: Sequence[IndexSpec],
    oldest: Oldest,
    settings: Sequence[str] = (),
    rebuilt: Mapping[str, str] | None = None,
) -> TablePlan:
    """Plan for a table with these parts and segments; ``wanted`` are the indexes it can have.

    ``rebuilt`` are those that do not fit any more, by name, each with the reason.
    """
    why = rebuilt or {}
    rows = {part.number: part.rows for part in parts}
    ours = {spec.name for spec in wanted}
    own = [s for name, segments in known.items() if name in ours for s in segments]
    # Nobody here could build those again.
    fixed = [s for name, segments in known.items() if name not in ours for s in segments]
    large = [s for s in own if sum(rows.get(n, 0) for n in s.parts) >= LARGE_SEGMENT]
    gone: set[str] = set()
    while True:
        walls = [*fixed, *(s for s in large if s.uuid not in gone)]
        groups = tuple(_groups(parts, walls))
        planned = (
            _index_plan(spec, known.get(spec.name), rows, groups, oldest, why.get(spec.name))
            for spec in wanted
        )
        indexes = tuple(index for index in planned if index is not None)
        found = {s.uuid for index in indexes for s in index.dropped}
        if found <= gone:
            return TablePlan(groups, indexes, tuple(settings))
        # A segment that goes anyway is no reason to keep parts apart: plan without it.
        gone |= found


@dataclass(slots=True)
class _Bin:
    """Parts that become one; one of too many rows becomes several, of which the last has room."""

    filled: int
    parts: list[FragmentState]


def _groups(parts: Sequence[FragmentState], walls: Sequence[Segment]) -> Iterator[tuple[int, ...]]:
    """Parts that fit into one, and parts of which much is deleted.

    Each goes to the first that has room, wherever it stands: parts that are written again come
    last in a table, so that who was a neighbour is no guide. No two can then go together, in
    whatever order a later run meets them.
    """
    bins: dict[frozenset[str], list[_Bin]] = {}
    for part in parts:
        thin = _is_thin(part)
        if part.rows >= ROWS_PER_FRAGMENT and not thin:
            continue
        side = frozenset(wall.uuid for wall in walls if part.number in wall.parts)
        known = bins.setdefault(side, [])
        # The last part of a thin giant: the others are full.
        rows = (part.rows - 1) % ROWS_PER_FRAGMENT + 1
        room = next((b for b in known if b.filled + rows <= ROWS_PER_FRAGMENT), None)
        if room is None:
            known.append(_Bin(rows, [part]))
        else:
            room.filled += rows
            room.parts.append(part)
    for each in (b for known in bins.values() for b in known):
        if len(each.parts) > 1 or _is_thin(each.parts[0]):
            yield tuple(part.number for part in each.parts)


def _is_thin(part: FragmentState) -> bool:
    return part.deleted > THIN * (part.rows + part.deleted)


def _index_plan(
    spec: IndexSpec,
    segments: Sequence[Segment] | None,
    rows: Mapping[int, int],
    groups: Sequence[Sequence[int]],
    oldest: Oldest,
    rebuild: str | None = None,
) -> IndexPlan | None:
    """Which parts an index lacks, and which of its segments cannot stay beside a new one."""
    again = {number for group in groups for number in group}
    if segments is None:
        return IndexPlan(spec, frozenset(rows.keys() - again), is_new=True)
    if rebuild is not None:
        return IndexPlan(spec, frozenset(rows.keys() - again), tuple(segments), rebuild=rebuild)
    kept = [segment for segment in segments if not segment.is_misnamed]
    covered = {number for segment in kept for number in segment.parts}
    lacking = (rows.keys() - covered) | again
    if not lacking:
        return None
    while True:
        age = oldest(lacking)
        leaving = [
            s for s in kept if s.version >= age or s.parts & again or not s.parts & rows.keys()
        ]
        if not leaving and len(kept) >= MOST_SEGMENTS:
            leaving = kept
        if not leaving:
            break
        kept = [segment for segment in kept if segment not in leaving]
        lacking |= {n for segment in leaving for n in segment.parts & rows.keys()}
    dropped = tuple(segment for segment in segments if segment not in kept)
    return IndexPlan(spec, frozenset(lacking - again), dropped)
