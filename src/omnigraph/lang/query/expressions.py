"""The expression half of the query parser.

Precedence, loosest first: ``or``, ``and``, ``not``, one comparison, an operand. A new operator is
one more level here, a new function one more row in ``FUNCTIONS``.
"""

from __future__ import annotations

import math

from omnigraph.lang.closest import did_you_mean
from omnigraph.lang.diagnostics import Span
from omnigraph.lang.lexer import Kind, Token, decode_string
from omnigraph.lang.parsing import ParseFailure, Parser
from omnigraph.lang.query import ast
from omnigraph.lang.types import I64_RANGE

MAX_OPERANDS = 1000
AGGREGATES = ("count", "sum", "avg", "min", "max")
RANKS = ("nearest", "bm25")
# function -> fewest and most arguments
FUNCTIONS: dict[str, tuple[int, int]] = {
    "now": (0, 0),
    "nearest": (2, 2),
    "search": (2, 2),
    "fuzzy": (2, 3),
    "match_text": (2, 2),
    "bm25": (2, 2),
    "rrf": (2, 3),
}
_DATES = {"date": ast.LiteralKind.DATE, "datetime": ast.LiteralKind.DATETIME}
_SYMBOLS = {op.value: op for op in ast.CompareOp if not op.value[0].isalpha()}
_WORD_OPERATORS = ("contains", "starts_with")
_WORDS = {
    "true": (ast.LiteralKind.BOOL, True),
    "false": (ast.LiteralKind.BOOL, False),
    "null": (ast.LiteralKind.NULL, None),
}
_KEYWORDS = {"and", "as", "asc", "contains", "delete", "desc", "distinct", "false", "in", "insert"}
_KEYWORDS |= {"is", "limit", "match", "not", "null", "offset", "or", "order", "query", "return"}
_KEYWORDS |= {"set", "starts_with", "true", "update", "where"}
# Operators of other languages, and their replacements.
_FOREIGN_WORDS = {
    "like": "write `contains` for a part of a text, `starts_with` for its start",
    "between": "write `$p.x >= low and $p.x <= high`",
    "matches": "write `contains`, or `search` for words",
    "equals": "write `=`",
}
# (token before, token) -> hint; together they are an operator of another language
_FOREIGN_OPERATORS = {
    ("=", "="): "equality is written `=`",
    ("<", ">"): "unequal is written `!=`",
    ("=", ">"): "greater or equal is written `>=`",
    ("=", "<"): "less or equal is written `<=`",
}


