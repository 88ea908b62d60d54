"""The expected rows and costs of binding the variables of a block one after the other."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from omnigraph.lang.query import typed
from omnigraph.plan.block import Block, BlockEdge, BlockNode
from omnigraph.plan.estimator import End, Estimator, opposite
from omnigraph.plan.live import used
from omnigraph.plan.nodes import AntiJoin
from omnigraph.records import dataclass

# Costs are in units of following an edge, which takes about 2.5 ns.
FOLLOW = 1.0
# The cost of a row: to list it, to evaluate a condition of a scan or of a pattern on it, to produce
# it, to look its only neighbour up.
_LIST, SCAN, _CONDITION, MAKE, _GATHER = 0.1, 1.0, 1.5, 2.0, 0.5
# The cost of testing a row for an edge: by comparing a few neighbours, or by a filter and a search.
NARROW_TEST, TEST = 0.6, 2.2
# At most so many neighbours are compared one by one.
_FEW_NEIGHBOURS = 4.0
# Rows are in the order of the variable that was bound first; neighbours of others are scattered.
_SCATTERED = 1.3


@dataclass(frozen=True, slots=True)
class _Way:
    """A traversal to a variable from another one."""

    edge: BlockEdge
    start: str
    end: End
    """The edge as seen from the start."""
    near: End
    """The edge as seen from the variable."""
    fraction: float
    """The share of pairs that it joins."""
    make: float
    test: float
    """The costs of following it, and of testing a pair."""


@dataclass(frozen=True, slots=True)
class _Binding:
    """What binding a variable does to a row, if a set of others is bound."""

    ways: tuple[_Way, ...]
    """The traversals to it, the most selective first."""
    fans: tuple[float, ...]
    """How many nodes each of them reaches."""
    matches: float
    """The expected rows for each row."""
    conditions: tuple[typed.TypedExpr, ...]
    absent: tuple[AntiJoin, ...]
    """What can be evaluated then, and not before."""


class BlockCosts(ABC):
    """The costs of one block.

    ``final`` are the variables that are needed after it, ``first`` is the outer variable in whose
    order the rows are.
    """

    def __init__(
        self, block: Block, final: frozenset[str], estimator: Estimator, first: str | None
    ) -> None:
        self._block = block
        self._estimator = estimator
        self._first = first
        self._needed = self._needed_variables(final)
        self._edges = list(block.edges)
        self._rows = {
            name: estimator.nodes(node.type_name, node.filters)
            for name, node in block.nodes.items()
        }
        self._all_ways: dict[str, list[_Way]] = {}
        self._bindings: dict[tuple[frozenset[str], str], _Binding] = {}

    @abstractmethod
    def _inner_cost(self, step: AntiJoin, first: str | None) -> float:
        """The cost of a negated pipeline for one row, of rows in the order of a variable."""

    def _needed_variables(self, final: frozenset[str]) -> frozenset[str]:
        """The variables that are used by anything but a traversal and their own conditions."""
        names = set(final)
        for condition in self._block.conditions:
            names |= typed.variables(condition)
        for step in self._block.absent:
            names |= used(step)
        return frozenset(names)

    def _edges_at(self, name: str) -> list[BlockEdge]:
        return [edge for edge in self._edges if name in edge.ends]

    def _visible(self, bound: frozenset[str]) -> frozenset[str]:
        """The bound variables with those of the edges between them."""
        edges = [edge for edge in self._edges if edge.ends <= bound]
        return bound | {edge.variable for edge in edges if edge.variable is not None}

    # -- estimates -----------------------------------------------------------------------

    def _size(self, name: str) -> float:
        return self._estimator.statistics.nodes(self._block.nodes[name].type_name)

    def _names_nodes(self, name: str) -> bool:
        """Whether a condition names the nodes of a variable by their ids or keys."""
        node = self._block.nodes[name]
        return self._estimator.named(node.type_name, node.filters) is not None

    def _ways(self, name: str) -> list[_Way]:
        """The traversals to a variable."""
        ways = self._all_ways.get(name)
        if ways is None:
            edges = [edge for edge in self._edges_at(name) if edge.ends != {name}]
            ways = self._all_ways[name] = [self._way(edge, edge.other(name)) for edge in edges]
        return ways

    def _way(self, edge: BlockEdge, start: str) -> _Way:
        end = (edge.edge_type, edge.direction_from(start))
        is_single = self._most(edge, start) <= 1
        return _Way(
            edge,
            start,
            end,
            (edge.edge_type, opposite(end[1])),
            self._estimator.joined(end, edge.max_hops),
            _GATHER if is_single else MAKE,
            self._test_cost(edge),
        )

    def _bound_ends(self, bound: frozenset[str], name: str) -> list[End]:
        """The edges between a variable and bound ones."""
        return [way.near for way in self._ways(name) if way.start in bound]

    def _binding(self, bound: frozenset[str], name: str) -> _Binding:
        binding = self._bindings.get((bound, name))
        if binding is None:
            binding = self._bindings[bound, name] = self._derive_binding(bound, name)
        return binding

    def _derive_binding(self, bound: frozenset[str], name: str) -> _Binding:
        estimator = self._estimator
        pairs = []
        for way in self._ways(name):
            if way.start in bound:
                near = self._bound_ends(bound, way.start)
                fan = estimator.fan(way.end, way.edge.max_hops, near)
                pairs.append((fan, estimator.skew(way.end, near), way))
        pairs.sort(key=lambda pair: pair[0])
        matches, here = self._rows[name], list[End]()
        for _, skew, way in pairs:
            matches *= way.fraction * skew * estimator.skew(way.near, here)
            here.append(way.near)
        for edge in self._loops(name):
            matches *= estimator.joined((edge.edge_type, edge.direction_from(name)))
        conditions, absent = self._closed(bound, name)
        return _Binding(
            tuple(way for _, _, way in pairs),
            tuple(fan for fan, _, _ in pairs),
            min(matches, pairs[0][0]) if pairs else matches,
            conditions,
            absent,
        )

    def _joined(self, bound: frozenset[str], name: str) -> list[BlockEdge]:
        """The traversals between a variable and bound ones, the most selective first."""
        return [way.edge for way in self._binding(bound, name).ways]

    def _after(self, bound: frozenset[str], rows: float, name: str) -> float:
        """The expected rows after a variable is bound too."""
        binding = self._binding(bound, name)
        rows *= binding.matches * self._estimator.selectivity(binding.conditions)
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
            if name in self._needed or any(way.start not in bound for way in self._ways(name))
        }

    # -- costs ---------------------------------------------------------------------------

    def _cost(self, order: tuple[str, ...], rows: float, name: str) -> float:
        """The cost of binding a variable on so many rows, and of the conditions that closes."""
        binding = self._binding(self._block.outer | frozenset(order), name)
        first = order[0] if order else self._first
        matched = rows * binding.matches
        cost = _CONDITION * matched * len(binding.conditions)
        for step in binding.absent:
            # Of one node, the inner pipeline runs once for each.
            starts = min(matched, self._size(name)) if used(step) == {name} else matched
            cost += (_CONDITION + self._inner_cost(step, first or name)) * starts
        node = self._block.nodes[name]
        if not binding.ways:
            return cost + self._scan_cost(node) + MAKE * rows * self._rows[name]
        if node.filters:
            cost += SCAN * min(rows * binding.fans[0], self._size(name))
        # Each traversal may lead; the others are tests.
        tests = sum(way.test for way in binding.ways)
        return cost + rows * min(
            fan * (way.make * (1 if way.start == first else _SCATTERED) + tests - way.test)
            for fan, way in zip(binding.fans, binding.ways, strict=True)
        )

    def _opening_cost(self) -> float:
        """The cost of what can be evaluated on one row before anything is bound."""
        outer = self._block.outer
        cost = sum(self._test_cost(edge) for edge in self._edges if edge.ends <= outer)
        visible = self._visible(outer)
        return cost + _CONDITION * sum(
            typed.variables(c) <= visible for c in self._block.conditions
        )

    def _scan_cost(self, node: BlockNode) -> float:
        if self._names_nodes(node.variable):
            return SCAN
        rows = self._size(node.variable)
        return (SCAN if node.filters else _LIST) * rows

    def _most(self, edge: BlockEdge, start: str) -> float:
        """The most nodes that a traversal reaches from one node."""
        if edge.max_hops > 1:
            return math.inf
        table = self._estimator.statistics.edges(edge.edge_type)
        return table.most(edge.direction_from(start))

    def _test_cost(self, edge: BlockEdge) -> float:
        most = min(self._most(edge, edge.src), self._most(edge, edge.dst))
        return NARROW_TEST if most <= _FEW_NEIGHBOURS else TEST

    def _loops(self, name: str) -> list[BlockEdge]:
        return [edge for edge in self._edges if edge.ends == {name}]

    def _closed(
        self, bound: frozenset[str], name: str
    ) -> tuple[tuple[typed.TypedExpr, ...], tuple[AntiJoin, ...]]:
        """The conditions and negations that can be evaluated once a variable is bound."""
        block = self._block
        if not block.conditions and not block.absent:
            return (), ()
        before, after = self._visible(bound), self._visible(bound | {name})

        def is_closed(names: frozenset[str]) -> bool:
            return names <= after and not names <= before

        conditions = tuple(c for c in block.conditions if is_closed(typed.variables(c)))
        return conditions, tuple(step for step in block.absent if is_closed(used(step)))
