"""Reads a stream of server-sent events, and the change feed in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from omnigraph.client.refusals import refusal
from omnigraph.merge.pages import ChangeBlock
from omnigraph.records import dataclass
from omnigraph.remote.history_documents import change_block


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event; without ``data`` it only moves the position."""

    data: str
    name: str = "message"
    id: str | None = None


class EventParser:
    r"""Cuts the bytes of a stream into events.

    >>> parser = EventParser()
    >>> list(parser.feed(b": hello\n\nid: 7\nda")), list(parser.feed(b"ta: x\ndata: y\n\n"))
    ([], [ServerEvent(data='x\ny', name='message', id='7')])
    """

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[str] = []

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        """The events that end in the next piece of the stream."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            text = line.decode("utf-8", "replace").removesuffix("\r")
            if text:
                self._lines.append(text)
                continue
            event = self._event()
            self._lines.clear()
            if event is not None:
                yield event

    def _event(self) -> ServerEvent | None:
        data: list[str] = []
        name, event_id = "message", None
        for line in self._lines:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                data.append(value)
            elif field == "event":
                name = value
            elif field == "id":
                event_id = value
        if not data and event_id is None:
            return None
        return ServerEvent("\n".join(data), name, event_id)


class FeedEvents:
    """The blocks of a change feed, and the position after what has been read."""

    def __init__(self, cursor: str | None) -> None:
        self.cursor = cursor
        self._parser = EventParser()

    def restart(self) -> None:
        """Begin another stream after the same position."""
        self._parser = EventParser()

    def blocks(self, piece: bytes) -> Iterator[ChangeBlock]:
        """The blocks that end in a piece; raises the error that ends a feed."""
        for event in self._parser.feed(piece):
            if event.name == "error":
                raise refusal(_status(event.data), {}, event.data.encode())
            self.cursor = event.id or self.cursor
            if event.data:
                yield change_block(json.loads(event.data))


def _status(data: str) -> int:
    """The status that the error of an event would have had as a response."""
    codes = {"not_found": 404, "forbidden": 403, "bad_request": 400, "conflict": 409}
    body: Any = json.loads(data)
    is_gap = isinstance(body, dict) and "change_feed_gap" in body
    return 410 if is_gap else codes.get(body.get("code"), 500)
