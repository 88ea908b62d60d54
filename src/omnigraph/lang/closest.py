"""Finds the name that a misspelt name was meant to be, and builds hints."""

from __future__ import annotations

from collections.abc import Iterable

# Every comparison takes time, and a hint chosen from thousands of names is useless.
_MAX_COMPARED = 500
_MAX_LISTED = 8


def closest(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The candidate most similar to a name, ignoring case; ``None`` if none is close.

    >>> closest("persn", ["Person", "Company"]), closest("x", ["Person"])
    ('Person', None)
    """
    folded = {word.lower(): word for word in sorted(candidates, reverse=True)}
    if len(folded) > _MAX_COMPARED:
        return None
    from difflib import get_close_matches

    matches = get_close_matches(name.lower(), list(folded), 1, cutoff)
    return folded[matches[0]] if matches else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """A hint with the candidate most similar to a name.

    >>> did_you_mean("Persn", ["Person", "Company"])
    'did you mean `Person`?'
    """
    close = closest(name, candidates)
    return f"did you mean `{close}`?" if close else None


def suggest(name: str, candidates: Iterable[str], show: str = "{}") -> str | None:
    """A hint naming the closest candidate, or the candidates if they are few."""
    names = list(candidates)
    close = closest(name, names)
    if close:
        return f"did you mean `{show.format(close)}`?"
    if 0 < len(names) <= _MAX_LISTED:
        return f"known: {', '.join(show.format(candidate) for candidate in names)}"
    return None
