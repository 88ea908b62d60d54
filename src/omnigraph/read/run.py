"""One query on one snapshot: the steps of its pipeline over a frame.

The steps work on numbers as long as they can; properties are fetched when a condition asks for
them, and for the result last of all.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import InternalError
from omnigraph.lang.query import typed
from omnigraph.plan.live import live_after, used
from omnigraph.plan.nodes import AntiJoin, Connect, Expand, NodeScan, PlanStep, RowFilter
from omnigraph.read.blocks import Answers, step_blocks, together, values_in_blocks
from omnigraph.read.context import EvalContext, QueryContext, columns_read
from omnigraph.read.expand import connect, expand
from omnigraph.read.frame import Frame, Mask, Numbers, product
from omnigraph.read.gate import GATE
from omnigraph.read.limits import ResourceGuard
from omnigraph.read.scan import scan
from omnigraph.read.searches import Searches
from omnigraph.read.sources import EdgeSource, NodeSource, row_width
from omnigraph.read.values import keeps

if TYPE_CHECKING:
    from omnigraph.plan.prepared import PlanInfo
    from omnigraph.topology.cache import Codes

# Fewer rows than this are not worth merging.
_FEW = 256
_ROW = "row~"
# A step on more rows than this is mostly outside of Python.
_MANY = 4_096


@dataclass(slots=True)
class StepReport:
    """What one step did; no step is what comes after all of them."""

    step: PlanStep | None
    rows: int = 0
    seconds: float = 0.0
    bytes: int = 0
    storage: int = 0
    notes: list[Mapping[str, Any]] = field(default_factory=list)


class Run(EvalContext):
    """The state of one query while it runs."""

    searches: Searches

    def __init__(
        self, context: QueryContext, guard: ResourceGuard, info: PlanInfo, *, profiled: bool = False
    ) -> None:
        self.context = context
        self.guard = guard
        self.info = info
        self.types, self.edge_types = info.types, info.edge_types
        self.searches = Searches(self)
        self.profiled = profiled
        """Whether somebody wants to know what each step did."""
        self.reports: list[StepReport] = []
        self._running: StepReport | None = None
        self._nodes: dict[str, NodeSource | None] = {}
        self._edges: dict[str, EdgeSource | None] = {}
        self._depth = 0
        self._scanned: dict[int, Frame] = {}
        self._answers: dict[int, Answers] = {}

    # -- tables --------------------------------------------------------------------------

    def nodes(self, type_name: str) -> NodeSource | None:
        """The nodes of a type, none when the snapshot is older than the type."""
        if type_name not in self._nodes:
            kind = self.context.catalog.node(type_name)
            pin = None if kind is None else self.context.snapshot.pin(kind.table_key)
            found = None
            if kind is not None and pin is not None:
                found = NodeSource(kind, pin, self.context.store, self.context.topology)
            self._nodes[type_name] = found
        return self._nodes[type_name]

    def edges(self, type_name: str) -> EdgeSource | None:
        """The edges of a type."""
        if type_name not in self._edges:
            kind = self.context.catalog.edge_types[type_name]
            pin = self.context.snapshot.pin(kind.table_key)
            ends = self.nodes(kind.from_type), self.nodes(kind.to_type)
            found = None
            if pin is not None and ends[0] is not None and ends[1] is not None:
                both = (ends[0], ends[1])
                found = EdgeSource(kind, pin, both, self.context.store, self.context.topology)
            self._edges[type_name] = found
        return self._edges[type_name]

    # -- columns -------------------------------------------------------------------------

    def read_columns(
        self, frame: Frame, variable: str, names: Sequence[str]
    ) -> dict[str, pa.Array]:
        source = self._source(variable)
        if source is None:
            raise InternalError(f"${variable} has rows, but its type has no table")
        is_edge = variable in self.edge_types
        places = frame.edges[variable] if is_edge else self.numbers(frame, variable)
        read, width = partial(source.values, names), partial(row_width, source, names)
        return values_in_blocks(read, places, width, self.guard)

    def _source(self, variable: str) -> NodeSource | EdgeSource | None:
        if variable in self.edge_types:
            return self.edges(self.edge_types[variable])
        return self.nodes(self.types[variable])

    def width(self, expr: typed.TypedExpr) -> int:
        """About how many bytes of a row an expression reads."""
        pairs = ((self._source(variable), name) for variable, name in columns_read(expr))
        return sum(row_width(source, [name]) for source, name in pairs if source is not None)

    def codes(self, frame: Frame, expr: typed.TypedExpr) -> Codes | None:
        """For a property of a node in many rows, numbers instead of its values."""
        if not isinstance(expr, typed.Column) or expr.variable not in frame.nodes:
            return None
        source = self.nodes(self.types.get(expr.variable, ""))
        return None if source is None else source.codes(expr.name, frame.nodes[expr.variable])

    def numbers(self, frame: Frame, variable: str) -> Numbers:
        """The numbers of a node variable."""
        found = frame.nodes.get(variable)
        if found is None:
            nodes = self.nodes(self.types[variable])
            if nodes is None:
                raise InternalError(f"${variable} has rows, but its type has no table")
            texts = frame.values[variable, typed.ID_COLUMN]
            found = frame.nodes[variable] = nodes.ids.numbers(texts)
        return found

    # -- steps ---------------------------------------------------------------------------

    def pipeline(
        self,
        steps: Sequence[PlanStep],
        live: Sequence[frozenset[str]],
        frame: Frame,
        *,
        weighted: bool,
    ) -> Frame:
        """Run steps one after the other.

        ``live`` are the variables that are asked for after each of them; ``weighted`` is whether
        it matters how often a row occurs.
        """
        pieces = self.pieces(steps, live, frame, weighted=weighted)
        return together(pieces, self.guard, weighted=weighted)

    def pieces(
        self,
        steps: Sequence[PlanStep],
        live: Sequence[frozenset[str]],
        frame: Frame,
        *,
        weighted: bool,
    ) -> Iterator[Frame]:
        """As ``pipeline``: where a step makes many rows, what is left of each block of them."""
        for place, (step, kept) in enumerate(zip(steps, live, strict=True)):
            self.guard.check()
            if frame.rows > _MANY:
                GATE.release()
            after = self._reported(step, frame, kept, weighted)
            if not isinstance(after, Frame):
                for block in after:
                    yield from self.pieces(steps[place:], live[place:], block, weighted=weighted)
                return
            frame = after
            if not frame.rows:
                frame = self._nothing(steps, live[-1])
                break
        yield frame

    def _reported(
        self, step: PlanStep, frame: Frame, live: frozenset[str], weighted: bool
    ) -> Frame | Iterator[Frame]:
        """What a step makes of a frame, or the blocks in which it should get it."""
        if self._depth or not self.profiled:
            return self._done(step, frame, live, weighted)
        known = self._running = self.report(step)
        reads = self.reads()
        start = time.perf_counter()
        after = self._done(step, frame, live, weighted)
        known.seconds += time.perf_counter() - start
        known.storage += self.reads() - reads
        if isinstance(after, Frame):
            known.rows += after.rows
            known.bytes = max(known.bytes, after.nbytes)
        return after

    def _done(
        self, step: PlanStep, frame: Frame, live: frozenset[str], weighted: bool
    ) -> Frame | Iterator[Frame]:
        blocks = step_blocks(self, step, frame, live)
        if blocks is not None:
            return blocks
        return self._tidy(step, frame, self._step(step, frame, live, weighted), live, weighted)

    def report(self, step: PlanStep) -> StepReport:
        """What is said about a step."""
        known = next((each for each in self.reports if each.step is step), None)
        if known is None:
            known = StepReport(step)
            self.reports.append(known)
        return known

    def reads(self) -> int:
        """How often tables were asked for something."""
        sources = [*self._nodes.values(), *self._edges.values()]
        return sum(source.reads for source in sources if source is not None)

    def note(self, facts: Mapping[str, Any]) -> None:
        """Say something about the step that runs, for explain and profile.

        What begins alike is said once: of the first block of rows.
        """
        if self._running is not None and not self._depth:
            notes = self._running.notes
            if not any(_head(note) == _head(facts) for note in notes):
                notes.append(facts)

    def _nothing(self, steps: Sequence[PlanStep], final: frozenset[str]) -> Frame:
        """No row; later steps still have their place in the report."""
        if self.profiled and not self._depth:
            for step in steps:
                self.report(step)
        frame = Frame(0)
        for name in final:
            if name in self.edge_types:
                frame.edges[name] = np.empty(0, np.int64)
            elif name in self.types:
                frame.nodes[name] = np.empty(0, np.int32)
        return frame

    def _tidy(
        self, step: PlanStep, before: Frame, after: Frame, live: frozenset[str], weighted: bool
    ) -> Frame:
        """Leave out what nobody asks for, and count rows that have become equal."""
        gone = {*before.variables, *step.introduced()} - live
        if not gone:
            return after
        kept = after.keeping(live)
        names = kept.variables
        if kept.rows <= _FEW or len(names) > 1 or not names <= set(kept.nodes):
            return kept
        # Values can be had from numbers again; rows that are equal without them are fewer.
        return Frame(kept.rows, kept.nodes, weights=kept.weights).merged(weighted=weighted)

    def _step(self, step: PlanStep, frame: Frame, live: frozenset[str], weighted: bool) -> Frame:
        match step:
            case NodeScan():
                return self._scan(step, frame, live)
            case Expand():
                return expand(self, step, frame, live, weighted=weighted)
            case Connect():
                return connect(self, step, frame)
            case RowFilter():
                return frame.where(keeps(self, frame, step.condition))
            case AntiJoin():
                return self._without(step, frame)
            case _:
                raise InternalError(f"the engine does not know {type(step).__name__}")

    def _scan(self, step: NodeScan, frame: Frame, live: frozenset[str]) -> Frame:
        if not frame.variables and frame.rows == 1 and frame.weights is None:
            return scan(self, step, live)
        found = self.scanned(step, live)
        rows = frame.rows * found.rows
        self.guard.hold(rows * (frame.width + found.width + 16))
        return product(frame, found)

    def scanned(self, step: NodeScan, live: frozenset[str]) -> Frame:
        """The rows of a scan that is multiplied with others, found once."""
        found = self._scanned.get(id(step))
        if found is None:
            found = self._scanned[id(step)] = scan(self, step, live)
        return found

    def answers(self, step: PlanStep) -> Answers:
        """What a step knows of the nodes that it was asked about."""
        return self._answers.setdefault(id(step), Answers())

    def _without(self, step: AntiJoin, frame: Frame) -> Frame:
        """Keep the rows for which the inner pipeline finds nothing."""
        # Also what only a block inside of the block mentions.
        outer = used(step)
        nodes = [name for name in sorted(outer) if name in self.types]
        self._depth += 1
        try:
            if len(outer) == 1 and nodes:
                return self._without_node(step, frame, nodes[0])
            tagged = frame.keeping(outer)
            for name in nodes:
                self.numbers(tagged, name)
            tagged.weights = None
            tagged.nodes = {**tagged.nodes, _ROW: np.arange(frame.rows, dtype=np.int32)}
            live = live_after(step.inner, frozenset({_ROW}))
            found = np.zeros(frame.rows, bool)
            for left in self.pieces(step.inner, live, tagged, weighted=False):
                if left.rows:
                    found[left.nodes[_ROW]] = True
        finally:
            self._depth -= 1
        return frame.where(~found)

    def _without_node(self, step: AntiJoin, frame: Frame, name: str) -> Frame:
        """What happens inside depends on one node only: ask once for each different one."""
        if not frame.rows:
            return frame
        live = live_after(step.inner, frozenset({name}))

        def found(numbers: Numbers) -> Mask:
            left: Mask = np.zeros(int(numbers[-1]) + 1, bool)
            asked = Frame(len(numbers), {name: numbers})
            for each in self.pieces(step.inner, live, asked, weighted=False):
                if each.rows:
                    left[each.nodes[name]] = True
            return left[numbers]

        return frame.where(~self.answers(step).of(self.numbers(frame, name), found))


def _head(facts: Mapping[str, Any]) -> tuple[str, Any]:
    return next(iter(facts.items()))
