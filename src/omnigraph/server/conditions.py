"""Conditional and range requests: ``If-Match``, ``If-None-Match``, ``If-Range`` and ``Range``.

The rules are those of RFC 9110, sections 13 and 14. All tags here are strong. What a server may
ignore, it ignores: ranges of another unit, malformed ranges, and several ranges at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from omnigraph.records import dataclass
from omnigraph.server.calls import RequestHeaders
from omnigraph.server.errors import RequestRefused

_TAG = re.compile(r'(W/)?"([\x21\x23-\x7e]*)"')
_RANGE = re.compile(r"bytes=[ \t]*(\d*)-(\d*)[ \t]*", re.IGNORECASE)
_MOST_DIGITS = 18
"""A position with more digits is beyond the end of everything."""


@dataclass(frozen=True, slots=True)
class TagList:
    """The value of ``If-Match`` or ``If-None-Match``."""

    is_any: bool
    """Whether it is ``*``: whatever there is."""
    strong: frozenset[str]
    """The strong tags, without their quotes."""
    weak: frozenset[str]

    def matches(self, tag: str, *, weakly: bool) -> bool:
        """Whether a strong tag is in the list; a weak one of the list only counts weakly."""
        return self.is_any or tag in self.strong or (weakly and tag in self.weak)


def tag_list(headers: RequestHeaders, name: str) -> TagList | None:
    """The tags of a header; ``None`` if the request does not have it.

    >>> tag_list(RequestHeaders([(b"if-match", b'"a", W/"b"')]), "if-match")
    TagList(is_any=False, strong=frozenset({'a'}), weak=frozenset({'b'}))
    """
    given = headers.all(name)
    if not given:
        return None
    text = b",".join(given).decode("latin-1").strip()
    if text == "*":
        return TagList(True, frozenset(), frozenset())
    strong: set[str] = set()
    weak: set[str] = set()
    position = 0
    while position < len(text):
        if text[position] in " \t,":
            position += 1
            continue
        match = _TAG.match(text, position)
        if match is None or text[match.end() : match.end() + 1] not in ("", " ", "\t", ","):
            raise _malformed(name)
        (weak if match[1] else strong).add(match[2])
        position = match.end()
    if not strong and not weak:
        raise _malformed(name)
    return TagList(False, frozenset(strong), frozenset(weak))


def _malformed(name: str) -> RequestRefused:
    return RequestRefused(
        400,
        "bad_header",
        f"header '{name}' is not a list of entity tags",
        hint='write tags in quotes, as in "8f43", separated by commas, or one *',
    )


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A part of a body: the bytes from ``start`` up to, but not including, ``end``."""

    start: int
    end: int
    size: int

    @property
    def content_range(self) -> str:
        """The value of ``Content-Range``."""
        return f"bytes {self.start}-{self.end - 1}/{self.size}"


def byte_range(headers: RequestHeaders, tag: str, size: int) -> ByteRange | None:
    """The range that a request asks for; ``None`` for the whole.

    Raises ``RequestRefused`` (416) if the range is beyond the end.

    >>> byte_range(RequestHeaders([(b"range", b"bytes=-3")]), "t", 10)
    ByteRange(start=7, end=10, size=10)
    """
    text = headers.one("range")
    match = None if text is None else _RANGE.fullmatch(text)
    if match is None or not _is_current(headers, tag):
        return None
    first, last = match[1], match[2]
    if not first and not last:
        return None
    if not first:
        length = min(_number(last), size)
        if not length and _number(last):
            # The last bytes of nothing: the whole is as empty.
            return None
        return _satisfiable(size - length, size, size)
    start = _number(first)
    if last and _number(last) < start:
        return None
    return _satisfiable(start, min(_number(last) + 1, size) if last else size, size)


def _satisfiable(start: int, end: int, size: int) -> ByteRange:
    if start >= size:
        raise RequestRefused(
            416,
            "range_not_satisfiable",
            f"the range is beyond the end: there are {size} bytes",
            headers=(("content-range", f"bytes */{size}"), ("accept-ranges", "bytes")),
        )
    return ByteRange(start, end, size)


def _number(digits: str) -> int:
    return 10**_MOST_DIGITS if len(digits) > _MOST_DIGITS else int(digits)


def _is_current(headers: RequestHeaders, tag: str) -> bool:
    """Whether the part that a client has is of this content; a date is no proof of that."""
    given = headers.one("if-range")
    return given is None or given == f'"{tag}"'


def quoted(tags: Iterable[str]) -> str:
    """Tags as the value of a header.

    >>> quoted(["a", "b"])
    '"a", "b"'
    """
    return ", ".join(f'"{tag}"' for tag in tags)
