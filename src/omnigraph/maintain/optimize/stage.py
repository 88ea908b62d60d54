"""Staging the work of an optimize: one list of rewriting tasks, then one of indexing tasks.

So one pool of threads, or one Spark job, works on all tables together, and a large table does not
wait for the small ones. Nothing is committed: the results are staged steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import field

from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.snapshot import Pin
from omnigraph.commit.store import GraphStore
from omnigraph.errors import OmniGraphError
from omnigraph.maintain.optimize.indexes import IndexState, fit_index, obstacle
from omnigraph.maintain.optimize.plan import (
    DEFAULT_POLICY,
    IndexPlan,
    MaintenancePolicy,
    TablePlan,
    plan_table,
    reasons_for,
)
from omnigraph.maintain.optimize.vector_indexes import partitions_for
from omnigraph.records import dataclass
from omnigraph.storage.executor import Executor
from omnigraph.storage.tables.compaction import (
    CompactionResult,
    compact,
    compaction_split,
    discard_compaction,
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
    oldest_rows,
    segments_of,
    train_centroids,
)
from omnigraph.storage.tables.table import FragmentInfo, Table
from omnigraph.storage.tables.types import IndexSpec, StagedTable

REWRITING = "rewriting"
INDEXING = "indexing"
_NEVER = 1 << 62
"""Later than any version."""


@dataclass(frozen=True, slots=True)
class TableSurvey:
    """One table of a snapshot, and the work it needs."""

    table_key: str
    pin: Pin
    table: Table
    fragments: tuple[FragmentInfo, ...]
    segments: Mapping[str, Sequence[Segment]]
    plan: TablePlan
    pending: tuple[IndexState, ...] = ()
    """Indexes that cannot be built from the existing values."""

    def reasons(self, policy: MaintenancePolicy) -> tuple[str, ...]:
        """Why the work is worth a commit."""
        return reasons_for(self.plan, self.fragments, self.segments, policy)

    @property
    def size(self) -> int:
        """The bytes to read: of the rewritten fragments, or of all if an index is to be built."""
        rewritten = {number for group in self.plan.groups for number in group}
        reads_all = bool(self.plan.indexes)
        return sum(f.size for f in self.fragments if reads_all or f.number in rewritten)


def survey_table(
    store: GraphStore,
    table_key: str,
    pin: Pin,
    specs: Sequence[IndexSpec],
    policy: MaintenancePolicy = DEFAULT_POLICY,
    *,
    reads_rows: bool = True,
) -> TableSurvey:
    """Survey a table.

    The ages of rows that no index covers are read, to decide which segments to replace, and the
    recall of an approximate index that may have degraded is measured; both only if it reads rows.
    """
    table = store.table(pin)
    segments = segments_of(table)
    facts = index_facts(table)
    pending: list[IndexState] = []
    wanted: list[IndexSpec] = []
    rebuilt: dict[str, str] = {}
    for spec in specs:
        reason = None if spec.name in segments else obstacle(table, pin, spec)
        if reason is not None:
            pending.append(IndexState(table_key, spec.column, spec.kind, None, reason))
            continue
        recall = policy.recall if reads_rows else None
        fitted, why = fit_index(table, pin, spec, facts.get(spec.name), recall)
        wanted.append(fitted)
        if why is not None:
            rebuilt[spec.name] = why
    fragments = table.fragments()
    oldest = _OldestVersions(table) if reads_rows else lambda _: _NEVER
    plan = plan_table(fragments, segments, wanted, oldest, stored_cleanup(table), rebuilt)
    return TableSurvey(table_key, pin, table, fragments, segments, plan, tuple(pending))


class _OldestVersions:
    """The version of the oldest row of fragments; each is read once, on demand."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._cached: dict[int, int] = {}

    def __call__(self, fragments: Iterable[int]) -> int:
        numbers = set(fragments)
        new = numbers - self._cached.keys()
        if new:
            self._cached |= oldest_rows(self._table, sorted(new))
        return min(self._cached[number] for number in numbers)


@dataclass(slots=True)
class StagedWork:
    """The staged, uncommitted work on one table."""

    survey: TableSurvey
    compacted: tuple[CompactionResult, ...] = ()
    built: tuple[BuiltIndex, ...] = ()
    failed: tuple[IndexSpec, ...] = ()
    steps: tuple[StagedTable, ...] = field(default=(), repr=False)

    @property
    def fragments_removed(self) -> int:
        return sum(len(result.old) for result in self.compacted)

    @property
    def fragments_added(self) -> int:
        return sum(len(result.new) for result in self.compacted)


@dataclass(frozen=True, slots=True)
class _IndexJob:
    """One index of one table, and the tasks that build its segments."""

    work: StagedWork
    plan: IndexPlan
    locator: TableLocator
    tasks: tuple[IndexBuild, ...]


_Group = tuple[str, tuple[str, ...]]
"""A table, and the signatures of the fragments that become one."""


