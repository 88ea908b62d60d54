"""The arguments of body constraints: ``@unique(a, b)``, ``@range(age, 0..150)``.

All five constraints share one argument syntax. The arguments of each are checked here, so that a
constraint in the tree is always well formed.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from omnigraph.lang.diagnostics import Span
from omnigraph.lang.lexer import Kind, decode_string
from omnigraph.lang.parsing import Parser
from omnigraph.lang.types import I64_RANGE

Number = int | float

_RANGE_HINT = "write `@range(age, 0..150)`; either bound may be left out"
_CHECK_HINT = 'write `@check(code, "^[A-Z]+$")`'


class Bounds(NamedTuple):
    """``min..max``, of which either may be missing."""

    min: Number | None
    max: Number | None


class Argument(NamedTuple):
    """One argument: a name, bounds, a string, or any other literal (``None``)."""

    name: str | None
    bounds: Bounds | None
    string: str | None
    span: Span


def read_constraint_arguments(parser: Parser, word: str) -> list[Argument]:
    """The parenthesised arguments at the cursor."""
    parser.expect("(", f"after `@{word}`")
    arguments = [_argument(parser, word)]
    while parser.accept(","):
        arguments.append(_argument(parser, word))
    parser.expect(")", f"after the arguments of `@{word}`")
    return arguments


def read_columns(parser: Parser, word: str, arguments: list[Argument]) -> tuple[str, ...] | None:
    """Property names only; anything else is reported."""
    names: list[str] = []
    for argument in arguments:
        if argument.name is None:
            hint = "write the names without quotes" if argument.string is not None else None
            parser.report("S009", f"@{word} takes property names only", argument.span, hint)
        else:
            names.append(argument.name)
    return tuple(names) if len(names) == len(arguments) else None


def read_range(
    parser: Parser, arguments: list[Argument], span: Span
) -> tuple[str, Number | None, Number | None] | None:
    """The property and the bounds of ``@range``."""
    if len(arguments) != 2 or arguments[0].name is None:
        parser.report("S010", "@range requires property name and bounds", span, _RANGE_HINT)
        return None
    bounds = arguments[1].bounds
    if bounds is None:
        message = "expected range bounds (min..max)"
        parser.report("S010", message, arguments[1].span, _RANGE_HINT)
        return None
    return arguments[0].name, bounds.min, bounds.max


def read_check(parser: Parser, arguments: list[Argument], span: Span) -> tuple[str, str] | None:
    """The property and the pattern of ``@check``."""
    if len(arguments) != 2 or arguments[0].name is None or arguments[1].string is None:
        parser.report("S011", "@check requires property name and pattern", span, _CHECK_HINT)
        return None
    return arguments[0].name, arguments[1].string


def _argument(parser: Parser, word: str) -> Argument:
    token = parser.token
    start = token.start
    if token.kind is Kind.IDENT:
        parser.advance()
        name = None if token.text in ("true", "false") else token.text
        return Argument(name, None, None, token.span)
    if token.kind is Kind.STRING:
        parser.advance()
        text = decode_string(parser.source, token, parser.diagnostics)
        return Argument(None, None, text, token.span)
    if _at_number(parser) or parser.at(".."):
        low = None if parser.at("..") else _number(parser)
        if parser.accept(".."):
            high = _number(parser) if _at_number(parser) else None
            if low is None and high is None:
                raise parser.unexpected("a number", "after `..`", _RANGE_HINT)
            span = Span(start, parser.previous_end())
            return Argument(None, Bounds(low, high), None, span)
        return Argument(None, None, None, Span(start, parser.previous_end()))
    hint = None
    if token.kind is Kind.TYPE:
        hint = "property names start with a lower-case letter"
    raise parser.unexpected("a property name", f"as an argument of `@{word}`", hint)


def _at_number(parser: Parser) -> bool:
    token = parser.token
    if parser.at("-"):
        # A sign belongs to its number; `- 5` is not a number.
        token = parser.ahead()
        if token.start != parser.token.end:
            return False
    return token.kind in (Kind.INT, Kind.FLOAT)


def _number(parser: Parser) -> Number:
    start = parser.token.start
    negative = parser.accept("-") is not None
    token = parser.advance()
    low, high = I64_RANGE
    span = Span(start, token.end)
    if token.kind is Kind.FLOAT:
        value = float(token.text)
        if math.isinf(value):
            parser.report("S012", "range bound is too large", span)
            return 0.0
        return -value if negative else value
    if len(token.text) <= 30:
        whole = -int(token.text) if negative else int(token.text)
        if low <= whole <= high:
            return whole
    parser.report("S012", f"range bound is out of range ({low} to {high})", span)
    return 0
