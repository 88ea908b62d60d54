"""Parses query files: query heads, reads and mutations; and selects one query."""

from __future__ import annotations

from omnigraph.errors import InputError, QueryError, QueryNotFound
from omnigraph.lang.closest import did_you_mean, suggest
from omnigraph.lang.diagnostics import Diagnostic, Phase, Source, Span, first_in_source
from omnigraph.lang.lexer import Kind, Token
from omnigraph.lang.parsing import ParseFailure
from omnigraph.lang.query import ast
from omnigraph.lang.query.clauses import ClauseParser
from omnigraph.lang.types import MOST_DIMENSIONS, SCALAR_NAMES, PropType, Scalar, suggest_scalar

_ANNOTATIONS = ("description", "instruction", "deprecated")


def duplicate_names(source: Source, file: ast.QueryFile) -> list[Diagnostic]:
    """A finding for every query whose name is already used in the file (Q001)."""
    first: dict[str, ast.Query] = {}
    findings: list[Diagnostic] = []
    for query in file.queries:
        earlier = first.setdefault(query.name, query)
        if earlier is not query:
            line, _ = source.position(earlier.span.start)
            message = f"query `{query.name}` is already declared in line {line}"
            findings.append(Diagnostic(Phase.PARSE, "Q001", message, source, query.name_span))
    return findings


def read_queries(source: Source) -> ast.QueryFile:
    """The queries of a text; raises ``QueryError`` if it does not parse."""
    file, problems = parse_queries(source)
    problems = problems or duplicate_names(source, file)
    if problems:
        raise QueryError(problems)
    return file


def select_query(file: ast.QueryFile, name: str | None = None) -> ast.Query:
    """The query of that name; without a name, the only query of the file."""
    if not file.queries:
        hint = "write `query name() { … }`, or pass the path of a .gq file"
        raise InputError("the text contains no query", hint=hint)
    if name is None:
        if len(file.queries) == 1:
            return file.queries[0]
        names = ", ".join(query.name for query in file.queries[:8])
        more = ", …" if len(file.queries) > 8 else ""
        message = "query file contains multiple queries; name one of them"
        raise InputError(message, hint=f"it has {names}{more}")
    for query in file.queries:
        if query.name == name:
            return query
    existing = [query.name for query in file.queries]
    raise QueryNotFound(f"query '{name}' not found", hint=suggest(name, existing))


def parse_queries(source: Source | str) -> tuple[ast.QueryFile, list[Diagnostic]]:
    """Parse every query of a text; unreadable parts are reported, the rest is returned.

    >>> file, problems = parse_queries('query q() { match { $p: Person } return { $p.name } }')
    >>> [query.name for query in file.queries], problems
    (['q'], [])
    """
    if isinstance(source, str):
        source = Source("<query>", source)
    parser = QueryParser(source)
    return parser.file(), first_in_source(parser.diagnostics)


