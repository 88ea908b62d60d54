"""The order of the steps of a read, chosen by cost; it does not depend on the order of the clauses.

Each block is a graph of variables. A subtree that binds nothing that is needed elsewhere becomes a
weight of the variable it hangs on. The other variables are bound one after the other, in the order
with the lowest expected cost: a dynamic program over the sets of bound variables, or for large
patterns always the cheapest next variable. A variable with several bound neighbours is bound by an
intersection. Conditions and negations are evaluated as soon as their variables are bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from omnigraph.lang.query import typed
from omnigraph.plan.block import Block, BlockEdge, BlockNode
from omnigraph.plan.costs import MAKE, SCAN, BlockCosts
from omnigraph.plan.counting import count_terms, only_counts
from omnigraph.plan.estimator import Estimator
from omnigraph.plan.live import final_variables, used
from omnigraph.plan.nodes import (
    AntiJoin,
    Connect,
    Expand,
    Intersect,
    Leg,
    NodeScan,
    Pipeline,
    PlanStep,
    ReadPlan,
    RowFilter,
    Term,
    Total,
    Weigh,
    variable_types,
)
from omnigraph.plan.statistics import TableStatistics
from omnigraph.records import dataclass

# Up to this many variables all orders are compared.
_MOST_VARIABLES = 10
# Up to this many variables the best order for each first variable is kept.
_MOST_FIRST_VARIABLES = 6

_State = tuple[float, float, tuple[str, ...]]
"""Variables that are bound: the cost so far, the expected rows, and the order."""


def order_steps(plan: ReadPlan, statistics: TableStatistics) -> ReadPlan:
    """The plan with its steps in the best order for tables like these."""
    block = Block.of(plan.pipeline)
    if block is None:
        return plan
    types, edge_types = variable_types(plan.pipeline)
    estimator = Estimator(statistics, {**types, **edge_types})
    direct = _best_order(block, final_variables(plan), estimator)
    pipeline = tuple(direct.steps())
    if only_counts(plan):
        terms = [
            (sign, _best_order(part, frozenset(), estimator))
            for sign, part in count_terms(block, statistics)
        ]
        if terms and _is_cheaper([order.cost for _, order in terms], direct.cost):
            summands = tuple(Term(tuple(order.steps()), sign) for sign, order in terms)
            pipeline = (Total(summands, pipeline),)
    return replace(plan, pipeline=pipeline)


def _is_cheaper(terms: Sequence[float], direct: float) -> bool:
    """Whether a count is better computed as a sum of several."""
    return sum(terms) < direct


def _best_order(
    block: Block, final: frozenset[str], estimator: Estimator, first: str | None = None
) -> _BlockOrder:
    """The cheaper order: starting from variables with conditions, or counting them.

    ``first`` is the outer variable in whose order the rows are.
    """
    has_filters = any(node.filters for node in block.nodes.values())
    orders = [
        _BlockOrder(block, final, estimator, first, counts_filtered=flag)
        for flag in ((False, True) if has_filters else (False,))
    ]
    return min(orders, key=lambda order: order.cost)


@dataclass(slots=True)
class _Folded:
    """A subtree that is counted: the edge to it, its variable, and its own subtrees."""

    edge: BlockEdge
    node: BlockNode
    children: list[_Folded] = field(default_factory=list)

    def steps(self, variable: str) -> Pipeline:
        """The steps that count the subtree from the variable it hangs on."""
        inner: list[PlanStep] = [_expand(self.edge, variable, self.node)]
        inner += [child.weight(self.node.variable) for child in self.children]
        return tuple(inner)

    def weight(self, variable: str) -> PlanStep:
        """The step that counts the subtree; a traversal alone is counted by its degrees."""
        steps = self.steps(variable)
        return steps[0] if len(steps) == 1 and not self.node.filters else Weigh(steps, variable)


class _BlockOrder(BlockCosts):
    """The search for the best order of one block."""

    def __init__(
        self,
        block: Block,
        final: frozenset[str],
        estimator: Estimator,
        first: str | None,
        *,
        counts_filtered: bool,
    ) -> None:
        super().__init__(block, final, estimator, first)
        self._counts_filtered = counts_filtered
        self._folded: dict[str, list[_Folded]] = {}
        self._free = list(block.nodes)
        self._fold()
        self._inner: dict[tuple[AntiJoin, str | None], _BlockOrder | None] = {}
        self._order, self.cost = self._sequence()
        self.cost += self._folded_cost()

    def _inner_order(self, step: AntiJoin, first: str | None) -> _BlockOrder | None:
        """The order of a negated pipeline, for rows in the order of a variable."""
        outer = used(step)
        key = (step, first if first in outer else None)
        if key not in self._inner:
            block = Block.of(step.inner, outer)
            self._inner[key] = (
                None if block is None else _best_order(block, frozenset(), self._estimator, key[1])
            )
        return self._inner[key]

    def _inner_cost(self, step: AntiJoin, first: str | None) -> float:
        inner = self._inner_order(step, first)
        return 0.0 if inner is None else inner.cost

    # -- subtrees ------------------------------------------------------------------------

    def _fold(self) -> None:
        """Remove the leaves of the pattern that are only counted, until there is none."""
        while True:
            leaf = next((name for name in self._free if self._is_leaf(name)), None)
            if leaf is None:
                return
            (edge,) = self._edges_at(leaf)
            node = self._block.nodes[leaf]
            child = _Folded(edge, node, self._folded.pop(leaf, []))
            self._folded.setdefault(edge.other(leaf), []).append(child)
            self._edges.remove(edge)
            self._free.remove(leaf)

    def _is_leaf(self, name: str) -> bool:
        edges = self._edges_at(name)
        if name in self._needed or len(edges) != 1 or len(edges[0].ends) == 1:
            return False
        (edge,) = edges
        if edge.variable is not None or self._is_start(name):
            return False
        # Of the last two variables the one with fewer nodes is kept, else the first by name.
        other = edge.other(name)
        is_last = other not in self._block.outer and len(self._edges_at(other)) == 1
        is_kept = is_last and other not in self._needed and not self._is_start(other)
        return (
            not is_kept
            or self._size(name) > self._size(other)
            or (self._size(name) == self._size(other) and name > other)
        )

    def _is_start(self, name: str) -> bool:
        """Whether a variable may be a good start, and is therefore not counted."""
        filters = self._block.nodes[name].filters
        return bool(filters) and not (self._counts_filtered and not self._names_nodes(name))

    # -- search --------------------------------------------------------------------------

    def _sequence(self) -> tuple[list[str], float]:
        """The free variables in the order in which they are bound, and the expected cost."""
        if len(self._free) > _MOST_VARIABLES:
            return self._greedy()
        # The cost of a traversal depends on the variable that was bound first.
        keeps_first = len(self._free) <= _MOST_FIRST_VARIABLES
        level: dict[tuple[frozenset[str], str | None], _State] = {
            (self._block.outer, None): (self._opening_cost(), 1.0, ())
        }
        for _ in self._free:
            following: dict[tuple[frozenset[str], str | None], _State] = {}
            for (bound, _), (cost, rows, order) in level.items():
                for name in self._candidates(bound, order):
                    total = cost + self._cost(order, rows, name)
                    state = (total, self._after(bound, rows, name), (*order, name))
                    key = (bound | {name}, state[2][0] if keeps_first else None)
                    if key not in following or _key(state) < _key(following[key]):
                        following[key] = state
            level = following
        cost, _, order = min(level.values(), key=_key)
        return list(order), cost

    def _greedy(self) -> tuple[list[str], float]:
        bound, rows, cost = self._block.outer, 1.0, self._opening_cost()
        order: tuple[str, ...] = ()
        while len(order) < len(self._free):
            costs = {n: self._cost(order, rows, n) for n in self._candidates(bound, order)}
            name = min(costs, key=lambda n: (costs[n], n))
            cost += costs[name]
            rows = self._after(bound, rows, name)
            bound, order = bound | {name}, (*order, name)
        return list(order), cost

    def _folded_cost(self) -> float:
        """The cost of counting the subtrees: each of their edges is followed at most once."""
        waiting = [child for children in self._folded.values() for child in children]
        cost = 0.0
        while waiting:
            child = waiting.pop()
            waiting += child.children
            table = self._estimator.statistics.edges(child.edge.edge_type)
            if child.children or child.node.filters:
                cost += (MAKE + SCAN) * table.rows * (1 if child.edge.is_directed else 2)
            else:
                # Only degrees are read.
                cost += SCAN * max(table.sources, table.targets)
        return cost

    def _candidates(self, bound: frozenset[str], order: Sequence[str]) -> list[str]:
        """The variables that may be bound next: neighbours of bound ones, if there are any."""
        left = [name for name in self._free if name not in order]
        near = [name for name in left if self._joined(bound, name)]
        return near or left

    # -- steps ---------------------------------------------------------------------------

    def steps(self) -> Iterator[PlanStep]:
        """The steps of the block in the order of execution."""
        bound = self._block.outer
        conditions = list(self._block.conditions)
        absent = list(self._block.absent)
        edges = [edge for edge in self._edges if edge.ends <= bound]
        result: list[PlanStep] = [_connect(edge) for edge in edges]
        result += self._ready(self._visible(bound), conditions, absent)
        for name in self._order:
            result += self._binding_steps(bound, name)
            bound |= {name}
            result += self._ready(self._visible(bound), conditions, absent)
        return iter(_weighed(result, self._folded))

    def _binding_steps(self, bound: frozenset[str], name: str) -> Iterator[PlanStep]:
        node, edges = self._block.nodes[name], self._joined(bound, name)
        plain = [edge for edge in edges if edge.is_plain]
        if not edges:
            yield NodeScan(name, node.type_name, node.filters, node.visible)
        elif len(plain) > 1:
            legs = [
                Leg(
                    edge.other(name),
                    edge.edge_type,
                    edge.direction_from(edge.other(name)),
                    edge.through,
                )
                for edge in plain
            ]
            yield Intersect(tuple(legs), name, node.type_name, node.filters, node.visible)
            edges = [edge for edge in edges if not edge.is_plain]
            yield from map(_connect, edges)
        else:
            yield _expand(edges[0], edges[0].other(name), node)
            yield from map(_connect, edges[1:])
        yield from map(_connect, self._loops(name))

    def _ready(
        self,
        bound: frozenset[str],
        conditions: list[typed.TypedExpr],
        absent: list[AntiJoin],
    ) -> Iterator[PlanStep]:
        """The conditions and negations whose variables are bound; they are removed."""
        for condition in list(conditions):
            if typed.variables(condition) <= bound:
                conditions.remove(condition)
                yield RowFilter(condition)
        for step in list(absent):
            if used(step) <= bound:
                absent.remove(step)
                inner = self._inner_order(step, self._order[0] if self._order else self._first)
                yield step if inner is None else replace(step, inner=tuple(inner.steps()))


def _key(state: _State) -> tuple[float, tuple[str, ...]]:
    return float(f"{state[0]:.6g}"), state[2]


def _weighed(steps: list[PlanStep], folded: dict[str, list[_Folded]]) -> list[PlanStep]:
    """The steps with a weight for each subtree, right after the last use of its variable."""
    result: list[PlanStep] = []
    last = {
        name: position
        for position, step in enumerate(steps)
        for name in (*used(step), *step.introduced())
    }
    for name in folded:
        if name not in last:
            result += [child.weight(name) for child in folded[name]]
    for position, step in enumerate(steps):
        result.append(step)
        for name, children in folded.items():
            if last.get(name) == position:
                result += [child.weight(name) for child in children]
    return result


def _expand(edge: BlockEdge, start: str, node: BlockNode) -> Expand:
    return Expand(
        start,
        node.variable,
        edge.edge_type,
        edge.direction_from(start),
        node.type_name,
        edge.min_hops,
        edge.max_hops,
        node.filters,
        edge.variable,
        edge.filters,
        node.visible,
        edge.through,
    )


def _connect(edge: BlockEdge) -> Connect:
    return Connect(
        edge.src,
        edge.dst,
        edge.edge_type,
        edge.direction_from(edge.src),
        edge.min_hops,
        edge.max_hops,
        edge.variable,
        edge.filters,
        edge.through,
    )
