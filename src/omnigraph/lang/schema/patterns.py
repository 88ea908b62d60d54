"""The regular expressions of ``@check``.

Arrow's engine matches a whole column in linear time and, like the reference, supports neither
look-around nor back references. But its ``\\d``, ``\\w`` and ``\\s`` are ASCII classes, while those
of the reference are Unicode classes: they are replaced before Arrow compiles a pattern.

Import this module only where there is a pattern: it loads pyarrow.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

_DIGIT, _NO_DIGIT = r"\p{Nd}", r"\P{Nd}"
_WORD = r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}"
_NO_WORD = r"\p{C}\p{Z}\p{S}\p{No}\p{Pd}\p{Ps}\p{Pe}\p{Pi}\p{Pf}\p{Po}"
_SPACE = r"\t-\r\x{85}\p{Z}"
_NO_SPACE = (
    r"\x00-\x08\x0e-\x1f\x21-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}"
    r"\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}"
)
_OUTSIDE = {
    "d": _DIGIT,
    "D": _NO_DIGIT,
    "w": f"[{_WORD}]",
    "W": f"[^{_WORD}]",
    "s": f"[{_SPACE}]",
    "S": f"[^{_SPACE}]",
}
_INSIDE = {"d": _DIGIT, "D": _NO_DIGIT, "w": _WORD, "W": _NO_WORD, "s": _SPACE, "S": _NO_SPACE}


class BadPattern(ValueError):
    """A pattern that is not a valid regular expression of this dialect."""


def matches(column: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    """Whether each text of a column matches a pattern; null for null."""
    try:
        return pc.match_substring_regex(column, spelled_out(pattern))
    except pa.ArrowInvalid:
        raise BadPattern(pattern) from None


def is_pattern(text: str) -> bool:
    r"""Whether a text is a valid regular expression of this dialect.

    >>> is_pattern(r"^\p{Lu}\d+$"), is_pattern("a("), is_pattern("(?=a)b")
    (True, False, False)
    """
    try:
        matches(pa.chunked_array([[""]]), text)
    except BadPattern:
        return False
    return True


@lru_cache(maxsize=256)
def spelled_out(pattern: str) -> str:
    r"""A pattern with its classes replaced by those of Unicode.

    >>> spelled_out(r"^\d+[\d.]$")
    '^\\p{Nd}+[\\p{Nd}.]$'
    """
    made: list[str] = []
    position, is_inside = 0, False
    while position < len(pattern):
        size = 1
        character = pattern[position]
        if character == "\\":
            size = 2
            escapes = _INSIDE if is_inside else _OUTSIDE
            made.append(escapes.get(pattern[position + 1 : position + 2], pattern[position:][:2]))
        else:
            if is_inside and pattern.startswith("[:", position):
                size = max(1, pattern.find(":]", position) + 2 - position)
            elif is_inside:
                is_inside = character != "]"
            elif character == "[":
                is_inside = True
                # As the first character, a closing bracket is an ordinary character.
                size = len("[") + pattern.startswith("^", position + 1)
                size += pattern.startswith("]", position + size)
            made.append(pattern[position : position + size])
        position += size
    return "".join(made)
