"""Where the time of a test run goes: ``pytest --cpu-times`` prints it by suite and by test.

The processor time of a test is that of its process and of all processes below it: a Java, an S3
server and a killed child belong to the test that ran meanwhile. On a busy machine it says more
than the time on the clock.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PROPERTY = "cpu_times"


class Spent(NamedTuple):
    """Seconds of the processors and on the clock."""

    cpu: float
    wall: float

    def plus(self, other: Spent) -> Spent:
        return Spent(self.cpu + other.cpu, self.wall + other.wall)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-times",
        type=int,
        nargs="?",
        const=50,
        metavar="N",
        help="print the processor time of each suite and of the N costliest tests",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--cpu-times") is not None:
        config.pluginmanager.register(_Times(), "omnigraph-cpu-times")


class _Times:
    def __init__(self) -> None:
        self._tests: dict[str, Spent] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        start = Spent(cpu_seconds(), time.perf_counter())
        item.stash[_START] = start
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]):
        report = yield
        if call.when == "teardown":
            start = item.stash[_START]
            spent = (cpu_seconds() - start.cpu, time.perf_counter() - start.wall)
            report.user_properties.append((_PROPERTY, spent))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == _PROPERTY:
                # A test in a group has the group's name behind its own.
                self._tests[report.nodeid.partition("@")[0]] = Spent(*value)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._tests:
            return
        most = terminalreporter.config.getoption("--cpu-times")
        for title, group in (("suite", _suite), ("file", _file), ("test", str)):
            spent: dict[str, Spent] = defaultdict(lambda: Spent(0.0, 0.0))
            for test, seconds in self._tests.items():
                spent[group(test)] = spent[group(test)].plus(seconds)
            terminalreporter.section(f"processor time by {title}")
            total = sum(entry.cpu for entry in spent.values())
            terminalreporter.write_line(f"{total:8.1f} s in all")
            ordered = sorted(spent.items(), key=lambda item: -item[1].cpu)
            for name, seconds in ordered if title == "suite" else ordered[:most]:
                terminalreporter.write_line(
                    f"{seconds.cpu:8.2f} s cpu {seconds.wall:8.2f} s clock  {name}"
                )


_START = pytest.StashKey[Spent]()


def _file(test: str) -> str:
    return test.partition("::")[0]


def _suite(test: str) -> str:
    """The directory below ``tests``; a file that lies there directly is a suite of its own."""
    parts = Path(_file(test)).parts
    return "/".join(parts[:2]) if len(parts) > 1 else parts[0]


def cpu_seconds() -> float:
    """What this process and all processes below it have used until now, ended ones included."""
    ticks = 0
    waiting = [os.getpid()]
    while waiting:
        process = Path(f"/proc/{waiting.pop()}")
        # Behind the name in brackets: user, system, and both of the children that were waited for.
        ticks += sum(map(int, _text(process / "stat").rpartition(")")[2].split()[11:15]))
        with suppress(OSError):
            for task in list((process / "task").iterdir()):
                waiting += map(int, _text(task / "children").split())
    return ticks / _TICKS if ticks else time.process_time()


def _text(path: Path) -> str:
    """Nothing when the process or thread has ended meanwhile, or this is not Linux."""
    with suppress(OSError):
        return path.read_text("ascii", "replace")
    return ""
