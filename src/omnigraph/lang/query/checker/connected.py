"""Whether the parts of a pattern hang together."""

from __future__ import annotations

from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import Pattern
from omnigraph.lang.query.disjoint_sets import DisjointSets


def is_connected(pattern: Pattern) -> bool:
    """Whether every variable can be reached from every other by traversals and conditions.

    Patterns that are not connected give the product of their rows, which is rarely meant.
    """
    groups = DisjointSets()
    names = {node.variable for node in pattern.nodes}
    for hop in pattern.hops:
        ends = [hop.src, hop.dst, hop.edge_variable or hop.src]
        groups.union(ends)
        names.update(ends)
    for condition in pattern.conditions:
        groups.union(sorted(typed.variables(condition)))
    return len({groups.find(name) for name in names}) <= 1
