"""What a misspelt name was meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

# Comparing takes time for every name; a hint out of thousands is of no use.
_MAX_COMPARED = 500


def closest(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The candidate most similar to a name, in any casing; none if none is close.

    >>> closest("persn", ["Person", "Company"]), closest("x", ["Person"])
    ('Person', None)
    """
    folded = {word.lower(): word for word in sorted(candidates, reverse=True)}
    if len(folded) > _MAX_COMPARED:
        return None
    matches = get_close_matches(name.lower(), list(folded), 1, cutoff)
    return folded[matches[0]] if matches else None
