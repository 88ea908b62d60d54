"""One harness for all crash tests of a session, and every scenario built once."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.harness import Harness
from tests.crash.scenarios import Ready, Scenario

_MEMORY = "/dev/shm"


@pytest.fixture(scope="session")
def crash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """Runs operations in child processes and kills them."""
    if sys.platform != "linux":
        pytest.skip("system calls are traced with strace, which only Linux has")
    if shutil.which("strace") is None:
        pytest.fail("strace is missing; tools/ensure-strace installs it")
    harness = Harness(tmp_path_factory.mktemp("crash"))
    yield harness
    harness.close()


@pytest.fixture(scope="session")
def arena() -> Iterator[Path]:
    """Where graphs are made and crashed: in memory if possible, a kill does not reach disks."""
    location = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="omnigraph-crash-", dir=location) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def ready(crash: Harness, arena: Path) -> Callable[[Scenario], Ready]:
    """A scenario with its graph built; each is built once."""

    @functools.cache
    def get(scenario: Scenario) -> Ready:
        folder = arena / scenario.name.replace(" ", "-")
        folder.mkdir()
        return scenario.ready(folder, crash)

    return get
