"""Hints for habits from other query languages.

The parser reports what it expected; these hints name what was probably meant.
"""

from __future__ import annotations

from omnigraph.lang.lexer import Kind, Token

_KEYWORDS = frozenset(
    {
        "and",
        "as",
        "asc",
        "contains",
        "delete",
        "desc",
        "distinct",
        "false",
        "in",
        "insert",
        "is",
        "limit",
        "match",
        "not",
        "null",
        "offset",
        "or",
        "order",
        "query",
        "return",
        "set",
        "starts_with",
        "true",
        "update",
        "where",
    }
)
# Operators of other languages, and what to write instead.
FOREIGN_WORDS = {
    "like": "write `contains` for a part of a text, `starts_with` for its start",
    "between": "write `$p.x >= low and $p.x <= high`",
    "matches": "write `contains`, or `search` for words",
    "equals": "write `=`",
}
_BLOCKS = ("match", "return", "order")
# (token before, token) -> hint; glued together they are an operator somewhere else
_FOREIGN_OPERATORS = {
    ("=", "="): "equality is written `=`",
    ("<", ">"): "unequal is written `!=`",
    ("=", ">"): "greater or equal is written `>=`",
    ("=", "<"): "less or equal is written `<=`",
}


def advice(before: Token, token: Token) -> str | None:
    """A hint for an unexpected token, from it and the one before it."""
    text = token.text
    if token.kind is Kind.TYPE:
        if text.lower() in _KEYWORDS:
            return f"keywords are lower-case: `{text.lower()}`"
        return 'type names are not values; a text is written in quotes: "…"'
    if token.kind is Kind.PUNCT and before.end == token.start:
        foreign = _FOREIGN_OPERATORS.get((before.text, text))
        if foreign is not None:
            return foreign
    if before.kind is Kind.IDENT and before.text in _BLOCKS:
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
