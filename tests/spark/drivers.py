"""A driver of Spark in a process of its own, which does what a test tells it and can be killed.

The test sends functions with their arguments and gets what they return or raise. Run as a program
this module is such a process.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import traceback
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.spark.processes import alive, descendants, wait_until

ROOT = Path(__file__).parent.parent.parent


class DriverProcess:
    """A process that may start Spark; it and all below it are gone when it is closed."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "driver.log"
        self._seen: set[int] = set()
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.drivers"],
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._thread = ThreadPoolExecutor(1)

    def start(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Have something done; the test goes on meanwhile."""
        return self._thread.submit(self._ask, function, args)

    def do(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.start(function, *args).result()

    def _ask(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(b64encode(pickle.dumps((function, args))) + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"the driver has ended:\n{self.said()}")
        is_error, answer = pickle.loads(b64decode(line))
        if is_error:
            raise answer
        return answer

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def kill(self) -> None:
        """End it as a machine that loses power would."""
        self._seen |= descendants(self.process.pid)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def wait(self) -> int:
        """Wait for an end that it finds by itself."""
        return self.process.wait()

    def note_children(self) -> None:
        """Remember what runs below it; after its death nobody can tell."""
        self._seen |= descendants(self.process.pid)

    def wait_for_children(self) -> None:
        """Wait until nothing of what was below it runs."""
        wait_until(lambda: not any(map(alive, self._seen)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.note_children()
            self.process.kill()
        self.close()

    def close(self) -> None:
        """Let it end as programs do, and wait until nothing of it runs."""
        self.note_children()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self._thread.shutdown()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.wait_for_children()


def main() -> None:
    # What libraries print is no answer.
    responses = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        function, args = pickle.loads(b64decode(line))
        try:
            answer = (False, function(*args))
        except Exception as error:
            traceback.print_exc()
            answer = (True, error)
        responses.write(b64encode(_pickled(answer)) + b"\n")
        responses.flush()


def _pickled(answer: tuple[bool, Any]) -> bytes:
    try:
        actual = pickle.dumps(answer)
        pickle.loads(actual)
        return actual
    except Exception:
        return pickle.dumps((True, RuntimeError(repr(answer[1]))))


if __name__ == "__main__":
    main()
