"""The change feed as a Spark stream: one partition per commit.

The offset of a stream is a cursor of the feed; Spark keeps it in its checkpoint. The changes
between two cursors never change, so a repeated batch is the same batch. Spark does not order rows:
``position`` numbers those of a commit, schema events first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

import pyarrow as pa

from omnigraph.commit.history import commit_of
from omnigraph.commit.names import normal_branch
from omnigraph.merge.change_filter import ChangeFilter
from omnigraph.merge.cursor import Cursor
from omnigraph.merge.diff import plain_rows
from omnigraph.merge.feed import BEGINNING, Feed
from omnigraph.records import dataclass
from omnigraph.spark.session.opening import opened

COLUMNS = (
    "commit_id string, version long, created_at timestamp, actor string, position long, "
    "table_key string, kind string, type_name string, id string, op string, before string, "
    "after string, schema_event string"
)
_SCHEMA = pa.schema(
    [
        ("commit_id", pa.string()),
        ("version", pa.int64()),
        ("created_at", pa.timestamp("us", tz="UTC")),
        ("actor", pa.string()),
        ("position", pa.int64()),
        *((name, pa.string()) for name in ("table_key", "kind", "type_name", "id", "op")),
        ("before", pa.string()),
        ("after", pa.string()),
        ("schema_event", pa.string()),
    ]
)
_ROWS = 4_096
_CURSOR = "cursor"

StreamOffset = dict[str, str]
"""The position of a stream, as Spark stores it."""


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """The parameters of a feed. Pickled for other processes."""

    uri: str
    branch: str = "main"
    start: str = BEGINNING
    kinds: tuple[str, ...] | None = None
    types: tuple[str, ...] | None = None
    ops: tuple[str, ...] | None = None
    max_commits: int | None = None
    """The maximum number of commits in one batch."""
    storage: Mapping[str, str] | None = field(default=None, repr=False)

    def first(self) -> StreamOffset:
        return _offset(self._feed().start(self.start))

    def latest(self, start: StreamOffset) -> StreamOffset:
        """The end of the batch that begins at an offset."""
        behind = self._feed().after(_cursor(start))
        if self.max_commits is not None:
            behind = behind[: self.max_commits]
        return _offset(behind[-1]) if behind else start

    def commits(self, start: StreamOffset, end: StreamOffset) -> list[str]:
        """The commits of a batch, each as the cursor after it."""
        last = _cursor(end).commit
        cursors: list[str] = []
        if start == end:
            return cursors
        for cursor in self._feed().after(_cursor(start)):
            cursors.append(cursor.text())
            if cursor.commit == last:
                break
        return cursors

    def read(self, end: str) -> Iterator[pa.RecordBatch]:
        """The events and changes of one commit."""
        row, pieces = self._feed().slices(Cursor.parse(end), _ROWS)
        commit = commit_of(row)
        for start, events, changes in pieces:
            rows: list[dict[str, Any]] = [
                {
                    **plain,
                    "commit_id": commit.commit_id,
                    "version": commit.version,
                    "created_at": commit.created_at,
                    "actor": commit.actor,
                    "position": start + number,
                }
                for number, plain in enumerate(plain_rows(events, changes))
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)

    def _feed(self) -> Feed:
        here = opened(self.uri, self.storage)
        wanted = ChangeFilter.of(self.kinds, self.types, self.ops)
        return Feed(here.store, here.schema_at, normal_branch(self.branch), wanted)


def _offset(cursor: Cursor) -> StreamOffset:
    return {_CURSOR: cursor.text()}


def _cursor(offset: StreamOffset | str) -> Cursor:
    parsed = json.loads(offset) if isinstance(offset, str) else offset
    return Cursor.parse(parsed[_CURSOR])
