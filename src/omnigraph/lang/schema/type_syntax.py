"""The property types of a schema text: ``String``, ``[I32]?``, ``enum(a, b)``, ``Vector(8)``."""

from __future__ import annotations

import re

from omnigraph.lang.diagnostics import Span
from omnigraph.lang.lexer import Kind
from omnigraph.lang.parsing import ParseFailure, Parser
from omnigraph.lang.schema.ast import EnumValues
from omnigraph.lang.types import (
    MAX_VECTOR_DIMENSION,
    SCALAR_NAMES,
    PropType,
    Scalar,
    suggest_scalar,
)

_ENUM_VALUE = re.compile(r"[A-Za-z0-9_-]+")
_TYPE_WORDS = [*SCALAR_NAMES, "Vector"]


def read_type(parser: Parser) -> tuple[PropType, EnumValues | None]:
    """The type at the cursor, and the spans of its enum values, in source order."""
    values: EnumValues | None = None
    if parser.at("["):
        core = _list(parser)
    elif parser.at("enum"):
        parser.advance()
        core, values = _enum(parser)
    else:
        core = _element(parser)
    return (core.as_nullable() if parser.accept("?") else core), values


def _list(parser: Parser) -> PropType:
    start = parser.advance().start
    if parser.at("[") or parser.at("enum"):
        what = "lists" if parser.at("[") else "enums"
        hint = None if parser.at("[") else "use `[String]`"
        raise parser.fail("S006", f"lists of {what} are not supported", parser.token.span, hint)
    element_span = parser.token.span
    element = _element(parser)
    if parser.at("?"):
        raise parser.fail(
            "S006",
            "the elements of a list cannot be marked nullable",
            parser.token.span,
            f"write `[{element}]?` for a list that may be missing",
        )
    parser.expect("]", "after the element type of the list")
    span = Span(start, parser.previous_end())
    if element.is_blob:
        parser.report("S005", "list of Blob is not supported", span)
    elif element.is_vector:
        raise parser.fail("S006", "lists of vectors are not supported", element_span)
    return PropType(element.scalar, is_list=True)


def _element(parser: Parser) -> PropType:
    token = parser.token
    if token.kind is Kind.TYPE:
        if token.text == "Vector":
            parser.advance()
            return _vector(parser)
        scalar = SCALAR_NAMES.get(token.text)
        if scalar is not None:
            parser.advance()
            return PropType(scalar)
    if token.kind in (Kind.TYPE, Kind.IDENT):
        raise _unknown(parser)
    raise parser.unexpected("a type", "after `:`", f"types are {', '.join(_TYPE_WORDS)}, enum")


def _unknown(parser: Parser) -> ParseFailure:
    text = parser.token.text
    suggestion = suggest_scalar(text)
    hint = (
        f"did you mean `{suggestion}`?"
        if suggestion
        else f"types are {', '.join(_TYPE_WORDS)}, enum"
    )
    return parser.fail("S002", f"unknown type `{text[:40]}`", parser.token.span, hint)


def _vector(parser: Parser) -> PropType:
    hint = "write the number of dimensions: `Vector(1536)`"
    if not parser.accept("("):
        raise parser.unexpected("`(`", "after `Vector`", hint)
    if not parser.at_kind(Kind.INT):
        raise parser.unexpected("a number", "as the dimension of the vector", hint)
    token = parser.advance()
    dimension = int(token.text) if len(token.text) <= 20 else MAX_VECTOR_DIMENSION + 1
    if dimension == 0:
        parser.report("S003", "Vector dimension must be greater than zero", token.span)
    elif dimension > MAX_VECTOR_DIMENSION:
        shown = token.text if len(token.text) <= 20 else f"{token.text[:20]}…"
        parser.report(
            "S004",
            f"Vector dimension {shown} exceeds maximum supported {MAX_VECTOR_DIMENSION}",
            token.span,
        )
        dimension = MAX_VECTOR_DIMENSION
    parser.expect(")", "after the dimension of the vector")
    return PropType(Scalar.VECTOR, dimension=dimension)


def _enum(parser: Parser) -> tuple[PropType, EnumValues]:
    start = parser.expect("(", "after `enum`").start
    values: dict[str, Span] = {}
    while True:
        value, span = _enum_value(parser)
        if value in values:
            message = f"enum type cannot include duplicate values: '{value}'"
            parser.report("S007", message, span)
        else:
            values[value] = span
        if not parser.accept(","):
            break
    parser.expect(")", "after the enum values")
    written = EnumValues(Span(start, parser.previous_end()), tuple(values.values()))
    return PropType(Scalar.STRING, enum_values=tuple(values)), written


def _enum_value(parser: Parser) -> tuple[str, Span]:
    start = parser.token.start
    match = _ENUM_VALUE.match(parser.source.text, start)
    if match is None:
        hint = None
        if parser.at_kind(Kind.STRING):
            hint = "enum values are written without quotes"
        elif parser.at(")"):
            hint = "an enum needs at least one value, and no comma after the last"
        raise parser.unexpected("an enum value", "in the enum", hint)
    parser.rescan(match.end())
    return match.group(), Span(start, match.end())
