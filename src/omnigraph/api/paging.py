"""Reads the rows of a query page by page, all pages from one state of the graph.

The rows are in an order that depends on nothing but the state, see ``plan.paging``, so a page is
found again by the number of rows before it, in any process. Only the rows of a page are read whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from omnigraph.api.cursors import CursorKeys, CursorScope, PageCursor, view_mark
from omnigraph.api.handle import Handle, SnapshotContext
from omnigraph.api.page_cache import MOST_BYTES, RowsAhead
from omnigraph.api.query import columns_of, first_rows, links_of
from omnigraph.api.snapshot import GraphSnapshot, context_of
from omnigraph.commit.history import SnapshotRef
from omnigraph.commit.names import branch_label, normal_branch
from omnigraph.errors import CommitNotFound, HistoryGone, InputError, RowLimitExceeded
from omnigraph.lang.diagnostics import Source
from omnigraph.lang.query.typed import NOW_PARAMETER
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.plan.nodes import ReadPlan
from omnigraph.plan.paging import in_total_order, ranks, window
from omnigraph.plan.prepared import PreparedQuery
from omnigraph.plan.view import View
from omnigraph.read.gate import GATE
from omnigraph.read.limits import Limits
from omnigraph.records import dataclass
from omnigraph.result.page import ResultPage
from omnigraph.result.result import Result

Resolve = Callable[[str | None], SnapshotContext]
"""Finds the state to read: that of a commit, or the one that the caller names."""
MOST_ROWS = 10_000
"""The rows of the largest page."""
_AHEAD_ROWS = 32_768
"""A page that follows another computes so many rows, unless they become too many bytes."""


@dataclass(frozen=True, slots=True)
class PagedRead:
    """A query to read page by page, with everything that its cursors are bound to."""

    source: Source
    name: str | None
    params: Mapping[str, Any] | None
    resolve: Resolve
    state: tuple[str | None, ...]
    """How the caller names the state to read."""


@dataclass(frozen=True, slots=True)
class PageRead:
    """The rows of one page."""

    result: Result
    has_more: bool
    position: PageCursor
    """Of the first row."""
    size: int
    keys: CursorKeys

    def cursor(self, rows: int | None = None) -> str | None:
        """The cursor of the rows after this page, or after the first ``rows`` of it."""
        if rows is None and not self.has_more:
            return None
        return self.position.after(self.size if rows is None else rows).text(self.keys)


def branch_state(handle: Handle, branch: str) -> Resolve:
    """The newest state of a branch for the first page, and the same one for the others.

    The commit may be an inherited one of another branch: what the actor sees is decided for the
    branch that it reads.
    """

    def resolve(commit: str | None) -> SnapshotContext:
        if commit is None:
            return handle.read(SnapshotRef(branch))
        context = handle.read(SnapshotRef(commit=commit))
        own = normal_branch(branch)
        target = {"branch": branch_label(own)}
        return replace(context, target=target, view=handle.view(own, context.catalog))

    return resolve


def state_of(
    handle: Handle, branch: str, snapshot: GraphSnapshot | None, at: datetime | str | None
) -> tuple[Resolve, tuple[str | None, ...]]:
    """The state that a caller names, and how cursors name it."""
    if snapshot is not None:
        if at is not None or branch != "main":
            raise InputError("pass only one of branch, snapshot and at")
        return fixed_state(context_of(snapshot, handle)), ("snapshot", snapshot.commit_id)
    if at is None:
        return branch_state(handle, branch), ("branch", branch)

    def resolve(commit: str | None) -> SnapshotContext:
        if commit is None:
            return handle.read(SnapshotRef(branch, at=at))
        return handle.read(SnapshotRef(commit=commit))

    return resolve, (branch, str(at))


def fixed_state(context: SnapshotContext) -> Resolve:
    """One state for all pages; a cursor of another one is refused."""
    return lambda commit: context


def read_page(
    handle: Handle,
    read: PagedRead,
    size: int,
    cursor: str | None,
    keys: CursorKeys,
    limits: Limits,
) -> PageRead:
    """The first page of a query, or that of a cursor.

    All pages together have at most as many rows as the limits allow: the last one is shorter, and
    the one after it is refused.
    """
    if not 1 <= size <= MOST_ROWS:
        raise InputError(f"page_size must be between 1 and {MOST_ROWS}", details={"size": size})
    scope = CursorScope.of(
        read.source.text, read.name, read.params, handle.actor, handle.policy_digest, *read.state
    )
    if cursor is None:
        context = read.resolve(None)
        position = _beginning(scope, context)
    else:
        position = PageCursor.parse(cursor, keys, scope)
        context = _resolved(read, position)
        position.check_view(context.view)
    size = min(size, _rows_left(position, limits))
    prepared = _paged(handle, read, context)
    # One more than the page has, to know whether there are more.
    rows = handle.pages.get(position, size + 1)
    if rows is None:
        rows = _compute(handle, read, context, prepared, position, size + 1, limits)
    result = Result(
        prepared.once("columns", columns_of),
        rows.slice(0, size),
        query_name=prepared.plan.name,
        target=context.target,
        links=prepared.once("links", links_of),
        schema=prepared.info.schema,
    )
    return PageRead(result, rows.num_rows > size, position, min(size, rows.num_rows), keys)


def _rows_left(position: PageCursor, limits: Limits) -> int:
    most = limits.max_rows
    if most is None:
        return MOST_ROWS
    if position.offset >= most:
        raise RowLimitExceeded(
            f"the pages have more than {most} rows",
            hint="ask for less; a server gives more to those who may export the branch",
            details={"max_rows": most},
        )
    return most - position.offset


def iterate_pages(
    read: Callable[[str | None], PageRead], cursor: str | None
) -> Iterator[ResultPage]:
    """All pages from a cursor on, or from the beginning; errors of the first are raised at once."""
    first = read(cursor)

    def pages() -> Iterator[ResultPage]:
        page = first
        while True:
            after = page.cursor()
            yield ResultPage(page.result, after, page.position.commit)
            if after is None:
                return
            page = read(after)

    return pages()


def _beginning(scope: CursorScope, context: SnapshotContext) -> PageCursor:
    head = context.snapshot.head
    if head is None:
        raise InputError(
            "the state has no commit that pages could refer to", hint="read it without page_size"
        )
    return PageCursor(
        scope, head.commit_id, 0, time.time_ns() // 1_000_000, view_mark(context.view)
    )


def _resolved(read: PagedRead, position: PageCursor) -> SnapshotContext:
    try:
        context = read.resolve(position.commit)
    except (CommitNotFound, HistoryGone):
        # The commit existed when the cursor was issued.
        raise position.gone() from None
    head = context.snapshot.head
    if head is None or head.commit_id != position.commit:
        raise position.gone()
    return context


def _paged(handle: Handle, read: PagedRead, context: SnapshotContext) -> PreparedQuery:
    """The query in a total order, compiled once for a schema and a view."""
    prepared = handle.plans.read(context.catalog, read.source, read.name, context.view)

    def ordered(plan: ReadPlan) -> PreparedQuery:
        restricted = prepared.info.restricted
        return PreparedQuery.of(context.catalog, in_total_order(plan), restricted)

    return prepared.once("paged", ordered)


def _compute(
    handle: Handle,
    read: PagedRead,
    context: SnapshotContext,
    prepared: PreparedQuery,
    position: PageCursor,
    count: int,
    limits: Limits,
) -> pa.Table:
    """``count`` rows from a position on, or all up to the end."""
    own = handle.plans.read(context.catalog, read.source, read.name, context.view).plan
    wanted = max(count, _AHEAD_ROWS) if position.offset else count
    is_ranked = ranks(own)

    def change(plan: ReadPlan) -> ReadPlan:
        return plan if is_ranked else window(plan, own, position.offset, wanted)

    def compiled(catalog: Catalog, view: View) -> PreparedQuery:
        return prepared

    # The number of rows is limited already.
    free = replace(limits, max_rows=None)
    params = _with_moment(read.params, position)
    with GATE, first_rows(handle, context, compiled, params, free, None, change, count) as result:
        batches = _some(result, position.offset if is_ranked else 0, count, wanted)
        rows = pa.Table.from_batches(batches, result.schema)
        is_last = rows.num_rows < wanted and result._stream.complete
    if rows.num_rows > count:
        handle.pages.put(position, RowsAhead(position.offset, rows, is_last))
    return rows.slice(0, count)


def _some(result: Result, skipped: int, count: int, wanted: int) -> list[pa.RecordBatch]:
    """``count`` rows of a result after the first ``skipped``, and more if they are small."""
    parts: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in result.batches():
        part = batch.slice(min(skipped, batch.num_rows), wanted - rows)
        skipped = max(skipped - batch.num_rows, 0)
        rows, size = rows + part.num_rows, size + part.nbytes
        parts.append(part)
        if rows >= count and (rows >= wanted or size >= MOST_BYTES):
            break
    return parts


def _with_moment(
    params: Mapping[str, Any] | None, position: PageCursor
) -> Mapping[str, Any] | None:
    """The parameters, with what ``now()`` meant on the first page."""
    if params is not None and (not isinstance(params, Mapping) or NOW_PARAMETER in params):
        return params
    moment = datetime.fromtimestamp(position.moment / 1000, UTC)
    return {**(params or {}), NOW_PARAMETER: moment}
