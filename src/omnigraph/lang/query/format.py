"""Formats query texts in standard layout.

Order, comments and meaning are kept: parsing the result gives the same tree. Two spaces of indent,
one clause or statement per line; a bracketed list stays on its line if it fits and contains no
comment. Clauses follow one another without separators, so some words and numbers need parentheses
where the parser would otherwise continue the previous clause.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from omnigraph.errors import QueryError
from omnigraph.lang.diagnostics import NOWHERE, Source, Span
from omnigraph.lang.lexer import Comment, Kind, Token, lex, quote_string
from omnigraph.lang.printer import PrintBlock, PrintItem, weave
from omnigraph.lang.query import ast
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema.ir_json import plain_float

WIDTH = 100
_INDENT = "  "
_CLOSING = {"{": "}", "(": ")"}
# Bare names that would be read as an operator.
_OPERATOR_WORD = re.compile(r"not|in|is|and|or|distinct|(contains|starts_with)([0-9].*)?")
_LITERAL_WORDS = ("null", "true", "false")
_LEADING_NUMBER = re.compile(r"-[0-9.]+")
_LEADING_VARIABLE = re.compile(r"\$\w+(?=$| \w+ \$)")
_LEADING_NAME = re.compile(r"[a-z_]\w*(?=$)")
_TRAILING_NAME = re.compile(r"(?<![\w.$])[a-z_]\w*$")


def format_queries(source: Source) -> str:
    """A query text in standard layout; raises ``QueryError`` if it cannot be read.

    >>> text = "query q(){match{$p:Person{age:3}// who\\n$p.age>2}return{$p.name}limit 1}"
    >>> print(format_queries(Source("q.gq", text)), end="")
    query q() {
      match {
        $p: Person { age: 3 } // who
        $p.age > 2
      }
      return { $p.name }
      limit 1
    }
    """
    file, diagnostics = parse_queries(source)
    if diagnostics:
        raise QueryError(diagnostics)
    lexed = lex(source)
    layout = _Layout(lexed.tokens, lexed.comments)
    groups = [layout.query(query) for query in file.queries]
    if not groups:
        return weave(source, lexed.comments, [])
    texts: list[str] = []
    comments = deque(lexed.comments)
    for items, following in pairwise(groups):
        mine = _take_comments(source, comments, items[-1].span.end, following[0].span.start)
        texts.append(weave(source, mine, items, width=WIDTH))
    return "\n".join([*texts, weave(source, list(comments), groups[-1], width=WIDTH)])


def format_query_file(file: ast.QueryFile) -> str:
    """A tree as text, in the same layout.

    >>> person = ast.BindingClause("p", "Person")
    >>> read = ast.ReadBody((person,), (ast.Projection(ast.VariableExpr("p")),))
    >>> print(format_query_file(ast.QueryFile((ast.Query("q", (), read),))), end="")
    query q() {
      match {
        $p: Person
      }
      return { $p }
    }
    """
    layout = _Layout((), ())
    nothing = Source("", "")
    return "\n".join(weave(nothing, (), layout.query(q), width=WIDTH) for q in file.queries)


def format_expression(expr: ast.Expr) -> str:
    """An expression on one line.

    >>> format_expression(ast.NotExpr(ast.IsNullExpr(ast.PropertyExpr("p", "age"), negated=True)))
    'not ($p.age is not null)'
    """
    match expr:
        case ast.LiteralExpr():
            return _literal(expr)
        case ast.ListExpr(items):
            return f"[{', '.join(map(_operand, items))}]"
        case ast.VariableExpr(name):
            return f"${name}"
        case ast.PropertyExpr(variable, name):
            return f"${variable}.{name}"
        case ast.NameExpr(name):
            return f"({name})" if _OPERATOR_WORD.fullmatch(name) else name
        case ast.CallExpr(function, args):
            return f"{function}({', '.join(map(format_expression, args))})"
        case ast.AggregateExpr(function, arg, distinct):
            return f"{function}({'distinct ' if distinct else ''}{format_expression(arg)})"
        case ast.CompareExpr(op, left, right):
            return f"{_operand(left)} {op} {_operand(right)}"
        case ast.InExpr(item, options):
            return f"{_operand(item)} in {_operand(options)}"
        case ast.IsNullExpr(operand, negated):
            return f"{_operand(operand)} is {'not ' if negated else ''}null"
        case ast.NotExpr(operand):
            return f"not ({format_expression(operand)})"
        case ast.AndExpr() | ast.OrExpr():
            return " ".join(_pieces(expr))
        case _:
            raise TypeError(f"the formatter does not know {type(expr).__name__}")


def _literal(literal: ast.LiteralExpr) -> str:
    value = literal.value
    match literal.kind:
        case ast.LiteralKind.NULL:
            return "null"
        case ast.LiteralKind.BOOL:
            return "true" if value else "false"
        case ast.LiteralKind.FLOAT:
            # The language has no exponents, and requires digits on both sides of the dot.
            assert isinstance(value, float)
            return plain_float(value)
        case ast.LiteralKind.STRING:
            return quote_string(str(value))
        case ast.LiteralKind.DATE | ast.LiteralKind.DATETIME:
            return f"{literal.kind}({quote_string(str(value))})"
        case _:
            return str(value)


def _operand(expr: ast.Expr) -> str:
    return _grouped(
        expr, ast.CompareExpr, ast.InExpr, ast.IsNullExpr, ast.NotExpr, ast.AndExpr, ast.OrExpr
    )


def _pieces(expr: ast.Expr) -> list[str]:
    """An expression, split where it may be broken: before its outermost ``and`` or ``or``."""
    match expr:
        case ast.AndExpr(operands):
            texts = [_grouped(operand, ast.AndExpr, ast.OrExpr) for operand in operands]
            return [texts[0], *(f"and {text}" for text in texts[1:])]
        case ast.OrExpr(operands):
            texts = [_grouped(operand, ast.OrExpr) for operand in operands]
            return [texts[0], *(f"or {text}" for text in texts[1:])]
        case _:
            return [format_expression(expr)]


def _grouped(expr: ast.Expr, *looser: type[ast.Expr]) -> str:
    text = format_expression(expr)
    return f"({text})" if isinstance(expr, looser) else text


# -- words after which the parser would continue an expression -----------------------------------


def _filter_pieces(condition: ast.Expr, next_clause: str) -> list[str]:
    """The pieces of a condition between other clauses."""
    pieces = _pieces(condition)
    flat = " ".join(pieces)
    for leading in (_LEADING_NUMBER, _LEADING_VARIABLE, _LEADING_NAME):
        # `-5 < $x` would continue the clause before, `$a contains $b` would be a traversal.
        word = leading.match(flat)
        if word and word.group() not in _LITERAL_WORDS:
            pieces[0] = f"({word.group()}){pieces[0][word.end() :]}"
    if next_clause.startswith("("):
        # `$a.x = total` before `(…)` would be a call of `total`.
        word = _TRAILING_NAME.search(pieces[-1])
        if word and word.group() not in _LITERAL_WORDS:
            pieces[-1] = f"{pieces[-1][: word.start()]}({word.group()})"
    return pieces


def _ordering(entry: ast.Ordering, aliases: set[str | None]) -> str:
    expr = entry.expr
    text = format_expression(expr)
    if isinstance(expr, ast.NameExpr) and expr.name in aliases:
        text = expr.name
    elif text in aliases:
        # With an alias `null`, the bare word refers to that column.
        text = f"({text})"
    return f"{text} desc" if entry.descending else text


# -- layout --------------------------------------------------------------------------------------


class _Layout:
    """Converts trees to items, using the positions of brackets and comments in the source."""

    def __init__(self, tokens: Sequence[Token], comments: Sequence[Comment]) -> None:
        self._tokens = tokens
        self._starts = [token.start for token in tokens]
        self._comments = [comment.start for comment in comments]
        self._closed = _bracket_pairs(tokens)

    # -- positions -----------------------------------------------------------------------

    def _bracket(self, text: str, offset: int) -> Span:
        """The span of the first bracket of this kind that opens at or after ``offset``."""
        for index in range(bisect_left(self._starts, offset), len(self._tokens)):
            if self._tokens[index].text == text:
                return Span(self._starts[index], self._closed[index])
        return NOWHERE

    def _from_word(self, offset: int, end: int) -> Span:
        """From the first token at or after ``offset`` to ``end``."""
        index = bisect_left(self._starts, offset)
        return Span(self._starts[index], end) if index < len(self._starts) else NOWHERE

    def _commented(self, span: Span) -> bool:
        index = bisect_left(self._comments, span.start)
        return index < len(self._comments) and self._comments[index] < span.end

    # -- queries -------------------------------------------------------------------------

    def query(self, query: ast.Query) -> list[PrintItem]:
        """The items of a query: one, or several if there are comments in its head."""
        params = self._bracket("(", query.name_span.end)
        body = self._bracket("{", query.name_span.end)
        block = PrintBlock(body, tuple(self._body(query.body, body)))
        notes = self._notes(query, Span(params.end, body.start))
        if not self._commented(Span(params.start, body.start)):
            head = self._head(query)
            lines = [head, *(note.text for note in notes), "{"] if notes else [f"{head} {{"]
            return [PrintItem(query.span, "\n".join(lines), block)]
        span = Span(query.span.start, params.end)
        if self._commented(params):
            items = _listed([(p.span, f"${p.name}: {p.type}") for p in query.params])
            signature = PrintItem(span, f"query {query.name}(", PrintBlock(params, items, ")"))
        else:
            signature = PrintItem(span, self._head(query))
        return [signature, *notes, PrintItem(body, "{", block)]

    def _head(self, query: ast.Query) -> str:
        """The signature; if it is too long, with one parameter per line."""
        texts = [f"${param.name}: {param.type}" for param in query.params]
        flat = f"query {query.name}({', '.join(texts)})"
        if len(flat) + 2 <= WIDTH or not texts:
            return flat
        lines = [_INDENT + texts[0]]
        for text in texts[1:]:
            if len(lines[-1]) + len(text) + 3 <= WIDTH:
                lines[-1] += f", {text}"
            else:
                lines[-1] += ","
                lines.append(_INDENT + text)
        return "\n".join([f"query {query.name}(", *lines, ")"])

    def _notes(self, query: ast.Query, between: Span) -> list[PrintItem]:
        """The annotations, in the order of the source."""
        values = {
            "description": query.description,
            "instruction": query.instruction,
            "deprecated": query.deprecated,
        }
        spans: dict[str, Span] = {}
        index = bisect_left(self._starts, between.start)
        while index < len(self._tokens) and self._starts[index] < between.end:
            if self._tokens[index].text == "@":
                word, closing = self._tokens[index + 1], self._tokens[index + 4]
                spans[word.text] = Span(self._starts[index], closing.end)
            index += 1
        return [
            PrintItem(spans.get(word, NOWHERE), f"{_INDENT}@{word}({quote_string(value)})")
            for word in [*spans, *(word for word in values if word not in spans)]
            if (value := values[word]) is not None
        ]

    def _body(self, body: ast.Body, span: Span) -> list[PrintItem]:
        if isinstance(body, ast.MutationBody):
            return [self._statement(statement) for statement in body.statements]
        assert isinstance(body, ast.ReadBody)
        return self._read(body, span.start + 1)

    def _read(self, read: ast.ReadBody, start: int) -> list[PrintItem]:
        match = self._bracket("{", start)
        clauses = self._clauses(read.clauses, 2)
        items = [
            PrintItem(self._from_word(start, match.end), "match {", PrintBlock(match, clauses))
        ]
        returned = self._bracket("{", match.end)
        span = self._from_word(match.end, returned.end)
        head = "return distinct" if read.distinct else "return"
        texts = [(p.span, _projection(p)) for p in read.projections]
        items.append(self._list(span, head, returned, texts, 1))
        if read.order:
            order = self._bracket("{", returned.end)
            aliases = {projection.alias for projection in read.projections}
            texts = [(entry.span, _ordering(entry, aliases)) for entry in read.order]
            items.append(
                self._list(self._from_word(returned.end, order.end), "order", order, texts, 1)
            )
        if read.limit is not None:
            offset = "" if read.offset is None else f" offset {read.offset}"
            items.append(PrintItem(read.limit_span, f"limit {read.limit}{offset}"))
        return items

    # -- clauses -------------------------------------------------------------------------

    def _clauses(self, clauses: Sequence[ast.Clause], depth: int) -> tuple[PrintItem, ...]:
        items: list[PrintItem] = []
        for clause in reversed(clauses):
            items.append(self._clause(clause, items[-1].text if items else "", depth))
        return tuple(reversed(items))

    def _clause(self, clause: ast.Clause, next_clause: str, depth: int) -> PrintItem:
        match clause:
            case ast.BindingClause():
                head = f"${clause.variable}: {clause.type_name}"
                if not clause.matches:
                    return PrintItem(clause.span, head)
                braces = self._bracket("{", clause.type_span.end)
                texts = [(m.span, f"{m.name}: {_operand(m.value)}") for m in clause.matches]
                return self._list(clause.span, head, braces, texts, depth)
            case ast.TraversalClause():
                return PrintItem(clause.span, _traversal(clause))
            case ast.NegationClause():
                braces = self._bracket("{", clause.span.start)
                inner = self._clauses(clause.clauses, depth + 1)
                return PrintItem(clause.span, "not {", PrintBlock(braces, inner))
            case ast.FilterClause():
                pieces = _filter_pieces(clause.condition, next_clause)
                return PrintItem(clause.span, _wrapped(pieces, depth))
            case _:
                raise TypeError(f"the formatter does not know {type(clause).__name__}")

    # -- statements ----------------------------------------------------------------------

    def _statement(self, statement: ast.Statement) -> PrintItem:
        match statement:
            case ast.InsertStatement():
                head, where = f"insert {statement.type_name}", None
                values = statement.assignments
            case ast.UpdateStatement():
                head, where = f"update {statement.type_name} set", statement.where
                values = statement.assignments
            case ast.DeleteStatement():
                text = _with_where(f"delete {statement.type_name}", statement.where)
                return PrintItem(statement.span, text)
            case _:
                raise TypeError(f"the formatter does not know {type(statement).__name__}")
        braces = self._bracket("{", statement.type_span.end)
        texts = [(a.span, f"{a.name}: {_operand(a.value)}") for a in values]
        item = self._list(statement.span, head, braces, texts, 1)
        if where is None:
            return item
        if item.block is None:
            return PrintItem(item.span, _with_where(item.text, where))
        close = "} where " + _wrapped(_pieces(where), 1, reserved=len("} where "))
        return PrintItem(item.span, item.text, PrintBlock(braces, item.block.items, close))

    def _list(
        self, span: Span, head: str, braces: Span, texts: list[tuple[Span, str]], depth: int
    ) -> PrintItem:
        """``head { a, b }`` on one line, or one entry per line."""
        flat = f"{head} {{ {', '.join(text for _, text in texts)} }}"
        if _fits(flat, depth) and not self._commented(braces):
            return PrintItem(span, flat)
        return PrintItem(span, f"{head} {{", PrintBlock(braces, _listed(texts)))


def _bracket_pairs(tokens: Sequence[Token]) -> dict[int, int]:
    """For every opening bracket, by token index, the end of its closing bracket."""
    closed: dict[int, int] = {}
    waiting: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind is not Kind.PUNCT:
            continue
        if token.text in _CLOSING:
            waiting.append(index)
        elif waiting and token.text == _CLOSING[tokens[waiting[-1]].text]:
            closed[waiting.pop()] = token.end
    return closed


def _take_comments(
    source: Source, comments: deque[Comment], end: int, following: int
) -> list[Comment]:
    """The comments of a query: those before its end, and those after it on the same line."""
    taken: list[Comment] = []
    while comments and comments[0].start < following:
        start = comments[0].start
        if start >= end:
            if "\n" in source.text[end:start]:
                break
            end = comments[0].end
        taken.append(comments.popleft())
    return taken


def _projection(projection: ast.Projection) -> str:
    text = format_expression(projection.expr)
    return text if projection.alias is None else f"{text} as {projection.alias}"


def _traversal(step: ast.TraversalClause) -> str:
    edge = f"<{step.edge}>" if step.undirected else step.edge
    if step.edge_variable is not None:
        edge = f"${step.edge_variable}:{edge}"
    if step.hops != ast.ONE_HOP:
        most = "" if step.hops.max is None else step.hops.max
        edge += f"{{{step.hops.min},{most}}}"
    return f"${step.src} {edge} ${step.dst}"


def _with_where(head: str, where: ast.Expr) -> str:
    pieces = _pieces(where)
    flat = f"{head} where {' '.join(pieces)}"
    if _fits(flat, 1):
        return flat
    lines = _wrapped(pieces, 2, reserved=len("where ")).replace("\n", f"\n{_INDENT}")
    return f"{head}\n{_INDENT}where {lines}"


def _wrapped(pieces: list[str], depth: int, reserved: int = 0) -> str:
    flat = " ".join(pieces)
    return flat if _fits(flat, depth, reserved) else f"\n{_INDENT}".join(pieces)


def _fits(text: str, depth: int, reserved: int = 0) -> bool:
    return len(_INDENT) * depth + reserved + len(text) <= WIDTH


def _listed(texts: list[tuple[Span, str]]) -> tuple[PrintItem, ...]:
    last = len(texts) - 1
    return tuple(
        PrintItem(span, text if number == last else f"{text},")
        for number, (span, text) in enumerate(texts)
    )
