"""Lowers a checked query to a plan, before any optimizer rule.

Every traversal is part of the plan. Variables joined by traversals form a component. A component
starts from a variable that is already bound, else from its first binding, else from a scan of the
source type of its first traversal. The other bindings of the component become filters of the step
that binds them.
"""

from __future__ import annotations

from dataclasses import replace

from omnigraph.errors import PlanError
from omnigraph.lang.diagnostics import Diagnostic, Phase, Source
from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import (
    BoundNode,
    CheckedMutation,
    CheckedQuery,
    CheckedRead,
    Hop,
    Pattern,
    StatementKind,
)
from omnigraph.lang.query.connections import DisjointSets, sweep_order
from omnigraph.plan.names import with_one_type_per_name
from omnigraph.plan.nodes import (
    AntiJoin,
    Expand,
    MutationPlan,
    NodeScan,
    Plan,
    PlanStep,
    ReadPlan,
    RowFilter,
)


def lower(checked: CheckedQuery, source: Source) -> Plan:
    """The plan of a checked query; a mutation that mixes kinds is refused (the D2 rule)."""
    if not isinstance(checked, CheckedRead):
        return _lower_mutation(checked, source)
    return ReadPlan(
        checked.name,
        checked.params,
        _Lowering().pattern(with_one_type_per_name(checked.pattern), frozenset()),
        checked.columns,
        checked.distinct,
        checked.order,
        checked.limit,
        checked.offset,
    )


def _lower_mutation(checked: CheckedMutation, source: Source) -> MutationPlan:
    deletes = [step for step in checked.statements if step.kind is StatementKind.DELETE]
    if deletes and len(deletes) < len(checked.statements):
        message = (
            f"mutation `{checked.name}` mixes inserts/updates and deletes; "
            "split into separate mutations"
        )
        hint = "or do both on a branch and merge it"
        span = deletes[0].span
        raise PlanError([Diagnostic(Phase.PLAN, "D2", message, source, span, hint)])
    return MutationPlan(checked.name, checked.params, checked.statements)


class _Lowering:
    """Lowers the blocks of one query; temporaries have numbers that are unique in the query."""

    def __init__(self) -> None:
        self._temporaries = 0

    def pattern(self, pattern: Pattern, outer: frozenset[str]) -> tuple[PlanStep, ...]:
        steps: list[PlanStep] = []
        bound = set(outer)
        filters = {node.variable: node.filters for node in pattern.nodes}
        for node in pattern.nodes:
            if node.variable in outer:
                steps += [RowFilter(condition) for condition in node.filters]
        for component in _components(pattern):
            root = _root(component, outer)
            if root is not None:
                variable, type_name = root
                steps.append(NodeScan(variable, type_name, filters.get(variable, ())))
                bound.add(variable)
            self._expand(component.hops, bound, filters, steps)
        steps += [RowFilter(condition) for condition in pattern.conditions]
        visible = frozenset(bound)
        for absent in pattern.absent:
            steps.append(AntiJoin(self.pattern(absent.pattern, visible), absent.outer))
        return tuple(steps)

    def _expand(
        self,
        hops: list[Hop],
        bound: set[str],
        filters: dict[str, tuple[typed.TypedExpr, ...]],
        steps: list[PlanStep],
    ) -> None:
        """Add a step for every hop of a component, of which one variable is bound."""
        ends = [(hop.src, hop.dst) for hop in hops]
        starts = [name for pair in ends for name in pair if name in bound]
        for position in sweep_order(ends, starts):
            hop = hops[position]
            if hop.src in bound and hop.dst in bound:
                steps += self._closing(hop)
            elif hop.src in bound:
                steps.append(_expansion(hop, filters.get(hop.dst, ())))
                bound.add(hop.dst)
            else:
                assert hop.dst in bound, "a component without a bound variable"
                steps.append(_expansion(hop.reversed(), filters.get(hop.src, ())))
                bound.add(hop.src)
            if hop.edge_variable is not None:
                bound.add(hop.edge_variable)

    def _closing(self, hop: Hop) -> list[PlanStep]:
        """The steps for a hop with both ends bound: expand to a temporary, and compare."""
        self._temporaries += 1
        temporary = typed.hidden_name(hop.dst, self._temporaries)
        ends = [typed.Column(name, typed.ID_COLUMN, typed.STRING) for name in (temporary, hop.dst)]
        same_node = typed.Compare(typed.Relation.EQ, *ends)
        return [_expansion(replace(hop, dst=temporary), ()), RowFilter(same_node)]


def _expansion(hop: Hop, filters: tuple[typed.TypedExpr, ...]) -> Expand:
    return Expand(
        hop.src,
        hop.dst,
        hop.edge_type,
        hop.direction,
        hop.dst_type,
        hop.min_hops,
        hop.max_hops,
        filters,
        hop.edge_variable,
    )


class _Component:
    """Variables joined by traversals: the traversals in source order, and the bindings."""

    __slots__ = ("hops", "nodes", "variables")

    def __init__(self) -> None:
        self.variables: set[str] = set()
        self.hops: list[Hop] = []
        self.nodes: list[BoundNode] = []


def _components(pattern: Pattern) -> list[_Component]:
    """The components of a block; those with bindings come first, in the order of the bindings."""
    groups = DisjointSets()
    for hop in pattern.hops:
        groups.union((hop.src, hop.dst))
    components: dict[str, _Component] = {}
    for node in pattern.nodes:
        component = components.setdefault(groups.find(node.variable), _Component())
        component.nodes.append(node)
        component.variables.add(node.variable)
    for hop in pattern.hops:
        component = components.setdefault(groups.find(hop.src), _Component())
        component.hops.append(hop)
        component.variables.update((hop.src, hop.dst))
    return list(components.values())


def _root(component: _Component, outer: frozenset[str]) -> tuple[str, str] | None:
    """Where a component starts: a scan, or ``None`` if one of its variables is bound."""
    if not outer.isdisjoint(component.variables):
        return None
    if component.nodes:
        first_node = component.nodes[0]
        return first_node.variable, first_node.type_name
    first = component.hops[0]
    if typed.is_hidden(first.src) and not typed.is_hidden(first.dst):
        return first.dst, first.dst_type
    return first.src, first.src_type
