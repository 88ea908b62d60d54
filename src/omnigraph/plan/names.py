"""Names of variables: in a plan each has one type.

Two negated blocks may bind the same name, because neither sees the other. A plan maps names to
types, so a name with several types gets one name for each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from omnigraph.lang.query import typed
from omnigraph.lang.query.checked import Absent, BoundNode, Hop, Pattern

Names = Mapping[str, str]


def with_one_type_per_name(pattern: Pattern) -> Pattern:
    """A pattern whose variables of several types are renamed; no query text has such names."""
    types: defaultdict[str, set[str]] = defaultdict(set)
    for block in _blocks(pattern):
        for name, type_ in _bound(block):
            types[name].add(type_)
    ambiguous = {name for name, bound in types.items() if len(bound) > 1}
    return _renamed(pattern, ambiguous, {}) if ambiguous else pattern


def _blocks(pattern: Pattern) -> Iterator[Pattern]:
    yield pattern
    for absent in pattern.absent:
        yield from _blocks(absent.pattern)


def _bound(block: Pattern) -> Iterator[tuple[str, str]]:
    """The variables that a block uses in bindings and traversals, and what tells types apart."""
    for node in block.nodes:
        yield node.variable, f":{node.type_name}"
    for hop in block.hops:
        yield hop.src, f":{hop.src_type}"
        yield hop.dst, f":{hop.dst_type}"
        if hop.edge_variable is not None:
            yield hop.edge_variable, f"-{hop.edge_type}"


def _renamed(block: Pattern, ambiguous: set[str], outer: Names) -> Pattern:
    own = {name: name + type_ for name, type_ in _bound(block) if name in ambiguous}
    names = {**own, **outer}
    return Pattern(
        tuple(_node(node, names) for node in block.nodes),
        tuple(_hop(hop, names) for hop in block.hops),
        tuple(_expr(condition, names) for condition in block.conditions),
        tuple(
            Absent(
                _renamed(absent.pattern, ambiguous, names),
                tuple(names.get(name, name) for name in absent.outer),
            )
            for absent in block.absent
        ),
    )


def _node(node: BoundNode, names: Names) -> BoundNode:
    filters = tuple(_expr(condition, names) for condition in node.filters)
    return BoundNode(names.get(node.variable, node.variable), node.type_name, filters)


def _hop(hop: Hop, names: Names) -> Hop:
    edge = hop.edge_variable
    return replace(
        hop,
        src=names.get(hop.src, hop.src),
        dst=names.get(hop.dst, hop.dst),
        edge_variable=None if edge is None else names.get(edge, edge),
    )


def _expr(expr: typed.TypedExpr, names: Names) -> typed.TypedExpr:
    if isinstance(expr, typed.Column | typed.Entity):
        name = names.get(expr.variable)
        return expr if name is None else replace(expr, variable=name)
    return typed.rebuild(expr, lambda part: _expr(part, names))
