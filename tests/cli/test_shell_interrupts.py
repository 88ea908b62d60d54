"""A Ctrl-C is taken by what the shell does at that moment, and by nothing after it."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

import pytest

from omnigraph.cli.shell_interrupts import Interrupts


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    before, threads = signal.getsignal(signal.SIGINT), threading.active_count()
    with Interrupts() as interrupts:
        yield interrupts
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.set_wakeup_fd(-1) == -1
    assert threading.active_count() == threads


@pytest.fixture
def silent() -> Iterator[int]:
    """Something to read from, and nothing comes."""
    reading, writing = os.pipe()
    yield reading
    os.close(reading)
    os.close(writing)


def signal_and_wait(*waits: Any) -> partial[list[Any]]:
    """Built-in functions only: the signal is there, and no instruction of Python notices it."""
    send = map(ctypes.CDLL(None)["raise"], [signal.SIGINT])
    return partial(list, chain(send, *waits))


def test_a_signal_just_before_the_wait_for_a_key_is_noticed_without_a_key(interrupts, silent):
    with pytest.raises(KeyboardInterrupt):
        interrupts.read(signal_and_wait(map(partial(os.read, silent), [1])))


def test_a_signal_while_python_is_called_back_is_raised_after_that(interrupts, silent):
    """What is raised in a completion is dropped by readline."""
    calls: list[str] = []

    def complete(_: int) -> None:
        signal.raise_signal(signal.SIGINT)
        calls.append("completed")

    with pytest.raises(KeyboardInterrupt):
        interrupts.read(
            partial(list, chain(map(complete, [1]), map(partial(os.read, silent), [1])))
        )
    assert calls == ["completed"]


def test_a_signal_between_two_statements_is_for_what_comes_next(interrupts):
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupts.read(str)
    assert interrupts.read(str) == ""
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupts.running():
        raise AssertionError("it was given up before")


def test_signals_while_a_statement_is_given_up_belong_to_it(interrupts):
    with pytest.raises(KeyboardInterrupt), interrupts.running():
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    interrupts.give_up()
    assert interrupts.read(str) == ""


def test_a_signal_that_was_answered_does_not_reach_the_next_line(interrupts, silent):
    calls: list[int] = []
    with interrupts.running(), interrupts.reacting(lambda: calls.append(1)):
        signal.raise_signal(signal.SIGINT)
    # Longer than it takes to send one again.
    assert interrupts.read(partial(select.select, [silent], [], [], 0.1)) == ([], [], [])
    assert calls == [1]
