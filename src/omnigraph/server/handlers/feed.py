"""The change feed: pages, waiting for changes, a stream of events, and baselines.

A reader keeps its own cursor, so a page or an event that is lost is simply asked for again. Who
waits holds no thread: see ``calls.Wait``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import msgspec
from msgspec import UNSET

from omnigraph.api.changes import Head, head_of, read_commit, read_page
from omnigraph.errors import InputError, OmniGraphError
from omnigraph.merge.change_filter import ChangeFilter
from omnigraph.merge.feed import AFTER, BEGINNING
from omnigraph.merge.pages import ChangePage
from omnigraph.server.calls import EVENT_STREAM, NDJSON, Call, Headers, Reply, Wait
from omnigraph.server.errors import failure_of
from omnigraph.server.handlers.reading import MAIN
from omnigraph.server.handlers.states import require_commit, rights_of
from omnigraph.server.models.history import (
    BaselineRequest,
    ChangeBlockOutput,
    ChangesOutput,
    ChangesParameters,
    CommitChangesOutput,
    CommitChangesParameters,
    RowChangeOutput,
)
from omnigraph.server.models.responses import CommitOutput

LAST_EVENT = "last-event-id"
LONGEST_WAIT = 60.0
HEARTBEAT_SECONDS = 15.0
_PAGE = 1_000
_BUSY_SECONDS = 5.0
"""A page that skips many commits ends after this time, and has not caught up."""
_RETRY = b"retry: 1000\n"
_HEARTBEAT = b": heartbeat\n\n"
_UNITS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0}
_DURATION = re.compile(r"([0-9]{1,9})(|s|ms|m)")
_PIECE = 128 << 10
_ENCODER = msgspec.json.Encoder()


def authorize_changes(call: Call) -> None:
    """The feed of a branch needs ``read`` on it."""
    call.require("read", call.query.branch or MAIN)


def poll_changes(call: Call) -> Reply | Wait:
    """The next changes of a branch; waits for some if asked to, or streams them as events."""
    given: ChangesParameters = call.query
    cursor, start = _position(given)
    if start.startswith(AFTER):
        require_commit(call, start.removeprefix(AFTER))
    reader = _FeedReader(call)
    if _accepts_events(call):
        return _event_reply(reader, call.headers.one(LAST_EVENT) or cursor, start)
    deadline = time.monotonic() + _seconds(given.wait)
    return _page_or_wait(reader, cursor, start, deadline)


def _position(given: ChangesParameters) -> tuple[str | None, str]:
    chosen = [given.cursor, given.page_token, given.start]
    if sum(value is not None for value in chosen) > 1:
        raise InputError("pass only one of cursor, page_token and start")
    return given.cursor or given.page_token or None, given.start or BEGINNING


def _seconds(text: str | None) -> float:
    """A duration such as ``25s``; a number without a unit is in seconds."""
    if text is None:
        return 0.0
    match = _DURATION.fullmatch(text)
    seconds = -1.0 if match is None else int(match[1]) * _UNITS[match[2]]
    if not 0 <= seconds <= LONGEST_WAIT:
        raise InputError(
            "invalid wait", hint=f"expected a duration up to {LONGEST_WAIT:.0f}s, such as 25s"
        )
    return seconds


def _filter(given: ChangesParameters | CommitChangesParameters) -> ChangeFilter:
    return ChangeFilter.of(_listed(given.kind), _listed(given.type), _listed(given.op))


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",")]


def _accepts_events(call: Call) -> bool:
    accepted = b",".join(call.headers.all("accept")).decode("latin-1").lower()
    return any(part.partition(";")[0].strip() == EVENT_STREAM for part in accepted.split(","))


class _FeedReader:
    """Reads pages of the feed that a request names."""

    def __init__(self, call: Call) -> None:
        given: ChangesParameters = call.query
        self.call = call
        self.branch = given.branch or MAIN
        self._wanted = _filter(given)
        self._rights = rights_of(call)
        self._limit = given.limit or _PAGE

    def page(self, cursor: str | None, start: str = BEGINNING) -> tuple[Head, ChangePage]:
        """The next page, and a head that was seen before it: nothing in between gets lost."""
        call = self.call
        handle = call.graph._handle
        head = head_of(handle, self.branch)
        end = time.monotonic() + _BUSY_SECONDS
        page = read_page(
            handle,
            self.branch,
            cursor,
            start,
            self._limit,
            self._wanted,
            lambda: call.cancel.is_set or time.monotonic() > end,
            self._rights,
        )
        return head, page


# -- pages -----------------------------------------------------------------------------------


def _page_or_wait(
    reader: _FeedReader, cursor: str | None, start: str, deadline: float
) -> Reply | Wait:
    head, page = reader.page(cursor, start)
    left = deadline - time.monotonic()
    if page.blocks or not page.caught_up or left <= 0:
        return _page_reply(page)

    def then(is_over: bool) -> Reply | Wait:
        if is_over:
            return _page_reply(page)
        return _page_or_wait(reader, page.cursor, start, deadline)

    return Wait(reader.branch, head, left, then)


def _page_reply(page: ChangePage) -> Reply:
    output = ChangesOutput(
        [ChangeBlockOutput.of(block) for block in page.blocks],
        page.cursor,
        page.caught_up,
        UNSET if page.caught_up else page.cursor,
    )
    return Reply.json(output)


def commit_changes(call: Call) -> Reply:
    """The changes of one commit, a page of them."""
    given: CommitChangesParameters = call.query
    commit_id = call.path["commit_id"]
    require_commit(call, commit_id)
    rights = rights_of(call)
    page = read_commit(
        call.graph._handle,
        commit_id,
        given.page_token,
        given.limit or _PAGE,
        _filter(given),
        rights,
    )
    output = CommitChangesOutput(
        CommitOutput.of(rights.shown(call.graph.commit(commit_id))),
        [event.to_json() for event in page.schema_events],
        [RowChangeOutput.of(change) for change in page.changes],
        UNSET if page.caught_up else page.cursor,
    )
    return Reply.json(output)


# -- events ----------------------------------------------------------------------------------


def _event_reply(reader: _FeedReader, cursor: str | None, start: str) -> Reply:
    """A stream of blocks; what is wrong with the request is said before it begins."""
    head, page = reader.page(cursor, start)
    headers: Headers = (("cache-control", "no-store"), ("x-accel-buffering", "no"))
    frames = _frames(reader, head, page)
    first = _RETRY + _mark(page.cursor if not page.blocks else cursor)
    return Reply(first, content_type=EVENT_STREAM, headers=headers, stream=frames, follows=True)


def _frames(reader: _FeedReader, head: Head, page: ChangePage) -> Iterator[bytes | Wait]:
    """The blocks of a feed as events, without an end; a heartbeat while there are none."""
    yield from _blocks(page)
    while True:
        sent = page.cursor
        # Also a reader that never catches up may lose its rights.
        yield Wait(reader.branch, head, HEARTBEAT_SECONDS if page.caught_up else 0.0)
        try:
            head, page = reader.page(sent)
        except OmniGraphError as error:
            yield _error_frame(reader.call, error)
            return
        yield from _blocks(page)
        if not page.blocks:
            # A reader of few changes must not be left behind by cleanup.
            yield _HEARTBEAT if page.cursor == sent else _mark(page.cursor)


def _blocks(page: ChangePage) -> Iterator[bytes]:
    for block in page.blocks:
        data = _ENCODER.encode(ChangeBlockOutput.of(block))
        yield b"id: %b\ndata: %b\n\n" % (block.cursor.encode("ascii"), data)


def _mark(cursor: str | None) -> bytes:
    """An event without data: it only moves the position of the reader."""
    return b"\n" if cursor is None else b"id: %b\n\n" % cursor.encode("ascii", "ignore")


def _error_frame(call: Call, error: OmniGraphError) -> bytes:
    private = {call.uri: f"graph '{call.graph_id}'"}
    failure = failure_of(error, call.request_id, private=private)
    return b"event: error\ndata: %b\n\n" % _ENCODER.encode(failure.body)


# -- baselines -------------------------------------------------------------------------------


def authorize_baseline(call: Call) -> None:
    """A baseline is an export."""
    call.require("export", call.body.branch or MAIN)


def export_baseline(call: Call) -> Reply:
    """All rows of a branch, and in the last line the cursor from which its feed continues."""
    request: BaselineRequest = call.body
    baseline = call.graph.changes.baseline(request.branch or MAIN)
    record = {
        "snapshot_commit_id": baseline.snapshot.commit_id,
        "resume_cursor": baseline.cursor,
        "schema": baseline.schema,
    }
    last = json.dumps({"baseline": record})
    lines = iter(()) if request.rows is False else baseline.snapshot.export()
    pieces = _pieces(lines, last)
    return Reply(next(pieces), content_type=f"{NDJSON}; charset=utf-8", stream=pieces)


def _pieces(lines: Iterator[str], last: str) -> Iterator[bytes]:
    """Lines joined to pieces that are worth a write to a socket."""
    piece: list[str] = []
    size = 0
    for line in lines:
        piece.append(line)
        size += len(line)
        if size >= _PIECE:
            yield ("\n".join(piece) + "\n").encode()
            piece, size = [], 0
    yield ("\n".join([*piece, last]) + "\n").encode()
