"""What a merge records about where the merged commit came from.

The commits of a branch are deleted with it, while its merges stay. So a merge names the lines of
commits that it brought, each by its first commit and the version up to which it has it: enough to
see, when a branch is gone, that two other branches have merged the same or an earlier commit of it.
What main has merged is not named: its commits are never deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.commit.metadata import MERGE
from omnigraph.commit.rows import CommitRow


@dataclass(frozen=True, slots=True)
class Lineage:
    """The lines of commits that a merge brought."""

    line: str
    """The first commit of the branch that was merged."""
    lines: Mapping[str, int]
    """By the first commit of a branch, the manifest version of its newest commit."""

    def to_json(self) -> dict[str, Any]:
        return {"line": self.line, "lines": dict(sorted(self.lines.items()))}


def lineage_of(row: CommitRow) -> Lineage | None:
    """What a merge commit says about it; none when another program made it."""
    if row.merged_parent is None:
        return None
    told = row.extra.get(MERGE)
    try:
        lines = {str(line): int(version) for line, version in told["lines"].items()}  # type: ignore[index]
        line = str(told["line"])  # type: ignore[index]
    except (TypeError, KeyError, AttributeError, ValueError):
        return None
    return Lineage(line, lines) if line in lines else None
