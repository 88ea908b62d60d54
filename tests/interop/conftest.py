"""A second environment with the release of Lance that the reference program uses."""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RELEASE = "7.0.0"
PROGRAM = Path(__file__).with_name("other_program.py")
_UNREACHABLE = re.compile(
    "NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError|"
    "connection (?:broken|refused|reset)|Temporary failure in name resolution|timed out",
    re.IGNORECASE,
)


@pytest.fixture(scope="session")
def other_python() -> Path:
    """The interpreter of the second environment, which is made once and kept beside ours."""
    location = Path(sys.prefix, "interop", f"pylance-{RELEASE}")
    python, ready = location / "bin" / "python", location / "ready"
    location.parent.mkdir(exist_ok=True)
    with (location.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            venv.create(location, clear=True, with_pip=True)
            _install(python)
            ready.touch()
    return python


def _install(python: Path) -> None:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    done = subprocess.run([*command, f"pylance=={RELEASE}"], capture_output=True, text=True)
    if done.returncode:
        if _UNREACHABLE.search(done.stderr):
            pytest.skip("no package index can be reached to install the older Lance")
        pytest.fail(f"the older Lance cannot be installed:\n{done.stderr}")


@pytest.fixture(scope="session")
def other_program(other_python: Path) -> Callable[..., dict[str, Any]]:
    """Calls the other program; gives what it prints."""

    def call(verb: str, root: Path, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            [str(other_python), str(PROGRAM), verb, str(root), *arguments],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        reported: dict[str, Any] = json.loads(done.stdout)
        assert reported.pop("lance") == RELEASE
        return reported

    return call
