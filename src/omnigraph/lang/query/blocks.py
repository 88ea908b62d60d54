"""Blocks of items in braces, and recovery after an invalid item."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from omnigraph.lang.diagnostics import Span
from omnigraph.lang.lexer import Kind, Token
from omnigraph.lang.parsing import ParseFailure
from omnigraph.lang.query import ast
from omnigraph.lang.query.expressions import ExpressionParser

T = TypeVar("T")

_PARTS = ("match", "return", "order", "limit", "offset")


class BlockParser(ExpressionParser):
    """Lists of items between braces, with recovery."""

    def block(self, item: Callable[[], T], closed_by: Callable[[], bool]) -> list[T]:
        """Items up to ``}``; an invalid item is skipped, and parsing continues after it."""
        items: list[T] = []
        while not (self.at("}") or self.at_kind(Kind.EOF) or closed_by() or self.too_many):
            start = self.save()
            try:
                items.append(item())
            except ParseFailure:
                self._skip_item(start)
        return items

    def is_empty(self, opening: Token, problems: int) -> bool:
        """Whether a block without items has no errors in it, so that it is really empty."""
        return len(self.diagnostics) == problems and not self.unreadable_since(opening.start)

    def _skip_item(self, start: int) -> None:
        """Move to the next possible item: a new line on the nesting level of the invalid one.

        Brackets that the item opened are closed first, unless the next part of the query shows
        that their closing brackets are missing.
        """
        if self.save() == start:
            self.advance()
        depth = 0
        for token in self._tokens[start : self.save()]:
            depth = max(depth + _bracket(token), 0)
        while not self.at_kind(Kind.EOF) and not self.at_part():
            token = self.token
            if depth == 0:
                new_line = "\n" in self.source.text[self.previous_end() : token.start]
                if new_line or self.at("}"):
                    return
            depth = max(depth + _bracket(token), 0)
            self.advance()

    def at_query(self) -> bool:
        """Whether a query starts here, even one with an invalid head."""
        if not self.at("query") or self.ahead().kind is not Kind.IDENT:
            return False
        opening = self.ahead(2).text
        if opening != "(":
            return opening in ("{", "-")
        inside = self.ahead(3)
        return inside.kind in (Kind.VAR, Kind.EOF) or inside.text in (")", "{")

    def at_part(self) -> bool:
        """Whether the next part of a read query starts here, so that a brace is missing."""
        if self.token.kind is not Kind.IDENT or self.token.text not in _PARTS:
            return self.at_query()
        following = self.ahead()
        return following.text in ("{", "distinct") or following.kind is Kind.INT

    def close(self, opening: Token, what: str) -> None:
        if self.accept("}"):
            return
        if self.at_kind(Kind.EOF) or self.at_part():
            if self.after_unreadable():
                return
            message = f"the `{{` of {what} is not closed"
            self.report("P007", message, opening.span, "add the missing `}`")
            return
        raise self.unexpected("`}`", f"to close {what}")

    def type_name(self, context: str) -> Token:
        token = self.token
        if token.kind is not Kind.TYPE:
            hint: str | None = None
            if token.kind is Kind.IDENT and token.text not in ("into", "from"):
                proper = token.text[:1].upper() + token.text[1:]
                hint = f"type names start with an upper-case letter: `{proper}`"
            raise self.unexpected("a type name", context, hint)
        return self.advance()

    def named_value(self) -> tuple[str, ast.Expr, Span]:
        """``name: value``, and its span."""
        name = self.advance()
        self.expect(":", f"after `{name.text}`")
        value = self.value(f"for `{name.text}`")
        return name.text, value, self.since(name.start)

    def refuse_leading_minus(self, what: str) -> None:
        """Raise for a leading minus, which could be read as a subtraction."""
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
