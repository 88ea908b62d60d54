"""Counts by inclusion and exclusion.

The rows that satisfy a condition are all rows without those that violate it. Where only rows are
counted, both numbers may be much cheaper than the rows themselves: without ``$a != $c`` the pattern
may be a tree, which is counted by its degrees, and with ``$a = $c`` it has one variable less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations

from omnigraph.lang.query import typed
from omnigraph.plan.block import Block, BlockEdge, BlockNode
from omnigraph.plan.live import is_row_count, used
from omnigraph.plan.nodes import AntiJoin, ReadPlan
from omnigraph.plan.statistics import TableStatistics

# The number of terms doubles with every excluded condition.
_MOST_EXCLUDED = 3


def only_counts(plan: ReadPlan) -> bool:
    """Whether the result of a plan is the number of its rows."""
    return not (plan.distinct or plan.order) and all(
        is_row_count(column.expr) for column in plan.columns
    )


def count_terms(block: Block, statistics: TableStatistics) -> list[tuple[int, Block]]:
    """Blocks with signs whose counts add up to the count of this one; none if that is no use.

    A condition is excluded if its opposite joins two variables: that they are the same node, or
    that an edge exists.
    """
    excluded: list[typed.Compare | AntiJoin] = [
        *(
            c
            for c in block.conditions
            if isinstance(c, typed.Compare) and _differ(c, block, statistics)
        ),
        *(step for step in block.absent if _absent_edge(step) is not None),
    ]
    excluded = excluded[:_MOST_EXCLUDED]
    if not excluded:
        return []
    merged = {name for c in excluded if isinstance(c, typed.Compare) for name in typed.variables(c)}
    others = [step for step in block.absent if step not in excluded]
    if any(not merged.isdisjoint(used(step)) for step in others):
        return []
    rest = replace(
        block,
        conditions=tuple(c for c in block.conditions if c not in excluded),
        absent=tuple(others),
    )
    terms = []
    for size in range(len(excluded) + 1):
        for chosen in combinations(excluded, size):
            terms.append(((-1) ** size, _with_opposites(rest, chosen)))
    return terms


def _differ(condition: typed.Compare, block: Block, statistics: TableStatistics) -> bool:
    """Whether a condition says that two variables are different nodes."""
    left, right = condition.left, condition.right
    if condition.op is not typed.Relation.NE:
        return False
    if not isinstance(left, typed.Column) or not isinstance(right, typed.Column):
        return False
    nodes = block.nodes
    if left.variable == right.variable or not {left.variable, right.variable} <= nodes.keys():
        return False
    type_name = nodes[left.variable].type_name
    return type_name == nodes[right.variable].type_name and all(
        statistics.is_identity(type_name, column.name) for column in (left, right)
    )


def _absent_edge(step: AntiJoin) -> BlockEdge | None:
    """The edge of a negation that says only that it does not exist."""
    inner = Block.of(step.inner, frozenset(step.outer))
    if inner is None or inner.nodes or inner.conditions or inner.absent or len(inner.edges) != 1:
        return None
    (edge,) = inner.edges
    return edge if edge.variable is None else None


def _with_opposites(block: Block, chosen: tuple[typed.Compare | AntiJoin, ...]) -> Block:
    """The block with the opposites of some conditions instead."""
    edges = list(block.edges)
    same: dict[str, str] = {}
    for condition in chosen:
        if isinstance(condition, AntiJoin):
            edge = _absent_edge(condition)
            assert edge is not None
            edges.append(edge)
        else:
            pair = sorted(_root(same, name) for name in typed.variables(condition))
            if len(pair) == 2 and pair[0] != pair[1]:
                same[pair[1]] = pair[0]
    block = replace(block, edges=_distinct(edges))
    return block if not same else _merged(block, {name: _root(same, name) for name in same})


def _root(same: Mapping[str, str], name: str) -> str:
    while name in same:
        name = same[name]
    return name


def _merged(block: Block, same: Mapping[str, str]) -> Block:
    """The block with some variables replaced by others."""

    def change(expr: typed.TypedExpr) -> typed.TypedExpr:
        if isinstance(expr, typed.Column | typed.Entity) and expr.variable in same:
            return replace(expr, variable=same[expr.variable])
        return typed.rebuild(expr, change)

    nodes: dict[str, BlockNode] = {}
    for name, node in block.nodes.items():
        kept = same.get(name, name)
        filters = tuple(change(condition) for condition in node.filters)
        if kept in nodes:
            filters = tuple(dict.fromkeys((*nodes[kept].filters, *filters)))
        nodes[kept] = BlockNode(kept, node.type_name, filters, node.visible)
    edges = [
        replace(
            edge,
            src=same.get(edge.src, edge.src),
            dst=same.get(edge.dst, edge.dst),
            filters=tuple(change(condition) for condition in edge.filters),
        ).canonical()
        for edge in block.edges
    ]
    return replace(
        block,
        nodes=nodes,
        edges=_distinct(edges),
        conditions=tuple(change(condition) for condition in block.conditions),
    )


def _distinct(edges: Iterable[BlockEdge]) -> tuple[BlockEdge, ...]:
    """The edges without repeats; those that are bound to a variable are all kept."""
    plain = dict.fromkeys(edge for edge in edges if edge.variable is None)
    bound = [edge for edge in edges if edge.variable is not None]
    return tuple(sorted([*plain, *bound], key=repr))
