"""What a write tells its caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.storage.table_types import StagedTable


@dataclass(frozen=True, slots=True)
class TableCounts:
    """How many rows of one table a write changed."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def affected(self) -> int:
        return self.inserted + self.updated + self.deleted

    @staticmethod
    def of(steps: Iterable[StagedTable]) -> TableCounts:
        """The sum over the steps of a write to one table."""
        known = tuple(steps)
        return TableCounts(
            sum(step.inserted for step in known),
            sum(step.updated for step in known),
            sum(step.deleted for step in known),
        )


@dataclass(frozen=True, slots=True)
class Receipt:
    """The commit that a write made. ``version`` is the version of the graph on its branch."""

    commit_id: str
    version: int
    branch: str
    tables: Mapping[str, TableCounts]
    actor: str | None = None

    @property
    def affected_nodes(self) -> int:
        return self._affected("node:")

    @property
    def affected_edges(self) -> int:
        return self._affected("edge:")

    def _affected(self, prefix: str) -> int:
        return sum(counts.affected for key, counts in self.tables.items() if key.startswith(prefix))

    def to_json(self) -> dict[str, Any]:
        """Plain data in a fixed order."""
        return {
            "commit_id": self.commit_id,
            "version": self.version,
            "branch": self.branch,
            "actor": self.actor,
            "affected_nodes": self.affected_nodes,
            "affected_edges": self.affected_edges,
            "tables": {
                key: {
                    "inserted": counts.inserted,
                    "updated": counts.updated,
                    "deleted": counts.deleted,
                }
                for key, counts in sorted(self.tables.items())
            },
        }
