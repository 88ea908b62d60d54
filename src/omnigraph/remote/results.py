"""Rows of a server as a ``Result``: an Arrow stream that is read on demand, within its limits."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from omnigraph.client.http import NoResponse, OpenResponse
from omnigraph.client.server import (
    Connection,
    ServerRequest,
    no_response,
    unexpected_response,
)
from omnigraph.errors import Cancelled, InputError, RowLimitExceeded, ServerError
from omnigraph.read.limits import Limits
from omnigraph.result.result import Result
from omnigraph.result.wire import ARROW_STREAM, result_from


class _Body(io.RawIOBase):
    """The body of a response as a file; every failure is a typed error."""

    def __init__(self, answer: OpenResponse, base: str, request: ServerRequest) -> None:
        self._answer = answer
        self._base = base
        self._request = request
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            try:
                self._rest = self._answer.read()
            except NoResponse as error:
                raise no_response(self._base, error.failure, self._request) from None
        count = min(len(self._rest), len(buffer))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def streamed_result(
    answer: OpenResponse,
    connection: Connection,
    request: ServerRequest,
    limits: Limits,
    target: Mapping[str, str] | None = None,
) -> Result:
    """The rows of an open response."""
    base = connection.base
    try:
        check_arrow(answer.headers.get("Content-Type"), base)
        body = io.BufferedReader(_Body(answer, base, request), 1 << 16)
        return result_from(
            body,
            close=answer.close,
            limit=lambda batches: within(batches, limits),
            failed=lambda content: connection.late_refusal(content, request),
            target=target,
        )
    except InputError:
        answer.close()
        raise unexpected_response(base) from None
    except BaseException:
        answer.close()
        raise


def check_arrow(content_type: str | None, base: str) -> None:
    """Raise unless the response of a server is an Arrow stream."""
    if (content_type or "").partition(";")[0].strip() != ARROW_STREAM:
        raise ServerError(
            f"the server at {base} does not return rows as Arrow",
            hint="use a server of this release; the command line also prints the rows of others",
        )


def check_limits(limits: Limits) -> None:
    """Raise if the query was cancelled before it was sent."""
    if limits.cancel is not None and limits.cancel.is_set:
        raise Cancelled("the query was cancelled")


def within(batches: Iterator[pa.RecordBatch], limits: Limits) -> Iterator[pa.RecordBatch]:
    """The same batches, until a limit is reached."""
    rows = 0
    for batch in batches:
        check_limits(limits)
        rows += batch.num_rows
        check_rows(rows, limits.max_rows)
        yield batch


def check_rows(count: int, most: int | None) -> None:
    """Raise if there are more rows than the caller accepts."""
    if most is not None and count > most:
        raise RowLimitExceeded(
            f"the result has more than {most} rows",
            hint="add a limit to the query, or raise max_rows",
            details={"max_rows": most},
        )
