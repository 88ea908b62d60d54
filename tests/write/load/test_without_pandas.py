"""A load in a new process does not load pandas, whatever it reads and whatever it finds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pandas")


def test_a_load_in_a_new_process_loads_no_pandas(tmp_path):
    script = Path(__file__).with_name("loads_without_pandas.py")
    call = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["cardinality_violation", "False"], done.stdout
