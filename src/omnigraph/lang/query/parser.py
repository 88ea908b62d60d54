"""Query text to syntax tree.

Clauses follow one another without separators, so the first tokens decide what a clause is:
``not {`` a negation, ``$v :`` a binding, ``$v word $w`` a traversal, anything else a condition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from omnigraph.lang.closest import closest
from omnigraph.lang.diagnostics import Diagnostic, Source, Span, first_in_source
from omnigraph.lang.lexer import Kind, Token
from omnigraph.lang.parsing import Failure
from omnigraph.lang.query import ast
from omnigraph.lang.query.expressions import ExpressionParser, edge_word
from omnigraph.lang.types import (
    MOST_DIMENSIONS,
    SCALAR_NAMES,
    U32_RANGE,
    PropType,
    Scalar,
    suggest_scalar,
)

T = TypeVar("T")

_STATEMENTS = ("insert", "update", "delete")
_PARTS = ("match", "return", "order", "limit", "offset")


def parse_queries(source: Source | str) -> tuple[ast.QueryFile, list[Diagnostic]]:
    """Read every query of a text; what cannot be read is reported, the rest is kept.

    >>> file, problems = parse_queries('query q() { match { $p: Person } return { $p.name } }')
    >>> [query.name for query in file.queries], problems
    (['q'], [])
    """
    if isinstance(source, str):
        source = Source("<query>", source)
    parser = QueryParser(source)
    return parser.file(), first_in_source(parser.diagnostics)


class QueryParser(ExpressionParser):
    """A recursive-descent parser for whole query files."""

    def file(self) -> ast.QueryFile:
        queries: list[ast.Query] = []
        while not self.at_kind(Kind.EOF) and not self.too_many:
            try:
                queries.append(self._query())
            except Failure:
                self._skip_to_query()
        return ast.QueryFile(tuple(queries))

    # -- one query -----------------------------------------------------------------------

    def _query(self) -> ast.Query:
        start = self.token.start
        if not self.accept_word("query"):
            hint = "there is one `}` too many before it" if self.at("}") else None
            raise self.unexpected("`query`", "at the start of a query", hint)
        name = self.expect_kind(Kind.IDENT, "a query name", "after `query`")
        if not self.accept("("):
            hint = f"write `query {name.text}()`"
            if self.at("-"):
                hint = "names are made of letters, digits and `_`"
            raise self.unexpected("`(`", f"after the query name `{name.text}`", hint)
        params = self._params()
        notes = self._annotations(name.text)
        opening = self.expect("{", f"to open the body of query `{name.text}`")
        body = self._body(opening)
        self._close(opening, f"query `{name.text}`")
        return ast.Query(
            name.text,
            params,
            body,
            notes.get("description"),
            notes.get("instruction"),
            Span(start, self.previous_end()),
            name.span,
        )

    def _params(self) -> tuple[ast.Param, ...]:
        params: list[ast.Param] = []
        names: set[str] = set()
        while not self.at(")"):
            token = self.expect_kind(Kind.VAR, "a parameter such as `$name`", "in the list")
            if not self.accept(":"):
                hint = f"give it a type: `{token.text}: String`"
                raise self.unexpected("`:`", f"after `{token.text}`", hint)
            type_ = self._param_type()
            if token.text in names:
                self.report("P020", f"parameter `{token.text}` is declared twice", token.span)
            names.add(token.text)
            span = Span(token.start, self.previous_end())
            params.append(ast.Param(token.text[1:], type_, span))
            if not self.accept(","):
                break
        if not self.accept(")"):
            raise self.unexpected("`,` or `)`", "in the parameter list")
        return tuple(params)

    def _param_type(self) -> PropType:
        if self.accept("["):
            scalar = self._scalar_name()
            self.expect("]", "to close the list type")
            return PropType(scalar, self.accept("?") is not None, is_list=True)
        if self.at("Vector"):
            self.advance()
            self.expect("(", "after `Vector`")
            size = self.expect_kind(Kind.INT, "a dimension", "inside `Vector(…)`")
            dimension = self.integer_value(size, (0, MOST_DIMENSIONS))
            if dimension == 0:
                self.report("P021", "Vector dimension must be greater than zero", size.span)
                dimension = 1
            self.expect(")", "to close `Vector(`")
            nullable = self.accept("?") is not None
            return PropType(Scalar.VECTOR, nullable, dimension=dimension)
        scalar = self._scalar_name()
        return PropType(scalar, self.accept("?") is not None)

    def _scalar_name(self) -> Scalar:
        token = self.token
        scalar = SCALAR_NAMES.get(token.text)
        if scalar is not None:
            self.advance()
            return scalar
        if token.kind not in (Kind.TYPE, Kind.IDENT):
            raise self.unexpected("a parameter type", "after `:`")
        close = suggest_scalar(token.text)
        hint = f"did you mean `{close}`?" if close else f"one of {', '.join(SCALAR_NAMES)}"
        if token.text == "enum":
            hint = "enum values are passed as String"
        raise self.fail("P022", f"unknown parameter type `{token.text}`", token.span, hint)

    def _annotations(self, query: str) -> dict[str, str]:
        notes: dict[str, str] = {}
        while self.at("@"):
            start = self.advance().start
            word = self.expect_kind(Kind.IDENT, "`description` or `instruction`", "after `@`")
            span = Span(start, word.end)
            if word.text not in ("description", "instruction"):
                raise self.fail(
                    "P023",
                    f"unknown query annotation `@{word.text}`",
                    span,
                    "a query takes @description and @instruction",
                )
            self.expect("(", f"after `@{word.text}`")
            text = self.string(f"inside `@{word.text}(…)`")
            self.expect(")", f"to close `@{word.text}(`")
            if word.text in notes:
                message = f"query `{query}` cannot include duplicate @{word.text} annotations"
                self.report("P024", message, span)
            notes.setdefault(word.text, text)
        return notes

    def _body(self, opening: Token) -> ast.Body:
        if self.token.text.startswith("match"):
            return self._read()
        problems = len(self.diagnostics)
        statements = self._block(self._statement, closed_by=self._at_query)
        if not statements and self._blank(opening, problems):
            raise self.unexpected("`match`, `insert`, `update` or `delete`", "in a query body")
        return ast.MutationBody(tuple(statements))

    # -- reads ---------------------------------------------------------------------------

    def _read(self) -> ast.ReadBody:
        self.accept_word("match")
        opening = self.expect("{", "after `match`")
        problems = len(self.diagnostics)
        clauses = self._block(self._clause, closed_by=self._at_part)
        if not clauses and self._blank(opening, problems):
            self.report("P025", "a match block needs at least one clause", opening.span)
        self._close(opening, "`match`")
        if not self.accept_word("return"):
            raise self.unexpected("`return`", "after the match block")
        distinct = self.accept("distinct") is not None
        opening = self.expect("{", "after `return`")
        problems = len(self.diagnostics)
        projections = self._block(self._projection, closed_by=self._at_part)
        if not projections and self._blank(opening, problems):
            self.report("P026", "a return block needs at least one projection", opening.span)
        self._close(opening, "`return`")
        order = self._order({p.alias for p in projections if p.alias})
        limit, offset, limit_span = self._limit()
        return ast.ReadBody(
            tuple(clauses), tuple(projections), distinct, order, limit, offset, limit_span
        )

    def _projection(self) -> ast.Projection:
        start = self.token.start
        if not self._after_separator():
            self._refuse_leading_minus("projection")
        self.operands = 0
        expr = self.expression()
        alias: str | None = None
        if self.accept_word("as"):
            alias = self.expect_kind(Kind.IDENT, "a column name", "after `as`").text
        span = Span(start, self.previous_end())
        self.accept(",")
        return ast.Projection(expr, alias, span)

    def _order(self, aliases: set[str]) -> tuple[ast.Ordering, ...]:
        if not self.accept_word("order"):
            return ()
        opening = self.expect("{", "after `order`")
        entries = [self._ordering(aliases)]
        while self.accept(","):
            entries.append(self._ordering(aliases))
        if not self.at("}") and not self.at_kind(Kind.EOF):
            raise self.unexpected("`,` or `}`", "in the order block")
        self._close(opening, "`order`")
        return tuple(entries)

    def _ordering(self, aliases: set[str]) -> ast.Ordering:
        start = self.token.start
        alone = self.ahead().text in (",", "}", "asc", "desc")
        if alone and self.token.kind is Kind.IDENT and self.token.text in aliases:
            # An alias may be called `null` or `not`; here it means the column.
            token = self.advance()
            expr: ast.Expr = ast.NameExpr(token.text, token.span)
        else:
            expr = self.expression()
        direction = self.token
        descending = self.at("desc")
        if descending or self.at("asc"):
            self.advance()
            if isinstance(expr, ast.CallExpr) and expr.function == "nearest":
                raise self.fail(
                    "P027",
                    f"`nearest` takes no `{direction.text}`: the closest come first",
                    direction.span,
                )
        return ast.Ordering(expr, descending, Span(start, self.previous_end()))

    def _limit(self) -> tuple[int | None, int | None, Span]:
        limit: int | None = None
        offset: int | None = None
        start = self.token.start
        if self.accept_word("limit"):
            limit = self._count("limit")
            if self.accept_word("offset"):
                offset = self._count("offset")
            if self.at("order"):
                message = "`order` stands before `limit`"
                raise self.fail("P033", message, self.token.span)
        elif self.at("offset"):
            raise self.fail(
                "P028",
                "`offset` needs a `limit` before it",
                self.token.span,
                "write `limit N offset M`",
            )
        return limit, offset, Span(start, max(start, self.previous_end()))

    def _count(self, word: str) -> int:
        hint = "parameters cannot stand here, only a number" if self.at_kind(Kind.VAR) else None
        if not self.at_kind(Kind.INT):
            raise self.unexpected("a whole number", f"after `{word}`", hint)
        return self.integer_value(self.advance())

    # -- clauses -------------------------------------------------------------------------

    def _clause(self) -> ast.Clause:
        token = self.token
        if token.text == "not" and self.ahead().text == "{":
            return self._negation()
        if token.kind is Kind.VAR:
            following = self.ahead()
            if following.text == ":":
                return self._binding()
            if self._is_traversal(following):
                return self._traversal()
            self._refuse_upper_edge(following)
        elif token.kind is Kind.IDENT and self.ahead().text == ":":
            raise self.without_dollar(token)
        self._refuse_leading_minus("clause")
        self.operands = 0
        condition = self.expression()
        return ast.FilterClause(condition, Span(token.start, self.previous_end()))

    def _refuse_upper_edge(self, following: Token) -> None:
        if following.kind is Kind.TYPE and self.ahead(2).kind is Kind.VAR:
            word = edge_word(following.text)
            message = "edges are written with a lower-case first letter in a query"
            raise self.fail("P035", message, following.span, f"write `{word}`")

    def _negation(self) -> ast.Clause:
        start = self.advance().start
        with self.nested():
            opening = self.advance()
            problems = len(self.diagnostics)
            clauses = self._block(self._clause, closed_by=self._at_part)
            if not clauses and self._blank(opening, problems):
                self.report("P025", "a negation needs at least one clause", opening.span)
            self._close(opening, "`not`")
        return ast.NegationClause(tuple(clauses), Span(start, self.previous_end()))

    def _binding(self) -> ast.Clause:
        variable = self.advance()
        self.advance()
        type_ = self._type_name(f"after `{variable.text}:`")
        matches: list[ast.PropertyMatch] = []
        if self.at("{"):
            opening = self.advance()
            while self.at_kind(Kind.IDENT):
                name = self.advance()
                self.expect(":", f"after `{name.text}`")
                value = self.value(f"for `{name.text}`")
                span = Span(name.start, self.previous_end())
                matches.append(ast.PropertyMatch(name.text, value, span))
                if not self.accept(","):
                    break
            if not self.at("}"):
                wanted = "`,` or `}`" if matches else "a property name or `}`"
                raise self.unexpected(wanted, f"in the braces of `{variable.text}`")
            self._close(opening, f"`{variable.text}: {type_.text}`")
        return ast.BindingClause(
            variable.text[1:],
            type_.text,
            tuple(matches),
            Span(variable.start, self.previous_end()),
            type_.span,
        )

    def _is_traversal(self, following: Token) -> bool:
        """Whether ``$v`` and the token after it begin a traversal, by looking a little further."""
        if following.kind is Kind.VAR:
            return self.ahead(2).text == ":"
        if following.text == "<":
            return self.ahead(2).kind is Kind.IDENT and self.ahead(3).text == ">"
        if following.kind is Kind.IDENT:
            after = self.ahead(2)
            return after.kind is Kind.VAR or (after.text == "{" and following.text != "not")
        return False

    def _traversal(self) -> ast.Clause:
        src = self.advance()
        edge_variable: str | None = None
        if self.at_kind(Kind.VAR):
            edge_variable = self.advance().text[1:]
            self.advance()
        undirected = self.accept("<") is not None
        edge = self.expect_kind(Kind.IDENT, "an edge name", f"after `{src.text}`")
        if edge.text == "not":
            raise self.fail("P029", "an edge cannot be called `not`", edge.span)
        if undirected:
            self.expect(">", f"after `<{edge.text}`")
        hops = self._hops() if self.at("{") else ast.ONE_HOP
        dst = self.expect_kind(Kind.VAR, "a variable", f"at the end of `{src.text} {edge.text}`")
        if self.at(".") and self.token.start == dst.end:
            raise self.fail(
                "P030",
                "a traversal ends in a variable, not in a property",
                Span(dst.start, self.ahead().end),
                f"to compare, write a property on the left too: `{src.text}.property …`",
            )
        return ast.TraversalClause(
            src.text[1:],
            edge.text,
            dst.text[1:],
            hops,
            undirected,
            edge_variable,
            Span(src.start, dst.end),
            edge.span,
        )

    def _hops(self) -> ast.Hops:
        self.advance()
        least = self.expect_kind(Kind.INT, "the fewest hops", "after `{`")
        self.expect(",", "between the fewest and the most hops")
        most: int | None = None
        if self.at_kind(Kind.INT):
            most = self.integer_value(self.advance(), U32_RANGE)
        self.expect("}", "to close the hop bounds")
        return ast.Hops(self.integer_value(least, U32_RANGE), most)

    # -- statements ----------------------------------------------------------------------

    def _statement(self) -> ast.Statement:
        start = self.token.start
        if self.accept_word("insert"):
            type_ = self._type_name("after `insert`")
            values = self._assignments(f"`insert {type_.text}`")
            return ast.InsertStatement(
                type_.text, values, Span(start, self.previous_end()), type_.span
            )
        if self.accept_word("update"):
            type_ = self._type_name("after `update`")
            self.expect("set", f"after `update {type_.text}`")
            values = self._assignments("`set`")
            where = self._where(f"update {type_.text}")
            span = Span(start, self.previous_end())
            return ast.UpdateStatement(type_.text, values, where, span, type_.span)
        if self.accept_word("delete"):
            type_ = self._type_name("after `delete`")
            where = self._where(f"delete {type_.text}")
            return ast.DeleteStatement(
                type_.text, where, Span(start, self.previous_end()), type_.span
            )
        if self.at("match"):
            raise self.fail(
                "P031",
                "a query either reads or writes, not both",
                self.token.span,
                "put the read and the statements into two queries",
            )
        close = closest(self.token.text, [*_STATEMENTS, "match"])
        hint = f"did you mean `{close}`?" if close else None
        raise self.unexpected("`insert`, `update` or `delete`", "in a query body", hint)

    def _assignments(self, what: str) -> tuple[ast.Assignment, ...]:
        opening = self.expect("{", f"after {what}")
        values: list[ast.Assignment] = []
        while self.at_kind(Kind.IDENT):
            name = self.advance()
            self.expect(":", f"after `{name.text}`")
            value = self.value(f"for `{name.text}`")
            values.append(ast.Assignment(name.text, value, Span(name.start, self.previous_end())))
            self.accept(",")
        if not values:
            raise self.unexpected("a property name", f"in the braces of {what}")
        if not self.at("}"):
            raise self.unexpected("a property name or `}`", f"in the braces of {what}")
        self._close(opening, what)
        return tuple(values)

    def _where(self, what: str) -> ast.Expr:
        if not self.accept_word("where"):
            raise self.unexpected("`where`", f"in `{what}`", "say which rows are meant")
        self.operands = 0
        return self.expression()

    # -- lists of things, and how to go on after an error ---------------------------------

    def _block(self, item: Callable[[], T], closed_by: Callable[[], bool]) -> list[T]:
        """Items up to ``}``; a broken item is skipped, the ones after it are still read."""
        items: list[T] = []
        while not (self.at("}") or self.at_kind(Kind.EOF) or closed_by() or self.too_many):
            place = self.save()
            try:
                items.append(item())
            except Failure:
                self._skip_item(place)
        return items

    def _blank(self, opening: Token, problems: int) -> bool:
        """Whether a block without items has nothing wrong in it, so that it is really empty."""
        return len(self.diagnostics) == problems and not self.unreadable_since(opening.start)

    def _skip_item(self, place: int) -> None:
        """Move to where the next item may begin: a new line on the level of the broken one.

        Brackets that the item opened before it broke are closed first, unless the next part of
        the query shows that they never are.
        """
        if self.save() == place:
            self.advance()
        depth = 0
        for token in self._tokens[place : self.save()]:
            depth = max(depth + _bracket(token), 0)
        while not self.at_kind(Kind.EOF) and not self._at_part():
            token = self.token
            if depth == 0:
                new_line = "\n" in self.source.text[self.previous_end() : token.start]
                if new_line or self.at("}"):
                    return
            depth = max(depth + _bracket(token), 0)
            self.advance()

    def _skip_to_query(self) -> None:
        self.advance()
        while not self.at_kind(Kind.EOF) and not self._at_query():
            self.advance()

    def _at_query(self) -> bool:
        """The start of a query, also of one whose head is wrong."""
        if not self.at("query") or self.ahead().kind is not Kind.IDENT:
            return False
        opening = self.ahead(2).text
        if opening != "(":
            return opening in ("{", "-")
        inside = self.ahead(3)
        return inside.kind in (Kind.VAR, Kind.EOF) or inside.text in (")", "{")

    def _at_part(self) -> bool:
        """The next part of a read query stands here, so a brace is missing."""
        if self.token.kind is not Kind.IDENT or self.token.text not in _PARTS:
            return self._at_query()
        following = self.ahead()
        return following.text in ("{", "distinct") or following.kind is Kind.INT

    def _close(self, opening: Token, what: str) -> None:
        if self.accept("}"):
            return
        if self.at_kind(Kind.EOF) or self._at_part():
            if self.after_unreadable():
                return
            message = f"the `{{` of {what} is not closed"
            self.report("P007", message, opening.span, "add the missing `}`")
            return
        raise self.unexpected("`}`", f"to close {what}")

    def _type_name(self, context: str) -> Token:
        token = self.token
        if token.kind is not Kind.TYPE:
            hint: str | None = None
            if token.kind is Kind.IDENT and token.text not in ("into", "from"):
                proper = token.text[:1].upper() + token.text[1:]
                hint = f"type names start with an upper-case letter: `{proper}`"
            raise self.unexpected("a type name", context, hint)
        return self.advance()

    def _after_separator(self) -> bool:
        before = self.previous_end()
        return before > 0 and self.source.text[before - 1] in ",{"

    def _refuse_leading_minus(self, what: str) -> None:
        """Two things side by side must never read as a subtraction."""
        if self.at("-"):
            hint = "put the number on the right of the comparison, or a comma before it"
            if self.ahead().text in ("[", "-", ">"):
                hint = "an edge is written between two variables: `$a knows $b`"
            message = f"a {what} cannot start with a negative number"
            raise self.fail("P032", message, self.token.span, hint)


def _bracket(token: Token) -> int:
    """How a token changes the depth of brackets."""
    if token.kind is not Kind.PUNCT:
        return 0
    return 1 if token.text in "{([" else -1 if token.text in "})]" else 0
