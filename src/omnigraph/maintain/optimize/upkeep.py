"""Doing what tables need: all rewriting as one list of shares, then all index building as another.

So one pool of threads, or one job of Spark, works on the tables together, and a large one does
not wait for the small ones. Nothing moves: what comes out are staged steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.snapshot import Pin
from omnigraph.commit.store import GraphStore
from omnigraph.errors import OmniGraphError
from omnigraph.maintain.optimize.indexes import IndexState, fitted, obstacle
from omnigraph.maintain.optimize.policy import DEFAULT_POLICY, MaintenancePolicy, reasons_for
from omnigraph.maintain.optimize.upkeep_plan import IndexPlan, TablePlan, plan_table
from omnigraph.maintain.optimize.vector_indexes import partitions_for
from omnigraph.storage.tables.compaction import (
    CompactionResult,
    CompactionSplit,
    FragmentState,
    compact,
    compaction_split,
    discard_compaction,
    fragment_states,
    stage_before_indexes,
    stage_segments,
    stored_cleanup,
)
from omnigraph.storage.tables.fragments import TableLocator, locate_table, open_version
from omnigraph.storage.tables.inline import as_if_committed
from omnigraph.storage.tables.segments import (
    BuiltIndex,
    IndexBuild,
    Segment,
    build_segment,
    discard_segments,
    index_facts,
    is_divisible,
    join_segments,
    learnt_centroids,
    oldest_rows,
    segments_of,
)
from omnigraph.storage.tables.table import Table
from omnigraph.storage.tables.types import IndexSpec, StagedTable
from omnigraph.write.fragments import Runner

REWRITING = "rewriting"
INDEXING = "indexing"

Tell = Callable[[str, int, int], None]
"""Is told a phase, how many shares of it are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class Workforce:
    """Who does the work, and how it is divided: an index of more rows is built by several."""

    run: Runner
    index_rows: int | None = None


def threads(count: int, tell: Tell | None = None) -> Workforce:
    """The threads of this process; Lance itself uses all cores for one share."""

    def run(work: Callable[[Any], Any], shares: Sequence[Any], label: str) -> list[Any]:
        told = tell or (lambda label, done, total: None)
        if len(shares) < 2 or count < 2:
            answers = []
            for done, share in enumerate(shares, 1):
                answers.append(work(share))
                told(label, done, len(shares))
            return answers
        with ThreadPoolExecutor(min(count, len(shares)), "omnigraph-upkeep") as pool:
            futures = [pool.submit(work, share) for share in shares]
            try:
                for done, future in enumerate(as_completed(futures), 1):
                    future.result()
                    told(label, done, len(shares))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
            return [future.result() for future in futures]

    return Workforce(run)


@dataclass(frozen=True, slots=True)
class Survey:
    """One table as a snapshot shows it, and what it needs."""

    table_key: str
    pin: Pin
    table: Table
    parts: tuple[FragmentState, ...]
    segments: Mapping[str, Sequence[Segment]]
    plan: TablePlan
    pending: tuple[IndexState, ...] = ()
    """Indexes that cannot be built from what is there."""

    def reasons(self, policy: MaintenancePolicy) -> tuple[str, ...]:
        """Why it is worth a commit."""
        return reasons_for(self.plan, self.parts, self.segments, policy)

    @property
    def size(self) -> int:
        """The bytes that are read: of what is rewritten, or of all when there is to be indexed."""
        again = {number for group in self.plan.groups for number in group}
        whole = bool(self.plan.indexes)
        return sum(part.size for part in self.parts if whole or part.number in again)


