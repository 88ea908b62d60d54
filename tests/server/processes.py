"""Real server processes for tests: started, asked, signalled, killed by their process id."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec

from omnigraph.server.config import ServerConfig, ServerSource

REPOSITORY = Path(__file__).parents[2]
PATIENCE = 60.0
"""Seconds until something counts as hung; far more than anything takes."""


def until(condition: Callable[[], Any], what: str = "") -> Any:
    """Wait until something is true; returns it."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"still waiting: {what or condition}")
        time.sleep(0.01)
    return value


class Answer:
    """The status and body of a response."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ServerUnderTest:
    """A server program and its log."""

    def __init__(
        self, command: list[str], log: Path, environ: dict[str, str] | None = None
    ) -> None:
        self.log_path = log
        path = f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}"
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=file,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path, **(environ or {})},
                start_new_session=True,
            )
        self.address = ""

    def await_listening(self) -> Self:
        """Wait for the line with the address."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            match = re.fullmatch(rb"OMNIGRAPH_LISTEN_ADDR=(.+)\n", line)
            if match:
                self.address = match[1].decode()
                return self
        raise AssertionError(f"the server did not start:\n{self.log}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    # -- requests ----------------------------------------------------------------------------

    def connect(self, timeout: float = PATIENCE) -> http.client.HTTPConnection:
        host, _, port = self.address.rpartition(":")
        return http.client.HTTPConnection(host, int(port), timeout=timeout)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request on a connection of its own."""
        connection = self.connect()
        try:
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
                headers = {"Content-Type": "application/json", **(headers or {})}
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            fields = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, fields, response.read())
        finally:
            connection.close()

    # -- processes ---------------------------------------------------------------------------

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """The lines of the log, or those of one event."""
        lines = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
        return [line for line in lines if name is None or line["event"] == name]

    def children(self) -> list[int]:
        """The process ids of the workers."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        self.send(number)
        return self.process.wait(PATIENCE)


def small_server(tmp_path: Path, text: str = "one", **options: Any) -> ServerUnderTest:
    """A server with the small application."""
    generation = tmp_path / "generation"
    generation.write_text(text)
    source = ServerSource("store", str(generation))
    config = ServerConfig(source=source, bind="127.0.0.1:0", **options)
    arguments = [msgspec.json.encode(config).decode(), str(generation)]
    program = [sys.executable, "-m", "tests.server.small_server", *arguments]
    return ServerUnderTest(program, tmp_path / "server.log")


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"
