"""A program that follows a change feed until it is killed: ``python -m tests.server.feed_client``.

It needs nothing but HTTP. First it appends a block to a log, then it stores the cursor after it: if
it is killed in between, it sees the block again.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def blocks(port: int, mode: str, cursor: str) -> Iterator[tuple[dict[str, Any] | None, str]]:
    """The next blocks with the cursor after each; a cursor without a block only moves on."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    position = f"cursor={cursor}" if cursor else "start=beginning"
    accept = "text/event-stream" if mode == "events" else "application/json"
    path = f"/graphs/g/changes?limit=3&wait=20s&{position}"
    try:
        connection.request("GET", path, headers={"Accept": accept})
        answer = connection.getresponse()
        if answer.status != 200:
            raise http.client.HTTPException(f"status {answer.status}")
        if mode == "poll":
            page = json.loads(answer.read())
            yield from ((block, block["cursor"]) for block in page["blocks"])
            yield None, page["cursor"]
            return
        fields: dict[str, str] = {}
        while line := answer.readline():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif fields:
                data = fields.get("data")
                if "id" in fields:
                    yield None if data is None else json.loads(data), fields["id"]
                fields = {}
    finally:
        connection.close()


def main(port: int, mode: str, log: Path, position: Path) -> None:
    content = log.read_bytes() if log.exists() else b""
    # A line that was cut off by a kill never happened.
    log.write_bytes(content[: content.rfind(b"\n") + 1])
    while True:
        cursor = position.read_text() if position.exists() else ""
        try:
            for block, after in blocks(port, mode, cursor):
                if block is not None:
                    with log.open("ab") as file:
                        file.write(json.dumps(block).encode() + b"\n")
                new = position.with_suffix(".new")
                new.write_text(after)
                os.replace(new, position)
        except (OSError, http.client.HTTPException, ValueError):
            # The server is gone, and comes back.
            time.sleep(0.02)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
