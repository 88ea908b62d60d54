"""Whether the parts of a pattern hang together."""

from __future__ import annotations

from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import Pattern


def is_connected(pattern: Pattern) -> bool:
    """Whether every variable can be reached from every other by traversals and conditions.

    Patterns that are not connected give the product of their rows, which is rarely meant.
    """
    group: dict[str, set[str]] = {}
    for node in pattern.nodes:
        group.setdefault(node.variable, {node.variable})
    for hop in pattern.hops:
        ends = {hop.src, hop.dst}
        _join(group, ends if hop.edge_variable is None else ends | {hop.edge_variable})
    for condition in pattern.conditions:
        _join(group, set(typed.variables(condition)))
    return len({id(members) for members in group.values()}) <= 1


def _join(group: dict[str, set[str]], names: set[str]) -> None:
    merged: set[str] = set()
    for name in names:
        merged |= group.get(name, {name})
    for name in merged:
        group[name] = merged
