"""Characters to tokens, for both languages.

The lexer never fails: unreadable text becomes a diagnostic and is skipped, so that a parser can
continue and report more. Comments are collected separately for the formatter. Words are not
classified as keywords: every keyword of both languages is contextual, so a property may be called
``type`` or ``from``.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple

from omnigraph.lang.diagnostics import Diagnostic, Phase, Source, Span
from omnigraph.records import dataclass


class Kind(IntEnum):
    """The kind of a token; ``PUNCT`` tokens differ by their text."""

    IDENT = 1
    TYPE = 2
    VAR = 3
    INT = 4
    FLOAT = 5
    STRING = 6
    PUNCT = 7
    EOF = 8


class Token(NamedTuple):
    """One token; ``text`` is the source text, quotes and ``$`` included."""

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def span(self) -> Span:
        return Span(self.start, self.end)


class Comment(NamedTuple):
    """One comment with its delimiters."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Lexed:
    """The tokens of a source, ended by ``EOF``, with its comments and unreadable spans."""

    source: Source
    tokens: list[Token]
    comments: list[Comment]
    diagnostics: list[Diagnostic]


_MASTER = re.compile(
    r"""
      (?P<SPACE>[ \t\r\n]+)
    | (?P<COMMENT>//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)
    | (?P<FOREIGN>(?:\#|(?<![\w-])--(?=[ \t\r\n]|$))[^\n]*)
    | (?P<IDENT>[a-z_][A-Za-z0-9_]*)
    | (?P<TYPE>[A-Z][A-Za-z0-9_]*)
    | (?P<VAR>\$[a-z_][A-Za-z0-9_]*)
    | (?P<FLOAT>[0-9]+\.[0-9]+)
    | (?P<INT>[0-9]+)
    | (?P<STRING>"(?:[^"\\]++|\\.)*+")
    | (?P<PUNCT>->|\.\.|>=|<=|!=|[{}()\[\]:,?@=<>.\-])
    """,
    re.VERBOSE | re.DOTALL,
)

# Used after an unterminated string was found: searching its end again and again would take
# quadratic time, so later strings must end on their line.
_ONE_LINE_STRINGS = _MASTER.pattern.replace(r'"(?:[^"\\]++|\\.)*+"', r'"(?:[^"\\\n]++|\\[^\n])*+"')

_KINDS: dict[str, Kind] = {kind.name: kind for kind in Kind if kind is not Kind.EOF}
# Quotes of strings in other languages, on one line: the opening and the closing quote.
_FOREIGN_QUOTES = {"'": "'", "`": "`", "‘": "’", "’": "’", "“": "”", "”": "”"}
_QUOTE_HINT = 'strings are written in double quotes: "text"'
_STRAY_HINTS = {
    **dict.fromkeys(_FOREIGN_QUOTES, _QUOTE_HINT),
    "\ufeff": "save the file as UTF-8 without a byte order mark",
    ";": "statements and properties need no separator",
    "!": "write `!=` for unequal and `not (…)` for negation",
    **dict.fromkeys("&|", "write `and` and `or`"),
    "*": "`count($v)` counts rows; there is no arithmetic yet",
    **dict.fromkeys("+/%", "there is no arithmetic yet"),
}


def lex(source: Source) -> Lexed:
    """Split a source into tokens.

    >>> [t.text for t in lex(Source("q", "$p knows $f // friends")).tokens]
    ['$p', 'knows', '$f', '']
    """
    text = source.text
    tokens: list[Token] = []
    comments: list[Comment] = []
    diagnostics: list[Diagnostic] = []
    match_at = _MASTER.match
    kinds = _KINDS
    make = tuple.__new__
    position, end = 0, len(text)
    while position < end:
        match = match_at(text, position)
        if match is None:
            if text[position] == '"':
                match_at = re.compile(_ONE_LINE_STRINGS, _MASTER.flags).match
            position = _unreadable(source, position, tokens, diagnostics)
            continue
        group = match.lastgroup
        after = match.end()
        if group == "SPACE":
            pass
        elif group == "COMMENT":
            comments.append(Comment(match.group(), position, after))
        elif group == "FOREIGN":
            mark = "#" if text[position] == "#" else "--"
            span, hint = Span(position, position + len(mark)), "comments start with `//`"
            message = f"unexpected `{mark}`"
            diagnostics.append(Diagnostic(Phase.PARSE, "P001", message, source, span, hint))
        else:
            assert group is not None
            tokens.append(make(Token, (kinds[group], match.group(), position, after)))
        position = after
    tokens.append(Token(Kind.EOF, "", end, end))
    return Lexed(source, tokens, comments, diagnostics)


