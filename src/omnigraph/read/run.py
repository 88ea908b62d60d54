"""Runs one query on one snapshot: the steps of its pipeline over a frame.

Steps work on node numbers as long as possible. Properties are read when a condition needs them,
and those of the result last.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import InternalError, LimitExceeded
from omnigraph.lang.query import typed
from omnigraph.plan.live import live_after, used
from omnigraph.plan.nodes import (
    AntiJoin,
    Connect,
    Expand,
    Intersect,
    NodeScan,
    Pipeline,
    PlanStep,
    RowFilter,
    Total,
    Weigh,
)
from omnigraph.read import blocks
from omnigraph.read.blocks import FrameBlocks, Memo
from omnigraph.read.context import QueryContext
from omnigraph.read.expand import connect, counted, expand, intersect
from omnigraph.read.frame import Frame, Ints, Mask, Numbers, product, sums
from omnigraph.read.gate import GATE
from omnigraph.read.limits import ResourceGuard
from omnigraph.read.pull import pull
from omnigraph.read.scan import scan
from omnigraph.read.sources import EdgeSource, NodeSource
from omnigraph.read.tables import SnapshotTables
from omnigraph.read.values import EvalContext, columns_read, keeps
from omnigraph.records import dataclass

if TYPE_CHECKING:
    from omnigraph.plan.prepared import PlanInfo
    from omnigraph.read.legs import Leads
    from omnigraph.read.searches import Searches
    from omnigraph.topology.cache import Codes

# Fewer rows than this are not worth merging.
_FEW = 256
_ROW = "row~"
# A step on more rows than this spends its time outside the interpreter.
_MANY = 4_096


@dataclass(slots=True)
class StepReport:
    """The cost of one step; ``step`` is ``None`` for the work after the last step."""

    step: PlanStep | None
    rows: int = 0
    seconds: float = 0.0
    bytes: int = 0
    storage: int = 0
    notes: list[Mapping[str, Any]] = field(default_factory=list)


class Run(SnapshotTables, EvalContext):
    """The state of one query while it runs; its blocks of rows may run on several threads."""

    def __init__(
        self, context: QueryContext, guard: ResourceGuard, info: PlanInfo, *, profiled: bool = False
    ) -> None:
        super().__init__(context)
        if info.restricted != context.view.restricted:
            raise InternalError("a plan was made for a view that restricts other tables")
        self.guard = guard
        self.info = info
        self.types, self.edge_types = info.types, info.edge_types
        self.profiled = profiled
        """Whether steps are reported."""
        self.batch_rows: int | None = None
        """The most rows of a batch of the result, if a reader wants small ones."""
        self.is_large = False
        """Whether a step spent its time outside the interpreter."""
        self.reports: list[StepReport] = []
        self._running: list[StepReport] = []
        self._last: StepReport | None = None
        self._lock = threading.RLock()
        self._scanned: dict[int, Frame] = {}
        self._memos: dict[int, Memo[np.bool_]] = {}
        self._joins: dict[int, tuple[Expand, tuple[Connect, ...]]] = {}
        self._leads: dict[tuple[int, int], tuple[Frame, Leads]] = {}
        self._weights: dict[int, Memo[np.int64]] = {}

    @cached_property
    def searches(self) -> Searches:
        from omnigraph.read.searches import Searches

        return Searches(self)

    # -- tables --------------------------------------------------------------------------

    def source(self, variable: str) -> NodeSource | EdgeSource | None:
        """The table of a variable."""
        if variable in self.edge_types:
            return self.edges(self.edge_types[variable])
        return self.nodes(self.types[variable])

    def existing_source(self, variable: str) -> NodeSource | EdgeSource:
        """The table of a variable that has rows."""
        source = self.source(variable)
        if source is None:
            raise InternalError(f"${variable} has rows, but its type has no table")
        return source

    def existing_nodes(self, variable: str) -> NodeSource:
        """The table of a node variable that has rows."""
        source = self.existing_source(variable)
        assert isinstance(source, NodeSource)
        return source

    # -- columns -------------------------------------------------------------------------

    def read_columns(
        self, frame: Frame, variable: str, names: Sequence[str]
    ) -> dict[str, pa.Array]:
        source = self.existing_source(variable)
        if isinstance(source, EdgeSource):
            rows: Any = frame.edges[variable]
        else:
            rows = self.numbers(frame, variable)
        if len(rows) <= blocks.FEW_VALUES:
            return source.values(names, rows)
        read = partial(source.values, names)
        return blocks.read_in_blocks(read, rows, source.row_width(names), self.guard)

    def width(self, expr: typed.TypedExpr) -> int:
        """The approximate number of bytes that an expression reads per row."""
        pairs = ((self.source(variable), name) for variable, name in columns_read(expr))
        return sum(source.row_width([name]) for source, name in pairs if source is not None)

    def codes(self, frame: Frame, expr: typed.TypedExpr, *, few: bool = False) -> Codes | None:
        if not isinstance(expr, typed.Column) or expr.variable not in frame.nodes:
            return None
        source = self.nodes(self.types.get(expr.variable, ""))
        if source is None or (few and not source.has_few_values(expr.name)):
            return None
        return source.codes(expr.name, frame.nodes[expr.variable])

    def numbers(self, frame: Frame, variable: str) -> Numbers:
        """The numbers of a node variable; for directly scanned rows they are looked up by id."""
        numbers = frame.nodes.get(variable)
        if numbers is None:
            source = self.existing_nodes(variable)
            texts = frame.values[variable, typed.ID_COLUMN]
            numbers = frame.nodes[variable] = source.ids.numbers(texts)
        return numbers

    # -- steps ---------------------------------------------------------------------------

    def frames(
        self,
        steps: Sequence[PlanStep],
        live: Sequence[frozenset[str]],
        frame: Frame,
        *,
        weighted: bool,
        is_block: bool = False,
    ) -> Iterator[Frame]:
        """Run the steps in order; yields the output rows of each block.

        ``live`` are the variables needed after each step; ``weighted`` is whether it matters how
        often a row occurs; ``is_block`` is whether the rows are a block for the first step.
        """
        for index, (step, needed) in enumerate(zip(steps, live, strict=True)):
            is_divided = is_block and index == 0
            after = self.run_step(step, frame, needed, weighted=weighted, is_block=is_divided)
            if not isinstance(after, Frame):
                yield from self._over(after, steps[index:], live[index:], weighted=weighted)
                return
            frame = after
            if not frame.rows:
                nodes = {name: np.empty(0, np.int32) for name in live[-1] if name in self.types}
                edges = {n: np.empty(0, np.int64) for n in live[-1] if n in self.edge_types}
                frame = Frame(0, nodes, edges)
                break
        yield frame

    def _over(
        self,
        pieces: FrameBlocks,
        steps: Sequence[PlanStep],
        live: Sequence[frozenset[str]],
        *,
        weighted: bool,
    ) -> Iterator[Frame]:
        """Run the steps on every block, on all cores if all of the result is needed anyway."""
        # Small reads have no blocks.
        from omnigraph.read import threads

        def run(block: Frame) -> Iterator[Frame]:
            return self.frames(steps, live, block, weighted=weighted, is_block=True)

        # A profile times steps one after the other; a search keeps state between blocks. A single
        # step only copies rows, and waits for memory.
        is_spread = not (self.info.streams or self.profiled or self.info.has_search)
        is_long = len(steps) > 1 or isinstance(steps[0], Intersect)
        if is_spread and is_long and threads.can_spread(len(pieces)):
            GATE.release()
            results: Iterable[Iterable[Frame]] = threads.in_order(lambda b: list(run(b)), pieces)
        else:
            results = map(run, pieces)
        for frames in results:
            yield from frames

    def run_step(
        self,
        step: PlanStep,
        frame: Frame,
        live: frozenset[str],
        *,
        weighted: bool,
        is_block: bool = False,
    ) -> Frame | FrameBlocks:
        """Run one step on a frame, or return the blocks of rows to run it on.

        A frame that ``is_block`` is not divided again.
        """
        self.guard.check()
        if frame.rows > _MANY:
            self.is_large = True
            GATE.continue_as_large()
        if self.profiled:
            report = self.report(step)
            self._running.append(report)
            report.seconds -= time.perf_counter()
            report.storage -= self.reads()
        pieces = pulled = None
        if frame.rows > 1 and not is_block:
            pulled = pull(self, step, frame, live, weighted=weighted)
            if pulled is None:
                pieces = blocks.step_blocks(self, step, frame, live)
        after = frame
        if pulled is not None:
            after = pulled
        elif pieces is None:
            match step:
                case NodeScan():
                    after = self._scan(step, frame, live)
                case Expand():
                    after = expand(self, step, frame, live, weighted=weighted)
                case Connect():
                    after = connect(self, step, frame)
                case RowFilter():
                    after = frame.where(keeps(self, frame, step.condition))
                case AntiJoin():
                    after = self._without(step, frame)
                case Intersect():
                    after = intersect(self, step, frame, live, weighted=weighted)
                case Total():
                    after = self._total(step)
                case Weigh():
                    after = self._weighed(step, frame, weighted=weighted)
                case _:
                    raise InternalError(f"the engine does not know {type(step).__name__}")
            if after.rows <= _FEW:
                if not live.issuperset(after.variables):
                    after = after.keeping(live)
            elif not live.issuperset({*frame.variables, *step.introduced()}):
                after = _pruned(after, live, weighted=weighted)
        if self.profiled:
            self._last = self._running.pop()
            report.seconds += time.perf_counter()
            report.storage += self.reads()
            if pieces is None:
                report.rows += after.rows
                report.bytes = max(report.bytes, after.nbytes)
        return after if pieces is None else pieces

    def report(self, step: PlanStep) -> StepReport:
        """The report of a step."""
        for report in self.reports:
            if report.step is step:
                return report
        self.reports.append(StepReport(step))
        return self.reports[-1]

    def note(self, facts: Mapping[str, Any]) -> None:
        """Record a fact about the running step, for profiles; only of its first block of rows."""
        # What is noted after the last step belongs to it.
        report = self._running[-1] if self._running else self._last
        if report is not None:
            notes = report.notes
            if not any(_head(note) == _head(facts) for note in notes):
                notes.append(facts)

    def _scan(self, step: NodeScan, frame: Frame, live: frozenset[str]) -> Frame:
        if frame.rows == 1 and frame.weights is None and not frame.variables:
            return scan(self, step, live)
        scanned = self.scanned(step, live)
        rows = frame.rows * scanned.rows
        self.guard.hold(rows * (frame.width + scanned.width + 16))
        return product(frame, scanned)

    def scanned(self, step: NodeScan, live: frozenset[str]) -> Frame:
        """The rows of a scan in a product with other rows, read once."""
        with self._lock:
            frame = self._scanned.get(id(step))
            if frame is None:
                frame = self._scanned[id(step)] = scan(self, step, live)
            return frame

    def joins(self, step: Intersect) -> tuple[Expand, tuple[Connect, ...]]:
        """The joins of an intersection, made once: results are cached by the identity of a step."""
        joins = self._joins.get(id(step))
        return joins or self._joins.setdefault(id(step), step.as_joins())

    def keep_leads(self, step: Intersect, frame: Frame, leads: Leads) -> None:
        """Keep what leads the rows of a frame, until the step runs on them."""
        self._leads[id(step), id(frame)] = frame, leads

    def take_leads(self, step: Intersect, frame: Frame) -> Leads | None:
        """What leads the rows of a frame, if it was kept."""
        kept = self._leads.pop((id(step), id(frame)), None)
        return None if kept is None else kept[1]

    def weights(self, step: Weigh) -> Memo[np.int64]:
        """The counts of a step for nodes of earlier blocks."""
        return self._weights.setdefault(id(step), Memo(np.int64))

    def memo(self, step: PlanStep) -> Memo[np.bool_]:
        """The results of a step for nodes of earlier blocks."""
        return self._memos.setdefault(id(step), Memo(np.bool_))

    # -- counting ------------------------------------------------------------------------

    def _weighed(self, step: Weigh, frame: Frame, *, weighted: bool) -> Frame:
        """Multiply rows by the number of rows of an inner pipeline, run once per distinct node."""
        if not frame.rows:
            return frame

        def count(numbers: Numbers) -> Ints:
            size = int(numbers[-1]) + 1
            totals: Ints = np.zeros(size, np.int64)
            live = live_after(step.inner, frozenset({step.variable}))
            start = Frame(len(numbers), {step.variable: numbers})
            for rest in self.frames(step.inner, live, start, weighted=weighted):
                if rest.rows:
                    totals += sums(rest.nodes[step.variable], rest.counts(), size)
            return totals[numbers]

        counts = self.weights(step).lookup(self.numbers(frame, step.variable), count)
        return counted(frame, counts, weighted=weighted)

    def _total(self, step: Total) -> Frame:
        """One row with the sum of several counts as its weight."""
        try:
            total = sum(term.sign * self._count(term.inner) for term in step.terms)
        except LimitExceeded:
            # The difference may be small where the counts are not.
            total = self._count(step.direct)
        return Frame(1, weights=np.array([total], np.int64)) if total else Frame(0)

    def _count(self, steps: Pipeline) -> int:
        live = live_after(steps, frozenset())
        return sum(int(f.total()[0]) for f in self.frames(steps, live, Frame(1), weighted=True))

    # -- negation ------------------------------------------------------------------------

    def _without(self, step: AntiJoin, frame: Frame) -> Frame:
        """Keep the rows for which the inner pipeline yields nothing."""
        # Including variables that only a nested block uses.
        outer = used(step)
        nodes = [name for name in sorted(outer) if name in self.types]
        if len(outer) == 1 and nodes:
            return self._without_node(step, frame, nodes[0])
        tagged = frame.keeping(outer)
        for name in nodes:
            self.numbers(tagged, name)
        tagged.weights = None
        tagged.nodes = {**tagged.nodes, _ROW: np.arange(frame.rows, dtype=np.int32)}
        return frame.where(~self._matched(step, _ROW, tagged, frame.rows))

    def _without_node(self, step: AntiJoin, frame: Frame, name: str) -> Frame:
        """Run an inner pipeline that depends on one node only, once per distinct node."""
        if not frame.rows:
            return frame

        def matched(numbers: Numbers) -> Mask:
            nodes = Frame(len(numbers), {name: numbers})
            return self._matched(step, name, nodes, int(numbers[-1]) + 1)[numbers]

        return frame.where(~self.memo(step).lookup(self.numbers(frame, name), matched))

    def _matched(self, step: AntiJoin, name: str, frame: Frame, size: int) -> Mask:
        """A mask of the numbers of a variable for which the inner pipeline yields rows."""
        matched: Mask = np.zeros(size, bool)
        live = live_after(step.inner, frozenset({name}))
        for rest in self.frames(step.inner, live, frame, weighted=False):
            if rest.rows:
                matched[rest.nodes[name]] = True
        return matched


def _pruned(frame: Frame, live: frozenset[str], *, weighted: bool) -> Frame:
    """Drop variables that are no longer needed, and merge rows that have become equal."""
    frame = frame.keeping(live)
    names = frame.variables
    if len(names) > 1 or not names <= set(frame.nodes):
        return frame
    # Values can be read again by number; without them more rows are equal.
    return Frame(frame.rows, frame.nodes, weights=frame.weights).merged(weighted=weighted)


def _head(facts: Mapping[str, Any]) -> tuple[str, Any]:
    return next(iter(facts.items()))
