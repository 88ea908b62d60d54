"""One query on one snapshot: the steps of its pipeline over a frame.

The steps work on numbers as long as they can; properties are fetched when a condition asks for
them, and for the result last of all.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import InternalError
from omnigraph.lang.query import typed
from omnigraph.plan.live import live_after, used
from omnigraph.plan.nodes import AntiJoin, Connect, Expand, Filter, NodeScan, Operation
from omnigraph.read.expand import connect, expand
from omnigraph.read.frame import Frame, Mask, Numbers, product
from omnigraph.read.limits import Watch
from omnigraph.read.scan import scan
from omnigraph.read.searches import Searches
from omnigraph.read.sources import EdgeSource, NodeSource
from omnigraph.read.strategy import TraversalSettings
from omnigraph.read.values import keeps

if TYPE_CHECKING:
    from omnigraph.commit.snapshot import Snapshot
    from omnigraph.commit.store import GraphStore
    from omnigraph.embed import Embedders
    from omnigraph.lang.schema.catalog import Catalog
    from omnigraph.plan.prepared import Outline
    from omnigraph.topology.held import Codes
    from omnigraph.topology.store import Topology

# Fewer rows than this are not worth merging.
_FEW = 256
_ROW = "row~"


@dataclass(slots=True)
class StepReport:
    """What one step did; no step is what comes after all of them."""

    step: Operation | None
    rows: int = 0
    seconds: float = 0.0
    bytes: int = 0
    storage: int = 0
    notes: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a query needs beside its plan."""

    store: GraphStore
    catalog: Catalog
    snapshot: Snapshot
    topology: Topology
    traversal: TraversalSettings = TraversalSettings()
    embedders: Embedders | None = None


