"""One harness for all crash tests of a session."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

import pytest

from tests.crash.harness import Harness


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
