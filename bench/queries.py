"""How long queries take beside other engines on the same graph, and whether all agree.

Run it with ``make bench`` or ``python bench/queries.py``; ``--people`` and ``--edges`` make the
graph smaller, ``--location`` keeps it for the next run. The peers are optional: Ladybug and DuckDB
come with the extra ``bench``. ``lance`` is what bare Lance needs for the rows it can answer, and
``numpy`` a plain walk over arrays in memory: a bound, not a peer. What is compared runs turn by
turn in one process, so that noise of the machine hits all of it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from social.bound import Bound
from social.engines import DuckDB, Ladybug, Lance, Ours, Params, Rows
from social.network import Social, generate
from social.texts import OURS, QUERIES

PEOPLE, EDGES = 100_000, 2_000_000
SMALL_PEOPLE, SMALL_EDGES = 10_000, 100_000
WARM_UP, ROUNDS, PATIENCE = 2, 25, 4.0
BURST, SHORT = 5, 10e-3
MOST_SECONDS = {"point lookup": 0.5e-3, "1 hop": 0.6e-3}
MOST_OF_LANCE = {"filter, sort, limit": 1.5}
COLD_TARGET, MEMORY_TARGET = 1.5, 1.5e9


# -- measuring ------------------------------------------------------------------------------------


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@dataclass(frozen=True)
class Line:
    """A row of the report: medians by contender, and whether all gave the same rows."""

    row: str
    times: dict[str, float]
    agree: bool

    def __str__(self) -> str:
        cells = [
            f"{self.times[name] * 1000:10.3f}" if name in self.times else f"{'–':>10}"
            for name in NAMES
        ]
        best = self._best()
        ratio = f"{'–':>7}" if best is None else f"{self.times['ours'] / best:7.2f}"
        return f"{self.row:28}{''.join(cells)} {ratio}  {self._verdict()}"

    def _best(self) -> float | None:
        peers = [spent for name, spent in self.times.items() if name not in ("ours", "numpy")]
        return min(peers, default=None)

    def _verdict(self) -> str:
        """Ahead of the best peer, unless the row has a goal of its own."""
        if not self.agree:
            return "DISAGREE"
        ours, best = self.times["ours"], self._best()
        if self.row in MOST_SECONDS:
            target, what = MOST_SECONDS[self.row], f"{MOST_SECONDS[self.row] * 1000} ms"
        elif self.row in MOST_OF_LANCE:
            target = MOST_OF_LANCE[self.row] * self.times["lance"]
            what = f"{MOST_OF_LANCE[self.row]} times bare Lance"
        elif best is None:
            return "no peer"
        else:
            target, what = best, "the best peer"
        return "ok" if ours <= target else f"behind {what}: {ours / target:.2f}"


NAMES = ("ours", "ladybug", "duckdb", "lance", "numpy")


def measure(row: str, contenders: Sequence[Any], given: list[Params]) -> Line:
    """Medians of interleaved runs; everybody's rows are compared before."""
    able = [item for item in contenders if item.responses(row)]
    agree = True
    for params in given[:WARM_UP]:
        actual = [_canonical(row, item.rows(item.run(row, _for(row, params)))) for item in able]
        if any(other != actual[0] for other in actual):
            agree = False
            for item, rows in zip(able, actual, strict=True):
                print(f"  {row}: {item.name} gives {len(rows)} rows: {str(rows)[:160]}")
    times: dict[str, list[float]] = {item.name: [] for item in able}
    began = time.perf_counter()
    for turn in range(ROUNDS):
        params = _for(row, given[turn % len(given)])
        for item in able:
            ask = partial(item.run, row, params)
            first = seconds(ask)
            # A call of a millisecond right after another engine measures the caches of the machine.
            again = [seconds(ask) for _ in range(BURST)] if first < SHORT else [first]
            times[item.name] += again
        if turn >= 4 and time.perf_counter() - began > PATIENCE:
            break
    return Line(row, {name: statistics.median(item) for name, item in times.items()}, agree)


def _for(row: str, params: Params) -> Params:
    """The parameters that a row uses."""
    if row.startswith("3 hops"):
        return {"names": params["names"]}
    if row.startswith("text"):
        return {"words": params["words"]}
    return {"name": params["name"]} if row in _ONE_PERSON else {}


_ONE_PERSON = {"point lookup", "1 hop", "2 hops, distinct, filter", "reach 1..4"}
_IN_ORDER = {"filter, sort, limit"}


def _canonical(row: str, rows: Rows) -> Rows:
    return rows if row in _IN_ORDER else sorted(rows)


def available() -> Iterator[Any]:
    for peer in (Ladybug, DuckDB):
        try:
            __import__(peer.name)
        except ImportError:
            print(f"{peer.name} is not installed and is left out: pip install '.[bench]'")
        else:
            yield peer
    yield Lance


def prepare(location: Path, social: Social, builders: Sequence[Any]) -> None:
    for builder in builders:
        done = location / f"{builder.name}.done"
        if not done.exists():
            (location / builder.name).parent.mkdir(parents=True, exist_ok=True)
            spent = seconds(partial(builder.build, location / builder.name, social))
            done.touch()
            print(f"  {builder.name} took {spent:.1f} s to build")


