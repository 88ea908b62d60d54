"""A result that cannot be written is a failure, of every command; a remark that cannot be is none.

The streams are full, closed, or have lost their reader.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import subprocess
import sys
from unittest import mock

import pytest

from omnigraph import cli
from tests.cli.test_every_command import CASES, READ, SERVED, STARTING, workspace
from tests.cli.workspace import Workspace
from tests.rotation import sample

MODES = ("closed", "full", "gone")
SILENT = {"fmt"}
"""They have no result when all is well."""
SAID = "Error: the result could not be written to stdout: "
NO_FULL = not os.path.exists("/dev/full")


class Failing(io.RawIOBase):
    """A device that takes nothing."""

    def __init__(self, number: int) -> None:
        self._number = number

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        raise OSError(self._number, os.strerror(self._number))


def stream(mode: str) -> io.TextIOWrapper | None:
    if mode == "closed":
        return None
    number = errno.ENOSPC if mode == "full" else errno.EPIPE
    return io.TextIOWrapper(io.BufferedWriter(Failing(number)), "utf-8")


@pytest.fixture(scope="module")
def how() -> str:
    return "run"


def modes() -> list[object]:
    (quick,) = sample(range(len(MODES)), 1, "lost output")
    marks = {True: [pytest.mark.sampled], False: [pytest.mark.sampled, pytest.mark.slow]}
    return [pytest.param(mode, marks=marks[at == quick]) for at, mode in enumerate(MODES)]


@pytest.mark.parametrize("mode", modes())
def test_no_command_ends_well_when_its_result_is_lost(tmp_path_factory, mode):
    call, ids = workspace.__wrapped__(tmp_path_factory, "run")
    directory = call.__self__.directory
    for name, case in CASES.items():
        if name in SERVED or name in STARTING or name in SILENT:
            continue
        arguments = [*name.split(), *(ids.get(word, word) for word in case.works)]
        err = io.StringIO()
        environ = {
            "OMNIGRAPH_HOME": str(directory / ".operator"),
            "OMNIGRAPH_EMBEDDINGS_MOCK": "1",
        }
        out = stream(mode)
        with (
            contextlib.chdir(directory),
            mock.patch.dict(os.environ, environ),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(case.stdin), "utf-8")),
            mock.patch.object(sys, "stdout", out),
            contextlib.redirect_stderr(err),
        ):
            code = cli.main(arguments)
        if out is not None:
            with contextlib.suppress(OSError):
                out.close()
        if mode == "gone":
            assert (name, code, SAID in err.getvalue()) == (name, 141, False)
        else:
            assert (name, code, SAID in err.getvalue()) == (name, 1, True), err.getvalue()


@pytest.mark.parametrize("words", [["--help"], ["query", "--help"], ["help", "load"], ["-v"]])
@pytest.mark.parametrize("mode", MODES)
def test_help_is_a_result_too(words, mode):
    err, out = io.StringIO(), stream(mode)
    with mock.patch.object(sys, "stdout", out), contextlib.redirect_stderr(err):
        assert cli.main(words) == (141 if mode == "gone" else 1)
    if out is not None:
        with contextlib.suppress(OSError):
            out.close()


# -- processes ------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path) -> Workspace:
    actual = Workspace(tmp_path)
    actual.write("s.pg", "node Person { name: String @key }")
    actual.write("wrong.pg", "node Person { name: }")
    return actual


def shell(actual: Workspace, command: str) -> subprocess.CompletedProcess[str]:
    """Run the command with redirections; a pipe gives the status of its first program."""
    program = f'"{sys.executable}" -m omnigraph.cli'
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.replace("omnigraph", program)],
        cwd=actual.directory,
        env={**os.environ, "OMNIGRAPH_HOME": str(actual.directory / ".operator")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


EXPLAIN = f"omnigraph explain --schema s.pg -e '{READ}'"
LINT = "omnigraph lint --schema wrong.pg"
"""Its findings are shown on stderr too."""


def test_a_closed_output_fails_and_says_so(small):
    done = shell(small, f"{EXPLAIN} >&-")
    assert (done.returncode, done.stderr) == (1, f"{SAID}it is closed\n")


@pytest.mark.skipif(NO_FULL, reason="no /dev/full here")
def test_a_full_output_fails_and_says_so(small):
    done = shell(small, f"{EXPLAIN} >/dev/full; omnigraph version >/dev/full")
    assert (done.returncode, done.stderr) == (1, f"{SAID}no space left on device\n" * 2)


def test_a_reader_that_leaves_ends_it_in_silence(small):
    # It is gone before there is something to read.
    done = shell(small, f"(until [ -e gone ]; do :; done; {EXPLAIN}) | (exec <&-; touch gone)")
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(NO_FULL, reason="no /dev/full here")
@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full"])
def test_what_is_said_beside_a_result_may_be_lost(small, where):
    whole = shell(small, LINT)
    assert whole.stderr != ""
    done = shell(small, f"{LINT} {where}")
    assert (done.returncode, done.stdout, done.stderr) == (1, whole.stdout, "")
    assert shell(small, f"{LINT.replace('wrong', 's')} {where}").returncode == 0


def test_no_file_of_a_graph_takes_the_number_of_a_closed_stream(tmp_path):
    """A panic of a library would be written into it."""
    program = (
        "import os; from omnigraph.cli.descriptors import occupy_closed; occupy_closed(); "
        "number = os.open('x', os.O_CREAT | os.O_WRONLY); os._exit(number)"
    )
    done = subprocess.run(
        ["bash", "-c", f'"{sys.executable}" -c "{program}" <&- >&- 2>&-'],
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert done.returncode == 3
