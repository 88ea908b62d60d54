"""200 connections and 8 writers for a minute, with a reload, a killed reader, a killed writer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from tests.server.processes import ServerUnderTest
from tests.server.test_serve import TOKENS, serve, write_tokens

CONNECTIONS, WRITERS = 200, 8
SECONDS = 60.0
PAUSE = 0.1
SCHEMA = "node Event { label: String }\nnode Person { name: String @key }"
RECORD = "query record($label: String) { insert Event { label: $label } }"
EVENTS = "query events() { match { $e: Event } return { $e.label } }"
COUNT = "query people() { match { $p: Person } return { count($p) as n } }"
POLICY = """
version: 1
groups: { all: [ana, bo] }
rules:
  - id: everything
    allow: { actors: { group: all }, actions: [read, change], branch_scope: any }
"""


class Gone(Exception):
    """The connection ended, or could not be made: the client may try again."""


class Connection:
    """A keep-alive connection."""

    def __init__(self, address: str, actor: str) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._token = TOKENS[actor]
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        try:
            return await asyncio.wait_for(self._post(path, body, headers), 60)
        except (OSError, asyncio.IncompleteReadError) as error:
            self.close()
            raise Gone(type(error).__name__) from error

    async def _post(self, path: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, int(self._port))
        reader, writer = self._streams
        data = json.dumps(body).encode()
        lines = [
            f"POST {path} HTTP/1.1",
            "Host: test",
            "Content-Type: application/json",
            f"Content-Length: {len(data)}",
            f"Authorization: Bearer {self._token}",
            *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        fields = dict(
            line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line
        )
        content = await reader.readexactly(int(fields[b"content-length"]))
        if fields.get(b"connection") == b"close":
            self.close()
        return status, json.loads(content)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


class Endurance:
    """What was asked and answered."""

    def __init__(self, server: ServerUnderTest) -> None:
        self._server = server
        self.reads = 0
        self.lost: Counter[str] = Counter()
        self.refusals: Counter[tuple[int, str]] = Counter()
        self.untyped: list[Any] = []
        self.acknowledged: Counter[str] = Counter()
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + SECONDS

    @property
    def is_over(self) -> bool:
        return self._loop.time() > self._end

    def refused(self, status: int, body: Any, *, may_be_pending: bool) -> None:
        """Note a refusal; it has to be typed and retryable."""
        reason = body.get("reason") if isinstance(body, dict) else None
        is_pending = may_be_pending and reason == "outcome_pending"
        if status not in (409, 429, 503) or not (body.get("retryable") or is_pending):
            self.untyped.append((status, body))
        self.refusals[status, str(reason)] += 1

    async def read(self, number: int) -> None:
        connection = Connection(self._server.address, "ana" if number % 2 else "bo")
        while not self.is_over:
            try:
                status, body = await connection.post("/graphs/g/query", {"query": COUNT})
            except Gone as gone:
                self.lost[str(gone)] += 1
            else:
                if status == 200:
                    self.reads += 1
                else:
                    self.refused(status, body, may_be_pending=False)
            await asyncio.sleep(PAUSE)
        connection.close()

    async def write(self, number: int) -> None:
        connection = Connection(self._server.address, "ana")
        attempt = 0
        while not self.is_over:
            label = f"{number}/{attempt}"
            body = {"query": RECORD, "params": {"label": label}}
            while True:
                try:
                    status, answer = await connection.post(
                        "/graphs/g/mutate", body, Idempotency_Key=label
                    )
                except Gone as gone:
                    self.lost[str(gone)] += 1
                else:
                    if status == 200:
                        break
                    self.refused(status, answer, may_be_pending=True)
                await asyncio.sleep(PAUSE)
            self.acknowledged[label] += 1
            attempt += 1
        connection.close()

    async def disturb(self) -> None:
        """A reload, a killed reader and a killed writer, a quarter of the time apart."""
        await asyncio.sleep(SECONDS / 4)
        self._server.send(signal.SIGHUP)
        await asyncio.sleep(SECONDS / 4)
        os.kill(self._server.children()[1], signal.SIGKILL)
        await asyncio.sleep(SECONDS / 4)
        os.kill(self._server.children()[0], signal.SIGKILL)

    async def run(self) -> None:
        await asyncio.gather(
            *(self.read(number) for number in range(CONNECTIONS)),
            *(self.write(number) for number in range(WRITERS)),
            self.disturb(),
        )


@pytest.mark.slow
def test_nothing_but_retryable_errors_and_every_acknowledged_write_once(tmp_path: Path) -> None:
    root, tokens, policy = tmp_path / "g.omni", tmp_path / "tokens.json", tmp_path / "policy.yaml"
    Graph.init(root, SCHEMA).close()
    write_tokens(tokens, TOKENS)
    policy.write_text(POLICY)
    options = ("--workers", "2", "--policy", str(policy))
    environ = {"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(tokens)}
    with serve(root, tmp_path / "log", *options, **environ) as server:
        server.await_listening()

        async def scene() -> Endurance:
            endurance = Endurance(server)
            await endurance.run()
            return endurance

        endurance = asyncio.run(scene())
        print(endurance.reads, dict(endurance.refusals), dict(endurance.lost))
        print(len(endurance.acknowledged), "writes")
        assert server.events("reloaded")
        assert {event["worker"] for event in server.events("worker is back")} >= {"writer"}
        assert server.stop() == 0
    assert endurance.untyped == [], server.events("internal error")
    assert endurance.reads > 0
    with Graph.open(root) as graph:
        labels = Counter(row["e.label"] for row in graph.query(EVENTS).rows())
        assert graph.maintenance.verify().is_sound
    assert labels == endurance.acknowledged
    assert set(labels.values()) == {1}
