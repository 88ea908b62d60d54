"""Escapes text from outside (values, names, file names) for terminals and logs.

A control character in a value can clear a screen, set a title or forge a line; a bidirectional
control can reorder the displayed text. They are escaped where text is shown, never where it is
stored or passed to a program.
"""

from __future__ import annotations

import re

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

# C0, DEL and C1; the marks and embeddings of bidirectional text; the line and paragraph separators;
# lone surrogates, which cannot be encoded.
# None of them is printable, which is faster to ask, and needs no pattern to be compiled.
_UNSAFE = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"


def escape(text: str, keep: str = "") -> str:
    r"""A text in one line, with every control character escaped except for those to ``keep``.

    >>> print(escape("a\x1b[2Jb\nc"))
    a\x1b[2Jb\nc
    >>> escape("a\tb\x07", keep="\t") == "a\tb\\x07"
    True
    """
    if text.isprintable():
        return text
    return re.sub(_UNSAFE, lambda match: match[0] if match[0] in keep else _spelled(match[0]), text)


def has_controls(text: str) -> bool:
    """Whether ``escape`` would change a text."""
    return not text.isprintable() and re.search(_UNSAFE, text) is not None


def escape_json(text: str) -> str:
    r"""A JSON document with the same meaning, in which no control character is raw.

    Line ends are kept: they can only be layout, since JSON strings contain none.

    >>> print(escape_json('"\x9b"'))
    "\u009b"
    """
    if text.isprintable():
        return text
    return re.sub(
        _UNSAFE,
        lambda match: match[0] if match[0] in "\r\n\t" else f"\\u{ord(match[0]):04x}",
        text,
    )


def _spelled(char: str) -> str:
    if char in _NAMED:
        return _NAMED[char]
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"
