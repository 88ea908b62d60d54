"""The embedding job: gives a vector to every row that has a text and no vector yet.

Texts are read from one snapshot, share by share. Vectors go to a spool on disk as they come, and
from there into the graph by the one commit protocol: in one commit at the end, or in several. A
commit that finds its table moved is staged again on what is there then. Who does the shares is a
``Crew``: this process, or tasks of Spark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from omnigraph.commit.names import normal_branch
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.sidecar import WriterKind
from omnigraph.commit.snapshot import Snapshot
from omnigraph.commit.staging import marked
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.embed.job.pace import nothing
from omnigraph.embed.job.requests import Refusal, Spent, too_many
from omnigraph.embed.job.splits import (
    Embedded,
    Setup,
    Share,
    Staging,
    Tools,
    embed_share,
    groups_of,
    stage_share,
)
from omnigraph.embed.job.targets import Target, by_table
from omnigraph.progress import OnProgress, Progress
from omnigraph.storage.tables.columns import (
    ColumnUpdate,
    count_blank,
    count_unfilled,
    stage_columns,
)
from omnigraph.storage.tables.fragments import fragment_sizes, locate_table
from omnigraph.storage.tables.types import StagedTable

_ROWS_IN_SHARE = 50_000


@dataclass(frozen=True, slots=True)
class EmbeddingReport:
    """What a job did.

    ``rows`` are all it looked at, once for each property: those it has vectors for (``embedded``
    and ``reused``), those without a text (``skipped``), and those whose text got no vector.
    """

    branch: str
    rows: int = 0
    embedded: int = 0
    """Texts that the provider embedded in this run, each once."""
    reused: int = 0
    """Rows whose vector was there already: from an earlier run, or from the same text."""
    skipped: int = 0
    """Rows without a text to embed."""
    changed: int = 0
    """Rows that were changed or deleted meanwhile and got no vector."""
    filled: int = 0
    """Vectors that are new in the graph."""
    requests: int = 0
    """Every attempt counted."""
    tokens: int | None = None
    """What the provider said that it counted, if it did."""
    failures: tuple[Refusal, ...] = ()
    """Texts that got no vector, each once, with the first row that has it."""
    commits: tuple[str, ...] = ()
    complete: bool = True
    """Whether all rows were looked at; not when ``max_rows`` ended the job early."""


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


class Crew(Protocol):
    """Whoever works on shares; the answers come in their order."""

    @property
    def width(self) -> int:
        """How many shares are worked on at the same time."""

    def embed(self, shares: Sequence[Share]) -> list[Embedded]: ...

    def stage(self, shares: Sequence[Staging]) -> list[list[ColumnUpdate]]: ...


class LocalCrew:
    """This process, one share after the other; a few threads talk to the provider."""

    width = 1

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def embed(self, shares: Sequence[Share]) -> list[Embedded]:
        return [embed_share(share, self._tools) for share in shares]

    def stage(self, shares: Sequence[Staging]) -> list[list[ColumnUpdate]]:
        return [stage_share(share, self._tools) for share in shares]


@dataclass(frozen=True, slots=True)
class Goal:
    """Where the vectors go, and in how many commits."""

    branch: str
    actor: str | None = None
    commit_rows: int | None = None
    max_rows: int | None = None
    schema_hash: str | None = None
    """The schema that the targets were found in."""


@dataclass(slots=True)
class _Counts:
    rows: int = 0
    ready: int = 0
    embedded: int = 0
    reused: int = 0
    skipped: int = 0
    filled: int = 0
    requests: int = 0
    tokens: int | None = None
    failures: list[Refusal] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)


class Fill:
    """One run of the job."""

    def __init__(
        self,
        store: GraphStore,
        targets: Sequence[Target],
        setup: Setup,
        crew: Crew,
        goal: Goal,
        *,
        check: Callable[[], None] = nothing,
        before_commit: Callable[[], None] = nothing,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._store = store
        self._tables = by_table(targets)
        self._setup = setup
        self._crew = crew
        self._goal = goal
        self._branch = normal_branch(goal.branch)
        self._check = check
        self._before_commit = before_commit
        self._on_progress = on_progress
        self._counts = _Counts()
        self._since_commit = 0
        self._staged = 0
        self._shares = 0
        self._done = 0
        self._touched: dict[str, set[int]] = {}
        self._planned: dict[str, set[int]] = {}
        self._versions: dict[str, int] = {}

    def run(self) -> EmbeddingReport:
        base = self._store.manifest(self._branch).current()
        with marked(self._store, self._branch, base):
            waiting = self._plan(base)
            complete = self._work(waiting)
            self._commit()
        counts = self._counts
        return EmbeddingReport(
            self._goal.branch,
            counts.rows,
            counts.embedded,
            counts.reused,
            counts.skipped,
            max(0, counts.ready - counts.filled),
            counts.filled,
            counts.requests,
            counts.tokens,
            tuple(counts.failures),
            tuple(counts.commits),
            complete,
        )

    def _plan(self, base: Snapshot) -> deque[Share]:
        waiting: deque[Share] = deque()
        for key, targets in self._tables.items():
            pin = base.pin(key)
            if pin is None or not pin.row_count:
                continue
            table = self._store.table(pin)
            place = locate_table(self._store.datasets, table)
            fragments = fragment_sizes(table)
            self._planned[key] = {number for number, _ in fragments}
            self._versions[key] = table.version
            for group in groups_of(fragments, _ROWS_IN_SHARE):
                waiting += [Share(self._setup, place, target, group) for target in targets]
        self._shares = len(waiting)
        return waiting

    # -- embedding -----------------------------------------------------------------------

    def _work(self, waiting: deque[Share]) -> bool:
        """Embed what waits; gives whether that was all of it."""
        while waiting:
            self._check()
            room = self._room()
            if room == 0:
                return False
            wave = self._wave(waiting, room)
            for share, found in zip(wave, self._crew.embed(wave), strict=True):
                self._count(share, found)
                if found.next is None:
                    self._done += 1
                else:
                    waiting.appendleft(replace(share, start=found.next, most=None))
            if len(self._counts.failures) > self._setup.max_refusals:
                raise too_many(self._counts.failures, self._setup.max_refusals)
            self._tell("embedding")
            limit = self._goal.commit_rows
            if limit is not None and self._since_commit >= limit:
                self._commit()
        return True

    def _room(self) -> int | None:
        """How many more rows may be looked at before something has to happen."""
        rooms = []
        if self._goal.commit_rows is not None:
            rooms.append(self._goal.commit_rows - self._since_commit)
        if self._goal.max_rows is not None:
            rooms.append(self._goal.max_rows - (self._counts.rows - self._counts.skipped))
        return min(rooms, default=None)

    def _wave(self, waiting: deque[Share], room: int | None) -> list[Share]:
        """What is worked on next: all of it where the crew is large and nothing limits it."""
        width = self._crew.width
        if room is None:
            count = len(waiting) if width > 1 else 1
            return [waiting.popleft() for _ in range(count)]
        count = min(width, len(waiting), room)
        even, more = divmod(room, count)
        return [
            replace(waiting.popleft(), most=even + (position < more)) for position in range(count)
        ]

    def _count(self, share: Share, found: Embedded) -> None:
        counts = self._counts
        counts.rows += found.ready + found.skipped + found.refused
        counts.ready += found.ready
        counts.embedded += found.embedded
        counts.reused += max(0, found.ready - found.embedded)
        counts.skipped += found.skipped
        counts.requests += found.requests
        if found.tokens is not None:
            counts.tokens = (counts.tokens or 0) + found.tokens
        counts.failures += found.refusals
        self._since_commit += found.ready
        if found.ready:
            self._touched.setdefault(share.target.table_key, set()).update(share.fragments)

    def _tell(self, step: str, texts: int = 0, shares: int = 0) -> None:
        if self._on_progress is not None:
            counts = self._counts
            detail = {
                "rows": counts.rows,
                "embedded": counts.embedded + texts,
                "filled": counts.filled,
            }
            done, total = self._done + shares, self._shares
            self._on_progress(Progress(step, done, total, "splits", detail))

    def answered(self, spent: Spent) -> None:
        """An answer of the provider has come, in the middle of a share."""
        self._tell("embedding", texts=spent.texts)

    def worked(self, shares: int, _: int) -> None:
        """So many shares of those that are worked on are done."""
        if self._goal.commit_rows is None and self._goal.max_rows is None:
            self._tell("embedding", shares=shares)

    # -- writing -------------------------------------------------------------------------

    def _commit(self) -> None:
        """Give the rows of the shares that are done their vectors."""
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
            actor=self._goal.actor,
            schema_hash=self._goal.schema_hash,
        )
        receipt = commit_write(self._store, request)
        if receipt.commit_id is not None:
            self._counts.filled += self._staged
            self._counts.commits.append(receipt.commit_id)
        self._tell("writing")

    def _prepare(self, view: WriteView, touched: Mapping[str, set[int]]) -> PreparedWrite:
        staged: dict[str, Sequence[StagedTable]] = {}
        self._staged = 0
        for key in sorted(touched):
            table = view.table(key)
            # Rows that others wrote meanwhile are in fragments that nobody planned.
            fragments = [
                (number, rows)
                for number, rows in fragment_sizes(table)
                if number in touched[key] or number not in self._planned[key]
            ]
            until = self._versions[key] if self._setup.again else None
            place = view.locate_table(table)
            shares = [
                Staging(self._setup, place, self._tables[key], group, until)
                for group in groups_of(fragments, _ROWS_IN_SHARE)
            ]
            updates = [update for found in self._crew.stage(shares) for update in found]
            self._staged += sum(update.values for update in updates)
            step = stage_columns(table, updates)
            if step is not None:
                staged[key] = (step,)
        return PreparedWrite(staged)


def status_of(
    store: GraphStore, targets: Sequence[Target], snapshot: Snapshot
) -> list[EmbeddingStatus]:
    """How many rows have a vector, property by property."""
    found = []
    for target in targets:
        pin = snapshot.pin(target.table_key)
        table = None if pin is None or not pin.row_count else store.table(pin)
        rows = 0 if table is None else table.count()
        empty = 0 if table is None else count_unfilled(table, target.name)
        blank = 0 if table is None else count_blank(table, target.name, target.source)
        found.append(
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
    return found
