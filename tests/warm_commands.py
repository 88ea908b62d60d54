"""``pytest --warm`` runs the commands of tests in a warm process, as far as it takes them.

Commands in processes of their own find it by the environment, as those of a user do. Commands that
tests run inside their own process go through the same client, with files for their streams; what
the warm process refuses runs here, as always. Without the option no command uses a warm process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from omnigraph import cli
from omnigraph.cli.warm.client import run_warm

SWITCH, RUNTIME = "OMNIGRAPH_WARM", "XDG_RUNTIME_DIR"
COUNT = pytest.StashKey[int]()
PROGRAM = [sys.executable, "-m", "omnigraph.cli"]


def pytest_configure() -> None:
    """Tests do not use the warm process that the user of this machine may have."""
    os.environ[SWITCH] = "off"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--warm", action="store_true", help="run commands in a warm process")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--warm"):
        for item in items:
            mark = item.get_closest_marker("own_process")
            if mark is not None:
                item.add_marker(pytest.mark.skip(reason=mark.args[0]))


@pytest.fixture(scope="session", autouse=True)
def _warm_process(request: pytest.FixtureRequest) -> Iterator[None]:
    if not request.config.getoption("--warm"):
        yield
        return
    folder = tempfile.mkdtemp(prefix="omnigraph-warm-")
    environ = {SWITCH: "auto", RUNTIME: folder}
    before = {name: os.environ.get(name) for name in environ}
    os.environ.update(environ)
    subprocess.run([*PROGRAM, "warm", "start"], check=True, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        status = subprocess.run([*PROGRAM, "warm", "status", "--json"], capture_output=True)
        request.config.stash[COUNT] = json.loads(status.stdout)["commands_run"]
        subprocess.run([*PROGRAM, "warm", "stop"], check=True, stdout=subprocess.DEVNULL)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        shutil.rmtree(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    count = terminalreporter.config.stash.get(COUNT, None)
    if count is not None:
        terminalreporter.write_line(f"commands run in the warm process: {count}")


def main(arguments: list[str]) -> int:
    """Run a command in this process, or through the warm one; the streams are those of ``sys``."""
    if os.environ.get(SWITCH) == "off" or sys.stdin is None:
        return cli.main(arguments)
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(sys.stdin.buffer.read())
        for file in files:
            file.seek(0)
        code = run_warm(arguments, (files[0].fileno(), files[1].fileno(), files[2].fileno()))
        if code is None:
            sys.stdin.buffer.seek(0)
            return cli.main(arguments)
        for file, stream in zip(files[1:], (sys.stdout, sys.stderr), strict=True):
            file.seek(0)
            stream.buffer.write(file.read())
            stream.flush()
        return code
