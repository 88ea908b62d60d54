"""The base of both parsers: a cursor over tokens that collects diagnostics.

A parser raises ``ParseFailure`` after it has reported an error; code that parses a list of items
catches it, skips to the next item and continues, so that one run reports several errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TypeAlias

from omnigraph.argument_checks import UNCHECKED
from omnigraph.errors import InputError
from omnigraph.lang.diagnostics import MAX_REPORTED, Diagnostic, Phase, Source, Span
from omnigraph.lang.lexer import Kind, Token, decode_string, lex
from omnigraph.lang.types import I64_RANGE

SourceText: TypeAlias = Annotated[Source | str, UNCHECKED]
"""A text, or a ``Source``: a text with a name for messages."""

MAX_NESTING = 64
_MAX_DIGITS = 400


_NOTHING = Token(Kind.EOF, "", 0, 0)


def as_source(source: SourceText, name: str) -> Source:
    """A text with a display name; a ``Source`` is returned unchanged."""
    if isinstance(source, str):
        return Source(name, source)
    if not isinstance(source, Source):
        raise InputError(f"source must be text or a Source, not {type(source).__name__}")
    for value in (source.name, source.text):
        if not isinstance(value, str):
            raise InputError(f"a Source must have text, not {type(value).__name__}")
    return source


class ParseFailure(Exception):
    """The current construct cannot be parsed; its diagnostic is already recorded."""


class Parser:
    """A cursor over the tokens of one source."""

    def __init__(self, source: Source) -> None:
        lexed = lex(source)
        self.source = source
        self.comments = lexed.comments
        self.diagnostics: list[Diagnostic] = lexed.diagnostics
        self._unreadable = [diagnostic.span.start for diagnostic in lexed.diagnostics]
        self._tokens = lexed.tokens
        self._index = 0
        self._nesting = 0
        self.token = self._tokens[0]

    # -- lookahead -----------------------------------------------------------------------

    def ahead(self, distance: int = 1) -> Token:
        """The token ``distance`` tokens after the current one."""
        index = min(self._index + distance, len(self._tokens) - 1)
        return self._tokens[index]

    def at(self, text: str) -> bool:
        """Whether the current token is this punctuation or word."""
        return self.token.text == text and self.token.kind is not Kind.STRING

    def at_kind(self, kind: Kind) -> bool:
        return self.token.kind is kind

    # -- moving --------------------------------------------------------------------------

    def advance(self) -> Token:
        """Consume and return the current token; the end of the file is never passed."""
        token = self.token
        if token.kind is not Kind.EOF:
            self._index += 1
            self.token = self._tokens[self._index]
        return token

    def accept(self, text: str) -> Token | None:
        """Consume the current token if it is this punctuation or word."""
        return self.advance() if self.at(text) else None

    def expect(self, text: str, context: str) -> Token:
        """Consume this punctuation or word, or fail; ``context`` says where it was expected."""
        if self.at(text):
            return self.advance()
        raise self.unexpected(f"`{text}`", context)

    def expect_kind(self, kind: Kind, what: str, context: str) -> Token:
        if self.token.kind is kind:
            return self.advance()
        raise self.unexpected(what, context)

    def accept_word(self, word: str) -> Token | None:
        """Consume a keyword, also without a separator after it.

        The languages need no boundary after a keyword: ``nodePerson`` is read as ``node Person``.
        Only call this where nothing but the keyword is allowed.
        """
        token = self.token
        rest = token.text[len(word) :]
        # The rest of the word must be a token of its own: a name or a whole number.
        is_token = bool(rest) and (not rest[0].isdigit() or rest.isdigit())
        if token.kind is Kind.IDENT and token.text.startswith(word) and is_token:
            middle = token.start + len(word)
            kind = Kind.INT if rest.isdigit() else Kind.TYPE if rest[0].isupper() else Kind.IDENT
            self._tokens[self._index] = self.token = Token(kind, rest, middle, token.end)
            return Token(Kind.IDENT, word, token.start, middle)
        return self.accept(word) if token.kind is Kind.IDENT else None

    def rescan(self, end: int) -> None:
        """Continue at character ``end``, after text that is not a token.

        A token that spans ``end`` is split, and parsing continues with its rest.
        """
        while self.token.kind is not Kind.EOF and self.token.end <= end:
            self.advance()
        token = self.token
        if token.start < end:
            cut = Token(token.kind, self.source.text[end : token.end], end, token.end)
            self._tokens[self._index] = self.token = cut

    def save(self) -> int:
        """The index of the current token, to detect whether the cursor moved."""
        return self._index

    # -- values --------------------------------------------------------------------------

    def string(self, context: str) -> str:
        token = self.expect_kind(Kind.STRING, "a string", context)
        return decode_string(self.source, token, self.diagnostics)

    def integer_value(self, token: Token, bounds: tuple[int, int] = I64_RANGE) -> int:
        """The value of an integer token; one out of bounds is reported and clamped."""
        low, high = bounds
        if len(token.text) <= _MAX_DIGITS:
            value = int(token.text)
            if low <= value <= high:
                return value
        message = f"integer {_short(token.text)} is out of range ({low} to {high})"
        self.report("P005", message, token.span)
        return high

    # -- reporting -----------------------------------------------------------------------

    def report(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        self.diagnostics.append(Diagnostic(Phase.PARSE, code, message, self.source, span, hint))

    def fail(self, code: str, message: str, span: Span, hint: str | None = None) -> ParseFailure:
        """Report, and return the exception to raise."""
        self.report(code, message, span, hint)
        return ParseFailure()

    def unexpected(self, wanted: str, context: str, hint: str | None = None) -> ParseFailure:
        """Report an unexpected token.

        Silent directly after unreadable text, which is the cause and already reported.
        """
        token = self.token
        if self.after_unreadable():
            return ParseFailure()
        for before in (self.before(), token):
            if before.kind is Kind.STRING and "\n" in before.text:
                # A string over several lines most likely lacks its closing quote.
                lines = before.text.count("\n") + 1
                first = Span(before.start, before.start + before.text.index("\n"))
                message = f"this string runs over {lines} lines"
                return self.fail("P002", message, first, "is its closing quote missing?")
        actual = "the end of the file" if token.kind is Kind.EOF else f"`{_short(token.text)}`"
        return self.fail("P010", f"expected {wanted} {context}, found {actual}", token.span, hint)

    def after_unreadable(self) -> bool:
        """Whether there is unreadable text between the previous token and the current one."""
        return self.unreadable_since(self.previous_end())

    def unreadable_since(self, offset: int) -> bool:
        """Whether there is unreadable text between an offset and the current token."""
        return any(offset <= start <= self.token.start for start in self._unreadable)

    @property
    def too_many(self) -> bool:
        """Whether the limit of reported errors is reached."""
        return len(self.diagnostics) >= MAX_REPORTED

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Count one level of nesting, so that no text can exhaust the stack."""
        if self._nesting >= MAX_NESTING:
            raise self.fail(
                "P006",
                f"nested more than {MAX_NESTING} levels deep",
                self.token.span,
                "split the expression or the query",
            )
        self._nesting += 1
        try:
            yield
        finally:
            self._nesting -= 1

    # -- positions -----------------------------------------------------------------------

    def before(self) -> Token:
        """The token before the current one; at the start, an empty one."""
        return self._tokens[self._index - 1] if self._index else _NOTHING

    def previous_end(self) -> int:
        """The end of the token before the current one."""
        return self._tokens[self._index - 1].end if self._index else 0

    def since(self, start: int) -> Span:
        """From an offset to the end of the token before the current one."""
        end = self._tokens[self._index - 1].end if self._index else 0
        return Span(start, end if end > start else start)


def _short(text: str) -> str:
    shown = text if len(text) <= 40 else text[:39] + "…"
    return "".join(char if char.isprintable() else "�" for char in shown)
