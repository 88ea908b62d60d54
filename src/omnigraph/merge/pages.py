"""Pages of the change feed, and the content of a commit of which they show a part."""

from __future__ import annotations

from typing import Any

from omnigraph.commit.commits import Commit
from omnigraph.commit.metadata import SchemaEvent
from omnigraph.lang.schema.catalog import EntityType
from omnigraph.merge.change_filter import ChangeFilter
from omnigraph.merge.changes import TableChanges
from omnigraph.merge.diff import Change, changes_of, counts_of
from omnigraph.records import dataclass
from omnigraph.representation import brief

CommitSlice = tuple[int, tuple[SchemaEvent, ...], list[Change]]
"""A part of a commit: its offset, its events and its changes."""


@dataclass(frozen=True, slots=True)
class ChangeBlock:
    """The changes of one commit since its predecessor on the branch, or a part of them."""

    commit: Commit
    changes: tuple[Change, ...]
    is_complete: bool = True
    """Whether these are the last changes of the commit."""
    schema_events: tuple[SchemaEvent, ...] = ()
    """The schema changes of the commit, before its changes of rows."""
    cursor: str = ""
    """The position after this block."""

    def to_json(self) -> dict[str, Any]:
        names = ("commit_id", "branch", "version", "created_at", "actor")
        return {
            **{name: getattr(self.commit, name) for name in names},
            "schema_events": [event.to_json() for event in self.schema_events],
            "changes": [change.to_json() for change in self.changes],
            "is_complete": self.is_complete,
        }


@dataclass(frozen=True, slots=True)
class ChangePage:
    """A page of the feed, and the cursor of the next."""

    __repr__ = brief

    blocks: tuple[ChangeBlock, ...]
    cursor: str
    caught_up: bool
    """Whether there were no further changes when the page was read."""

    @property
    def changes(self) -> tuple[Change, ...]:
        return tuple(change for block in self.blocks for change in block.changes)

    @property
    def schema_events(self) -> tuple[SchemaEvent, ...]:
        return tuple(event for block in self.blocks for event in block.schema_events)


@dataclass(frozen=True, slots=True)
class CommitContent:
    """The wanted content of a commit, in order: schema events, then changes by type."""

    events: tuple[SchemaEvent, ...]
    tables: tuple[tuple[EntityType, TableChanges], ...]
    wanted: ChangeFilter

    @property
    def size(self) -> int:
        counts = (counts_of(changes, self.wanted).affected for _, changes in self.tables)
        return len(self.events) + sum(counts)

    def some(self, offset: int, most: int) -> tuple[tuple[SchemaEvent, ...], list[Change]]:
        """At most ``most`` events and changes from an offset on."""
        events = self.events[offset : offset + most]
        offset, most = max(0, offset - len(self.events)), most - len(events)
        changes: list[Change] = []
        for entity_type, rows in self.tables:
            size = counts_of(rows, self.wanted).affected
            if offset < size and len(changes) < most:
                changes += changes_of(entity_type, rows, self.wanted, offset, most - len(changes))
            offset = max(0, offset - size)
        return events, changes
