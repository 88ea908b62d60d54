"""Semantic checks of a parsed schema.

Every finding is reported, not only the first. If a part of the text could not be parsed, checks
that would only report the missing part are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.lang.closest import did_you_mean
from omnigraph.lang.diagnostics import Diagnostic, SchemaReport, Source, Span
from omnigraph.lang.schema.annotations import check_property, check_type_annotations
from omnigraph.lang.schema.ast import (
    CheckConstraint,
    Constraint,
    EdgeDecl,
    InterfaceDecl,
    KeyConstraint,
    NodeDecl,
    PropertyDecl,
    RangeConstraint,
    SchemaFile,
    TypeKind,
)
from omnigraph.lang.schema.expand import (
    Expanded,
    desugared,
    expand_edge,
    expand_node,
    interfaces_by_name,
)
from omnigraph.lang.schema.ir import canonical_type, property_id, type_id
from omnigraph.lang.types import PropType, Scalar

ENDPOINTS = ("dst", "src")


def check_schema(file: SchemaFile, source: Source) -> list[Diagnostic]:
    """Every semantic error of a schema.

    >>> from omnigraph.lang.schema.parser import parse_schema
    >>> source = Source("s.pg", "node Person { } edge Knows: Person -> Persn")
    >>> [d.hint for d in check_schema(parse_schema(source)[0], source)]
    ['did you mean `Person`?']
    """
    report = SchemaReport(source)
    interfaces = interfaces_by_name(file)
    for interface in file.interfaces:
        _check_interface(report, interface)
    for node in file.nodes:
        _check_node(report, file, expand_node(node, interfaces), interfaces)
    for edge in file.edges:
        _check_edge(report, edge)
    _check_names(report, file)
    _check_endpoints(report, file)
    return report.diagnostics


# -- one declaration ----------------------------------------------------------------------------


def _check_interface(report: SchemaReport, interface: InterfaceDecl) -> None:
    by_name = {p.name: p for p in interface.properties}
    for prop in interface.properties:
        check_property(report, TypeKind.INTERFACE, interface.name, prop, by_name, complete=False)
    _check_property_names(report, TypeKind.INTERFACE, interface.name, interface.properties)


def _check_node(
    report: SchemaReport,
    file: SchemaFile,
    node: Expanded[NodeDecl],
    interfaces: dict[str, InterfaceDecl],
) -> None:
    decl = node.decl
    check_type_annotations(report, TypeKind.NODE, decl.name, decl.annotations)
    complete = decl.complete
    for ref in decl.implements:
        interface = interfaces.get(ref.name)
        if interface is not None:
            complete = complete and interface.complete
            _check_interface_types(report, node, interface, ref.span)
            continue
        complete = False
        if file.complete:
            report.parse(
                "S051",
                f"node {decl.name} implements unknown interface '{ref.name}'",
                ref.span,
                did_you_mean(ref.name, interfaces),
            )
    for prop in decl.properties:
        check_property(report, TypeKind.NODE, decl.name, prop, node.by_name, complete=complete)
    for prop, _ in node.injected:
        check_property(
            report, TypeKind.NODE, decl.name, prop, node.by_name, complete=complete, injected=decl
        )
    _check_property_names(report, TypeKind.NODE, decl.name, node.properties)
    _check_key_count(report, node)
    for constraint in decl.constraints:
        _check_constraint(report, TypeKind.NODE, decl.name, constraint, node.by_name, complete)
    for constraint in node.constraints[len(decl.constraints) :]:
        if isinstance(constraint, KeyConstraint):
            _check_key_nullable(report, decl.name, constraint, node.by_name)


def _check_interface_types(
    report: SchemaReport, node: Expanded[NodeDecl], interface: InterfaceDecl, implements: Span
) -> None:
    """Check that an interface agrees with the node, and so with the interfaces before it."""
    brought = {prop.name for prop, _ in node.injected}
    for prop in interface.properties:
        effective = node.by_name[prop.name]
        mine, theirs = canonical_type(effective.type), canonical_type(prop.type)
        if mine == theirs:
            continue
        hint = f"declare it as `{theirs}`, or leave it out: the interface brings it"
        if prop.name in brought:
            hint = "two interfaces of one node must declare it the same"
        report.parse(
            "S052",
            f"node {node.decl.name} property '{prop.name}' has type {mine} "
            f"but interface {interface.name} declares it as {theirs}",
            implements if prop.name in brought else effective.type_span,
            hint,
        )


def _check_edge(report: SchemaReport, decl: EdgeDecl) -> None:
    check_type_annotations(report, TypeKind.EDGE, decl.name, decl.annotations)
    edge = expand_edge(decl)
    for prop in decl.properties:
        check_property(report, TypeKind.EDGE, decl.name, prop, edge.by_name, complete=decl.complete)
    _check_property_names(report, TypeKind.EDGE, decl.name, decl.properties)
    for constraint in decl.constraints:
        if isinstance(constraint, KeyConstraint | RangeConstraint | CheckConstraint):
            word = constraint.word
            report.parse(
                "S045",
                f"@{word} constraint is not supported on edges (edge {decl.name})",
                constraint.span,
                "edges have no key; use `@unique(src, dst)`" if word == "key" else None,
            )
        else:
            _check_constraint(
                report, TypeKind.EDGE, decl.name, constraint, edge.by_name, decl.complete
            )


def _check_property_names(
    report: SchemaReport, kind: TypeKind, owner: str, properties: Iterable[PropertyDecl]
) -> None:
    seen: set[str] = set()
    ids: dict[int, str] = {}
    for prop in properties:
        if prop.name in seen:
            report.catalog(
                "S108",
                f"property id collision: {kind} {owner} declares property '{prop.name}' twice",
                prop.name_span,
            )
            continue
        seen.add(prop.name)
        number = property_id(kind, owner, prop.name)
        other = ids.setdefault(number, prop.name)
        if other != prop.name:
            report.catalog(
                "S107",
                f"property id collision: {kind} {owner} '{prop.name}' and '{other}' "
                f"have the same id {number}",
                prop.name_span,
                "rename one of them",
            )


# -- constraints --------------------------------------------------------------------------------


def _check_key_count(report: SchemaReport, node: Expanded[NodeDecl]) -> None:
    own = [*node.decl.constraints, *desugared(node.decl.properties)]
    spans = sorted(c.span for c in own if isinstance(c, KeyConstraint))
    body = sum(isinstance(c, KeyConstraint) for c in node.decl.constraints)
    # `@key @key` on one property counts once: it is reported as a repeated annotation.
    sugar = node.constraints[len(node.decl.constraints) :]
    on_properties = {c.columns for c in sugar if isinstance(c, KeyConstraint)}
    if body + len(on_properties) > 1:
        report.parse(
            "S040",
            f"node type {node.decl.name} has multiple @key constraints; only one is supported",
            spans[min(1, len(spans) - 1)] if spans else node.decl.name_span,
            "write one composite key in the body: `@key(a, b)`",
        )


def _check_constraint(
    report: SchemaReport,
    kind: TypeKind,
    owner: str,
    constraint: Constraint,
    by_name: dict[str, PropertyDecl],
    complete: bool,
) -> None:
    word = constraint.word
    implicit = ENDPOINTS if kind is TypeKind.EDGE else ()
    seen: set[str] = set()
    for column, span in zip(constraint.columns, constraint.column_spans, strict=True):
        if column in seen:
            report.parse("S049", f"@{word} on {owner} names property '{column}' twice", span)
            continue
        seen.add(column)
        prop = by_name.get(column)
        if prop is not None:
            _check_column(report, word, owner, prop.type, column, span)
        elif column not in implicit and complete:
            hint = did_you_mean(column, [*by_name, *implicit])
            if hint is None and column in ENDPOINTS:
                hint = "only edges have `src` and `dst`"
            report.parse(
                "S041", f"@{word} on {owner} references unknown property '{column}'", span, hint
            )


def _check_column(
    report: SchemaReport, word: str, owner: str, prop_type: PropType, column: str, span: Span
) -> None:
    where = f"{owner}.{column}"
    if word == "key":
        if not prop_type.is_plain:
            message = f"@key is not supported on {prop_type.shape} property {where}"
            report.parse("S046", message, span)
        elif prop_type.nullable:
            report.parse(
                "S042", f"@key property {where} cannot be nullable", span, "remove the `?`"
            )
    elif word == "unique" and not prop_type.is_plain:
        message = f"@unique is not supported on {prop_type.shape} property {where}"
        report.parse("S047", message, span)
    elif word == "index" and prop_type.is_blob:
        report.parse("S048", f"@index is not supported on blob property {where}", span)
    elif word == "range" and not prop_type.scalar.is_numeric:
        report.parse("S043", f"@range on {where} requires a numeric type, got {prop_type}", span)
    elif word == "check" and (prop_type.scalar is not Scalar.STRING or prop_type.is_list):
        report.parse("S044", f"@check on {where} requires String type, got {prop_type}", span)


def _check_key_nullable(
    report: SchemaReport, owner: str, key: KeyConstraint, by_name: dict[str, PropertyDecl]
) -> None:
    """Check a property-level ``@key``, including one inherited from an interface."""
    for column, span in zip(key.columns, key.column_spans, strict=True):
        prop_type = by_name[column].type
        if prop_type.is_plain and prop_type.nullable:
            report.parse(
                "S042", f"@key property {owner}.{column} cannot be nullable", span, "remove the `?`"
            )


# -- how declarations fit together --------------------------------------------------------------


def _check_names(report: SchemaReport, file: SchemaFile) -> None:
    tables: tuple[tuple[TypeKind, str, str, Iterable[InterfaceDecl | NodeDecl | EdgeDecl]], ...] = (
        (TypeKind.INTERFACE, "S103", "duplicate interface", file.interfaces),
        (TypeKind.NODE, "S101", "duplicate node type", file.nodes),
        (TypeKind.EDGE, "S102", "duplicate edge type", file.edges),
    )
    ids: dict[int, str] = {}
    for kind, code, text, declarations in tables:
        seen: set[str] = set()
        for decl in declarations:
            if decl.name in seen:
                report.catalog(code, f"{text}: {decl.name}", decl.name_span)
                continue
            seen.add(decl.name)
            number = type_id(kind, decl.name)
            other = ids.setdefault(number, f"{kind} {decl.name}")
            if other != f"{kind} {decl.name}":
                report.catalog(
                    "S106",
                    f"type id collision: {kind} {decl.name} and {other} have the same id {number}",
                    decl.name_span,
                    "rename one of them",
                )
    folded: dict[str, str] = {}
    for edge in file.edges:
        first = folded.setdefault(edge.name.lower(), edge.name)
        if first != edge.name:
            report.catalog(
                "S105",
                f"edge name collision after case folding: '{edge.name}' conflicts with '{first}'",
                edge.name_span,
                "queries find edges by name in any casing",
            )


def _check_endpoints(report: SchemaReport, file: SchemaFile) -> None:
    if not file.complete:
        return
    nodes = {node.name for node in file.nodes}
    interfaces = {interface.name for interface in file.interfaces}
    for edge in file.edges:
        for end, ref in (("source", edge.from_type), ("target", edge.to_type)):
            if ref.name in nodes:
                continue
            hint = did_you_mean(ref.name, nodes)
            if ref.name in interfaces:
                hint = "edges connect node types; an interface has no rows"
            report.catalog(
                "S104",
                f"edge {edge.name} references unknown {end} type: {ref.name}",
                ref.span,
                hint,
            )
