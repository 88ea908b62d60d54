"""Copies interfaces into nodes, and converts annotations to constraints.

Every property and constraint keeps its span, so that a finding about an injected property points
at the right location. Nothing is reported here: unresolved names are ignored, and reported by
``check``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from omnigraph.lang.schema.ast import (
    COLUMN_CONSTRAINTS,
    Constraint,
    EdgeDecl,
    InterfaceDecl,
    NodeDecl,
    PropertyDecl,
    SchemaFile,
)
from omnigraph.records import dataclass

D = TypeVar("D", NodeDecl, EdgeDecl)


@dataclass(frozen=True, slots=True)
class Expanded(Generic[D]):
    """A node or edge with the properties of its interfaces and all its constraints."""

    decl: D
    properties: tuple[PropertyDecl, ...]
    constraints: tuple[Constraint, ...]
    by_name: dict[str, PropertyDecl]
    injected: tuple[tuple[PropertyDecl, InterfaceDecl], ...] = ()


def interfaces_by_name(file: SchemaFile) -> dict[str, InterfaceDecl]:
    """The interfaces of a file; the first wins when a name is declared twice."""
    interfaces: dict[str, InterfaceDecl] = {}
    for interface in file.interfaces:
        interfaces.setdefault(interface.name, interface)
    return interfaces


def expand_node(node: NodeDecl, interfaces: dict[str, InterfaceDecl]) -> Expanded[NodeDecl]:
    """Copy the properties of its interfaces that the node does not declare itself.

    >>> from omnigraph.lang.diagnostics import Source
    >>> from omnigraph.lang.schema.parser import parse_schema
    >>> text = "interface Named { name: String @key } node A implements Named { age: I32? }"
    >>> file, _ = parse_schema(Source("s.pg", text))
    >>> node = expand_node(file.nodes[0], interfaces_by_name(file))
    >>> [p.name for p in node.properties], node.constraints[0].columns
    (['age', 'name'], ('name',))
    """
    own = node.properties
    by_name = _by_name(own)
    injected: list[tuple[PropertyDecl, InterfaceDecl]] = []
    for ref in node.implements:
        interface = interfaces.get(ref.name)
        for prop in interface.properties if interface else ():
            if prop.name not in by_name:
                assert interface is not None
                by_name[prop.name] = prop
                injected.append((prop, interface))
    brought = tuple(prop for prop, _ in injected)
    constraints = (*node.constraints, *desugared(own), *desugared(brought))
    return Expanded(node, own + brought, constraints, by_name, tuple(injected))


def expand_edge(edge: EdgeDecl) -> Expanded[EdgeDecl]:
    """The edge with its property annotations turned into constraints."""
    own = edge.properties
    constraints = (*edge.constraints, *desugared(own))
    return Expanded(edge, own, constraints, _by_name(own))


def desugared(properties: Iterable[PropertyDecl]) -> list[Constraint]:
    """The constraints declared by ``@key``, ``@unique`` and ``@index`` on properties."""
    constraints: list[Constraint] = []
    for prop in properties:
        for annotation in prop.annotations:
            make, span = COLUMN_CONSTRAINTS.get(annotation.name), annotation.span
            if make is not None:
                constraints.append(make((prop.name,), span=span, column_spans=(span,)))
    return constraints


def _by_name(properties: Iterable[PropertyDecl]) -> dict[str, PropertyDecl]:
    by_name: dict[str, PropertyDecl] = {}
    for prop in properties:
        by_name.setdefault(prop.name, prop)
    return by_name
