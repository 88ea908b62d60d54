"""A start of Java that is interrupted leaves neither a process nor a file, at whatever moment."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import SparkUnavailable
from omnigraph.spark import SparkConfig
from omnigraph.spark.session.interrupts import deferred_interrupts
from omnigraph.spark.session.java import find_java
from omnigraph.spark.session.launch import start_jvm
from tests.spark.javas import make_java
from tests.spark.processes import processes_with, wait_until


class Stopped(BaseException):
    """What the handler of a program raises."""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Both signals raise; a handler of the tests may not be the one of Python."""

    def stop(number: int, frame: object) -> None:
        raise Stopped

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, stop)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where everything is written; it is in the arguments of every process that is started."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def interrupting(
    function: Callable[..., Any], *, number: int = signal.SIGINT, after: bool = False
) -> Callable[..., Any]:
    def interrupted(*arguments: Any, **named: Any) -> Any:
        if not after:
            signal.raise_signal(number)
        done = function(*arguments, **named)
        if after:
            signal.raise_signal(number)
        return done

    return interrupted


def assert_nothing_is_left(tmp_path: Path) -> None:
    wait_until(lambda: not processes_with(str(tmp_path)))
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [
        (tempfile, "mkstemp", False),
        (subprocess.Popen, "_execute_child", False),
        # Forked, and the number of the process is known to nobody.
        (subprocess, "_fork_exec", True),
        (subprocess.Popen, "_execute_child", True),
        (time, "sleep", False),
    ],
)
@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Stopped)]
)
def test_interrupted_once(endless_java, tmp_path, monkeypatch, owner, name, after, number, raised):
    monkeypatch.setattr(owner, name, interrupting(getattr(owner, name), number=number, after=after))
    with pytest.raises(raised):
        start_jvm(SparkConfig(java_home=str(endless_java), archive="off"))
    monkeypatch.undo()
    assert_nothing_is_left(tmp_path)


def test_interrupted_again_while_it_is_cleaned_up(endless_java, tmp_path, monkeypatch):
    for owner, name in ((time, "sleep"), (shutil, "rmtree"), (subprocess.Popen, "wait")):
        monkeypatch.setattr(owner, name, interrupting(getattr(owner, name)))
    with pytest.raises(KeyboardInterrupt):
        start_jvm(SparkConfig(java_home=str(endless_java), archive="off"))
    monkeypatch.undo()
    assert_nothing_is_left(tmp_path)


def test_an_interrupted_start_does_not_blame_the_archive(endless_java, tmp_path, monkeypatch):
    """A start that fails discards the archive and tries without; an interrupted one is over."""
    cache = tmp_path / "cache"
    built = SparkConfig(java_home=str(endless_java), archive="build", cache_dir=str(cache))
    monkeypatch.setattr(time, "sleep", interrupting(time.sleep))
    with pytest.raises(KeyboardInterrupt):
        start_jvm(built)
    (starts,) = (cache / "spark").glob("*.starts")
    archive = starts.with_suffix(".jsa")
    archive.touch()
    with pytest.raises(KeyboardInterrupt):
        start_jvm(built)
    monkeypatch.undo()
    assert archive.exists()
    assert_nothing_is_left(tmp_path)


def test_a_java_that_cannot_be_asked_is_a_typed_error_and_is_ended(tmp_path):
    """It says where it listens, and that is nonsense."""
    home = make_java(tmp_path / "java", 'echo x > "$_PYSPARK_DRIVER_CONN_INFO_PATH"')
    with pytest.raises(SparkUnavailable, match="Java ended before Spark could start"):
        start_jvm(SparkConfig(java_home=str(home), archive="off"))
    assert_nothing_is_left(tmp_path)


def test_interrupted_while_java_is_asked_for_its_version(tmp_path, monkeypatch):
    home = make_java(tmp_path / "java")
    (home / "release").unlink()
    monkeypatch.setattr(subprocess.Popen, "wait", interrupting(subprocess.Popen.wait))
    monkeypatch.setattr(subprocess.Popen, "communicate", interrupting(subprocess.Popen.communicate))
    with pytest.raises(KeyboardInterrupt), deferred_interrupts():
        find_java(str(home), ())
    monkeypatch.undo()
    assert_nothing_is_left(tmp_path)


# -- sections -------------------------------------------------------------------------------------


def test_a_handler_that_does_not_raise_runs_at_once_and_changes_nothing():
    calls: list[int] = []
    reactions: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: calls.append(number))
    with deferred_interrupts(lambda: reactions.append(1)) as interrupts:
        signal.raise_signal(signal.SIGTERM)
        assert calls == [signal.SIGTERM]
        interrupts.check()
    assert reactions == []


def test_sections_inside_one_another_raise_once_and_all_react():
    reactions: list[str] = []
    before = signal.getsignal(signal.SIGINT)

    def work() -> None:
        with deferred_interrupts(lambda: reactions.append("outer")) as interrupts:
            with deferred_interrupts(lambda: reactions.append("inner")):
                signal.raise_signal(signal.SIGINT)
            with deferred_interrupts(lambda: reactions.append("later")):
                assert isinstance(interrupts.raised, KeyboardInterrupt)
            raise LookupError("because of it")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert isinstance(caught.value.__context__, LookupError)
    assert reactions == ["inner", "outer", "later"]
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_has_no_handlers_to_defer():
    raised: list[BaseException] = []

    def work() -> None:
        try:
            with deferred_interrupts() as interrupts:
                interrupts.check()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert raised == []
