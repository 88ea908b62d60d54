"""What a misspelt name was meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# Comparing takes time for every name; nobody reads a hint out of thousands.
_MAX_COMPARED = 500


def closest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that looks most like this one, in any casing; none if none is close.

    >>> closest("persn", ["Person", "Company"]), closest("x", ["Person"])
    ('Person', None)
    """
    folded = {word.lower(): word for word in sorted(known, reverse=True)}
    if len(folded) > _MAX_COMPARED:
        return None
    found = get_close_matches(name.lower(), list(folded), 1, cutoff)
    return folded[found[0]] if found else None
