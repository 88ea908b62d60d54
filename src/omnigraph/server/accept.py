"""The header ``Accept``: which of several content types a client wants, as RFC 9110 says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from omnigraph.server.calls import RequestHeaders
from omnigraph.server.errors import RequestRefused

_WEIGHT = re.compile(r"(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")
# Commas and semicolons inside of quotes separate nothing.
_ELEMENT = re.compile(r'(?:[^,"]|"(?:\\.|[^"\\])*")+')
_PARAMETER = re.compile(r'(?:[^;"]|"(?:\\.|[^"\\])*")+')


class _AcceptedRange(NamedTuple):
    """One element of the header."""

    kind: str
    subtype: str
    weight: float

    def rank(self, offered: str) -> int:
        """How specifically it names a type: 2, 1 with any subtype, 0 for any type, -1 if not."""
        kind, _, subtype = offered.partition("/")
        if (self.kind, self.subtype) == ("*", "*"):
            return 0
        if self.kind != kind:
            return -1
        return 1 if self.subtype == "*" else 2 if self.subtype == subtype else -1


def accepted_type(headers: RequestHeaders, offered: Sequence[str]) -> str:
    """The type of the response; the first one offered if the client does not care.

    The weight of the most specific range counts. Of equally wanted types the one that is named
    more specifically is chosen, then the one that is offered first. Parameters of a type are
    ignored. Raises a refusal with the status 406.

    >>> headers = RequestHeaders([(b"accept", b"text/html, application/*;q=0.5, */*;q=0.1")])
    >>> accepted_type(headers, ["text/plain", "application/json"])
    'application/json'
    """
    given = headers.all("accept")
    if not given:
        return offered[0]
    if len(given) == 1 and (name := given[0].decode("latin-1")) in offered:
        # As most clients write it.
        return name
    text = b",".join(given).decode("latin-1").lower()
    ranges = [parsed for element in _ELEMENT.findall(text) if (parsed := _parsed(element))]
    if not text.replace(",", "").strip():
        return offered[0]
    best, chosen = (0.0, -1), None
    for name in offered:
        rank, weight = max(((r.rank(name), r.weight) for r in ranges), default=(-1, 0.0))
        if rank >= 0 and weight > 0 and (weight, rank) > best:
            best, chosen = (weight, rank), name
    if chosen is None:
        raise RequestRefused(
            406,
            "not_acceptable",
            "the client accepts none of the content types of the response",
            hint=f"accept one of {', '.join(offered)}",
        )
    return chosen


def _parsed(element: str) -> _AcceptedRange | None:
    """A range; ``None`` if it is not a valid one, which is ignored."""
    name, *parameters = (part.strip() for part in _PARAMETER.findall(element))
    kind, slash, subtype = name.partition("/")
    if not slash or not kind or not subtype or (kind == "*" and subtype != "*"):
        return None
    weight = "1"
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() == "q":
            weight = value.strip()
    return _AcceptedRange(kind, subtype, float(weight)) if _WEIGHT.fullmatch(weight) else None
