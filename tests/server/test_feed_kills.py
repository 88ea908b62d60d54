"""A follower of the change feed loses nothing and doubles nothing, whoever is killed and when."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.errors import OmniGraphError
from tests.server.processes import REPOSITORY, ServerUnderTest, until

pytestmark = [pytest.mark.rotates(6), pytest.mark.xdist_group("served graph")]

PROGRAMS = Path(sys.executable).parent
SCHEMA = "node Person { name: String @key  age: I32? }"


class Scene:
    """A graph, its server, a follower, and those who write; everything can be killed."""

    def __init__(self, folder: Path, mode: str, workers: int) -> None:
        self._folder, self._mode, self._workers = folder, mode, workers
        self.root = folder / "g.omni"
        Graph.init(self.root, SCHEMA, durability="os").close()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log, self._position = folder / "blocks", folder / "cursor"
        self._starts = 0
        self.start_server()
        self.start_client()

    def start_server(self) -> None:
        self._starts += 1
        command = [str(PROGRAMS / "omnigraph"), "serve", "--store", str(self.root)]
        command += ["--unauthenticated", "--workers", str(self._workers)]
        command += ["--bind", f"127.0.0.1:{self.port}"]
        self.server = ServerUnderTest(command, self._folder / f"log-{self._starts}")

    def start_client(self) -> None:
        program = [sys.executable, "-m", "tests.server.feed_client", str(self.port), self._mode]
        self.client = subprocess.Popen(
            [*program, str(self.log), str(self._position)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            cwd=REPOSITORY,
        )

    def kill_server(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.server.process.pid, signal.SIGKILL)
        self.server.process.wait()
        assert self.server.process.stdout is not None
        self.server.process.stdout.close()
        self.start_server()

    def kill_client(self) -> None:
        self.client.kill()
        self.client.wait()
        self.start_client()

    def blocks(self) -> list[dict[str, Any]]:
        """What the follower has stored, without lines that are being written."""
        content = self.log.read_bytes() if self.log.exists() else b""
        return [json.loads(line) for line in content.split(b"\n")[:-1]]

    def close(self) -> None:
        self.client.kill()
        self.client.wait()
        with suppress(ProcessLookupError):
            os.killpg(self.server.process.pid, signal.SIGKILL)
        self.server.__exit__()


@contextmanager
def writing(scene: Scene) -> Iterator[Callable[[], int]]:
    """Writes to the storage and through the server all the time; counts what was acknowledged."""
    ended = threading.Event()
    done: list[str] = []

    def to_storage() -> None:
        with Graph.open(scene.root, durability="os") as graph:
            while not ended.is_set():
                row = {"type": "Person", "data": {"name": f"s{len(done)}", "age": len(done)}}
                rows = [row, {"type": "Person", "data": {"name": "same", "age": len(done)}}]
                with suppress(OmniGraphError):
                    graph.load(rows)
                    done.append("storage")
                time.sleep(0.02)

    def through_server() -> None:
        text = "query q($n: String) { insert Person { name: $n } }"
        number = 0
        while not ended.is_set():
            number += 1
            with suppress(Exception):
                body = {"query": text, "params": {"n": f"h{number}"}}
                scene.server.address = f"127.0.0.1:{scene.port}"
                if scene.server.ask("POST", "/graphs/g/mutate", body).status == 200:
                    done.append("server")
            time.sleep(0.05)

    threads = [threading.Thread(target=work) for work in (to_storage, through_server)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: len(done)
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)


def check(folder: Path, mode: str, workers: int, kills: list[str], seed: int) -> None:
    random = Random(seed)
    scene = Scene(folder, mode, workers)
    try:
        with writing(scene) as acknowledged:
            for who in kills:
                seen, made = len(scene.blocks()), acknowledged()
                # Each begins again before the next one is killed.
                until(lambda: len(scene.blocks()) > seen and acknowledged() > made, "progress")  # noqa: B023
                time.sleep(random.uniform(0, 0.3))
                scene.kill_server() if who == "server" else scene.kill_client()
        with Graph.open(scene.root) as graph:
            page = graph.changes.poll(limit=1_000_000)
        expected = [
            (change.to_json(), block.commit.commit_id)
            for block in page.blocks
            for change in block.changes
        ]
        last = page.blocks[-1].commit.commit_id
        until(
            lambda: any(
                block["cause"]["graph_commit_id"] == last and block["is_complete"]
                for block in scene.blocks()[-3:]
            ),
            "the follower has caught up",
        )
        assert followed(scene.blocks()) == expected
    finally:
        scene.close()


def followed(blocks: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """The changes of the stored blocks, each block once: it may have been stored twice."""
    once = {(block["cause"]["graph_commit_id"], block["cursor"]): block for block in blocks}
    return [(change, commit) for (commit, _), block in once.items() for change in block["changes"]]


def test_a_follower_of_events_survives_kills(tmp_path: Path) -> None:
    check(tmp_path, "events", 1, ["server", "client"], seed=1)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "workers"), [("events", 2), ("poll", 1)])
def test_a_follower_survives_fifty_kills(tmp_path: Path, mode: str, workers: int) -> None:
    kills = Random(mode).choices(["client", "server"], k=25)
    check(tmp_path, mode, workers, kills, seed=workers)


def test_streams_of_readers_see_other_processes_and_end_with_the_server(tmp_path: Path) -> None:
    """A reader process tells its streams about commits, and a drain ends them cleanly."""
    scene = Scene(tmp_path, "events", 2)
    try:
        scene.server.await_listening()
        with Graph.open(scene.root, durability="os") as graph:
            made = graph.load([{"type": "Person", "data": {"name": "Ada"}}]).commit_id
        until(
            lambda: [block["cause"]["graph_commit_id"] for block in scene.blocks()][-1:] == [made],
            "the stream has the commit of another process",
        )
        assert scene.server.stop() == 0
        assert not [event for event in scene.server.events() if event["event"] == "slow request"]
    finally:
        scene.close()
