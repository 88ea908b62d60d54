"""A program of its own that uses Spark and ends in a way that a test asks for.

Run as a program it opens Spark, says which processes it has, and then does as it is told.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyspark import SparkContext

from omnigraph.errors import OmniGraphError, SparkError
from omnigraph.spark import SparkConfig, SparkEngine, open_spark
from omnigraph.spark.session import engine as spark_session
from tests.spark import work
from tests.spark.processes import alive, descendants, name_of, wait_until

ROOT = Path(__file__).parent.parent.parent


class Child:
    """A running program: its own number, what it said, and every process below it."""

    def __init__(
        self, config: SparkConfig, ending: str, *, is_ready: bool = True, interrupt_at: str = ""
    ) -> None:
        """``interrupt_at`` names what is interrupted: ``module:name``, before it is called."""
        self._location = tempfile.TemporaryDirectory()
        self.folder = Path(self._location.name)
        reported = [
            b64encode(pickle.dumps(config)).decode(),
            ending,
            str(self.folder),
            interrupt_at,
        ]
        with open(self.folder / "out", "wb") as out, open(self.folder / "err", "wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.children", *reported],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                # Its own group, as a program at a terminal has: a test can interrupt all of it.
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(self.folder)},
            )
        if not is_ready:
            return
        ready = self.folder / "ready"
        wait_until(lambda: ready.exists() or self.process.poll() is not None)
        assert ready.exists(), self.output()
        self.said: dict[str, Any] = json.loads(ready.read_text("utf-8"))
        self.below = descendants(self.process.pid)

    def names(self) -> set[str]:
        return {name_of(process) for process in self.below}

    def output(self) -> tuple[str, str]:
        return (self.folder / "out").read_text("utf-8"), (self.folder / "err").read_text("utf-8")

    def go(self) -> None:
        """Let it come to its end."""
        (self.folder / "go").touch()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._location.cleanup()


def ended(child: Child) -> tuple[int, str, str]:
    """Let a child end and wait until nothing of it is left: its status, and what it printed."""
    child.go()
    status = child.process.wait()
    wait_until(lambda: not any(map(alive, child.below)))
    wait_until(lambda: not Path(child.said["scratch"]).exists())
    return status, *child.output()


# -- the program ----------------------------------------------------------------------------------


def main() -> None:
    config: SparkConfig = pickle.loads(b64decode(sys.argv[1]))
    ending, folder, interrupt_at = sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    if interrupt_at:
        interrupt_before(interrupt_at)
    try:
        engine = open_spark(config)
    except KeyboardInterrupt as interruption:
        ENDINGS[ending](interruption, folder)
        return
    assert engine.jvm is not None
    # Both workers are there, and a job has failed.
    assert engine.tasks(work.double, range(4), "doubling") == [0, 2, 4, 6]
    with suppress(OmniGraphError):
        engine.tasks(work.refuse_odd, [1], "checking")
    facts = {
        "java": engine.jvm.pid,
        "scratch": str(engine.jvm.scratch),
        "builds_archive": engine.jvm.builds_archive,
    }
    marks = folder / "marks"
    marks.mkdir()
    (folder / "ready.new").write_text(json.dumps(facts), "utf-8")
    (folder / "ready.new").rename(folder / "ready")
    ENDINGS[ending](engine, folder)


def interrupt_before(name: str) -> None:
    """Interrupt this process whenever a function is called, just before it does anything."""
    module, _, path = name.partition(":")
    *owners, attribute = path.split(".")
    owner: Any = importlib.import_module(module)
    for item in owners:
        owner = getattr(owner, item)
    function = getattr(owner, attribute)

    @wraps(function)
    def interrupted(*arguments: Any, **named: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return function(*arguments, **named)

    setattr(owner, attribute, interrupted)


def close(engine: SparkEngine, folder: Path) -> None:
    work.wait_for(folder / "go")
    engine.close()


def close_and_open_again(engine: SparkEngine, folder: Path) -> None:
    work.wait_for(folder / "go")
    assert engine.jvm is not None
    first = engine.jvm.pid
    path, environ = list(sys.path), dict(os.environ)
    engine.close()
    assert not alive(first)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with open_spark(SparkConfig("local[1,4]", memory="1g")) as again:
        assert again.tasks(work.double, [4], "doubling") == [8]
    assert not {*sys.path} - {*path}
    assert dict(os.environ) == environ


def just_end(engine: SparkEngine, folder: Path) -> None:
    work.wait_for(folder / "go")


def raise_error(engine: SparkEngine, folder: Path) -> None:
    work.wait_for(folder / "go")
    raise LookupError("the program is wrong")


def work_for_ever(engine: SparkEngine, folder: Path) -> None:
    engine.tasks(work.wait_for_ever, [folder / "marks"] * 2, "waiting")


def keep_the_interruption(interruption: KeyboardInterrupt, folder: Path) -> None:
    """The error lives on, as the last one of a notebook does."""
    work.wait_for(folder / "go")


def leave_nothing(interruption: KeyboardInterrupt, folder: Path) -> None:
    """Interrupted while it was opened, Spark is as if nobody had asked for it."""
    wait_until(lambda: not any(map(alive, descendants(os.getpid()))))
    assert not list(folder.glob("omnigraph-spark-*"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert spark_session._driver is None
    assert SparkContext._active_spark_context is None


def close_interrupted(engine: SparkEngine, folder: Path) -> None:
    """Interrupted again and again while it is closed."""
    for name in ("subprocess:Popen.wait", "shutil:rmtree", "pyspark:SparkContext.stop"):
        interrupt_before(name)
    try:
        engine.close()
    except KeyboardInterrupt as interruption:
        leave_nothing(interruption, folder)
    else:
        raise AssertionError("the interrupt was lost")


def work_without_java(engine: SparkEngine, folder: Path) -> None:
    """Java is killed in the middle of a job; the next start is a new one."""
    failure: OmniGraphError | None = None
    try:
        engine.tasks(work.wait_for_ever, [folder / "marks"], "waiting")
    except OmniGraphError as error:
        failure = error
    assert str(failure) == "waiting: Spark has ended"
    with suppress(SparkError):
        engine.tasks(work.double, [4], "doubling")
    wait_until(lambda: not engine.is_alive)
    with open_spark(SparkConfig("local[1,4]", memory="1g")) as again:
        assert again.tasks(work.double, [4], "doubling") == [8]
        # The handle of what has died takes nothing of the new one with it.
        engine.close()
        assert again.is_alive


ENDINGS: dict[str, Callable[..., None]] = {
    function.__name__: function
    for function in (
        close,
        close_and_open_again,
        close_interrupted,
        just_end,
        keep_the_interruption,
        leave_nothing,
        raise_error,
        work_for_ever,
        work_without_java,
    )
}


if __name__ == "__main__":
    main()
