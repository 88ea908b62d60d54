"""Statements typed at the prompt: where one ends, and the query it denotes.

A query may be typed in full or as its body alone. A body is completed to a query here, and its
diagnostics are mapped back to the typed text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from omnigraph.errors import InputError, LanguageError, QueryError
from omnigraph.lang.closest import closest
from omnigraph.lang.diagnostics import Source, Span
from omnigraph.lang.lexer import Kind, Token, lex
from omnigraph.lang.query import ast
from omnigraph.lang.query.parser import parse_queries
from omnigraph.records import dataclass

NAME = "shell"
"""The name of a query typed as a body."""

SOURCE = "<shell>"
CHANGES = ("insert", "update", "delete")
HEADS = ("query", "match", *CHANGES)
_TAILS = ("order", "limit", "offset")
_CONTINUED = ("and", "or", "not", "in", "where", "set", "contains", "starts_with", *_TAILS)
_OPEN, _CLOSED = "{([", "})]"
_UNCLOSED = ("P002", "P003")
"""Diagnostic codes of an unterminated string or comment."""


@dataclass(frozen=True, slots=True)
class ShellParameter:
    """A value for ``$name``, and its type if given."""

    value: Any
    type: str | None = None

    @property
    def declared(self) -> str:
        return self.type or _type_of(self.value)


@dataclass(frozen=True, slots=True)
class ShellStatement:
    """A complete query; ``shift`` is the length of the text added before the typed one."""

    text: str
    name: str
    writes: bool
    typed: str
    shift: int = 0

    @contextmanager
    def mapping_diagnostics(self) -> Iterator[None]:
        """Map the locations of diagnostics to the typed text."""
        try:
            yield
        except LanguageError as error:
            source = Source(SOURCE, self.typed)
            moved = []
            for diagnostic in error.diagnostics:
                start, end = (
                    min(max(offset - self.shift, 0), len(self.typed))
                    for offset in (*diagnostic.span,)
                )
                moved.append(replace(diagnostic, source=source, span=Span(start, end)))
            raise type(error)(moved) from None


def is_complete(text: str) -> bool:
    """Whether a text is a complete statement.

    >>> is_complete("match { $p: Person }"), is_complete("match { $p: Person } return { $p.name }")
    (False, True)
    """
    lexed = lex(Source(SOURCE, text))
    if any(diagnostic.code in _UNCLOSED for diagnostic in lexed.diagnostics):
        return False
    tokens = lexed.tokens[:-1]
    if not tokens:
        return True
    depth = 0
    for token in tokens:
        if token.kind is Kind.PUNCT:
            depth += (token.text in _OPEN) - (token.text in _CLOSED)
    if depth:
        return depth < 0
    return _has_required_clauses(tokens[0].text, tokens)


def _has_required_clauses(head: str, tokens: list[Token]) -> bool:
    words = [token.text for token in tokens]
    if head in (*HEADS, *_TAILS) and words[-1] in _CONTINUED:
        return False
    if head in ("query", "insert"):
        return "{" in words
    if head == "match":
        return "return" in words and "{" in words[words.index("return") :]
    if head in ("update", "delete"):
        # At least a column, a comparison and a value.
        return "where" in words and len(words) - words.index("where") > 3
    return True


def is_blank(text: str) -> bool:
    """Whether a text contains only comments and whitespace."""
    lexed = lex(Source(SOURCE, text))
    return len(lexed.tokens) == 1 and not lexed.diagnostics


def parse_statements(text: str, params: Mapping[str, ShellParameter]) -> list[ShellStatement]:
    """The queries of a text, or the one query whose body it is."""
    text = text.strip().removesuffix(";").rstrip()
    tokens = lex(Source(SOURCE, text)).tokens
    head = tokens[0].text or text.split(None, 1)[0]
    if head == "query":
        file, problems = parse_queries(Source(SOURCE, text))
        if problems:
            raise QueryError(problems)
        return [
            ShellStatement(f"{text}\n", query.name, isinstance(query.body, ast.MutationBody), text)
            for query in file.queries
        ]
    if head not in HEADS:
        raise _unknown(head)
    opening = f"query {NAME}("
    before = f"{opening}) {{ "
    file, _ = parse_queries(Source(SOURCE, f"{before}{text}\n}}"))
    bound = {name for query in file.queries for name in _bound(query.body)}
    used = {token.text[1:] for token in tokens if token.kind is Kind.VAR}
    declared = ", ".join(
        f"${name}: {param.declared}"
        for name, param in params.items()
        if name in used and name not in bound
    )
    before = f"{opening}{declared}) {{ "
    return [ShellStatement(f"{before}{text}\n}}", NAME, head in CHANGES, text, len(before))]


def _unknown(head: str) -> InputError:
    if head in _TAILS:
        hint = f"write it on the same line as return {{ … }} {head} …, or in a whole query"
        return InputError(f"`{head}` without a query before it", hint=hint)
    close = closest(head, [*HEADS, "help", "quit"])
    meant = f"did you mean `{close}`? " if close else ""
    return InputError(
        f"unknown statement '{head}'",
        hint=f"{meant}write match {{ … }} return {{ … }}, insert, update, delete, "
        "query name() { … }, or .help",
    )


def _bound(body: ast.Body) -> Iterator[str]:
    """The variables bound by the patterns of a query."""
    if isinstance(body, ast.ReadBody):
        yield from _variables(body.clauses)


def _variables(clauses: tuple[ast.Clause, ...]) -> Iterator[str]:
    for clause in clauses:
        if isinstance(clause, ast.BindingClause):
            yield clause.variable
        elif isinstance(clause, ast.TraversalClause):
            yield from filter(None, (clause.src, clause.dst, clause.edge_variable))
        elif isinstance(clause, ast.NegationClause):
            yield from _variables(clause.clauses)


# -- parameters -----------------------------------------------------------------------------------


def parse_parameter(text: str) -> tuple[str, ShellParameter]:
    """Parse ``name=value`` or ``name:Type=value``; the value is JSON, else plain text.

    >>> parse_parameter("name=Ana"), parse_parameter("day:Date=2026-01-31")[1].declared
    (('name', ShellParameter(value='Ana', type=None)), 'Date')
    """
    left, sign, right = text.partition("=")
    name, colon, type_ = (part.strip() for part in left.partition(":"))
    name = name.removeprefix("$")
    if not sign or not name:
        raise InputError(f"invalid parameter '{text}'", hint="write name=value")
    if not name.isidentifier() or not name.isascii() or name[0].isupper():
        raise InputError(f"invalid parameter name '{name}'", hint="write it as in `$name`")
    if colon and parse_queries(f"query q($p: {type_}) {{ match {{ $a: A }} return {{ $a }} }}")[1]:
        raise InputError(
            f"invalid parameter type '{type_}'", hint="use one such as String, I64, [String], Date?"
        )
    value = parse_value(right.strip())
    items = value if isinstance(value, list) else [value]
    if any(isinstance(item, dict | list) for item in items):
        raise InputError(f"parameter '{name}' must be a single value or a list of values")
    return name, ShellParameter(value, type_ or None)


def parse_value(text: str) -> Any:
    """JSON, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _type_of(value: Any) -> str:
    match value:
        case bool():
            return "Bool"
        case int():
            return "I64"
        case float():
            return "F64"
        case list():
            items = {_type_of(item) for item in value if item is not None}
            mixed = "F64" if items == {"I64", "F64"} else "String"
            return f"[{items.pop() if len(items) == 1 else mixed}]"
        case None:
            return "String?"
        case _:
            return "String"
