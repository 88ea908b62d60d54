"""A Ctrl-C is taken by what the shell does at that moment, and by nothing after it."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.cli.output.rows import Layout
from omnigraph.cli.shell.commands import run_command
from omnigraph.cli.shell.interrupts import ShellInterrupts
from omnigraph.cli.shell.session import Session
from omnigraph.cli.targets import GraphTarget
from omnigraph.commit.failpoints import Failpoint, hooked


@pytest.fixture
def interrupts() -> Iterator[ShellInterrupts]:
    before, threads = signal.getsignal(signal.SIGINT), threading.active_count()
    with ShellInterrupts() as interrupts:
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
    interrupts.clear()
    assert interrupts.read(str) == ""


def test_a_signal_that_was_answered_does_not_reach_the_next_line(interrupts, silent):
    calls: list[int] = []
    with interrupts.running(), interrupts.reacting(lambda: calls.append(1)):
        signal.raise_signal(signal.SIGINT)
    # Longer than it takes to send one again.
    assert interrupts.read(partial(select.select, [silent], [], [], 0.1)) == ([], [], [])
    assert calls == [1]


# -- writes of the shell --------------------------------------------------------------------------

DATA = '{"type": "Person", "data": {"name": "Ana"}}\n'
WRITES = {
    ".load d.jsonl": ("loaded d.jsonl", ["Ana"]),
    ".merge side": ("merged side into main", ["Bo"]),
    'insert Person { name: "Cy" }': ("changed main via shell", ["Cy"]),
    "\\branch -c made": ("created branch made", []),
}


@pytest.fixture
def graph(tmp_path, monkeypatch) -> Iterator[Graph]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.jsonl").write_text(DATA, "utf-8")
    with Graph.init("g.omni", "node Person { name: String @key }", durability="os") as graph:
        graph.branches.create("side")
        graph.mutate('query q() { insert Person { name: "Bo" } }', branch="side")
        yield graph


def session_on(graph: Graph, interrupts: ShellInterrupts) -> Session:
    arguments = Namespace(yes=False, json=False)
    session = Session(graph, GraphTarget("g.omni", None, None), arguments, Layout(), is_live=True)
    session.interrupts = interrupts
    return session


def perform(session: Session, text: str) -> bool:
    if text.startswith((".", "\\")):
        return session.attempt(lambda: run_command(session, text))
    return session.attempt(lambda: session.run(text))


def names(graph: Graph) -> list[str]:
    return graph.snapshot().read("Person", ["name"])["name"].to_pylist()


@pytest.mark.parametrize("text", WRITES)
def test_the_first_signal_lets_a_write_end(interrupts, graph, capsys, text):
    """It comes at the first boundary that the write passes: nothing is published there yet."""
    passed: list[Failpoint] = []

    def hook(point: Failpoint) -> None:
        passed.append(point)
        if len(passed) == 1:
            signal.raise_signal(signal.SIGINT)

    session = session_on(graph, interrupts)
    with interrupts.running(), hooked(hook):
        assert perform(session, text)
    assert passed
    said, rows = WRITES[text]
    shown = capsys.readouterr()
    assert said in shown.out
    assert shown.err.count("finishing the current write first") == 1
    assert names(graph) == rows
    assert session.branch in graph.branches.list()
    # It was for the write, and for nothing after it.
    assert interrupts.read(str) == ""


@pytest.mark.parametrize("text", WRITES)
def test_the_second_signal_breaks_a_write_off_as_a_crash_does(interrupts, graph, capsys, text):
    def hook(point: Failpoint) -> None:
        signal.raise_signal(signal.SIGINT)

    session = session_on(graph, interrupts)
    with suppress(KeyboardInterrupt), interrupts.running(), hooked(hook):
        perform(session, text)
    interrupts.clear()
    with Graph.open("g.omni", durability="os") as again:
        assert names(again) in ([], WRITES[text][1])
        assert again.maintenance.verify().problems == ()
