"""Places for graphs that several processes write to, and the processes themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from omnigraph.api.graph import Graph
from omnigraph.storage.objects.paths import Root, parse_root
from tests.concurrency import workers
from tests.fork_server import fork_context

_SECONDS = 240

_ALWAYS_ON_S3 = (
    "test_of_processes_that_create_one_branch_exactly_one_wins",
    "test_of_processes_that_init_one_root_exactly_one_wins",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Crowds on S3 take long: some are always run there, the others with the slow tests."""
    for item in items:
        if Path(__file__).parent not in item.path.parents or "[s3" not in item.name:
            continue
        if not item.name.startswith(_ALWAYS_ON_S3):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=["local", "s3"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    """Where a graph goes: on the disk, and on a real S3 server."""
    if request.param == "local":
        return parse_root(str(tmp_path / "g.omni"))
    make: Callable[[str], Root] = request.getfixturevalue("s3_root")
    return make("g.omni")


@pytest.fixture
def new_graph(location: Root) -> Callable[[str], Graph]:
    def make(schema: str) -> Graph:
        return Graph.init(location.uri, schema, durability="os", storage_options=location.options)

    return make


class Processes:
    """Processes that start their work at the same moment."""

    def __init__(self, location: Root) -> None:
        self._location = location
        self._running: list[tuple[BaseProcess, Connection]] = []

    def run(self, *tasks: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
        """One process for each task; gives what each of them answered, in order."""
        context = fork_context()
        for name, arguments in tasks:
            given = {
                "uri": self._location.uri,
                "options": dict(self._location.options),
                **arguments,
            }
            ours, theirs = context.Pipe()
            process = context.Process(target=workers.process, args=(theirs, name, given))
            process.start()
            theirs.close()
            self._running.append((process, ours))
        until = time.monotonic() + _SECONDS
        responses = [self._answer(connection, until) for _, connection in self._running]
        assert responses == [workers.READY] * len(tasks)
        for _, connection in self._running:
            connection.send(workers.GO)
        results = [self._answer(connection, until) for _, connection in self._running]
        for process, _ in self._running:
            process.join(_SECONDS)
        assert [process.exitcode for process, _ in self._running] == [0] * len(tasks), results
        self.end()
        return results

    @staticmethod
    def _answer(connection: Connection, until: float) -> Any:
        assert connection.poll(max(until - time.monotonic(), 0)), "a process hangs"
        return connection.recv()

    def end(self) -> None:
        for process, connection in self._running:
            process.kill()
            process.join()
            connection.close()
        self._running.clear()


@pytest.fixture
def processes(location: Root) -> Iterator[Processes]:
    running = Processes(location)
    try:
        yield running
    finally:
        running.end()
