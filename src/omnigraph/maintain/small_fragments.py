"""Compaction of small fragments that no index covers: the tail that many small commits leave.

Every commit of a few rows adds a fragment, and every lookup by key reads all fragments that the
index does not cover, so commits become slower. Fragments are merged in tiers: sixteen of one tier
become one, which belongs to the next tier once it has enough rows. So few are left at any time, and
a row is rewritten about twenty times at most, while it is among few. Fragments that an index
covers, and large ones, are left to ``optimize``.

The rows stay the same, so the new versions of the tables are published without a commit: the head
of the branch, its feed and its history do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from omnigraph.commit.failpoints import Failpoint, reached
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.rows import WriterKind
from omnigraph.commit.snapshot import Pin
from omnigraph.commit.staging import staging_marker
from omnigraph.commit.store import GraphStore
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.errors import OmniGraphError
from omnigraph.records import dataclass
from omnigraph.storage.tables.compaction import (
    CompactionResult,
    compact,
    compaction_split,
    discard_compaction,
    stage_before_indexes,
)
from omnigraph.storage.tables.fragments import locate_table
from omnigraph.storage.tables.segments import segments_of
from omnigraph.storage.tables.store import ROWS_PER_FRAGMENT
from omnigraph.storage.tables.table import FragmentInfo, Table
from omnigraph.storage.tables.wide_columns import is_stored_blob

TIER = 16
"""So many fragments of one tier become one."""
TIER_ROWS = (256, 4_096)
"""Fragments of one tier have fewer rows than this; a fragment of the last number is not small."""
MAX_BYTES = 64 << 20
"""One run rewrites at most so many bytes, and ``ROWS_PER_FRAGMENT`` rows."""
NEWEST = 128
"""One run looks at so many fragments."""
LEASE_SECONDS = 5.0
"""How long a run waits for the writers of its table."""


def tier_of(fragment: FragmentInfo) -> int | None:
    """The tier of a small fragment; ``None`` for any other.

    >>> [tier_of(FragmentInfo(0, "", rows)) for rows in (1, 255, 256, 4095, 4096)]
    [0, 0, 1, 1, None]
    """
    if fragment.size > MAX_BYTES // TIER:
        return None
    return next((tier for tier, rows in enumerate(TIER_ROWS) if fragment.rows < rows), None)


def fragments_to_merge(fragments: Sequence[FragmentInfo]) -> tuple[FragmentInfo, ...]:
    """The fragments that become one, oldest first; none if no tier is full.

    The result of a full tier counts as a fragment of the next.

    >>> rows = [300] * 15 + [1] * 16
    >>> small = [FragmentInfo(number, "", rows) for number, rows in enumerate(rows)]
    >>> len(fragments_to_merge(small)), fragments_to_merge(small[:-1])
    (31, ())
    """
    group: list[FragmentInfo] = []
    for tier in range(len(TIER_ROWS)):
        peers = [fragment for fragment in fragments if tier_of(fragment) == tier]
        if len(peers) + bool(group) >= TIER:
            group += peers
        elif group:
            break
    rows = size = 0
    merged = []
    for fragment in sorted(group, key=lambda fragment: fragment.number):
        rows += fragment.rows
        size += fragment.size
        if rows > ROWS_PER_FRAGMENT or size > MAX_BYTES:
            break
        merged.append(fragment)
    return tuple(merged) if len(merged) > 1 and any(f.rows for f in merged) else ()


@dataclass(frozen=True, slots=True)
class TailCompaction:
    """What one run did to a table."""

    merged: int = 0
    """The fragments that became one."""
    left: int = 0
    """The fragments of the first tier that it saw and left."""
    is_partial: bool = False
    """Whether the table may have more to merge."""


def uncovered_fragments(table: Table) -> tuple[int, ...]:
    """The fragments that no index covers, oldest first; none of a table with Blobs.

    Blobs have no known size, so merging them would have no bound.
    """
    if any(map(is_stored_blob, table.schema)):
        return ()
    return tuple(sorted({*table.fragment_numbers()} - covered_fragments(table)))


def covered_fragments(table: Table) -> set[int]:
    """The fragments that some index covers."""
    segments = segments_of(table).values()
    return {number for index in segments for segment in index for number in segment.fragments}


def compact_tail(store: GraphStore, branch: str | None, table_key: str) -> TailCompaction:
    """Merge small fragments of a table, if a tier of them is full.

    Rows are rewritten without a lease. If a write changed one of these fragments meanwhile, or an
    index covers it now, nothing is published; fragments that were added do not matter.
    """
    snapshot = store.manifest(branch).current()
    pin = snapshot.pin(table_key)
    if pin is None or pin.branch != branch:
        return TailCompaction()
    table = store.table(pin)
    uncovered = uncovered_fragments(table)
    tail = table.fragments(uncovered[-NEWEST:])
    group = fragments_to_merge(tail)
    left = sum(tier_of(fragment) == 0 for fragment in tail if fragment not in group)
    if not group:
        return TailCompaction(0, left)
    numbers = [fragment.number for fragment in group]
    reached(Failpoint.OPTIMIZE_BEFORE_COMPACTION)
    with staging_marker(store, branch, snapshot):
        locator = locate_table(store.datasets, table)
        rewritten = compact(compaction_split(table, locator, numbers))
        reached(Failpoint.OPTIMIZE_AFTER_COMPACTION)
        publish = _Publish(table_key, pin, group, rewritten)
        schema = snapshot.schema
        request = WriteRequest(
            WriterKind.OPTIMIZE,
            branch,
            frozenset({table_key}),
            publish.prepare,
            schema_hash=None if schema is None else schema.schema_hash,
            waits=True,
            pins_only=True,
            lease_timeout=LEASE_SECONDS,
        )
        try:
            commit_write(store, request)
        finally:
            if not publish.is_staged:
                # Leftovers only take space; cleanup removes them.
                with suppress(OmniGraphError):
                    discard_compaction(store.datasets, pin.ref, rewritten)
    if not publish.is_staged:
        return TailCompaction()
    return TailCompaction(len(group), left, len(uncovered) > NEWEST or left >= TIER)


class _Publish:
    """The staging of rewritten fragments on the newest version of their table."""

    def __init__(
        self, table_key: str, pin: Pin, group: Sequence[FragmentInfo], rewritten: CompactionResult
    ) -> None:
        self._table_key = table_key
        self._pin = pin
        self._group = group
        self._rewritten = rewritten
        self.is_staged = False

    def prepare(self, view: WriteView) -> PreparedWrite:
        """Nothing, if the fragments are not what they were."""
        self.is_staged = False
        pin = view.snapshot.pin(self._table_key)
        if pin is None or pin.ref != self._pin.ref or pin.life != self._pin.life:
            return PreparedWrite({})
        table = view.table(self._table_key)
        numbers = {fragment.number for fragment in self._group}
        signatures = {fragment.signature for fragment in table.fragments(numbers)}
        if signatures != {f.signature for f in self._group} or numbers & covered_fragments(table):
            return PreparedWrite({})
        self.is_staged = True
        steps = stage_before_indexes(table, (), (), [self._rewritten])
        return PreparedWrite({self._table_key: steps})
