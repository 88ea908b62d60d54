"""What the supervisor and its worker processes say to each other.

Each worker has one end of a socket pair as its standard input. Messages are JSON with a length in
front. When one side ends, the other notices: a worker without a supervisor ends itself.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Literal, TypeAlias

import msgspec

from omnigraph.server.config import ServerConfig
from omnigraph.server.metrics import Family

WorkerRole: TypeAlias = Literal["reader", "writer"]
_LENGTH = struct.Struct(">I")
_MOST_BYTES = 1 << 30


class ReloadFailure(msgspec.Struct, frozen=True):
    """Why the last reload did not come into force, and since when."""

    message: str
    since: float
    """Seconds since the epoch."""
    codes: tuple[str, ...] = ()
    """The codes of everything that was wrong; they name nothing."""


class KeptGraph(msgspec.Struct, frozen=True):
    """A graph that cannot be served as a new generation wants it, and stays as it is."""

    graph_id: str
    code: str
    message: str


# -- from the supervisor -----------------------------------------------------------------------


class LoadApplication(msgspec.Struct, frozen=True, tag=True):
    """Import the application; what to open follows."""

    application: str
    """``module:class``."""
    niceness: int = 0
    """By how much the process comes after others."""


class Configure(msgspec.Struct, frozen=True, tag=True):
    """What to open. The worker answers ``OpenedGraphs`` or ``Refused``."""

    role: WorkerRole
    name: str
    config: ServerConfig
    generation: bytes
    """The application's own description of what to serve; contains no plain token."""
    application: str
    """``module:class``."""
    listening: int
    """The descriptor of the socket to accept from."""
    writer_path: str
    """Where the writer listens."""
    announcements: str
    """The memory in which the writer announces what it publishes."""
    processor: int | None = None
    """The processor of the event loop; none: any."""


class Serve(msgspec.Struct, frozen=True, tag=True):
    """All processes have opened their graphs: accept connections."""


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Build a new generation beside the one in force. Answered by ``Done``."""

    number: int
    generation: bytes


class Activate(msgspec.Struct, frozen=True, tag=True):
    """Put the prepared generation in force, or forget it. Answered by ``Done``."""

    number: int
    is_kept: bool


class Collect(msgspec.Struct, frozen=True, tag=True):
    """Answered by ``Collected``."""

    number: int


class Answer(msgspec.Struct, frozen=True, tag=True):
    """The answer to an ``Ask``."""

    number: int
    body: bytes = b""
    error: str | None = None


class Notice(msgspec.Struct, frozen=True, tag=True):
    """The state of the other processes, whenever it changes."""

    writer_is_up: bool
    reload_failure: ReloadFailure | None = None


class Drain(msgspec.Struct, frozen=True, tag=True):
    """Stop accepting, finish what is in flight, and end."""


Order: TypeAlias = (
    LoadApplication | Configure | Serve | Prepare | Activate | Collect | Answer | Notice | Drain
)

# -- from a worker -----------------------------------------------------------------------------


class OpenedGraphs(msgspec.Struct, frozen=True, tag=True):
    """The graphs are open."""

    served: tuple[str, ...]
    unserved: tuple[str, ...]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """This process cannot serve."""

    message: str


class Done(msgspec.Struct, frozen=True, tag=True):
    """An order was carried out, or why not."""

    number: int
    error: str | None = None
    kept: tuple[KeptGraph, ...] = ()
    """Of a generation that was prepared: the graphs that can stay as they are only."""


class Collected(msgspec.Struct, frozen=True, tag=True):
    """The metrics of this process."""

    number: int
    families: list[Family]


class Ask(msgspec.Struct, frozen=True, tag=True):
    """A request needs the supervisor. Answered by ``Answer``."""

    number: int
    what: Literal["metrics", "reload"]


Report: TypeAlias = OpenedGraphs | Refused | Done | Collected | Ask

_ORDERS: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)
_REPORTS: msgspec.json.Decoder[Report] = msgspec.json.Decoder(Report)
_ENCODER = msgspec.json.Encoder()


class ChannelClosed(Exception):
    """The other side has ended."""


class Channel:
    """One end of the socket pair."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> Channel:
        """A channel over one end of a socket pair."""
        return cls(*await asyncio.open_unix_connection(sock=end))

    def send(self, message: Order | Report) -> None:
        """Send a message; one to a side that has ended is lost."""
        if not self._writer.is_closing():
            data = _ENCODER.encode(message)
            self._writer.write(_LENGTH.pack(len(data)) + data)

    async def order(self) -> Order:
        """The next message of the supervisor."""
        return _ORDERS.decode(await self._next())

    async def report(self) -> Report:
        """The next message of a worker."""
        return _REPORTS.decode(await self._next())

    async def _next(self) -> bytes:
        try:
            (size,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if size > _MOST_BYTES:
                raise ChannelClosed
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError):
            raise ChannelClosed from None

    async def flush(self) -> None:
        """Wait until what was sent is on its way."""
        try:
            await self._writer.drain()
        except OSError:
            raise ChannelClosed from None

    def close(self) -> None:
        self._writer.close()
