"""Warnings about valid schemas with surprising effects.

Errors are not repeated here; ``lint_schema`` requires a text that compiles. The codes are listed in
``lint_codes``.
"""

from __future__ import annotations

from omnigraph.lang.closest import closest
from omnigraph.lang.diagnostics import Diagnostic, SchemaReport, Source, in_source_order
from omnigraph.lang.schema.annotations import METADATA
from omnigraph.lang.schema.ast import (
    Annotation,
    CheckConstraint,
    Declaration,
    EdgeDecl,
    NodeDecl,
    PropertyDecl,
    RangeConstraint,
    SchemaFile,
)
from omnigraph.lang.schema.expand import Expanded, expand_edge, expand_node, interfaces_by_name
from omnigraph.lang.schema.ir import canonical_constraints
from omnigraph.lang.schema.parser import CONSTRAINT_WORDS

_ANNOTATIONS = (*CONSTRAINT_WORDS, *METADATA, "embed", "rename_from", "card", "vector")


def lint_schema(file: SchemaFile, source: Source) -> list[Diagnostic]:
    """Every warning about a schema, in source order.

    >>> from omnigraph.lang.schema.parser import parse_schema
    >>> source = Source("s.pg", "node A { age: I32? @range(age, 9..1) }")
    >>> [d.code for d in lint_schema(parse_schema(source)[0], source)]
    ['OG-MF-202']
    """
    report = SchemaReport(source)
    interfaces = interfaces_by_name(file)
    nodes = [expand_node(node, interfaces) for node in file.nodes]
    for node in nodes:
        _constraints(report, node)
        _repeated(report, node)
        _vectors(report, node)
        _renamed_properties(report, node.decl.properties)
    for decl in file.declarations:
        _misspelt(report, decl)
    for edge in file.edges:
        _repeated(report, expand_edge(edge))
        _hidden(report, edge)
        _renamed_properties(report, edge.properties)
    _renamed_types(report, file.nodes)
    _renamed_types(report, file.edges)
    return in_source_order(report.diagnostics)


def _constraints(report: SchemaReport, node: Expanded[NodeDecl]) -> None:
    for constraint in node.decl.constraints:
        where = f"{node.decl.name}.{constraint.columns[0]}"
        if isinstance(constraint, CheckConstraint):
            # The regular expression engine of writes; imported only for schemas with a pattern.
            from omnigraph.lang.schema.patterns import is_pattern

            if not is_pattern(constraint.pattern):
                report.warn(
                    "OG-MF-201",
                    f"the pattern of @check on {where} is not a valid regular expression",
                    constraint.span,
                    "every write to this type will be refused; look-around and back references "
                    "are not supported",
                )
        elif isinstance(constraint, RangeConstraint):
            low, high = constraint.min, constraint.max
            if low is not None and high is not None and low > high:
                report.warn(
                    "OG-MF-202",
                    f"no value satisfies @range on {where}: {low} is greater than {high}",
                    constraint.span,
                )
            prop = node.by_name.get(constraint.property)
            if prop is not None and prop.type.is_list:
                report.warn(
                    "OG-MF-203",
                    f"@range on the list property {where} is never evaluated",
                    constraint.span,
                )


def _repeated(report: SchemaReport, owner: Expanded[NodeDecl] | Expanded[EdgeDecl]) -> None:
    seen = set()
    for constraint in owner.constraints:
        (canonical,) = canonical_constraints([constraint])
        if canonical in seen:
            report.warn(
                "OG-NM-101", f"{owner.decl.name} declares {canonical} twice", constraint.span
            )
        seen.add(canonical)


def _vectors(report: SchemaReport, node: Expanded[NodeDecl]) -> None:
    indexed = {column for c in node.constraints for column in c.columns}
    for prop in node.decl.properties:
        embed = _annotation(prop.annotations, "embed")
        if prop.type.is_vector and embed is not None and prop.name not in indexed:
            report.warn(
                "OG-VE-101",
                f"{node.decl.name}.{prop.name} is embedded but has no @index",
                prop.name_span,
                "add `@index`, so that `nearest` need not read every row",
            )


def _misspelt(report: SchemaReport, decl: Declaration) -> None:
    """Warn about an unknown annotation that is similar to a known one; others are legal."""
    nested = (a for prop in decl.properties for a in prop.annotations)
    for annotation in (*decl.annotations, *nested):
        close = closest(annotation.name, _ANNOTATIONS, 0.75)
        if annotation.name not in _ANNOTATIONS and close:
            report.warn(
                "OG-NM-103",
                f"unknown annotation @{annotation.name} has no effect",
                annotation.span,
                f"did you mean `@{close}`?",
            )


def _hidden(report: SchemaReport, edge: EdgeDecl) -> None:
    for prop in edge.properties:
        if prop.name in ("from", "to"):
            report.warn(
                "OG-ED-101",
                f"property '{prop.name}' of edge {edge.name} cannot be set by an insert",
                prop.name_span,
                f"`{prop.name}:` names an endpoint there; choose another property name",
            )


def _renamed_properties(report: SchemaReport, properties: tuple[PropertyDecl, ...]) -> None:
    names = {prop.name for prop in properties}
    for prop in properties:
        _rename(report, prop.name, prop.annotations, names)


def _renamed_types(
    report: SchemaReport, types: tuple[NodeDecl, ...] | tuple[EdgeDecl, ...]
) -> None:
    names = {decl.name for decl in types}
    for decl in types:
        _rename(report, decl.name, decl.annotations, names)


def _rename(
    report: SchemaReport, name: str, annotations: tuple[Annotation, ...], names: set[str]
) -> None:
    renamed = _annotation(annotations, "rename_from")
    if renamed is not None and renamed.value in names:
        report.warn(
            "OG-NM-102",
            f"@rename_from on '{name}' names '{renamed.value}', which is still declared",
            renamed.span,
        )


def _annotation(annotations: tuple[Annotation, ...], name: str) -> Annotation | None:
    return next((a for a in annotations if a.name == name), None)