def contest(location: Path, social: Social, rows: Sequence[str], builders: Sequence[Any]) -> bool:
    """Build what is missing, measure some rows, print them; whether all answers agree."""
    prepare(location, social, builders)
    bound = Bound(social)
    contenders = [*(builder(location / builder.name) for builder in builders), bound]
    agree = True
    print(f"{'row, median ms':28}{''.join(f'{n:>10}' for n in NAMES)}   ratio")
    for row in rows:
        line = measure(row, contenders, bound.params())
        agree = agree and line.agree
        print(line, flush=True)
    for contender in contenders:
        contender.close()
    return agree


# -- in a process of its own ----------------------------------------------------------------------


_COLD = """
import json, sys, time
start = time.perf_counter()
from omnigraph import Graph
place, text, name, params = json.loads(sys.argv[1])
Graph.open(place, mode="r").query(text, name, params).to_arrow()
print(json.dumps({"seconds": time.perf_counter() - start}))
"""


def cold(location: Path, params: Params) -> str:
    """A new process imports, opens the graph and answers; nothing is warm but the files."""
    given = json.dumps([str(location), QUERIES, OURS["2 hops, distinct, filter"], params])
    command = [sys.executable, "-c", _COLD, given]
    runs = [
        json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["seconds"]
        for _ in range(3)
    ]
    spent = statistics.median(runs)
    verdict = "ok" if spent <= COLD_TARGET else f"MISSED {COLD_TARGET}"
    return f"cold: import, open and 2 hops in {spent:.2f} s, {verdict}"


def everything(location: Path, given: list[Params]) -> None:
    ours = Ours(location)
    for row in OURS:
        if row != "triangles":
            ours.run(row, _for(row, given[0]))
    print(json.dumps({"peak": _peak()}))


def _peak() -> int:
    """The most memory this process has held, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def memory(location: Path, given: list[Params]) -> str:
    """What a process holds at most that answers every row."""
    command = [sys.executable, __file__, "--everything", str(location), json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak = json.loads(done.stdout.splitlines()[-1])["peak"]
    return f"memory: {peak / 1e6:.0f} MB at most, {'ok' if peak <= MEMORY_TARGET else 'MISSED'}"


SMALL = ("1 hop", "2 hops, distinct, filter")
LARGE = ("3 hops, 100 starts, people", "same city and company", "negation")


def threads(location: Path, given: list[Params], rows: Sequence[str], repeats: int) -> str:
    """The same work by one thread and by four on one handle; every answer is checked."""
    ours = Ours(location)
    work = [(row, _for(row, params)) for params in given for row in rows]
    right = [_sorted(ours.run(row, params)) for row, params in work]
    wrong = 0

    def some(count: int) -> None:
        nonlocal wrong
        for _ in range(count):
            for (row, params), wanted in zip(work, right, strict=True):
                wrong += not _sorted(ours.run(row, params)).equals(wanted)

    def together(count: int) -> float:
        people = [threading.Thread(target=some, args=(repeats // count,)) for _ in range(count)]
        return seconds(lambda: ([t.start() for t in people], [t.join() for t in people]))

    alone = min(together(1) for _ in range(3))
    four = min(together(4) for _ in range(3))
    ours.close()
    return f"4 threads: {alone / four:.2f} times the throughput of one, {wrong} wrong answers"


def _sorted(rows: Any) -> Any:
    return rows.sort_by([(name, "ascending") for name in rows.column_names])


@contextmanager
def folder(given: str | None) -> Iterator[Path]:
    if given is not None:
        Path(given).mkdir(parents=True, exist_ok=True)
        yield Path(given)
        return
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as location:
        yield Path(location)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--people", type=int, default=PEOPLE)
    parser.add_argument("--edges", type=int, default=EDGES)
    parser.add_argument("--location", help="keep the graphs here")
    parser.add_argument("--everything", nargs=2, help=argparse.SUPPRESS)
    requested = parser.parse_args()
    if requested.everything:
        location, given = requested.everything
        everything(Path(location), json.loads(given))
        return 0
    warnings.simplefilter("ignore")
    builders = [Ours, *available()]
    with folder(requested.location) as location:
        print(f"{requested.people:,} people, {requested.edges:,} edges")
        social = generate(requested.people, requested.edges)
        large = location / f"{requested.people}-{requested.edges}"
        agree = contest(large, social, [row for row in OURS if row != "triangles"], builders)
        small = generate(SMALL_PEOPLE, SMALL_EDGES)
        print(f"{SMALL_PEOPLE:,} people, {SMALL_EDGES:,} edges")
        agree &= contest(location / "small", small, ["triangles"], builders)
        given = Bound(social).params()
        print(cold(large / "ours", _for("1 hop", given[0])))
        print(memory(large / "ours", given))
        print("small queries,", threads(large / "ours", given, SMALL, 16))
        print("large queries,", threads(large / "ours", given[:2], LARGE, 4))
    return 0 if agree else 1


if __name__ == "__main__":
    raise SystemExit(main())
