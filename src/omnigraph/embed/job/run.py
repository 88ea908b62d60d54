"""The embedding job: gives a vector to every row that has a text and no vector.

Texts are read from one snapshot, split by split. Vectors are stored in a spool on disk as they
arrive, and from there written to the graph by the commit protocol: in one commit at the end, or in
several. If a table was written meanwhile, its commit is staged again. An ``EmbedExecutor`` works on
the splits: this process, or tasks of Spark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from omnigraph.commit.names import normal_branch
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.staging import staging_marker
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.embed.job.rate_limit import no_check
from omnigraph.embed.job.requests import (
    EmbedWorker,
    ProviderUsage,
    Refusal,
    Setup,
    too_many_refusals,
)
from omnigraph.embed.job.splits import (
    EmbedResult,
    EmbedSplit,
    StagingSplit,
    embed_split,
    stage_split,
)
from omnigraph.embed.job.targets import EmbedTarget, by_table
from omnigraph.progress import OnProgress, Progress
from omnigraph.records import dataclass
from omnigraph.storage.tables.columns import (
    ColumnUpdate,
    count_blank,
    count_unfilled,
    stage_columns,
)
from omnigraph.storage.tables.fragments import fragment_groups, locate_table
from omnigraph.storage.tables.types import StagedTable

_ROWS_IN_SPLIT = 50_000


@dataclass(frozen=True, slots=True)
class EmbeddingReport:
    """The result of a job.

    ``rows`` counts all rows read, once per property: those with vectors (``embedded`` and
    ``reused``), those without a text (``skipped``), and those whose text got no vector.
    """

    branch: str
    rows: int = 0
    embedded: int = 0
    """Distinct texts that the provider embedded in this run."""
    reused: int = 0
    """Rows whose vector existed already: from an earlier run, or for an equal text."""
    skipped: int = 0
    """Rows without a text to embed."""
    changed: int = 0
    """Rows that got no vector because they were changed or deleted meanwhile."""
    filled: int = 0
    """New vectors in the graph."""
    requests: int = 0
    """The number of requests, including retries."""
    tokens: int | None = None
    """The tokens charged, if the provider reports them."""
    failures: tuple[Refusal, ...] = ()
    """The distinct refused texts, each with the first row that has it."""
    commits: tuple[str, ...] = ()
    complete: bool = True
    """Whether all rows were read; False if ``max_rows`` ended the job early."""


@dataclass(frozen=True, slots=True)
class EmbeddingStatus:
    """How many rows have a vector in one property."""

    type_name: str
    property: str
    source: str
    model: str | None
    rows: int
    filled: int
    missing: int
    """Rows without a vector that have a text."""
    blank: int
    """Rows without a vector and without a text."""


class EmbedExecutor(Protocol):
    """Processes splits; returns the results in the order of the splits."""

    @property
    def width(self) -> int:
        """The number of splits processed at the same time."""

    def embed(self, splits: Sequence[EmbedSplit]) -> list[EmbedResult]: ...

    def stage(self, splits: Sequence[StagingSplit]) -> list[list[ColumnUpdate]]: ...


class LocalEmbedExecutor:
    """Processes one split after the other in this process; several threads call the provider."""

    width = 1

    def __init__(self, worker: EmbedWorker) -> None:
        self._worker = worker

    def embed(self, splits: Sequence[EmbedSplit]) -> list[EmbedResult]:
        return [embed_split(split, self._worker) for split in splits]

    def stage(self, splits: Sequence[StagingSplit]) -> list[list[ColumnUpdate]]:
        return [stage_split(split, self._worker) for split in splits]


@dataclass(frozen=True, slots=True)
class FillDestination:
    """The branch to fill, and the size of the commits."""

    branch: str
    actor: str | None = None
    commit_rows: int | None = None
    max_rows: int | None = None
    schema_hash: str | None = None
    """The schema of the targets."""


class Fill:
    """One run of the job."""

    def __init__(
        self,
        store: GraphStore,
        targets: Sequence[EmbedTarget],
        setup: Setup,
        executor: EmbedExecutor,
        dest: FillDestination,
        *,
        check: Callable[[], None] = no_check,
        before_commit: Callable[[], None] = no_check,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._store = store
        self._tables = by_table(targets)
        self._setup = setup
        self._executor = executor
        self._dest = dest
        self._branch = normal_branch(dest.branch)
        self._check = check
        self._before_commit = before_commit
        self._on_progress = on_progress
        self._totals = EmbeddingReport(dest.branch)
        self._ready = 0
        self._since_commit = 0
        self._staged = 0
        self._splits = 0
        self._done = 0
        self._touched: dict[str, set[int]] = {}
        self._planned: dict[str, set[int]] = {}
        self._versions: dict[str, int] = {}

    def run(self) -> EmbeddingReport:
        base = self._store.manifest(self._branch).current()
        with staging_marker(self._store, self._branch, base):
            waiting = self._plan(base)
            complete = self._work(waiting)
            self._commit()
        totals = self._totals
        # Rows that were not read also get a vector if an equal text has one.
        unread = max(0, totals.filled - self._ready)
        return replace(
            totals,
            rows=totals.rows + unread,
            reused=totals.reused + unread,
            changed=max(0, self._ready - totals.filled),
            complete=complete,
        )

    def _plan(self, base: Snapshot) -> deque[EmbedSplit]:
        waiting: deque[EmbedSplit] = deque()
        for key, targets in self._tables.items():
            pin = base.pin(key)
            if pin is None or not pin.row_count:
                continue
            table = self._store.table(pin)
            locator = locate_table(self._store.datasets, table)
            fragments = table.fragments()
            self._planned[key] = {fragment.number for fragment in fragments}
            self._versions[key] = table.version
            for group in fragment_groups(fragments, _ROWS_IN_SPLIT):
                waiting += [EmbedSplit(self._setup, locator, target, group) for target in targets]
        self._splits = len(waiting)
        return waiting

    # -- embedding -----------------------------------------------------------------------

    def _work(self, waiting: deque[EmbedSplit]) -> bool:
        """Embed the waiting splits; returns whether all are done."""
        while waiting:
            self._check()
            room = self._room()
            if room == 0:
                return False
            wave = self._wave(waiting, room)
            for split, result in zip(wave, self._executor.embed(wave), strict=True):
                self._count(split, result)
                if result.next is None:
                    self._done += 1
                else:
                    waiting.appendleft(replace(split, start=result.next, most=None))
            if len(self._totals.failures) > self._setup.max_refusals:
                raise too_many_refusals(self._totals.failures, self._setup.max_refusals)
            self._report("embedding")
            limit = self._dest.commit_rows
            if limit is not None and self._since_commit >= limit:
                self._commit()
        return True

    def _room(self) -> int | None:
        """The number of rows before the next commit or the end of the job."""
        rooms = []
        if self._dest.commit_rows is not None:
            rooms.append(self._dest.commit_rows - self._since_commit)
        if self._dest.max_rows is not None:
            rooms.append(self._dest.max_rows - (self._totals.rows - self._totals.skipped))
        return min(rooms, default=None)

    def _wave(self, waiting: deque[EmbedSplit], room: int | None) -> list[EmbedSplit]:
        """The next splits: all of them if the executor is parallel and no limit applies."""
        width = self._executor.width
        if room is None:
            count = len(waiting) if width > 1 else 1
            return [waiting.popleft() for _ in range(count)]
        count = min(width, len(waiting), room)
        even, more = divmod(room, count)
        return [
            replace(waiting.popleft(), most=even + (position < more)) for position in range(count)
        ]

    def _count(self, split: EmbedSplit, result: EmbedResult) -> None:
        totals = self._totals
        tokens = totals.tokens if result.tokens is None else (totals.tokens or 0) + result.tokens
        self._totals = replace(
            totals,
            rows=totals.rows + result.ready + result.skipped + result.refused,
            embedded=totals.embedded + result.embedded,
            reused=totals.reused + max(0, result.ready - result.embedded),
            skipped=totals.skipped + result.skipped,
            requests=totals.requests + result.requests,
            tokens=tokens,
            failures=totals.failures + result.refusals,
        )
        self._ready += result.ready
        self._since_commit += result.ready
        if result.ready:
            self._touched.setdefault(split.target.table_key, set()).update(split.fragments)

    def _report(self, step: str, texts: int = 0, splits: int = 0) -> None:
        if self._on_progress is not None:
            totals = self._totals
            detail = {
                "rows": totals.rows,
                "embedded": totals.embedded + texts,
                "filled": totals.filled,
            }
            done, total = self._done + splits, self._splits
            self._on_progress(Progress(step, done, total, "splits", detail))

    def on_usage(self, usage: ProviderUsage) -> None:
        """Called when the provider has answered, within a split."""
        self._report("embedding", texts=usage.texts)

    def on_splits(self, splits: int, _: int) -> None:
        """Called when the executor has finished some of its splits."""
        if self._dest.commit_rows is None and self._dest.max_rows is None:
            self._report("embedding", splits=splits)

    # -- writing -------------------------------------------------------------------------

    def _commit(self) -> None:
        """Write the vectors of the finished splits."""
        touched, self._touched = self._touched, {}
        self._since_commit = 0
        if not touched:
            return
        self._check()
        self._before_commit()
        request = WriteRequest(
            WriterKind.MUTATION,
            self._branch,
            frozenset(touched),
            lambda view: self._prepare(view, touched),
            actor=self._dest.actor,
            schema_hash=self._dest.schema_hash,
        )
        receipt = commit_write(self._store, request)
        if receipt.commit_id is not None:
            self._totals = replace(
                self._totals,
                filled=self._totals.filled + self._staged,
                commits=(*self._totals.commits, receipt.commit_id),
            )
        self._report("writing")

    def _prepare(self, view: WriteView, touched: Mapping[str, set[int]]) -> PreparedWrite:
        staged: dict[str, Sequence[StagedTable]] = {}
        self._staged = 0
        for key in sorted(touched):
            table = view.table(key)
            # Rows written by others meanwhile are in fragments that were not planned.
            fragments = [
                fragment
                for fragment in table.fragments()
                if fragment.number in touched[key] or fragment.number not in self._planned[key]
            ]
            until = self._versions[key] if self._setup.again else None
            locator = view.locate_table(table)
            splits = [
                StagingSplit(self._setup, locator, self._tables[key], group, until)
                for group in fragment_groups(fragments, _ROWS_IN_SPLIT)
            ]
            updates = [update for result in self._executor.stage(splits) for update in result]
            self._staged += sum(update.values for update in updates)
            step = stage_columns(table, updates)
            if step is not None:
                staged[key] = (step,)
        return PreparedWrite(staged)


def embedding_status(
    store: GraphStore, targets: Sequence[EmbedTarget], snapshot: Snapshot
) -> list[EmbeddingStatus]:
    """The rows with and without a vector, by property."""
    statuses = []
    for target in targets:
        pin = snapshot.pin(target.table_key)
        rows = empty = blank = 0
        if pin is not None and pin.row_count:
            table = store.table(pin)
            rows, empty = table.count(), count_unfilled(table, target.name)
            blank = count_blank(table, target.name, target.source)
        statuses.append(
            EmbeddingStatus(
                target.type_name,
                target.name,
                target.source,
                target.model,
                rows,
                rows - empty,
                empty - blank,
                blank,
            )
        )
    return statuses
