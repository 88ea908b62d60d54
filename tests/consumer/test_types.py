"""The package as a type checker sees it from the outside."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.rotates(6)

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PYRIGHT = ROOT / ".venv" / "pyright" / "node_modules" / ".bin" / "pyright"
_ERROR = re.compile(r"^[^:]*wrong\.py:(\d+): error: .*\[([\w-]+)\]$", re.MULTILINE)


def checked(file: str) -> subprocess.CompletedProcess[str]:
    """``mypy --strict`` on one file, in a directory without a configuration of its own."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", file]
    command += ["--cache-dir", str(ROOT / ".mypy_cache" / "consumer")]
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True)


def test_a_program_of_a_user_is_clean_under_strict():
    actual = checked("app.py")
    assert (actual.returncode, actual.stdout.splitlines()[-1:]) == (
        0,
        ["Success: no issues found in 1 source file"],
    ), actual.stdout


def test_wrong_calls_are_found():
    actual = checked("wrong.py")
    assert {int(line): code for line, code in _ERROR.findall(actual.stdout)} == wrong_lines()


def wrong_lines() -> dict[int, str]:
    """The code of mypy for each line that must be refused."""
    lines = (HERE / "wrong.py").read_text("utf-8").splitlines()
    return {
        number: line.split("# error: ")[1]
        for number, line in enumerate(lines, start=1)
        if "# error: " in line
    }


def refused_by_pyright(file: str) -> set[int]:
    """The lines of one file in which Pyright finds an error."""
    if not PYRIGHT.exists():
        pytest.skip("Pyright is not installed; tools/ensure-pyright installs it")
    command = [str(PYRIGHT), "--outputjson", "--pythonpath", sys.executable, file]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1
    actual = report["generalDiagnostics"]
    return {item["range"]["start"]["line"] + 1 for item in actual if item["severity"] == "error"}


@pytest.mark.slow
def test_pyright_agrees():
    assert refused_by_pyright("app.py") == set()
    assert refused_by_pyright("wrong.py") == set(wrong_lines())
