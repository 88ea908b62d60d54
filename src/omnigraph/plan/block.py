"""A block of a query as a graph of variables, whatever the order of its clauses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import Direction
from omnigraph.plan.nodes import AntiJoin, Connect, Expand, NodeScan, PlanStep, RowFilter
from omnigraph.records import dataclass


@dataclass(frozen=True, slots=True)
class BlockNode:
    """A variable that the block binds."""

    variable: str
    type_name: str
    filters: tuple[typed.TypedExpr, ...]
    visible: typed.Visible | None = None


@dataclass(frozen=True, slots=True)
class BlockEdge:
    """A traversal between two variables, in the direction of the edge type; never inwards."""

    edge_type: str
    src: str
    dst: str
    is_directed: bool
    min_hops: int
    max_hops: int
    variable: str | None
    filters: tuple[typed.TypedExpr, ...]
    through: typed.Visible | None = None

    def canonical(self) -> BlockEdge:
        """The same traversal; without a direction, its ends in alphabetical order."""
        if self.is_directed or self.src <= self.dst:
            return self
        return replace(self, src=self.dst, dst=self.src)

    def other(self, variable: str) -> str:
        return self.dst if variable == self.src else self.src

    def direction_from(self, variable: str) -> Direction:
        """The direction of a traversal that starts at one of the ends."""
        if not self.is_directed:
            return Direction.BOTH
        return Direction.OUT if variable == self.src else Direction.IN

    @property
    def is_plain(self) -> bool:
        """Whether the traversal is a single hop that only joins two nodes."""
        return self.variable is None and self.min_hops == self.max_hops == 1

    @property
    def ends(self) -> frozenset[str]:
        return frozenset({self.src, self.dst})


@dataclass(frozen=True, slots=True)
class Block:
    """Variables, traversals and conditions in a canonical order; ``outer`` is bound before."""

    nodes: Mapping[str, BlockNode]
    edges: tuple[BlockEdge, ...]
    conditions: tuple[typed.TypedExpr, ...]
    absent: tuple[AntiJoin, ...]
    outer: frozenset[str]

    @classmethod
    def of(cls, steps: Sequence[PlanStep], outer: frozenset[str] = frozenset()) -> Block | None:
        """The block of a compiled pipeline; ``None`` if it has a step of another kind."""
        nodes: dict[str, BlockNode] = {}
        edges: list[BlockEdge] = []
        conditions: list[typed.TypedExpr] = []
        absent: list[AntiJoin] = []
        for step in steps:
            match step:
                case NodeScan():
                    nodes[step.variable] = BlockNode(
                        step.variable, step.type_name, _sorted(step.filters), step.visible
                    )
                case Expand():
                    nodes[step.dst] = BlockNode(
                        step.dst, step.dst_type, _sorted(step.dst_filters), step.dst_visible
                    )
                    edges.append(_edge(step))
                case Connect():
                    edges.append(_edge(step))
                case RowFilter():
                    conditions.append(step.condition)
                case AntiJoin():
                    absent.append(step)
                case _:
                    return None
        return cls(
            {name: nodes[name] for name in sorted(nodes)},
            tuple(sorted(edges, key=repr)),
            _sorted(conditions),
            tuple(sorted(absent, key=repr)),
            outer,
        )


def _sorted(conditions: Sequence[typed.TypedExpr]) -> tuple[typed.TypedExpr, ...]:
    return tuple(sorted(conditions, key=repr))


def _edge(step: Expand | Connect) -> BlockEdge:
    edge = BlockEdge(
        step.edge_type,
        step.src,
        step.dst,
        step.direction is not Direction.BOTH,
        step.min_hops,
        step.max_hops,
        step.edge_variable,
        _sorted(step.edge_filters),
        step.through,
    )
    if step.direction is Direction.IN:
        edge = replace(edge, src=step.dst, dst=step.src)
    return edge.canonical()
