"""The clauses of a match block.

They follow one another without separators, so the first tokens determine the kind of a clause:
``not {`` a negation, ``$v :`` a binding, ``$v word $w`` a traversal, anything else a condition.
"""

from __future__ import annotations

from omnigraph.lang.diagnostics import Span
from omnigraph.lang.lexer import Kind, Token
from omnigraph.lang.query import ast
from omnigraph.lang.query.blocks import BlockParser
from omnigraph.lang.query.expressions import edge_word
from omnigraph.lang.types import U32_RANGE


class ClauseParser(BlockParser):
    """Bindings, traversals, negations and conditions."""

    def clause(self) -> ast.Clause:
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
        self.refuse_leading_minus("clause")
        self.operands = 0
        condition = self.expression()
        return ast.FilterClause(condition, span=self.since(token.start))

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
            clauses = self.block(self.clause, closed_by=self.at_part)
            if not clauses and self.is_empty(opening, problems):
                self.report("P025", "a negation needs at least one clause", opening.span)
            self.close(opening, "`not`")
        return ast.NegationClause(tuple(clauses), span=self.since(start))

    def _binding(self) -> ast.Clause:
        variable = self.advance()
        self.advance()
        type_ = self.type_name(f"after `{variable.text}:`")
        matches: list[ast.PropertyMatch] = []
        if self.at("{"):
            opening = self.advance()
            while self.at_kind(Kind.IDENT):
                name, value, span = self.named_value()
                matches.append(ast.PropertyMatch(name, value, span=span))
                if not self.accept(","):
                    break
            if not self.at("}"):
                wanted = "`,` or `}`" if matches else "a property name or `}`"
                raise self.unexpected(wanted, f"in the braces of `{variable.text}`")
            self.close(opening, f"`{variable.text}: {type_.text}`")
        return ast.BindingClause(
            variable.text[1:],
            type_.text,
            tuple(matches),
            span=self.since(variable.start),
            type_span=type_.span,
        )

    def _is_traversal(self, following: Token) -> bool:
        """Whether ``$v`` and the following tokens begin a traversal."""
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
            span=Span(src.start, dst.end),
            edge_span=edge.span,
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
