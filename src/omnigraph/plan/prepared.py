"""Compiled queries and their cache: a repeated call only binds parameters and executes.

For a read, everything that does not depend on parameters is computed once: the live variables of
each step, the columns of the result, conditions on a key rewritten to conditions on the id, and
constants converted to the types of their columns.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, TypeVar

import pyarrow as pa

from omnigraph.errors import InternalError
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query import typed
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.values.arrow import arrow_field
from omnigraph.plan import Expect, MutationPlan, ReadPlan, compile_restricted
from omnigraph.plan.bind import StepBinder, bind, bind_expr, step_binder
from omnigraph.plan.live import final_variables, is_aggregate, live_after, needs_counts
from omnigraph.plan.nodes import (
    Connect,
    Expand,
    Intersect,
    NodeScan,
    Pipeline,
    PlanStep,
    RowFilter,
    all_steps,
    variable_types,
)
from omnigraph.plan.order import order_steps
from omnigraph.plan.rules.restrict import check_marks
from omnigraph.plan.statistics import TableStatistics, text_key
from omnigraph.plan.view import WHOLE, View
from omnigraph.records import dataclass

T = TypeVar("T")
_SEARCHES = typed.TextMatch | typed.Score


@dataclass(frozen=True, slots=True)
class PlanInfo:
    """Properties of a plan that do not depend on its parameters."""

    schema: pa.Schema
    """The columns of the result."""
    live: tuple[frozenset[str], ...]
    """The variables that are needed after each step."""
    types: Mapping[str, str]
    edge_types: Mapping[str, str]
    """The type of each variable."""
    node_types: tuple[str, ...]
    """The types of all nodes of the pattern."""
    traversed: tuple[str, ...]
    """The types of all edges of the pattern."""
    is_aggregate: bool
    needs_counts: bool
    """Whether the result depends on the number of equal rows."""
    streams: bool
    """Whether rows can be returned before all of them are computed."""
    has_search: bool
    scanned: tuple[str, ...]
    """The columns to read for a plan that only scans one type."""
    restricted: frozenset[str]
    """The restricted tables of the views that the plan is for."""

    @classmethod
    def of(cls, plan: ReadPlan, restricted: frozenset[str] = frozenset()) -> PlanInfo:
        types, edge_types = variable_types(plan.pipeline)
        fused = any(isinstance(p, typed.Rrf) for c in plan.columns for p in typed.walk(c.expr))
        return cls(
            pa.schema([arrow_field(c.name, c.expr.type) for c in plan.columns]),
            tuple(live_after(plan.pipeline, final_variables(plan))),
            types,
            edge_types,
            tuple(sorted(set(types.values()))),
            tuple(sorted(set(_traversed(plan.pipeline)))),
            is_aggregate(plan),
            needs_counts(plan),
            not (plan.order or plan.distinct or is_aggregate(plan) or fused),
            any(isinstance(p, _SEARCHES) for e in plan.exprs() for p in typed.walk(e)),
            tuple(sorted(_scanned(plan))),
            restricted,
        )


def _traversed(steps: Pipeline) -> Iterator[str]:
    """The types of the edges of a pipeline."""
    for step in all_steps(steps):
        if isinstance(step, Expand | Connect):
            yield step.edge_type
        elif isinstance(step, Intersect):
            yield from (leg.edge_type for leg in step.legs)


def _scanned(plan: ReadPlan) -> set[str]:
    """The scanned columns; only the sort keys if a limit may drop rows."""
    picks = plan.order and plan.limit is not None and not (plan.distinct or is_aggregate(plan))
    exprs = [] if picks else [column.expr for column in plan.columns]
    exprs += [plan.meaning(key.expr) for key in plan.order]
    return {p.name for e in exprs for p in typed.walk(e) if isinstance(p, typed.Column)}


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A compiled read, ready to bind."""

    plan: ReadPlan
    """The plan as compiled; shown by explain."""
    ready: ReadPlan
    """The plan as executed, except for its parameters."""
    info: PlanInfo
    open_steps: tuple[tuple[int, StepBinder], ...]
    """The steps with parameters, and what binds them."""
    is_output_open: bool
    """Whether the columns or the order have parameters."""
    _orders: dict[Hashable, tuple[TableStatistics, PreparedQuery]] = field(
        default_factory=dict, compare=False, repr=False
    )
    _derived: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def was_large(self) -> bool:
        """Whether the last run had many rows; a hint only, because parameters differ."""
        return bool(self._derived.get("was_large"))

    def note_size(self, *, is_large: bool) -> None:
        """Remember whether a run had many rows."""
        self._derived["was_large"] = is_large

    def once(self, name: str, derive: Callable[[ReadPlan], T]) -> T:
        """Something that depends on the plan but not on its parameters; computed once."""
        if name not in self._derived:
            self._derived[name] = derive(self.plan)
        value: T = self._derived[name]
        return value

    @classmethod
    def of(
        cls, catalog: Catalog, plan: ReadPlan, restricted: frozenset[str] = frozenset()
    ) -> PreparedQuery:
        """``restricted`` are the tables of which the actor sees only a part."""
        types, _ = variable_types(plan.pipeline)
        by_id = replace(
            plan, pipeline=tuple(_by_id(step, catalog, types) for step in plan.pipeline)
        )
        ready = by_id.map_exprs(lambda expr: expr if _is_open(expr) else bind_expr(expr, {}))
        open_steps = [
            (n, step_binder(step))
            for n, step in enumerate(ready.pipeline)
            if any(map(_is_open, step.exprs()))
        ]
        is_output_open = any(map(_is_open, ready.output_exprs()))
        if restricted:
            check_marks(ready, restricted)
        info = PlanInfo.of(ready, restricted)
        return cls(plan, ready, info, tuple(open_steps), is_output_open)

    def ordered(
        self, catalog: Catalog, key: Hashable, statistics: Callable[[], TableStatistics]
    ) -> PreparedQuery:
        """The query with its steps in the best order for a snapshot.

        ``key`` is equal where the statistics are. These are rounded, so an order is found once for
        many versions.
        """
        entry = self._orders.get(key)
        if entry is None:
            # Kept with the order: a key may have the identities of what statistics consist of.
            made = statistics()
            plan = order_steps(self.plan, made)
            entry = made, PreparedQuery.of(catalog, plan, self.info.restricted)
            if len(self._orders) >= _MOST_ORDERS:
                self._orders.clear()
            self._orders[key] = entry
        return entry[1]

    def bind(self, values: Mapping[str, typed.Value]) -> ReadPlan:
        """The plan with every parameter replaced by its value (see ``convert_params``)."""
        if self.is_output_open:
            return bind(self.ready, values)
        if not self.open_steps:
            return self.ready
        pipeline = list(self.ready.pipeline)
        for index, bound in self.open_steps:
            pipeline[index] = bound(values)
        plan = self.ready
        # Not ``replace``, which takes longer than the rest of this.
        return ReadPlan(
            plan.name,
            plan.params,
            tuple(pipeline),
            plan.columns,
            plan.distinct,
            plan.order,
            plan.limit,
            plan.offset,
        )


