"""The order of the steps of a read, chosen by cost; it does not depend on the order of the clauses.

Each block is a graph of variables. A subtree that binds nothing that is needed elsewhere becomes a
weight of the variable it hangs on. The other variables are bound one after the other, in the order
with the lowest expected cost: a dynamic program over the sets of bound variables, or for large
patterns always the cheapest next variable. A variable with several bound neighbours is bound by an
intersection. Conditions and negations are evaluated as soon as their variables are bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from omnigraph.lang.query import typed
from omnigraph.plan.block import Block, BlockEdge, BlockNode
from omnigraph.plan.counting import count_terms, only_counts
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
)
from omnigraph.plan.statistics import TableSizes
from omnigraph.records import dataclass

# The assumed share of rows that pass a condition, and that have one value of a property.
_SELECTIVITY, _EQUAL_SELECTIVITY = 0.3, 0.1
# Up to this many variables all orders are compared.
_MOST_VARIABLES = 10
# The cost of a row: to scan it, to produce it, to test it for an edge.
_SCAN, _MAKE, _TEST = 1.0, 2.0, 1.5


def order_steps(plan: ReadPlan, sizes: TableSizes) -> ReadPlan:
    """The plan with its steps in the best order for tables of these sizes."""
    block = Block.of(plan.pipeline)
    if block is None:
        return plan
    direct = _best_order(block, final_variables(plan), sizes)
    pipeline = tuple(direct.steps())
    if only_counts(plan):
        terms = [
            (sign, _best_order(part, frozenset(), sizes))
            for sign, part in count_terms(block, sizes)
        ]
        if terms and _is_cheaper([order.cost for _, order in terms], direct.cost):
            summands = tuple(Term(sign, tuple(order.steps())) for sign, order in terms)
            pipeline = (Total(summands, pipeline),)
    return replace(plan, pipeline=pipeline)


def _is_cheaper(terms: Sequence[float], direct: float) -> bool:
    """Whether a count is better computed as a sum of several."""
    return sum(terms) < direct


def _ordered(
    steps: Pipeline, outer: frozenset[str], final: frozenset[str], sizes: TableSizes
) -> Pipeline | None:
    block = Block.of(steps, outer)
    if block is None:
        return None
    return tuple(_best_order(block, final, sizes).steps())


def _best_order(block: Block, final: frozenset[str], sizes: TableSizes) -> _BlockOrder:
    """The cheaper order: starting from variables with conditions, or counting them."""
    orders = [_BlockOrder(block, final, sizes, counts_filtered=flag) for flag in (False, True)]
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
        return steps[0] if len(steps) == 1 and not self.node.filters else Weigh(variable, steps)


class _BlockOrder:
    """The search for the best order of one block."""

    def __init__(
        self, block: Block, final: frozenset[str], sizes: TableSizes, *, counts_filtered: bool
    ) -> None:
        self._block = block
        self._counts_filtered = counts_filtered
        self._sizes = sizes
        self._needed = self._needed_variables(final)
        self._folded: dict[str, list[_Folded]] = {}
        self._edges = list(block.edges)
        self._free = list(block.nodes)
        self._fold()
        self._rows = {name: self._expected(block.nodes[name]) for name in block.nodes}
        self._order, self.cost = self._sequence()
        self.cost += self._folded_cost()

    def _needed_variables(self, final: frozenset[str]) -> frozenset[str]:
        """The variables that are used by anything but a traversal and their own conditions."""
        names = set(final)
        for condition in self._block.conditions:
            names |= typed.variables(condition)
        for step in self._block.absent:
            names |= used(step)
        return frozenset(names)

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

    def _edges_at(self, name: str) -> list[BlockEdge]:
        return [edge for edge in self._edges if name in edge.ends]

    # -- estimates -----------------------------------------------------------------------

    def _size(self, name: str) -> float:
        return self._sizes.nodes(self._block.nodes[name].type_name)

    def _expected(self, node: BlockNode) -> float:
        """How many nodes of a type pass the conditions on a variable."""
        rows = self._sizes.nodes(node.type_name)
        if self._names_nodes(node.variable):
            return min(rows, 1.0)
        return rows * math.prod(map(_selectivity, node.filters))

    def _names_nodes(self, name: str) -> bool:
        """Whether a condition names the nodes of a variable by their ids or keys."""
        node = self._block.nodes[name]
        return any(
            isinstance(column, typed.Column)
            and self._sizes.is_identity(node.type_name, column.name)
            for column in map(_named_column, node.filters)
        )

    def _pairs(self, edge: BlockEdge) -> float:
        """The expected share of pairs of nodes that a traversal joins."""
        table = self._sizes.edges(edge.edge_type)
        targets = max(table.targets, 1.0)
        fan = table.fan_out * (1 if edge.is_directed else 2)
        reached = min(_reached(fan, edge), targets)
        return min(reached / targets, 1.0)

    def _fan(self, edge: BlockEdge, start: str) -> float:
        """How many nodes a traversal reaches from one node of a variable."""
        table = self._sizes.edges(edge.edge_type)
        if not edge.is_directed:
            return _reached(table.fan_out + table.fan_in, edge)
        return _reached(table.fan_out if start == edge.src else table.fan_in, edge)

    def _joined(self, bound: frozenset[str], name: str) -> list[BlockEdge]:
        """The traversals between a variable and bound ones, the most selective first."""
        edges = [e for e in self._edges_at(name) if e.ends != {name} and e.other(name) in bound]
        return sorted(edges, key=lambda edge: self._fan(edge, edge.other(name)))

    def _after(self, bound: frozenset[str], rows: float, name: str) -> float:
        """The expected rows after a variable is bound too."""
        rows = self._matched(bound, rows, name)
        for condition in self._closed(bound, name):
            rows *= _selectivity(condition)
        live = self._live(bound | {name})
        if len(live) == 1 and live <= self._block.nodes.keys():
            # Equal rows are merged.
            rows = min(rows, self._size(next(iter(live))))
        return rows

    def _live(self, bound: frozenset[str]) -> set[str]:
        """The bound variables that are still needed."""
        return {
            name
            for name in bound
            if name in self._needed or any(not edge.ends <= bound for edge in self._edges_at(name))
        }

    def _matched(self, bound: frozenset[str], rows: float, name: str) -> float:
        """The expected rows after a variable is bound, before conditions with other variables."""
        rows *= self._rows[name]
        for edge in [*self._joined(bound, name), *self._loops(name)]:
            rows *= self._pairs(edge)
        return rows

    def _cost(self, bound: frozenset[str], rows: float, name: str) -> float:
        """The cost of binding a variable on so many rows, and of the conditions that closes."""
        edges, both = self._joined(bound, name), bound | {name}
        matched = self._matched(bound, rows, name)
        cost = _TEST * matched * sum(1 for _ in self._closed(bound, name))
        absent = [used(step) for step in self._block.absent]
        cost += 2 * _TEST * matched * sum(name in names and names <= both for names in absent)
        if not edges:
            return cost + _SCAN * self._scanned(name) + _MAKE * rows * self._rows[name]
        lead = edges[0]
        made = rows * self._fan(lead, lead.other(name))
        if self._block.nodes[name].filters:
            cost += _SCAN * min(made, self._size(name))
        return cost + made * (_MAKE + _TEST * len(edges[1:]))

    def _scanned(self, name: str) -> float:
        """How many rows a scan reads."""
        return 1.0 if self._names_nodes(name) else self._size(name)

    def _loops(self, name: str) -> list[BlockEdge]:
        return [edge for edge in self._edges if edge.ends == {name}]

    def _closed(self, bound: frozenset[str], name: str) -> Iterator[typed.TypedExpr]:
        """The conditions that can be evaluated once a variable is bound, and not before."""
        for condition in self._block.conditions:
            names = typed.variables(condition)
            if name in names and names <= bound | {name}:
                yield condition

    # -- search --------------------------------------------------------------------------

    def _sequence(self) -> tuple[list[str], float]:
        """The free variables in the order in which they are bound, and the expected cost."""
        if len(self._free) > _MOST_VARIABLES:
            return self._greedy()
        start = self._block.outer
        best: dict[frozenset[str], tuple[float, float, tuple[str, ...]]] = {start: (0.0, 1.0, ())}
        level = [start]
        for _ in self._free:
            following: dict[frozenset[str], tuple[float, float, tuple[str, ...]]] = {}
            for bound in level:
                cost, rows, order = best[bound]
                for name in self._candidates(bound, order):
                    after = bound | {name}
                    total = cost + self._cost(bound, rows, name)
                    state = (total, self._after(bound, rows, name), (*order, name))
                    if after not in following or _key(state) < _key(following[after]):
                        following[after] = state
            best, level = following, list(following)
        ((cost, _, order),) = best.values()
        return list(order), cost

    def _greedy(self) -> tuple[list[str], float]:
        bound, rows, cost = self._block.outer, 1.0, 0.0
        order: tuple[str, ...] = ()
        while len(order) < len(self._free):
            name = min(
                self._candidates(bound, order), key=lambda n: (self._cost(bound, rows, n), n)
            )
            cost += self._cost(bound, rows, name)
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
            table = self._sizes.edges(child.edge.edge_type)
            if child.children or child.node.filters:
                cost += (_MAKE + _SCAN) * table.rows * (1 if child.edge.is_directed else 2)
            else:
                # Only degrees are read.
                cost += _SCAN * max(table.sources, table.targets)
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
            result += self._binding(bound, name)
            bound |= {name}
            result += self._ready(self._visible(bound), conditions, absent)
        return iter(_weighed(result, self._folded))

    def _visible(self, bound: frozenset[str]) -> frozenset[str]:
        """The bound variables with those of the edges between them."""
        edges = [edge for edge in self._edges if edge.ends <= bound]
        return bound | {edge.variable for edge in edges if edge.variable is not None}

    def _binding(self, bound: frozenset[str], name: str) -> Iterator[PlanStep]:
        node, edges = self._block.nodes[name], self._joined(bound, name)
        plain = [edge for edge in edges if edge.is_plain]
        if not edges:
            yield NodeScan(name, node.type_name, node.filters)
        elif len(plain) > 1:
            legs = [
                Leg(edge.other(name), edge.edge_type, edge.direction_from(edge.other(name)))
                for edge in plain
            ]
            yield Intersect(tuple(legs), name, node.type_name, node.filters)
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
                inner = _ordered(step.inner, used(step), frozenset(), self._sizes)
                yield step if inner is None else replace(step, inner=inner)


def _key(state: tuple[float, float, tuple[str, ...]]) -> tuple[float, tuple[str, ...]]:
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
    )


def _reached(fan: float, edge: BlockEdge) -> float:
    return fan if edge.max_hops == 1 else math.pow(max(fan, 1.0), min(edge.max_hops, 8))


def _named_column(condition: typed.TypedExpr) -> typed.TypedExpr | None:
    """The expression that a condition compares with given values."""
    match condition:
        case typed.Compare(op=typed.Relation.EQ, left=left, right=right):
            return right if isinstance(left, typed.Constant | typed.Parameter) else left
        case typed.Membership(item=item):
            return item
        case _:
            return None


def _selectivity(condition: typed.TypedExpr) -> float:
    """The assumed share of rows that pass a condition."""
    match condition:
        case typed.Compare(op=typed.Relation.EQ):
            return _EQUAL_SELECTIVITY
        case typed.Compare(op=typed.Relation.NE) | typed.IsNull(negated=True):
            return 1.0 - _EQUAL_SELECTIVITY
        case typed.And(operands=operands):
            return math.prod(map(_selectivity, operands))
        case _:
            return _SELECTIVITY
