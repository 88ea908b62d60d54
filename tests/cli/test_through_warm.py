"""The tests of commands, run with a warm process: the same streams and exit codes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rotation import in_turn
from tests.sampling import rotating

FOLDER = Path(__file__).parent
OWN = {"test_warm.py", Path(__file__).name}
FILES = sorted(file.name for file in FOLDER.glob("test_*.py") if file.name not in OWN)
LEAST = {
    "test_data_commands.py": 30,
    "test_every_command.py": 10,
    "test_history_commands.py": 20,
    "test_hostile_text.py": 15,
    "test_log.py": 5,
}
"""How many commands of these files the warm process takes at least, also on a busy machine."""
DIVIDED = {"test_history_commands.py", "test_log.py"}
"""Files of which a day's share of the tests runs too few commands: here all of it runs."""
ALL = ("-m", "not fuzz and (sampled or not slow)")
DAYS = 3
"""In so many days the slow tests of every file have run with a warm process."""


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the warm process needs Linux")


def run_warm_tests(name: str, *options: str) -> int:
    """Run the tests of a file; returns how many commands ran in a warm process."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_XD")}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--warm", *options]
    done = subprocess.run(
        [*command, str(FOLDER / name)],
        cwd=FOLDER.parent.parent,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    # 5: none of its tests was chosen.
    assert done.returncode in (0, 5), done.stdout
    count = re.search(r"run in the warm process: (\d+)", done.stdout)
    return int(count[1]) if count else 0


@pytest.mark.parametrize("name", rotating(FILES, 1, "files through a warm process"))
def test_the_commands_of_a_file_run_in_a_warm_process(name):
    options = ALL if name in DIVIDED else ()
    assert run_warm_tests(name, *options) >= LEAST.get(name, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", in_turn(FILES, DAYS))
def test_the_slow_commands_of_a_file_run_in_a_warm_process(name):
    run_warm_tests(name, "-m", "slow")
