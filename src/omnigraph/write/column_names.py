"""The names of the columns of a file or table."""

from __future__ import annotations

from collections.abc import Iterable


def first_repeated(names: Iterable[str]) -> str | None:
    """The first name that was there before, however many there are.

    >>> first_repeated(["a", "b", "b", "a"]), first_repeated(["a"])
    ('b', None)
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