def _unreadable(
    source: Source, position: int, tokens: list[Token], diagnostics: list[Diagnostic]
) -> int:
    """Report the text at ``position`` and return where to continue."""
    text = source.text
    char = text[position]
    hint: str | None = None
    closing = _closing_quote(text, position)
    if closing is not None:
        # Treated as the intended string, so that no follow-up errors are reported.
        span, message = Span(position, closing), f"unexpected character `{char}`"
        diagnostics.append(Diagnostic(Phase.PARSE, "P001", message, source, span, _QUOTE_HINT))
        tokens.append(Token(Kind.STRING, text[position:closing], position, closing))
        return closing
    if char == '"':
        line_end = text.find("\n", position)
        after = len(text) if line_end < 0 else line_end
        code, message = "P002", "this string is not closed"
        hint = 'close it with `"`; write a quote inside a string as `\\"`'
    elif text.startswith("/*", position):
        after = len(text)
        code, message = "P003", "this block comment is not closed"
        hint = "close it with `*/`; block comments do not nest"
    else:
        after = position + 1
        code, (message, hint) = "P001", _stray(char)
        while after < len(text) and text[after] == char:
            after += 1
    span = Span(position, min(after, position + 1) if code == "P003" else after)
    diagnostics.append(Diagnostic(Phase.PARSE, code, message, source, span, hint))
    return after


def _closing_quote(text: str, position: int) -> int | None:
    """The end of a string in foreign quotes, if it ends on its line."""
    partner = _FOREIGN_QUOTES.get(text[position])
    if partner is None:
        return None
    line_end = text.find("\n", position)
    end = text.find(partner, position + 1, len(text) if line_end < 0 else line_end)
    return None if end < 0 else end + 1


def _stray(char: str) -> tuple[str, str | None]:
    """The message and the hint for a character that belongs to no token."""
    if char == "$":
        hint = "variable names start with a lower-case letter or `_`, as in `$person`"
        return "`$` must be followed by a variable name", hint
    name = f"`{char}`" if char.isprintable() and not char.isspace() else f"U+{ord(char):04X}"
    stray = _STRAY_HINTS.get(char)
    if stray is None and char.isspace():
        stray = "only spaces, tabs and line ends are allowed between words"
    elif stray is None and char.isalpha():
        stray = "names are made of the letters a-z and A-Z, digits and `_`"
    return f"unexpected character {name}", stray


_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPES_HINT = 'the escapes are \\" \\\\ \\n \\r \\t'
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def decode_string(source: Source, token: Token, diagnostics: list[Diagnostic]) -> str:
    """The value of a string token; unknown escapes are reported and kept."""
    body = token.text[1:-1]
    if "\\" not in body:
        return body

    def replace(match: re.Match[str]) -> str:
        escaped = match.group(1)
        value = _ESCAPES.get(escaped)
        if value is None:
            at = token.start + 1 + match.start()
            shown = escaped if escaped.isprintable() else f"U+{ord(escaped):04X}"
            message, hint = f"unsupported escape sequence: \\{shown}", _ESCAPES_HINT
            span = Span(at, at + 2)
            diagnostics.append(Diagnostic(Phase.PARSE, "P004", message, source, span, hint))
            return match.group()
        return value

    return _ESCAPE.sub(replace, body)


def quote_string(value: str) -> str:
    """A string as a literal of the languages, the inverse of ``decode_string``.

    >>> quote_string('say "hi"')
    '"say \\\\"hi\\\\""'
    """
    out = value.replace("\\", "\\\\").replace('"', '\\"')
    out = out.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f'"{out}"'
