"""Damaged files under queries and writes: the answer is right or the damage is named."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.crash.zygote import ENVIRONMENT
from tests.faults.damaged_reads import DAMAGED, Case, make
from tests.rotation import sample

pytestmark = pytest.mark.rotates(6)

TOP = Path(__file__).parent.parent.parent


class Server:
    """The program that answers cases, one child for each."""

    def __init__(self, made: Path, program: str = "damaged_reads") -> None:
        self.made = made
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"tests.faults.{program}", str(made)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=TOP,
            env={**os.environ, **ENVIRONMENT},
        )

    def ask(self, case: Case | None, *, writes: bool = False) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"case": case, "writes": writes}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        reported: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert reported["exit"] == 0, f"the process ended: {case}, {reported}"
        return dict(reported["answers"])

    def close(self) -> None:
        """It ends when its input does."""
        self._process.communicate(timeout=60)


def made_by(make: Callable[[Path], None], folder: Path) -> Path:
    """A graph to be copied: back to the place where it was made, so that it is not a moved one."""
    make(folder / DAMAGED)
    shutil.copytree(folder / DAMAGED, folder / "made.omni")
    return folder / "made.omni"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(made_by(make, tmp_path_factory.mktemp("damaged")))
    yield server
    server.close()


@pytest.fixture(scope="module")
def right(server):
    """The answers on good files, without and with writes before."""
    return {writes: server.ask(None, writes=writes) for writes in (False, True)}


def files_of(made: Path, *patterns: str) -> list[Path]:
    return sorted(f for p in patterns for f in made.glob(p) if f.is_file())


INDEXES = ("nodes/*/_indices/*/*", "edges/*/_indices/*/*")
MARKS = ("nodes/*/_deletions/*", "edges/*/_deletions/*", "__manifest/_deletions/*")
VERSIONS = ("nodes/*/_versions/*.manifest", "edges/*/_versions/*.manifest")


def cases_of(made: Path, files: list[Path]) -> list[Case]:
    """Blocks of zeros, single bytes and cuts, all over some files."""
    cases = []
    for file in files:
        name, size = str(file.relative_to(made)), file.stat().st_size
        cases += [Case(name, "zero", at) for at in range(0, size, 512)]
        cases += [Case(name, "flip", at) for at in range(7, size, max(1, size // 40))]
        cases += [Case(name, "cut", at) for at in (0, size // 2, size - 1)]
    return cases


def check_index(server, right, case):
    """An index that is damaged is not asked, by a query or by a write."""
    for writes in (False, True):
        assert server.ask(case, writes=writes) == right[writes], case


def check_table(server, right, case):
    """What hides rows, or says which there are, is damaged: nothing wrong is answered."""
    for name, answer in server.ask(case).items():
        assert answer in (right[False].get(name), "storage_corrupt"), (case, name)


def newest(made: Path, *patterns: str) -> list[Path]:
    """The newest version files: Lance counts down."""
    by_folder = {file.parent: file for file in reversed(files_of(made, *patterns))}
    return sorted(by_folder.values())


def test_a_damaged_index_is_not_asked(server, right):
    for case in sample(cases_of(server.made, files_of(server.made, *INDEXES)), 5, "indexes"):
        check_index(server, right, case)


def test_a_damaged_deletion_file_is_named(server, right):
    for case in sample(cases_of(server.made, files_of(server.made, *MARKS)), 8, "marks"):
        check_table(server, right, case)


def test_a_deletion_file_that_hides_other_rows_is_named(server, right):
    """It is whole and can be read; only its checksum tells."""
    (file,) = server.made.glob("nodes/*/_deletions/*.arrow")
    with pa.ipc.open_file(str(file)) as reader:
        rows = reader.read_all().column(0).to_pylist()
    row = file.read_bytes().index(struct.pack(f"<{len(rows)}I", *rows))
    case = Case(str(file.relative_to(server.made)), "flip", row)
    assert server.ask(case)["names"] == "storage_corrupt"


def test_a_damaged_version_file_is_named(server, right):
    files = newest(server.made, *VERSIONS, "__manifest/_versions/*.manifest")
    for case in sample(cases_of(server.made, files), 8, "versions"):
        check_table(server, right, case)


@pytest.mark.slow
def test_every_index_damaged_all_over(server, right):
    for file in files_of(server.made, *INDEXES):
        for case in sample(cases_of(server.made, [file]), 8, f"all {file.name}"):
            check_index(server, right, case)


@pytest.mark.slow
def test_every_deletion_and_version_file_damaged_all_over(server, right):
    files = files_of(server.made, *MARKS)
    files += newest(server.made, *VERSIONS, "__manifest/_versions/*.manifest")
    for file in files:
        for case in sample(cases_of(server.made, [file]), 120, f"all {file.name}"):
            check_table(server, right, case)
