"""Patterns of branch names: ``*`` within a segment, ``**`` across ``/``; the rest is literal."""

from __future__ import annotations

import re
from functools import cached_property

from omnigraph.records import dataclass

_STARS = re.compile(r"(\*+)")


@dataclass(frozen=True)
class BranchNames:
    """Names and patterns of branches.

    >>> names = BranchNames(("main", "release/*"))
    >>> [names.contain(name) for name in ("main", "release/1", "release/1/fix", "mainly")]
    [True, True, False, False]
    """

    names: tuple[str, ...] = ()

    @cached_property
    def _exact(self) -> frozenset[str]:
        return frozenset(name for name in self.names if "*" not in name)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        patterns = [_expression(name) for name in self.names if "*" in name]
        return re.compile("|".join(patterns), re.DOTALL) if patterns else None

    def contain(self, branch: str) -> bool:
        """Whether a branch is one of the names, or matches one of the patterns."""
        if branch in self._exact:
            return True
        return self._pattern is not None and self._pattern.fullmatch(branch) is not None


def _expression(pattern: str) -> str:
    return "".join(map(_piece, _STARS.split(pattern)))


def _piece(text: str) -> str:
    if text.startswith("*"):
        return "[^/]*" if text == "*" else ".*"
    return re.escape(text)