class Run:
    """The state of one query while it runs."""

    def __init__(
        self, around: Surroundings, watch: Watch, outline: Outline, *, profiled: bool = False
    ) -> None:
        self.around = around
        self.watch = watch
        self.outline = outline
        self.types, self.edge_types = outline.types, outline.edge_types
        self.searches = Searches(self)
        self.profiled = profiled
        """Whether somebody wants to know what each step did."""
        self.reports: list[StepReport] = []
        self._nodes: dict[str, NodeSource | None] = {}
        self._edges: dict[str, EdgeSource | None] = {}
        self._depth = 0

    # -- tables --------------------------------------------------------------------------

    def nodes(self, type_name: str) -> NodeSource | None:
        """The nodes of a type, none when the snapshot is older than the type."""
        if type_name not in self._nodes:
            kind = self.around.catalog.node(type_name)
            pin = None if kind is None else self.around.snapshot.pin(kind.table_key)
            found = None
            if kind is not None and pin is not None:
                found = NodeSource(kind, pin, self.around.store, self.around.topology)
            self._nodes[type_name] = found
        return self._nodes[type_name]

    def edges(self, type_name: str) -> EdgeSource | None:
        """The edges of a type."""
        if type_name not in self._edges:
            kind = self.around.catalog.edge_types[type_name]
            pin = self.around.snapshot.pin(kind.table_key)
            ends = self.nodes(kind.from_type), self.nodes(kind.to_type)
            found = None
            if pin is not None and ends[0] is not None and ends[1] is not None:
                both = (ends[0], ends[1])
                found = EdgeSource(kind, pin, both, self.around.store, self.around.topology)
            self._edges[type_name] = found
        return self._edges[type_name]

    # -- columns -------------------------------------------------------------------------

    def column(self, frame: Frame, variable: str, name: str) -> pa.Array:
        """A column of a variable, one value for each row."""
        key = (variable, name)
        if key not in frame.values:
            self._fetch(frame, variable, [name])
        return frame.values[key]

    def fetch(self, frame: Frame, exprs: Iterable[typed.TypedExpr]) -> None:
        """Read the columns that expressions need, all of a variable at once."""
        wanted: dict[str, list[str]] = {}
        for expr in exprs:
            for variable, name in _columns(expr):
                if (variable, name) not in frame.values:
                    wanted.setdefault(variable, []).append(name)
        for variable, names in wanted.items():
            self._fetch(frame, variable, list(dict.fromkeys(names)))

    def _fetch(self, frame: Frame, variable: str, names: Sequence[str]) -> None:
        if variable in self.edge_types:
            source = self.edges(self.edge_types[variable])
            found = {} if source is None else source.values(names, frame.edges[variable])
        else:
            nodes = self.nodes(self.types[variable])
            found = {} if nodes is None else nodes.values(names, self.numbers(frame, variable))
        for name in names:
            frame.values[variable, name] = found[name]

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
        steps: Sequence[Operation],
        live: Sequence[frozenset[str]],
        frame: Frame,
        *,
        weighted: bool,
    ) -> Frame:
        """Run steps one after the other.

        ``live`` are the variables that are asked for after each of them; ``weighted`` is whether
        it matters how often a row occurs.
        """
        for step, kept in zip(steps, live, strict=True):
            self.watch.check()
            frame = self._reported(step, frame, kept, weighted)
            if not frame.rows:
                return self._nothing(steps, live[-1])
        return frame

    def _reported(
        self, step: Operation, frame: Frame, live: frozenset[str], weighted: bool
    ) -> Frame:
        if self._depth or not self.profiled:
            return self._tidy(step, frame, self._step(step, frame, live, weighted), live, weighted)
        known = self.report(step)
        reads = self.reads()
        start = time.perf_counter()
        after = self._tidy(step, frame, self._step(step, frame, live, weighted), live, weighted)
        known.seconds += time.perf_counter() - start
        known.rows += after.rows
        known.bytes = max(known.bytes, after.nbytes)
        known.storage += self.reads() - reads
        return after

    def report(self, step: Operation) -> StepReport:
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
        """Say something about the step that runs, for explain and profile."""
        if self.profiled and self.reports and not self._depth:
            notes = self.reports[-1].notes
            if facts not in notes:
                notes.append(facts)

    def _nothing(self, steps: Sequence[Operation], final: frozenset[str]) -> Frame:
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
        self, step: Operation, before: Frame, after: Frame, live: frozenset[str], weighted: bool
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

    def _step(self, step: Operation, frame: Frame, live: frozenset[str], weighted: bool) -> Frame:
        match step:
            case NodeScan():
                return self._scan(step, frame, live)
            case Expand():
                return expand(self, step, frame, live, weighted=weighted)
            case Connect():
                return connect(self, step, frame)
            case Filter():
                return frame.where(keeps(self, frame, step.condition))
            case AntiJoin():
                return self._without(step, frame)
            case _:
                raise InternalError(f"the engine does not know {type(step).__name__}")

    def _scan(self, step: NodeScan, frame: Frame, live: frozenset[str]) -> Frame:
        found = scan(self, step, live)
        if not frame.variables and frame.rows == 1 and frame.weights is None:
            return found
        rows = frame.rows * found.rows
        self.watch.hold(rows * (frame.width + found.width + 16))
        return product(frame, found)

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
            left = self.pipeline(step.inner, live, tagged, weighted=False)
            found = np.zeros(frame.rows, bool)
            if left.rows:
                found[left.nodes[_ROW]] = True
        finally:
            self._depth -= 1
        return frame.where(~found)

    def _without_node(self, step: AntiJoin, frame: Frame, name: str) -> Frame:
        """What happens inside depends on one node only: ask once for each different one."""
        numbers = self.numbers(frame, name)
        if not len(numbers):
            return frame
        asked = Frame(frame.rows, {name: numbers}).merged(weighted=False)
        live = live_after(step.inner, frozenset({name}))
        left = self.pipeline(step.inner, live, asked, weighted=False)
        found: Mask = np.zeros(int(numbers.max()) + 1, bool)
        if left.rows:
            found[left.nodes[name]] = True
        return frame.where(~found[numbers])


def _columns(expr: typed.TypedExpr) -> Iterator[tuple[str, str]]:
    """The columns that an expression reads itself; what is searched is read by the search."""
    if isinstance(expr, typed.Column):
        yield expr.variable, expr.name
    elif isinstance(expr, typed.Entity):
        yield expr.variable, typed.ID_COLUMN
    elif not isinstance(expr, typed.TextMatch | typed.Score):
        for part in typed.children(expr):
            yield from _columns(part)