class ExpressionParser(Parser):
    """Parses expressions; the clause parser builds on it.

    ``operands`` counts the conditions of the current expression; the caller resets it.
    """

    operands = 0

    def expression(self) -> ast.Expr:
        """A whole expression, conditions included."""
        with self.nested():
            return self._either()

    def unexpected(self, wanted: str, context: str, hint: str | None = None) -> ParseFailure:
        return super().unexpected(wanted, context, hint or advice(self.before(), self.token))

    def without_dollar(self, token: Token) -> ParseFailure:
        """A word in the position of a variable."""
        return self.fail("P034", "variables start with `$`", token.span, f"write `${token.text}`")

    def value(self, context: str) -> ast.Expr:
        """A literal, a variable or ``now()``: the operands of assignments and matches."""
        token = self.token
        if token.kind is Kind.VAR and self.ahead().text == ".":
            raise self.unexpected(
                "a value", context, "only literals, parameters and now() are allowed here"
            )
        is_word = token.kind is Kind.IDENT and token.text not in _WORDS
        is_call = token.text in ("now", *_DATES) and self.ahead().text == "("
        if is_word and not is_call:
            raise self.unexpected("a value", context, 'a text is written in quotes: "…"')
        if self.at("("):
            raise self.unexpected("a value", context, "only literals, parameters and now()")
        return self._operand(context)

    # -- levels --------------------------------------------------------------------------

    def _either(self) -> ast.Expr:
        first = self._both()
        if not self._at_word("or"):
            return first
        operands = [first]
        while self._at_word("or"):
            self._count_operand()
            operands.append(self._both())
        return ast.OrExpr(tuple(operands), span=self.since(first.span.start))

    def _both(self) -> ast.Expr:
        first = self._negated()
        if not self._at_word("and"):
            return first
        operands = [first]
        while self._at_word("and"):
            self._count_operand()
            operands.append(self._negated())
        return ast.AndExpr(tuple(operands), span=self.since(first.span.start))

    def _count_operand(self) -> None:
        """Count an ``and`` or ``or``; later phases walk conditions recursively."""
        self.operands += 1
        if self.operands > MAX_OPERANDS:
            raise self.fail(
                "P008",
                f"more than {MAX_OPERANDS} `and` and `or` in one expression",
                self.token.span,
                "compare with a list: `$p.name in $names`",
            )
        self.advance()

    def _negated(self) -> ast.Expr:
        token = self.token
        if not (token.text == "not" and token.kind is Kind.IDENT and self._starts_operand()):
            return self._comparison()
        self.advance()
        if self.at("("):
            # The parenthesis counts as the level, so that `not x` may be written `not (x)`.
            operand = self._negated()
        else:
            with self.nested():
                operand = self._negated()
        return ast.NotExpr(operand, span=self.since(token.start))

    def _starts_operand(self) -> bool:
        """Whether the tokens after ``not`` make it an operator and not a name."""
        following = self.ahead()
        if following.kind is Kind.PUNCT:
            return following.text in ("(", "[", "-")
        return following.kind is not Kind.EOF

    def _comparison(self) -> ast.Expr:
        left = self._operand("here")
        result = self._compared(left)
        if result is not left and self._at_comparison():
            raise self.fail(
                "P012",
                "comparisons cannot be chained",
                self.token.span,
                "join them with `and`: `$a.x > 1 and $a.x < 9`",
            )
        return result

    def _at_comparison(self) -> bool:
        token = self.token
        if token.kind is Kind.PUNCT:
            return token.text in _SYMBOLS
        return token.kind is Kind.IDENT and token.text in (*_WORD_OPERATORS, "in", "is")

    def _compared(self, left: ast.Expr) -> ast.Expr:
        token = self.token
        if token.kind is Kind.PUNCT:
            op = _SYMBOLS.get(token.text)
            if op is None:
                return left
            self.advance()
            right = self._operand(f"after `{op}`")
            return ast.CompareExpr(op, left, right, span=self.since(left.span.start))
        if token.kind is not Kind.IDENT:
            return left
        if token.text == "in":
            self.advance()
            options = self._operand("after `in`")
            return ast.InExpr(left, options, span=self.since(left.span.start))
        if token.text == "is":
            self.advance()
            negated = self.accept("not") is not None
            self.expect("null", "after `is`")
            return ast.IsNullExpr(left, negated, span=self.since(left.span.start))
        instead = _FOREIGN_WORDS.get(token.text)
        if instead is not None and self._starts_operand():
            message = f"there is no operator `{token.text}`"
            raise self.fail("P036", message, token.span, instead)
        for word in _WORD_OPERATORS:
            if self._at_glued(word):
                self.accept_word(word)
                right, op = self._operand(f"after `{word}`"), ast.CompareOp(word)
                return ast.CompareExpr(op, left, right, span=self.since(left.span.start))
        return left

    def _at_glued(self, word: str) -> bool:
        """Whether a word operator is here; `contains` needs no separator after it."""
        text = self.token.text
        return text == word or (word == "contains" and text.startswith(word))

    # -- operands ------------------------------------------------------------------------

    def _operand(self, context: str) -> ast.Expr:
        token = self.token
        kind = token.kind
        if kind is Kind.VAR:
            return self._variable()
        if kind is Kind.STRING:
            self.advance()
            text = decode_string(self.source, token, self.diagnostics)
            return ast.LiteralExpr(ast.LiteralKind.STRING, text, span=token.span)
        if kind is Kind.INT or kind is Kind.FLOAT:
            return self._number(self.advance(), negative=False, start=token.start)
        if kind is Kind.IDENT:
            return self._word()
        if token.text == "-":
            self.advance()
            number = self.token
            if number.kind is not Kind.INT and number.kind is not Kind.FLOAT:
                raise self.unexpected(
                    "a number", "after `-`", "`-` only makes negative numbers, as in -5"
                )
            return self._number(self.advance(), negative=True, start=token.start)
        if token.text == "[":
            return self._list()
        if token.text == "(":
            self.advance()
            if self.ahead(2 if self.at("-") else 1).text == ")":
                # One operand in parentheses is not nesting.
                inner = self._operand("in parentheses")
            else:
                inner = self.expression()
            self.expect(")", "to close the parenthesis")
            return inner
        raise self.unexpected("a value or a variable", context)

    def _variable(self) -> ast.Expr:
        token = self.advance()
        if not self.at("."):
            return ast.VariableExpr(token.text[1:], span=token.span)
        self.advance()
        name = self.expect_kind(Kind.IDENT, "a property name", f"after `{token.text}.`")
        return ast.PropertyExpr(token.text[1:], name.text, span=Span(token.start, name.end))

    def _number(self, token: Token, *, negative: bool, start: int) -> ast.LiteralExpr:
        span = Span(start, token.end)
        if token.kind is Kind.FLOAT:
            number = float(token.text)
            if math.isinf(number):
                self.report("P005", "this number is too large for a 64-bit float", span)
                number = 0.0
            number = -number if negative else number
            return ast.LiteralExpr(ast.LiteralKind.FLOAT, number, span=span)
        low, high = I64_RANGE
        value = self.integer_value(token, (0, -low if negative else high))
        return ast.LiteralExpr(ast.LiteralKind.INT, -value if negative else value, span=span)

    def _list(self) -> ast.Expr:
        start = self.advance().start
        items: list[ast.Expr] = []
        with self.nested():
            while not self.at("]"):
                items.append(self._operand("in a list"))
                if not self.accept(","):
                    break
            self.expect("]", "to close the list")
        return ast.ListExpr(tuple(items), span=self.since(start))

    def _word(self) -> ast.Expr:
        token = self.token
        text = token.text
        if text in _WORDS:
            # Before a parenthesis too: the next clause may begin with one.
            self.advance()
            kind, value = _WORDS[text]
            return ast.LiteralExpr(kind, value, span=token.span)
        if self.ahead().text == "(":
            return self._call()
        if self.ahead().text == "." and self.ahead().start == token.end:
            raise self.without_dollar(token)
        self.advance()
        return ast.NameExpr(text, span=token.span)

    def _call(self) -> ast.Expr:
        token = self.advance()
        self.advance()
        name = token.text
        if name in _DATES:
            text = self.string(f"inside `{name}(…)`")
            self.expect(")", f"to close `{name}(`")
            return ast.LiteralExpr(_DATES[name], text, span=self.since(token.start))
        with self.nested():
            if name in AGGREGATES:
                return self._aggregate(token)
            return self._function(token)

    def _aggregate(self, token: Token) -> ast.Expr:
        distinct = False
        following = self.ahead()
        if self.at("distinct") and not (following.kind is Kind.PUNCT and following.text == ")"):
            self.advance()
            distinct = True
        arg = self.expression()
        self.expect(")", f"to close `{token.text}(`")
        return ast.AggregateExpr(token.text, arg, distinct, span=self.since(token.start))

    def _function(self, token: Token) -> ast.Expr:
        name = token.text
        if name not in FUNCTIONS:
            hint = did_you_mean(name, [*FUNCTIONS, *AGGREGATES, *_DATES])
            raise self.fail("P013", f"unknown function `{name}`", token.span, hint)
        args: list[ast.Expr] = []
        while not self.at(")"):
            args.append(self.expression())
            if not self.accept(","):
                break
        self.expect(")", f"to close `{name}(`")
        call = ast.CallExpr(name, tuple(args), span=self.since(token.start))
        self._check_shape(call)
        return call

    def _check_shape(self, call: ast.CallExpr) -> None:
        """Check the arguments of a call by the grammar, before any type is known."""
        fewest, most = FUNCTIONS[call.function]
        count = len(call.args)
        if not fewest <= count <= most:
            wanted = str(fewest) if fewest == most else f"{fewest} or {most}"
            self.report(
                "P014", f"`{call.function}` takes {wanted} arguments, got {count}", call.span
            )
            raise ParseFailure
        if call.function == "nearest" and not isinstance(call.args[0], ast.PropertyExpr):
            raise self.fail(
                "P015",
                "the first argument of `nearest` must be a vector property",
                call.args[0].span,
                "write `nearest($v.property, query)`",
            )
        if call.function == "rrf":
            for rank in call.args[:2]:
                if not (isinstance(rank, ast.CallExpr) and rank.function in RANKS):
                    raise self.fail(
                        "P016", "`rrf` fuses two rankings: `nearest(…)` or `bm25(…)`", rank.span
                    )

    # -- positions -----------------------------------------------------------------------

    def _at_word(self, word: str) -> bool:
        return self.token.text == word and self.token.kind is Kind.IDENT


