"""Rows of a server that are read one by one, or page by page. Nothing that was read is kept.

The rows of a stream are lines of JSON. If the server fails in the middle, an empty line and one
with the error come last; a stream without its end is never taken for whole.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.client.http import NoResponse, OpenResponse
from omnigraph.client.server import Connection, ServerRequest, no_response, unexpected_response
from omnigraph.errors import OmniGraphError, ServerError
from omnigraph.remote import documents
from omnigraph.remote.documents import decoding
from omnigraph.remote.requests import NDJSON

if TYPE_CHECKING:
    from omnigraph.read.limits import Limits
    from omnigraph.remote.calls import RemoteCalls
    from omnigraph.result.page import ResultPage

CURSOR = "Omnigraph-Cursor"
SNAPSHOT = "Omnigraph-Snapshot"
Row = dict[str, Any]


class RowLines:
    """The rows in the bytes of a stream, as they come in."""

    def __init__(self, base: str, late_refusal: Callable[[bytes], OmniGraphError]) -> None:
        self._base = base
        self._late_refusal = late_refusal
        self._rest = b""
        self._is_failed = False

    def rows(self, piece: bytes) -> Iterator[Row]:
        """The rows that are complete with a piece; raises the error that ends a stream."""
        *whole, self._rest = (self._rest + piece).split(b"\n")
        for line in whole:
            if self._is_failed:
                raise self._late_refusal(line)
            if line:
                yield self._row(line)
            else:
                self._is_failed = True

    def end(self) -> Iterator[Row]:
        """The row in the last line, if no line end follows it."""
        if self._rest:
            yield self._row(self._rest)

    def _row(self, line: bytes) -> Row:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise unexpected_response(self._base)
        return row


def _is_lines(content_type: str | None) -> bool:
    return (content_type or "").partition(";")[0].strip() == NDJSON


def check_lines(content_type: str | None, base: str) -> None:
    """Raise unless the response of a server is lines of JSON."""
    if not _is_lines(content_type):
        raise ServerError(
            f"the server at {base} does not stream rows", hint="use a server of this release"
        )


def stream_rows(calls: RemoteCalls, request: ServerRequest) -> Iterator[Row]:
    """The rows of a query one by one; errors at the start are raised at once."""
    calls.check_open()
    connection = calls.connection
    answer = connection.open(request)
    try:
        check_lines(answer.headers.get("Content-Type"), connection.base)
    except BaseException:
        answer.close()
        raise
    rows = _rows(answer, connection, request)
    # A generator that is never started closes nothing itself.
    weakref.finalize(rows, answer.close)
    return rows


def _rows(answer: OpenResponse, connection: Connection, request: ServerRequest) -> Iterator[Row]:
    lines = RowLines(connection.base, lambda error: connection.late_refusal(error, request))
    with answer:
        try:
            for piece in answer:
                yield from lines.rows(piece)
        except NoResponse as error:
            raise no_response(connection.base, error.failure, request) from None
    yield from lines.end()


def lines_or_document(calls: RemoteCalls, request: ServerRequest) -> Iterator[Row] | Row:
    """The rows of a query one by one, or its whole document from a server that streams none."""
    calls.check_open()
    connection = calls.connection
    answer = connection.open(request)
    if _is_lines(answer.headers.get("Content-Type")):
        return _rows(answer, connection, request)
    with decoding(connection.base):
        return documents.read_output(connection.document(answer, request))


def read_pages(
    calls: RemoteCalls,
    request: Callable[[str | None], ServerRequest],
    cursor: str | None,
    limits: Callable[[], Limits],
    target: Mapping[str, str] | None = None,
) -> Iterator[ResultPage]:
    """All pages from a cursor on, or from the beginning; errors of the first are raised at once."""
    from omnigraph.remote.results import check_limits, streamed_result
    from omnigraph.result.page import ResultPage

    def read(position: str | None) -> ResultPage:
        calls.check_open()
        own = limits()
        check_limits(own)
        sent = request(position)
        answer = calls.connection.open(sent)
        after, commit = answer.headers.get(CURSOR), answer.headers.get(SNAPSHOT)
        result = streamed_result(answer, calls.connection, sent, own, target)
        # A page is read at once, so the connection is free for the next one.
        _ = result.row_count
        return ResultPage(result, after, commit)

    first = read(cursor)

    def pages() -> Iterator[ResultPage]:
        page = first
        yield page
        while page.cursor is not None:
            page = read(page.cursor)
            yield page

    return pages()