class QueryParser(ClauseParser):
    """A recursive-descent parser for whole query files."""

    def file(self) -> ast.QueryFile:
        queries: list[ast.Query] = []
        while not self.at_kind(Kind.EOF) and not self.too_many:
            try:
                queries.append(self._query())
            except ParseFailure:
                self._skip_to_query()
        return ast.QueryFile(tuple(queries))

    def _skip_to_query(self) -> None:
        self.advance()
        while not self.at_kind(Kind.EOF) and not self.at_query():
            self.advance()

    # -- one query -----------------------------------------------------------------------

    def _query(self) -> ast.Query:
        start = self.token.start
        if not self.accept_word("query"):
            hint = "a file has queries only: `query name() { … }`"
            if self.at("}"):
                hint = "there is one `}` too many before it"
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
        self.close(opening, f"query `{name.text}`")
        return ast.Query(
            name.text,
            params,
            body,
            notes.get("description"),
            notes.get("instruction"),
            notes.get("deprecated"),
            span=self.since(start),
            name_span=name.span,
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
            params.append(ast.Param(token.text[1:], type_, span=self.since(token.start)))
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
            word = self.expect_kind(Kind.IDENT, "the name of an annotation", "after `@`")
            span = Span(start, word.end)
            if word.text not in _ANNOTATIONS:
                raise self.fail(
                    "P023",
                    f"unknown query annotation `@{word.text}`",
                    span,
                    "a query takes @description, @instruction and @deprecated",
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
        statements = self.block(self._statement, closed_by=self.at_query)
        if not statements and self.is_empty(opening, problems):
            raise self.unexpected("`match`, `insert`, `update` or `delete`", "in a query body")
        return ast.MutationBody(tuple(statements))

    # -- reads ---------------------------------------------------------------------------

    def _read(self) -> ast.ReadBody:
        self.accept_word("match")
        opening = self.expect("{", "after `match`")
        problems = len(self.diagnostics)
        clauses = self.block(self.clause, closed_by=self.at_part)
        if not clauses and self.is_empty(opening, problems):
            self.report("P025", "a match block needs at least one clause", opening.span)
        self.close(opening, "`match`")
        if not self.accept_word("return"):
            raise self.unexpected("`return`", "after the match block")
        distinct = self.accept("distinct") is not None
        opening = self.expect("{", "after `return`")
        problems = len(self.diagnostics)
        projections = self.block(self._projection, closed_by=self.at_part)
        if not projections and self.is_empty(opening, problems):
            self.report("P026", "a return block needs at least one projection", opening.span)
        self.close(opening, "`return`")
        order = self._order({p.alias for p in projections if p.alias})
        limit, offset, limit_span = self._limit()
        return ast.ReadBody(
            tuple(clauses), tuple(projections), distinct, order, limit, offset, limit_span
        )

    def _projection(self) -> ast.Projection:
        start = self.token.start
        if self.before().text not in (",", "{"):
            self.refuse_leading_minus("projection")
        self.operands = 0
        expr = self.expression()
        alias: str | None = None
        if self.accept_word("as"):
            alias = self.expect_kind(Kind.IDENT, "a column name", "after `as`").text
        span = self.since(start)
        self.accept(",")
        return ast.Projection(expr, alias, span=span)

    def _order(self, aliases: set[str]) -> tuple[ast.Ordering, ...]:
        if not self.accept_word("order"):
            return ()
        opening = self.expect("{", "after `order`")
        entries = [self._ordering(aliases)]
        while self.accept(","):
            entries.append(self._ordering(aliases))
        if not self.at("}") and not self.at_kind(Kind.EOF):
            raise self.unexpected("`,` or `}`", "in the order block")
        self.close(opening, "`order`")
        return tuple(entries)

    def _ordering(self, aliases: set[str]) -> ast.Ordering:
        start = self.token.start
        alone = self.ahead().text in (",", "}", "asc", "desc")
        if alone and self.token.kind is Kind.IDENT and self.token.text in aliases:
            # An alias may be called `null` or `not`; here the word refers to the column.
            token = self.advance()
            expr: ast.Expr = ast.NameExpr(token.text, span=token.span)
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
        return ast.Ordering(expr, descending, span=self.since(start))

    def _limit(self) -> tuple[int | None, int | None, Span]:
        limit: int | None = None
        offset: int | None = None
        start = self.token.start
        if self.accept_word("limit"):
            limit = self._count("limit")
            if self.accept_word("offset"):
                offset = self._count("offset")
            if self.at("order"):
                message = "`order` must come before `limit`"
                raise self.fail("P033", message, self.token.span)
        elif self.at("offset"):
            raise self.fail(
                "P028",
                "`offset` needs a `limit` before it",
                self.token.span,
                "write `limit N offset M`",
            )
        return limit, offset, self.since(start)

    def _count(self, word: str) -> int:
        hint = "parameters are not allowed here, only a number" if self.at_kind(Kind.VAR) else None
        if not self.at_kind(Kind.INT):
            raise self.unexpected("a whole number", f"after `{word}`", hint)
        return self.integer_value(self.advance())

    # -- statements ----------------------------------------------------------------------

    def _statement(self) -> ast.Statement:
        start = self.token.start
        if self.accept_word("insert"):
            type_ = self.type_name("after `insert`")
            values = self._assignments(f"`insert {type_.text}`")
            return ast.InsertStatement(
                type_.text, values, span=self.since(start), type_span=type_.span
            )
        if self.accept_word("update"):
            type_ = self.type_name("after `update`")
            self.expect("set", f"after `update {type_.text}`")
            values = self._assignments("`set`")
            where = self._where(f"update {type_.text}")
            span = self.since(start)
            return ast.UpdateStatement(type_.text, values, where, span=span, type_span=type_.span)
        if self.accept_word("delete"):
            type_ = self.type_name("after `delete`")
            where = self._where(f"delete {type_.text}")
            return ast.DeleteStatement(
                type_.text, where, span=self.since(start), type_span=type_.span
            )
        if self.at("match"):
            raise self.fail(
                "P031",
                "a query either reads or writes, not both",
                self.token.span,
                "put the read and the statements into two queries",
            )
        hint = did_you_mean(self.token.text, ("insert", "update", "delete", "match"))
        raise self.unexpected("`insert`, `update` or `delete`", "in a query body", hint)

    def _assignments(self, what: str) -> tuple[ast.Assignment, ...]:
        opening = self.expect("{", f"after {what}")
        values: list[ast.Assignment] = []
        while self.at_kind(Kind.IDENT):
            name, value, span = self.named_value()
            values.append(ast.Assignment(name, value, span=span))
            self.accept(",")
        if not values:
            raise self.unexpected("a property name", f"in the braces of {what}")
        if not self.at("}"):
            raise self.unexpected("a property name or `}`", f"in the braces of {what}")
        self.close(opening, what)
        return tuple(values)

    def _where(self, what: str) -> ast.Expr:
        if not self.accept_word("where"):
            raise self.unexpected("`where`", f"in `{what}`", "say which rows are meant")
        self.operands = 0
        return self.expression()
