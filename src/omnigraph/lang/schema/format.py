"""Formats schema texts in standard layout.

Order, comments and meaning are kept: parsing the result gives the same tree. Two spaces of indent,
one property or constraint per line, long enums wrapped.
"""

from __future__ import annotations

from omnigraph.errors import SchemaError
from omnigraph.lang.diagnostics import NOWHERE, Source
from omnigraph.lang.lexer import lex
from omnigraph.lang.printer import PrintBlock, PrintItem, weave
from omnigraph.lang.schema.ast import (
    Annotation,
    Declaration,
    EdgeDecl,
    Member,
    NodeDecl,
    PropertyDecl,
    SchemaFile,
)
from omnigraph.lang.schema.parser import parse_schema
from omnigraph.lang.types import PropType


def format_schema(source: Source) -> str:
    """A schema text in standard layout; raises ``SchemaError`` if it cannot be read.

    >>> print(format_schema(Source("s.pg", "node  A{name:String@key // who\\n}")), end="")
    node A {
      name: String @key // who
    }
    """
    file, diagnostics = parse_schema(source)
    if diagnostics:
        raise SchemaError(diagnostics)
    items = [_declaration(declaration) for declaration in file.declarations]
    return weave(source, lex(source).comments, items)


def print_schema(file: SchemaFile) -> str:
    """A tree as text, in the same layout.

    >>> print(print_schema(SchemaFile((NodeDecl("A"),))), end="")
    node A {}
    """
    return weave(Source("", ""), [], [_declaration(d) for d in file.declarations])


def _declaration(declaration: Declaration) -> PrintItem:
    head = _head(declaration)
    if declaration.members is None:
        return PrintItem(declaration.span, head)
    items = tuple(_member(member) for member in declaration.members)
    return PrintItem(declaration.span, f"{head} {{", PrintBlock(declaration.body, items))


def _head(declaration: Declaration) -> str:
    head = f"{declaration.kind} {declaration.name}"
    annotations = _annotations(declaration.annotations)
    if isinstance(declaration, EdgeDecl):
        card = f" @card({declaration.cardinality})" if declaration.cardinality else ""
        ends = f"{declaration.from_type.name} -> {declaration.to_type.name}"
        return f"{head}: {ends}{card}{annotations}"
    implements = declaration.implements if isinstance(declaration, NodeDecl) else ()
    names = ", ".join(ref.name for ref in implements)
    return f"{head}{annotations}" + (f" implements {names}" if names else "")


def _annotations(annotations: tuple[Annotation, ...]) -> str:
    return "".join(f" {annotation}" for annotation in annotations)


def _member(member: Member) -> PrintItem:
    if not isinstance(member, PropertyDecl):
        return PrintItem(member.span, str(member))
    annotations = _annotations(member.annotations)
    flat = f"{member.name}: {member.type}{annotations}"
    if member.type.enum_values is None:
        return PrintItem(member.span, flat)
    return _enum(member, member.type, annotations, flat)


def _enum(member: PropertyDecl, prop_type: PropType, annotations: str, flat: str) -> PrintItem:
    values = prop_type.enum_values or ()
    written = member.enum_values
    spans = written.values if written else (member.span,) * len(values)
    texts = [f"{value}," for value in values[:-1]] + [values[-1]]
    items = tuple(PrintItem(span, text) for span, text in zip(spans, texts, strict=True))
    close = f"){'?' if prop_type.nullable else ''}{annotations}"
    block = PrintBlock(written.span if written else NOWHERE, items, close, fill=True)
    return PrintItem(member.span, f"{member.name}: enum(", block, flat)
