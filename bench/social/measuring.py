"""Interleaved runs of the same question by several engines: medians, goals, equal answers."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

NAMES = ("ours", "prepared", "ladybug", "duckdb", "lance", "numpy")
# What a goal is compared with: databases, and bare Lance where it can answer.
PEERS = ("ladybug", "duckdb", "lance")
WARM_UP, ROUNDS, FEWEST, PATIENCE = 2, 25, 5, 4.0
BURST, SHORT = 5, 10e-3


class Clock:
    """What rows are measured by: the clock on the wall, or the processor time of the process."""

    now = staticmethod(time.perf_counter)

    @classmethod
    def use_processor_time(cls) -> None:
        """On a busy machine only this means something; two threads count twice."""
        cls.now = staticmethod(time.process_time)


def seconds(work: Callable[[], object]) -> float:
    start = Clock.now()
    work()
    return Clock.now() - start


def peak_memory() -> int:
    """The most memory this process has held, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


@dataclass(frozen=True)
class Target:
    """What a row must reach: times in milliseconds, and ratios to the best peer or to one."""

    milliseconds: Mapping[str, float] = field(default_factory=dict)
    best: float | None = None
    of: Mapping[str, float] = field(default_factory=dict)

    def missed(self, times: Mapping[str, float]) -> list[str]:
        """What was missed; a peer that was not measured is not compared with."""
        missed = [
            f"{name} {times[name] * 1000:.2f} ms of {most}"
            for name, most in self.milliseconds.items()
            if name in times and times[name] * 1000 > most
        ]
        best = best_of(times)
        if self.best is not None and best is not None and times["ours"] > self.best * best:
            missed.append(f"{times['ours'] / best:.2f} of the best peer, goal {self.best}")
        missed += [
            f"{times['ours'] / times[name]:.2f} of {name}, goal {most}"
            for name, most in self.of.items()
            if name in times and times["ours"] > most * times[name]
        ]
        return missed


def best_of(times: Mapping[str, float]) -> float | None:
    """The time of the fastest peer."""
    return min((times[name] for name in PEERS if name in times), default=None)


@dataclass(frozen=True)
class Line:
    """A row of the report: medians by contender, and whether all gave the same rows."""

    row: str
    times: dict[str, float]
    agree: bool
    target: Target

    @property
    def holds(self) -> bool:
        return self.agree and not self.target.missed(self.times)

    def __str__(self) -> str:
        cells = [
            f"{self.times[name] * 1000:10.3f}" if name in self.times else f"{'–':>10}"
            for name in NAMES
        ]
        best = best_of(self.times)
        ratio = f"{'–':>7}" if best is None else f"{self.times['ours'] / best:7.2f}"
        verdict = "; ".join(self.target.missed(self.times)) or "ok"
        return f"{self.row:28}{''.join(cells)} {ratio}  {verdict if self.agree else 'DISAGREE'}"

    @staticmethod
    def head() -> str:
        return f"{'row, median ms':28}{''.join(f'{name:>10}' for name in NAMES)}   ratio"


def measure(
    row: str,
    contenders: Sequence[Any],
    given: Sequence[Any],
    target: Target,
    canonical: Callable[[list[Any]], list[Any]] = sorted,
) -> Line:
    """Medians of interleaved runs; everybody's rows are compared before."""
    able = [item for item in contenders if item.responses(row)]
    agree = True
    for params in given[:WARM_UP]:
        actual = [canonical(item.rows(item.run(row, params))) for item in able]
        if any(other != actual[0] for other in actual):
            agree = False
            for item, rows in zip(able, actual, strict=True):
                print(f"  {row}: {item.name} gives {len(rows)} rows: {str(rows)[:160]}")
    times: dict[str, list[float]] = {item.name: [] for item in able}
    began = time.perf_counter()
    order = random.Random(0)
    for turn in range(ROUNDS):
        params = given[turn % len(given)]
        # What follows another engine finds less in the caches: nobody always does.
        for item in order.sample(able, len(able)):
            ask = partial(item.run, row, params)
            first = seconds(ask)
            # A call of a millisecond right after another engine measures the caches of the machine.
            again = [seconds(ask) for _ in range(BURST)] if first < SHORT else [first]
            times[item.name] += again
        if turn + 1 >= FEWEST and time.perf_counter() - began > PATIENCE:
            break
    medians = {name: statistics.median(item) for name, item in times.items()}
    return Line(row, medians, agree, target)
