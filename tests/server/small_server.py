"""Runs a server with the small application: ``python -m tests.server.small_server CONFIG FILE``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from omnigraph.errors import OmniGraphError
from omnigraph.server.config import ServerConfig
from omnigraph.server.control import KeptGraph
from omnigraph.server.lifecycle import SingleProcess, run_to_end
from omnigraph.server.request_log import RequestLog
from omnigraph.server.supervisor import Supervisor
from tests.server.small_application import SmallApplication


class TextSource:
    """A generation that is the text of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, previous: bytes = b"") -> bytes:
        text = self._path.read_bytes()
        if text.startswith(b"broken"):
            raise OmniGraphError("the file is broken")
        return text

    def keep(self, generation: bytes, previous: bytes, kept: Sequence[KeptGraph]) -> bytes:
        raise AssertionError("no graph is ever kept")

    def signature(self) -> object:
        return self._path.stat().st_mtime_ns


async def serve(config: ServerConfig, path: Path) -> int:
    log = RequestLog(config.log)
    source = TextSource(path)

    def announce(address: str) -> None:
        print(f"OMNIGRAPH_LISTEN_ADDR={address}", flush=True)

    if config.workers == 1:
        return await SingleProcess(config, source, log, SmallApplication).run(announce)
    name = "tests.server.small_application:SmallApplication"
    return await Supervisor(config, source, log, name).run(announce)


def main() -> int:
    config = msgspec.json.decode(sys.argv[1], type=ServerConfig)
    try:
        return run_to_end(serve(config, Path(sys.argv[2])))
    except OmniGraphError as error:
        print(error.message, file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
