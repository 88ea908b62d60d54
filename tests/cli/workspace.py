"""A directory with files, and the command as a user runs it there.

``process`` starts a real one. ``run`` gives the same arguments and streams to the same function
inside the tests' own process, which takes no time to start.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

from tests.warm_commands import main


class Workspace:
    """A directory with files, and the command run in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.directory / name
        path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)
        return path

    def process(
        self, *arguments: str, stdin: bytes = b"", **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """In a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "omnigraph.cli", *arguments],
            cwd=self.directory,
            input=stdin,
            capture_output=True,
            env=self._environ(environ),
            timeout=120,
            check=False,
        )
        return _done(list(arguments), done.returncode, done.stdout, done.stderr)

    def run(
        self, *arguments: str, stdin: bytes = b"", **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """In this process, with streams and a directory of its own."""
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
        with (
            contextlib.chdir(self.directory),
            mock.patch.dict(os.environ, self._environ(environ), clear=True),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8")),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = main(list(arguments))
            out.flush()
            err.flush()
        reported, said = (stream.buffer.getvalue() for stream in (out, err))  # type: ignore[attr-defined]
        return _done(list(arguments), code, reported, said)

    def _environ(self, more: dict[str, str]) -> dict[str, str]:
        return {**os.environ, "OMNIGRAPH_HOME": str(self.directory / ".operator"), **more}


def _done(
    arguments: list[str], code: int, out: bytes, err: bytes
) -> subprocess.CompletedProcess[str]:
    said = err.decode("utf-8")
    assert "Traceback" not in said
    assert "internal error" not in said, said
    return subprocess.CompletedProcess(arguments, code, out.decode("utf-8"), said)


def assert_fails(done, text: str) -> None:
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("Error:")
    assert text in done.stderr
