"""Starts the processes of the soak, waits for them, and tells what happened when one fails."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

TOP = Path(__file__).parent.parent.parent
GRACE = 120.0
"""Seconds after the end of the time within which everybody has to be done."""
_TAIL = 4000


class Workers:
    """Processes that start at the same moment, each a fresh interpreter."""

    def __init__(self, uri: str, folder: Path, seed: int, seconds: float, min_age: float) -> None:
        self._given = {
            "uri": uri,
            "folder": str(folder),
            "seed": seed,
            "seconds": seconds,
            "min_age": min_age,
        }
        self._folder = folder
        self._seconds = seconds
        self._running: dict[str, subprocess.Popen[str]] = {}

    def add(self, part: str, *names: str) -> None:
        given = json.dumps({**self._given, "part": part, "names": names})
        with self._errors(names[0]).open("w") as errors:
            self._running[names[0]] = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.process", given],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=TOP,
            )

    def _errors(self, name: str) -> Path:
        return self._folder / f"{name}.err"

    def run(self) -> None:
        """Let them all play; one that fails, dies or hangs is a failure of the test."""
        for name, process in self._running.items():
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready", self._reported(name)
        for process in self._running.values():
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        until = time.monotonic() + self._seconds + GRACE
        for process in self._running.values():
            try:
                process.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"not everybody ended:\n{self._stacks()}") from None
        failed = [name for name, process in self._running.items() if process.returncode]
        assert not failed, "\n".join(self._reported(name) for name in failed)

    def _reported(self, name: str) -> str:
        code = self._running[name].poll()
        return f"== {name} ended with {code}\n{self._errors(name).read_text()[-_TAIL:]}"

    def _stacks(self) -> str:
        """Where everybody is who has not ended."""
        matches = []
        for name, process in self._running.items():
            if process.poll() is not None:
                matches.append(self._reported(name))
                continue
            process.send_signal(signal.SIGUSR1)
            path, until = self._folder / f"{name}.stacks", time.monotonic() + 10
            # The last thread is the main one, which joins the others.
            while "process.py" not in path.read_text() and time.monotonic() < until:
                time.sleep(0.05)
            matches.append(f"== {name} is at\n{path.read_text()}")
        return "\n".join(matches)

    def end(self) -> None:
        for process in self._running.values():
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
