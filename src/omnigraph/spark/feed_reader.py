"""The change feed as a stream of Spark: one partition for each commit.

Where a stream is, is a cursor of the feed; Spark keeps it in its checkpoint. Between two cursors
there are always the same changes, so a batch that is read again is the same batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from omnigraph.commit.history import Commit
from omnigraph.commit.names import normal_branch
from omnigraph.merge.conflicts import as_json
from omnigraph.merge.diff import ChangeFilter
from omnigraph.merge.feed import BEGINNING, Cursor, Feed
from omnigraph.spark.opening import opened

COLUMNS = (
    "commit_id string, version long, created_at timestamp, actor string, table_key string, "
    "kind string, type_name string, id string, op string, before string, after string"
)
_SCHEMA = pa.schema(
    [
        ("commit_id", pa.string()),
        ("version", pa.int64()),
        ("created_at", pa.timestamp("us", tz="UTC")),
        ("actor", pa.string()),
        *((name, pa.string()) for name in ("table_key", "kind", "type_name", "id", "op")),
        ("before", pa.string()),
        ("after", pa.string()),
    ]
)
_ROWS = 4_096
_CURSOR = "cursor"

Place = dict[str, str]
"""Where a stream is, as Spark keeps it."""


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """What of which feed is read. Made to be sent to other processes."""

    uri: str
    branch: str = "main"
    start: str = BEGINNING
    kinds: tuple[str, ...] | None = None
    types: tuple[str, ...] | None = None
    ops: tuple[str, ...] | None = None
    max_commits: int | None = None
    """How many commits are one batch at most."""
    storage: Mapping[str, str] | None = field(default=None, repr=False)

    def first(self) -> Place:
        return _place(self._feed().start(self.start))

    def latest(self, start: Place) -> Place:
        """How far a batch goes that begins at a place."""
        feed, cursor = self._feed(), _cursor(start)
        behind = feed.behind(cursor)
        if self.max_commits is not None:
            behind = behind[: self.max_commits]
        return _place(Cursor(cursor.branch, behind[-1].commit_id)) if behind else start

    def commits(self, start: Place, end: Place) -> list[str]:
        """The commits of a batch."""
        last = _cursor(end).commit
        found: list[str] = []
        for row in self._feed().behind(_cursor(start)):
            if found and found[-1] == last:
                break
            found.append(row.commit_id)
        return [] if start == end else found

    def read(self, commit_id: str) -> Iterator[pa.RecordBatch]:
        """The changes of one commit."""
        feed = self._feed()
        row, pieces = feed.told(commit_id, _ROWS)
        commit = Commit.of(row)
        for changes in pieces:
            rows: list[dict[str, Any]] = [
                {
                    **change.to_json(),
                    "commit_id": commit.commit_id,
                    "version": commit.version,
                    "created_at": commit.created_at,
                    "actor": commit.actor,
                    "before": None if change.before is None else as_json(change.before),
                    "after": None if change.after is None else as_json(change.after),
                }
                for change in changes
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)

    def _feed(self) -> Feed:
        here = opened(self.uri, self.storage)
        wanted = ChangeFilter.of(here.catalog, self.kinds, self.types, self.ops)
        return Feed(here.store, here.catalog_at, normal_branch(self.branch), wanted)


def _place(cursor: Cursor) -> Place:
    return {_CURSOR: cursor.text()}


def _cursor(place: Place | str) -> Cursor:
    known = json.loads(place) if isinstance(place, str) else place
    return Cursor.parse(known[_CURSOR])
