"""Places for graphs that several processes write to, and the processes themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.graph import Graph
from omnigraph.storage.roots import Root, parse_root

TOP = Path(__file__).parent.parent.parent
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
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    """Where a graph goes: on the disk, and on a real S3 server."""
    if request.param == "local":
        return parse_root(str(tmp_path / "g.omni"))
    make: Callable[[str], Root] = request.getfixturevalue("s3_root")
    return make("g.omni")


@pytest.fixture
def new_graph(place: Root) -> Callable[[str], Graph]:
    def make(schema: str) -> Graph:
        return Graph.init(place.uri, schema, durability="os", storage_options=place.options)

    return make


class Crowd:
    """Processes that start their work at the same moment."""

    def __init__(self, place: Root) -> None:
        self._place = place
        self._running: list[subprocess.Popen[str]] = []

    def run(self, *tasks: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
        """One process for each task; gives what each of them told, in order."""
        for name, arguments in tasks:
            given = {"uri": self._place.uri, "options": dict(self._place.options), **arguments}
            self._running.append(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.concurrency.workers", name, json.dumps(given)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=TOP,
                )
            )
        for process in self._running:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
        for process in self._running:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        told = [process.communicate(timeout=_SECONDS)[0] for process in self._running]
        assert [process.returncode for process in self._running] == [0] * len(tasks)
        self._running.clear()
        return [json.loads(text.splitlines()[-1]) for text in told]

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


@pytest.fixture
def crowd(place: Root) -> Iterator[Crowd]:
    running = Crowd(place)
    try:
        yield running
    finally:
        running.end()