def _is_open(expr: typed.TypedExpr) -> bool:
    return any(isinstance(part, typed.Parameter) for part in typed.walk(expr))


def _by_id(step: PlanStep, catalog: Catalog, types: Mapping[str, str]) -> PlanStep:
    """Rewrite conditions on a text key to the id: it is indexed, and compared as a number."""

    def is_key(expr: typed.TypedExpr) -> bool:
        return isinstance(expr, typed.Column) and expr.name == text_key(
            catalog.node(types.get(expr.variable, ""))
        )

    def by_id(expr: typed.TypedExpr) -> typed.TypedExpr:
        if isinstance(expr, typed.Column) and is_key(expr):
            return typed.Column(expr.variable, typed.ID_COLUMN, expr.type)
        # Search functions use the indexes of their columns.
        return expr if isinstance(expr, _SEARCHES) else typed.rebuild(expr, by_id)

    def same_node(expr: typed.TypedExpr) -> typed.TypedExpr:
        if isinstance(expr, typed.Compare) and is_key(expr.left) and is_key(expr.right):
            return typed.rebuild(expr, by_id)
        return expr if isinstance(expr, _SEARCHES) else typed.rebuild(expr, same_node)

    match step:
        case NodeScan():
            return step.map_exprs(by_id)
        case RowFilter():
            return step.map_exprs(same_node)
        case _:
            return step.map_inner(lambda inner: tuple(_by_id(s, catalog, types) for s in inner))


_MOST = 256
_MOST_ORDERS = 16


_Key = tuple[str, str, str | None, str, frozenset[str]]


class CompiledQueries:
    """Plans by text, name, schema and restricted tables. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: OrderedDict[_Key, PreparedQuery | MutationPlan] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def read(
        self, catalog: Catalog, source: Source, name: str | None, view: View = WHOLE
    ) -> PreparedQuery:
        """The plan of a query that reads what a view shows."""
        plan = self._plan(catalog, source, name, Expect.READ, view.restricted)
        if not isinstance(plan, PreparedQuery):
            raise InternalError("a read compiled to something else")
        return plan

    def cached_read(self, catalog: Catalog, text: str, name: str | None) -> PreparedQuery | None:
        """The plan of a query that reads everything, if it was compiled before."""
        key = (catalog.schema_hash, text, name, Expect.READ.value, WHOLE.restricted)
        with self._lock:
            plan = self._plans.get(key)
            if not isinstance(plan, PreparedQuery):
                return None
            self._plans.move_to_end(key)
            self.hits += 1
            return plan

    def any(
        self, catalog: Catalog, source: Source, name: str | None, view: View = WHOLE
    ) -> PreparedQuery | MutationPlan:
        """The plan of a query that reads what a view shows, or writes."""
        return self._plan(catalog, source, name, Expect.ANY, view.restricted)

    def mutation(self, catalog: Catalog, source: Source, name: str | None) -> MutationPlan:
        """The plan of a query that writes."""
        plan = self._plan(catalog, source, name, Expect.MUTATION, WHOLE.restricted)
        if not isinstance(plan, MutationPlan):
            raise InternalError("a mutation compiled to something else")
        return plan

    def _plan(
        self,
        catalog: Catalog,
        source: Source,
        name: str | None,
        expect: Expect,
        restricted: frozenset[str],
    ) -> PreparedQuery | MutationPlan:
        key = (catalog.schema_hash, source.text, name, expect.value, restricted)
        with self._lock:
            cached = self._plans.get(key)
            if cached is not None:
                self._plans.move_to_end(key)
                self.hits += 1
                return cached
            self.misses += 1
        compiled = compile_restricted(catalog, source, name, expect, restricted)
        plan: PreparedQuery | MutationPlan = (
            PreparedQuery.of(catalog, compiled, restricted)
            if isinstance(compiled, ReadPlan)
            else compiled
        )
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > _MOST:
                self._plans.popitem(last=False)
        return plan
