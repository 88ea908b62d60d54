"""The package as a type checker sees it from the outside."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
_ERROR = re.compile(r"^[^:]*wrong\.py:(\d+): error: .*\[([\w-]+)\]$", re.MULTILINE)


def checked(file: str) -> subprocess.CompletedProcess[str]:
    """``mypy --strict`` on one file, in a directory without a configuration of its own."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", file]
    command += ["--cache-dir", str(ROOT / ".mypy_cache" / "consumer")]
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True)


def test_a_program_of_a_user_is_clean_under_strict():
    found = checked("app.py")
    assert (found.returncode, found.stdout.splitlines()[-1:]) == (
        0,
        ["Success: no issues found in 1 source file"],
    ), found.stdout


def test_wrong_calls_are_found():
    lines = (HERE / "wrong.py").read_text("utf-8").splitlines()
    expected = [
        (number, line.split("# error: ")[1])
        for number, line in enumerate(lines, start=1)
        if "# error: " in line
    ]
    found = checked("wrong.py")
    assert [(int(line), code) for line, code in _ERROR.findall(found.stdout)] == expected