def edge_word(name: str) -> str:
    """The spelling of an edge in a query: with a lower-case first letter, or all lower-case.

    >>> edge_word("WorksAt"), edge_word("ATTENDED")
    ('worksAt', 'attended')
    """
    return name.lower() if name.isupper() else name[:1].lower() + name[1:]


def advice(before: Token, token: Token) -> str | None:
    """A hint for an unexpected token that is common in other languages."""
    text = token.text
    if token.kind is Kind.TYPE:
        if text.lower() in _KEYWORDS:
            return f"keywords are lower-case: `{text.lower()}`"
        return 'type names are not values; a text is written in quotes: "…"'
    if token.kind is Kind.PUNCT and before.end == token.start:
        foreign = _FOREIGN_OPERATORS.get((before.text, text))
        if foreign is not None:
            return foreign
    if before.kind is Kind.IDENT and before.text in ("match", "return", "order"):
        return f"write `{before.text} {{ … }}`"
    if text == "," and before.kind is not Kind.PUNCT:
        return "clauses need no comma between them"
    if text == "where":
        return "conditions belong inside the match block"
    if before.text == "insert" and text == "into":
        return "write `insert Type { property: value }`"
    if before.kind is Kind.IDENT and text == "=":
        return f"inside the braces write `{before.text}: value`"
    return None