class WorkStager:
    """Stages the work, also repeatedly: fragments that did not change are not rewritten twice."""

    def __init__(
        self, store: GraphStore, executor: Executor, index_rows: int | None = None
    ) -> None:
        """An index of more than ``index_rows`` rows is built by several tasks."""
        self._store = store
        self._executor = executor
        self._index_rows = index_rows
        self._rewritten: dict[_Group, CompactionResult] = {}
        self._built: dict[str, tuple[BuiltIndex, ...]] = {}

    def stage(self, surveys: Sequence[TableSurvey]) -> dict[str, StagedWork]:
        """Stage the work of tables, by table key; a table without any step is left out."""
        reached(Failpoint.OPTIMIZE_BEFORE_COMPACTION)
        works = [StagedWork(survey) for survey in surveys]
        self._compact(works)
        reached(Failpoint.OPTIMIZE_AFTER_COMPACTION)
        with ExitStack() as views:
            self._index(works, views)
        reached(Failpoint.OPTIMIZE_AFTER_STAGE)
        return {work.survey.table_key: work for work in works if work.steps}

    # -- rewriting -----------------------------------------------------------------------

    def _compact(self, works: Sequence[StagedWork]) -> None:
        groups = {_key(w.survey, g): (w.survey, g) for w in works for g in _groups(w.survey)}
        self._discard_superseded(works, groups)
        new = [key for key in groups if key not in self._rewritten]
        if new:
            tasks = [
                compaction_split(survey.table, self._locate(survey), [f.number for f in group])
                for survey, group in (groups[key] for key in new)
            ]
            results = self._executor.run(compact, tasks, REWRITING)
            self._rewritten.update(zip(new, results, strict=True))
        for work in works:
            work.compacted = tuple(
                self._rewritten[_key(work.survey, group)] for group in _groups(work.survey)
            )

    def _discard_superseded(
        self, works: Sequence[StagedWork], groups: Mapping[_Group, object]
    ) -> None:
        """Remove earlier results for these tables that are no longer needed."""
        refs = {work.survey.table_key: work.survey.table.ref for work in works}
        datasets = self._store.datasets
        # Leftovers only take space; cleanup removes them.
        with suppress(OmniGraphError):
            for key in [k for k in self._rewritten if k[0] in refs and k not in groups]:
                discard_compaction(datasets, refs[key[0]], self._rewritten.pop(key))
            for table_key, ref in refs.items():
                discard_segments(datasets, ref.path, self._built.pop(table_key, ()))

    def _locate(self, survey: TableSurvey) -> TableLocator:
        return locate_table(self._store.datasets, survey.table)

    # -- indexing ------------------------------------------------------------------------

    def _index(self, works: Sequence[StagedWork], views: ExitStack) -> None:
        jobs = [job for work in works for job in self._jobs(work, views)]
        tasks = [task for job in jobs for task in job.tasks]
        results = iter(self._executor.run(build_segment, tasks, INDEXING) if tasks else ())
        for job in jobs:
            self._finish(job, [next(results) for _ in job.tasks])
        for work in works:
            self._built[work.survey.table_key] = work.built
            if work.built:
                built = {index.spec for index in work.built}
                plans = [p for p in work.survey.plan.indexes if p.spec in built]
                # With a rewrite they were dropped in a separate step.
                dropped = () if work.compacted else tuple(s for p in plans for s in p.dropped)
                last = stage_segments(work.survey.table, len(work.steps), work.built, dropped)
                work.steps = (*work.steps, last)

    def _jobs(self, work: StagedWork, views: ExitStack) -> Iterator[_IndexJob]:
        """The indexes of a table, to be built on its rewritten form."""
        survey, plan = work.survey, work.survey.plan
        work.steps = stage_before_indexes(survey.table, plan.settings, plan.dropped, work.compacted)
        if not plan.indexes:
            return
        locator = self._locate(survey)
        rows = {fragment.number: fragment.rows for fragment in survey.fragments}
        new: set[int] = set()
        if work.compacted:
            locator = views.enter_context(as_if_committed(locator, work.steps))
            after = {info.number: info.rows for info in open_version(locator).fragments()}
            new, rows = after.keys() - rows.keys(), after
        for index in plan.indexes:
            numbers = [number for number in rows if number in index.fragments or number in new]
            partitions = partitions_for(index.spec, sum(rows[number] for number in numbers))
            most = self._index_rows if is_divisible(index.spec) else None
            groups = tuple(_split(numbers, rows, most))
            centroids = None
            if partitions > 1 and len(groups) > 1:
                centroids = train_centroids(locator, index.spec, partitions)
                if centroids is None:
                    groups = (tuple(numbers),)
            is_all = len(groups) == 1
            tasks = tuple(
                IndexBuild(locator, index.spec, group, is_all, partitions, centroids)
                for group in groups
            )
            yield _IndexJob(work, index, locator, tasks)

    def _finish(self, job: _IndexJob, results: Sequence[BuiltIndex | None]) -> None:
        """Join the segments of an index."""
        datasets, work = self._store.datasets, job.work
        built = [segment for segment in results if segment is not None]
        if len(built) < len(results) or not built:
            with suppress(OmniGraphError):
                discard_segments(datasets, job.locator.path, built)
            work.failed = (*work.failed, job.plan.spec)
            return
        joined = built[0] if len(built) == 1 else join_segments(datasets, job.locator, built)
        work.built = (*work.built, joined)


def _groups(survey: TableSurvey) -> list[tuple[FragmentInfo, ...]]:
    by_number = {fragment.number: fragment for fragment in survey.fragments}
    return [tuple(by_number[number] for number in group) for group in survey.plan.groups]


def _key(survey: TableSurvey, group: Sequence[FragmentInfo]) -> _Group:
    return survey.table_key, tuple(fragment.signature for fragment in group)


def _split(
    numbers: Sequence[int], rows: Mapping[int, int], most: int | None
) -> Iterator[tuple[int, ...]]:
    """Fragments in groups of about ``most`` rows."""
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
