"""The rows of a query as a response: JSON, lines of JSON, or an Arrow stream.

A response is made piece by piece, and what was sent is forgotten. JSON up to a size is sent at once
with its length. A stream that fails has sent a success already: it ends with the error, in the form
of its type, and the connection breaks before the end of the body, so no client takes it for whole.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from omnigraph.lang.values.columns import JsonForm
from omnigraph.read.limits import Waited
from omnigraph.records import dataclass
from omnigraph.result.result import Result
from omnigraph.result.wire import ARROW_STREAM, ArrowPieces, json_pieces
from omnigraph.server.accept import accepted_type
from omnigraph.server.calls import JSON, NDJSON, Call, Headers, Reply
from omnigraph.server.models.responses import ReadOutput, ReadTargetOutput

ROW_TYPES = (JSON, NDJSON, ARROW_STREAM)
"""The forms of rows; JSON if a client does not care."""
CURSOR = "omnigraph-cursor"
"""The header with the cursor of the next page."""
SNAPSHOT = "omnigraph-snapshot"
"""The header that names the commit whose state is read."""
_PREFERENCE = "integers=string"
_AT_ONCE = 32 << 20
"""The bytes of a JSON document that is sent with its length."""
_PIECE = 1 << 20
"""The bytes of a kept document that are sent at once, so that no copy of them is larger."""
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows to send, and what belongs to them."""

    result: Result
    commit_id: str | None
    cursor: str | None = None
    waited: Waited | None = None
    """Counts the time during which the client takes nothing."""
    on_row_cap: Callable[[], None] | None = None
    """Called once, when there are more rows than the cap; raises if the actor may not have them."""


def row_type(call: Call) -> str:
    """The form of the rows that the client asks for."""
    return accepted_type(call.headers, ROW_TYPES)


def preferred_form(call: Call) -> tuple[JsonForm, Headers]:
    """How to write integers that JavaScript would round."""
    given = call.headers.all("prefer")
    if not given:
        return "native", ()
    # The value may be quoted (RFC 7240).
    wanted = b",".join(given).replace(b'"', b"").decode("latin-1").lower()
    if _PREFERENCE in (part.strip() for part in wanted.replace(";", ",").split(",")):
        return "sdk", (("preference-applied", _PREFERENCE),)
    return "native", ()


def rows_reply(call: Call, rows: Rows, content_type: str, *, is_frozen: bool = False) -> Reply:
    """The response with some rows; ``is_frozen`` leaves out what 0.8 does not have."""
    if content_type == JSON:
        return _document(call, rows, is_frozen)
    headers: Headers = () if rows.commit_id is None else ((SNAPSHOT, rows.commit_id),)
    if rows.cursor is not None:
        headers = (*headers, (CURSOR, rows.cursor))
    if content_type == ARROW_STREAM:
        arrow = ArrowPieces(rows.result, _cap(call, rows))
        pieces = _patient(iter(arrow), rows.waited)
        return Reply(next(pieces), 200, ARROW_STREAM, headers, pieces, failed=arrow.failure)
    form, applied = preferred_form(call)
    lines = (
        _ENCODER.encode_lines(part) for part in json_pieces(rows.result, form, _cap(call, rows))
    )
    pieces = _patient(lines, rows.waited)
    first = next(pieces, b"")
    content_type = f"{NDJSON}; charset=utf-8"
    return Reply(first, 200, content_type, (*applied, *headers), pieces, failed=_last_line)


def _cap(call: Call, rows: Rows) -> Callable[[int], None]:
    """Looks at the number of rows that were read so far."""
    most, is_beyond = call.state.config.limits.max_rows, False

    def look(count: int) -> None:
        nonlocal is_beyond
        if count > most and not is_beyond and rows.on_row_cap is not None:
            is_beyond = True
            rows.on_row_cap()

    return look


def _patient(pieces: Iterator[bytes], waited: Waited | None) -> Iterator[bytes]:
    """The same pieces; the time until the client has taken one is not that of the query."""
    for piece in pieces:
        started = time.monotonic()
        yield piece
        if waited is not None:
            waited.seconds += time.monotonic() - started


def _last_line(error: bytes) -> bytes:
    """An error as the last line of a body that is not complete."""
    return b"\n" + error + b"\n"


# -- one document --------------------------------------------------------------------------------


def read_output(
    result: Result, form: JsonForm, commit_id: str | UnsetType | None = UNSET
) -> ReadOutput:
    """A result in the form of the contract."""
    rows = result.json_rows(form)
    target = ReadTargetOutput(result.target.get("branch"), result.target.get("snapshot"))
    return ReadOutput(
        result.query_name, target, len(rows), rows, result.columns or UNSET, commit_id
    )


def _document(call: Call, rows: Rows, is_frozen: bool) -> Reply:
    form, headers = preferred_form(call)
    result = rows.result
    target = ReadTargetOutput(result.target.get("branch"), result.target.get("snapshot"))
    before = {"query_name": result.query_name, "target": target}
    after: dict[str, Any] = {"columns": result.columns} if result.columns else {}
    if not is_frozen:
        after["graph_commit_id"] = rows.commit_id
        if rows.cursor is not None:
            after["cursor"] = rows.cursor
    encoded: deque[bytes] = deque()
    count = size = 0
    parts = json_pieces(result, form)
    for part in parts:
        if count:
            encoded.append(b",")
        encoded.append(_ENCODER.encode(part)[1:-1])
        count += len(part)
        size += len(encoded[-1])
        if size > _AT_ONCE:
            encoded.appendleft(b'{%b,"rows":[' % _members(before))
            return _streamed(encoded, count, parts, after, rows.waited, headers)
    encoded.appendleft(b'{%b,"rows":[' % _members({**before, "row_count": count}))
    encoded.append(b"],%b}" % _members(after) if after else b"]}")
    if size <= _PIECE:
        return Reply(b"".join(encoded), headers=headers)
    length = sum(map(len, encoded))
    kept = _taken(encoded)
    return Reply(next(kept), headers=headers, length=length, kept=kept)


def _streamed(
    encoded: deque[bytes],
    count: int,
    parts: Iterator[list[dict[str, Any]]],
    after: dict[str, Any],
    waited: Waited | None,
    headers: Headers,
) -> Reply:
    """A document that is too large to be kept; the number of its rows comes after them."""
    kept = _taken(encoded)

    def pieces() -> Iterator[bytes]:
        # Those that are kept are sent while this waits, which is not the time of the query.
        yield next(kept)
        total = count
        for part in parts:
            total += len(part)
            yield b"," + _ENCODER.encode(part)[1:-1]
        yield b"],%b}" % _members({"row_count": total, **after})

    stream = _patient(pieces(), waited)
    return Reply(next(stream), 200, JSON, headers, stream, failed=_last_line, kept=kept)


def _taken(encoded: deque[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of about a mebibyte; one that was taken is forgotten."""
    while encoded:
        piece: list[bytes] = []
        size = 0
        while encoded and size < _PIECE:
            piece.append(encoded.popleft())
            size += len(piece[-1])
        yield b"".join(piece)


def _members(values: dict[str, Any]) -> bytes:
    """The members of an object, without its braces."""
    return _ENCODER.encode(values)[1:-1]
