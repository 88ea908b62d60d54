"""A run that was interrupted goes on with the tests that have not passed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = """
import pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("given", ["a", "a@b"])
def test_good(given):
    pass

def test_bad():
    assert False
"""


def test_what_has_passed_is_left_out_next_time(tmp_path: Path):
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.passed_tests", "-p", "no:cacheprovider"]
    command += ["-n", "1", "--dist", "loadgroup", "--passed", "passed"]
    said = []
    for _ in range(2):
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        said.append(done.stdout.splitlines()[-1])
    assert "1 failed, 2 passed" in said[0]
    assert "1 failed" in said[1]
    assert "passed" not in said[1]
    assert sorted((tmp_path / "passed").read_text().split()) == [
        "test_some.py::test_good[a@b]",
        "test_some.py::test_good[a]",
    ]