def survey(
    store: GraphStore,
    table_key: str,
    pin: Pin,
    specs: Sequence[IndexSpec],
    policy: MaintenancePolicy = DEFAULT_POLICY,
) -> Survey:
    """Look at a table; no row is read but the ages of those that no index knows.

    Of an index that is not exact, and may have worn, it is measured what it finds.
    """
    table = store.table(pin)
    segments = segments_of(table)
    facts = index_facts(table)
    pending: list[IndexState] = []
    wanted: list[IndexSpec] = []
    rebuilt: dict[str, str] = {}
    for spec in specs:
        reason = None if spec.name in segments else obstacle(table, pin, spec)
        if reason is None:
            choice, why = fitted(table, pin, spec, facts.get(spec.name), policy.recall)
            wanted.append(choice)
            if why is not None:
                rebuilt[spec.name] = why
        else:
            pending.append(IndexState(table_key, spec.column, spec.kind, None, reason))
    parts = fragment_states(table)
    plan = plan_table(parts, segments, wanted, _Ages(table), stored_cleanup(table), rebuilt)
    return Survey(table_key, pin, table, parts, segments, plan, tuple(pending))


class _Ages:
    """The oldest row of parts, each looked at once and only when somebody asks."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._known: dict[int, int] = {}

    def __call__(self, parts: Iterable[int]) -> int:
        wanted = set(parts)
        new = wanted - self._known.keys()
        if new:
            self._known |= oldest_rows(self._table, sorted(new))
        return min(self._known[number] for number in wanted)


@dataclass(slots=True)
class Upkeep:
    """What was done for one table, and is still to be committed."""

    survey: Survey
    compacted: tuple[CompactionResult, ...] = ()
    built: tuple[BuiltIndex, ...] = ()
    failed: tuple[IndexSpec, ...] = ()
    steps: tuple[StagedTable, ...] = field(default=(), repr=False)

    @property
    def fragments_removed(self) -> int:
        return sum(len(each.old) for each in self.compacted)

    @property
    def fragments_added(self) -> int:
        return sum(len(each.new) for each in self.compacted)


@dataclass(frozen=True, slots=True)
class _Indexing:
    """One index of one table on its way: over which parts of which version."""

    owner: Upkeep
    plan: IndexPlan
    place: TableLocator
    shares: tuple[IndexBuild, ...]


_Group = tuple[str, tuple[str, ...]]
"""A table and what the parts of it consist of that become one."""


class Upkeeping:
    """Does the work, also again when tables moved: parts that stayed are not rewritten twice."""

    def __init__(self, store: GraphStore, force: Workforce) -> None:
        self._store = store
        self._force = force
        self._rewritten: dict[_Group, CompactionResult] = {}
        self._built: dict[str, tuple[BuiltIndex, ...]] = {}

    def do(self, surveys: Sequence[Survey]) -> dict[str, Upkeep]:
        """Stage what the tables need, by table key; one that needs nothing after all is missing."""
        reached(Failpoint.OPTIMIZE_BEFORE_COMPACTION)
        done = [Upkeep(each) for each in surveys]
        self._compact(done)
        reached(Failpoint.OPTIMIZE_AFTER_COMPACTION)
        with ExitStack() as views:
            self._index(done, views)
        reached(Failpoint.OPTIMIZE_AFTER_STAGE)
        return {each.survey.table_key: each for each in done if each.steps}

    def forget(self) -> None:
        """Start anew: what was made until now may be part of a version, though an undone one."""
        self._rewritten.clear()
        self._built.clear()

    # -- rewriting -----------------------------------------------------------------------

    def _compact(self, done: Sequence[Upkeep]) -> None:
        wanted = {_named(each.survey, g): (each.survey, g) for each in done for g in _groups(each)}
        self._discard_superseded(done, wanted)
        new = [key for key in wanted if key not in self._rewritten]
        if new:
            shares = [self._share(*wanted[key]) for key in new]
            answers = self._force.run(compact, shares, REWRITING)
            self._rewritten.update(zip(new, answers, strict=True))
        for each in done:
            each.compacted = tuple(
                self._rewritten[_named(each.survey, group)] for group in _groups(each)
            )

    def _share(self, survey: Survey, group: Sequence[FragmentState]) -> CompactionSplit:
        numbers = [part.number for part in group]
        return compaction_split(survey.table, self._place(survey), numbers)

    def _discard_superseded(self, done: Sequence[Upkeep], wanted: Mapping[_Group, object]) -> None:
        """Remove what was made of these tables before, and fits no more."""
        refs = {each.survey.table_key: each.survey.table.ref for each in done}
        datasets = self._store.datasets
        # What is left of it takes room, and cleanup finds it.
        with suppress(OmniGraphError):
            for key in [k for k in self._rewritten if k[0] in refs and k not in wanted]:
                discard_compaction(datasets, refs[key[0]], [self._rewritten.pop(key)])
            for table_key, ref in refs.items():
                discard_segments(datasets, ref.path, self._built.pop(table_key, ()))

    def _place(self, survey: Survey) -> TableLocator:
        return locate_table(self._store.datasets, survey.table)

    # -- indexing ------------------------------------------------------------------------

    def _index(self, done: Sequence[Upkeep], views: ExitStack) -> None:
        jobs = [job for each in done for job in self._jobs(each, views)]
        shares = [share for job in jobs for share in job.shares]
        answers = iter(self._force.run(build_segment, shares, INDEXING) if shares else ())
        for job in jobs:
            self._finish(job, [next(answers) for _ in job.shares])
        for each in done:
            self._built[each.survey.table_key] = each.built
            if each.built:
                built = {found.spec for found in each.built}
                plans = [p for p in each.survey.plan.indexes if p.spec in built]
                # Beside a rewriting they have gone in a step of their own.
                left = () if each.compacted else tuple(s for p in plans for s in p.dropped)
                last = stage_segments(each.survey.table, len(each.steps), each.built, left)
                each.steps = (*each.steps, last)

    def _jobs(self, each: Upkeep, views: ExitStack) -> Iterator[_Indexing]:
        """The indexes of a table, to be built on what it will be when it is rewritten."""
        found, plan = each.survey, each.survey.plan
        each.steps = stage_before_indexes(found.table, plan.settings, plan.dropped, each.compacted)
        if not plan.indexes:
            return
        place = self._place(found)
        rows = {part.number: part.rows for part in found.parts}
        new: set[int] = set()
        if each.compacted:
            place = views.enter_context(as_if_committed(place, each.steps))
            seen = {info.number: info.rows for info in open_version(place).fragments()}
            new, rows = seen.keys() - rows.keys(), seen
        for index in plan.indexes:
            numbers = [number for number in rows if number in index.parts or number in new]
            count = partitions_for(index.spec, sum(rows[number] for number in numbers))
            most = self._force.index_rows if is_divisible(index.spec) else None
            groups = tuple(_divided(numbers, rows, most))
            alone = len(groups) == 1
            centroids = None
            if count > 1 and not alone:
                centroids = learnt_centroids(place, index.spec, count)
                if centroids is None:
                    groups, alone = (tuple(numbers),), True
            shares = tuple(
                IndexBuild(place, index.spec, group, alone, count, centroids) for group in groups
            )
            yield _Indexing(each, index, place, shares)

    def _finish(self, job: _Indexing, found: Sequence[BuiltIndex | None]) -> None:
        """Put the segments of an index together."""
        datasets, each = self._store.datasets, job.owner
        built = [segment for segment in found if segment is not None]
        if len(built) < len(found) or not built:
            with suppress(OmniGraphError):
                discard_segments(datasets, job.place.path, built)
            each.failed = (*each.failed, job.plan.spec)
            return
        whole = built[0] if len(built) == 1 else join_segments(datasets, job.place, built)
        each.built = (*each.built, whole)


def _groups(each: Upkeep) -> list[tuple[FragmentState, ...]]:
    known = {part.number: part for part in each.survey.parts}
    return [tuple(known[number] for number in group) for group in each.survey.plan.groups]


def _named(survey: Survey, group: Sequence[FragmentState]) -> _Group:
    return survey.table_key, tuple(part.signature for part in group)


def _divided(
    numbers: Sequence[int], rows: Mapping[int, int], most: int | None
) -> Iterator[tuple[int, ...]]:
    """Parts in groups of about so many rows."""
    group: list[int] = []
    count = 0
    for number in numbers:
        group.append(number)
        count += rows[number]
        if most is not None and count >= most:
            yield tuple(group)
            group, count = [], 0
    if group:
        yield tuple(group)
