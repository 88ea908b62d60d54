"""How long queries take beside other engines on the same graph, and whether all agree.

Run it with ``make bench`` or ``python bench/queries.py``; ``--people`` and ``--edges`` make the
graph smaller, ``--location`` keeps it for the next run. The peers are optional: Ladybug and DuckDB
come with the extra ``bench``. ``prepared`` is the same query through ``Graph.prepare``, ``lance``
is what bare Lance needs for the rows it can answer, and ``numpy`` a plain walk over arrays in
memory: a bound, not a peer. What is compared runs turn by turn in one process, so that noise of
the machine hits all of it. Every row has a goal; the peak memory of each is that of a process which
answers it alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from social.bound import Bound
from social.engines import DuckDB, Ladybug, Lance, Ours, Params, Prepared, Rows
from social.measuring import Clock, Line, Target, measure, peak_memory, seconds
from social.network import Social, generate
from social.texts import OURS, QUERIES

PEOPLE, EDGES = 100_000, 2_000_000
_PEERS = Target(best=0.9)
TARGETS = {
    "point lookup": Target({"ours": 0.35, "prepared": 0.20}),
    "1 hop": Target({"ours": 0.45, "prepared": 0.30}),
    "2 hops, distinct, filter": Target({"ours": 1.2, "prepared": 1.0}, of={"ladybug": 0.6}),
    "triangles": Target(best=0.8),
}
COLD_TARGET = 1.5
# Four threads on one handle: the least throughput, in that of one thread.
SMALL, SMALL_TARGET = "point lookup", 0.9
LARGE, LARGER = "2 hops from a city, by city", "2 hops from 20 cities, by city"
LARGE_TARGET = 1.6
ROUNDS = 15


# -- beside each other ----------------------------------------------------------------------------


def _for(row: str, params: Params) -> Params:
    """The parameters that a row uses."""
    if row.startswith("3 hops"):
        return {"names": params["names"]}
    if row.startswith("text"):
        return {"words": params["words"]}
    if row == LARGE:
        return {"city": params["city"]}
    if row == LARGER:
        return {"cities": params["cities"]}
    return {"name": params["name"]} if row in _ONE_PERSON else {}


_ONE_PERSON = {"point lookup", "1 hop", "2 hops, distinct, filter", "reach 1..4"}
_IN_ORDER = {"filter, sort, limit"}


def _canonical(row: str) -> Callable[[Rows], Rows]:
    return list if row in _IN_ORDER else sorted


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


def contest(location: Path, bound: Bound, builders: Sequence[Any], wanted: str) -> list[Line]:
    """Measure every row whose name has the wanted part, and print it."""
    engines = [builder(location / builder.name) for builder in builders]
    contenders = [*engines, Prepared(engines[0].graph), bound]
    lines = []
    print(Line.head())
    for row in (row for row in OURS if wanted in row):
        given = [_for(row, params) for params in bound.params()]
        lines.append(measure(row, contenders, given, TARGETS.get(row, _PEERS), _canonical(row)))
        print(lines[-1], flush=True)
    for contender in contenders:
        contender.close()
    return lines


# -- in a process of its own ----------------------------------------------------------------------


_COLD = """
import json, sys, time
start = time.perf_counter()
from omnigraph import Graph
directory, text, name, params = json.loads(sys.argv[1])
Graph.open(directory, mode="r").query(text, name, params).to_arrow()
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


def answer_alone(location: Path, row: str, params: Params) -> None:
    """Print the memory of this process after three answers, the last with everything cached."""
    ours = Ours(location)
    for _ in range(3):
        ours.run(row, params)
    print(json.dumps({"peak": peak_memory()}))


def memory(location: Path, given: list[Params]) -> None:
    """Print the most memory that a process holds which answers one row."""
    for row in OURS:
        request = json.dumps([str(location), row, _for(row, given[0])])
        command = [sys.executable, __file__, "--alone", request]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peak = json.loads(done.stdout.splitlines()[-1])["peak"]
        print(f"{row:28} peak memory {peak / 1e6:7.0f} MB", flush=True)


def threads(location: Path, given: list[Params], row: str, repeats: int, target: float) -> bool:
    """The same work by one thread and by four on one handle; every answer is checked."""
    ours = Ours(location)
    work = [_for(row, params) for params in given]
    right = [_sorted(ours.run(row, params)) for params in work]
    wrong = 0

    def some(count: int) -> None:
        nonlocal wrong
        for _ in range(count):
            for params, wanted in zip(work, right, strict=True):
                wrong += not _sorted(ours.run(row, params)).equals(wanted)

    compared = _compared(_threads(some), 4, repeats)
    ours.close()
    holds = compared.ratio >= target and not wrong
    print(
        f"{row}: 4 threads have {compared} of one, goal {target}, "
        f"{wrong} wrong answers, {'ok' if holds else 'MISSED'}",
        flush=True,
    )
    return holds


def threads_of_numpy(bound: Bound, given: list[Params], row: str, repeats: int) -> str:
    """A large row by bare NumPy: what threads of one interpreter can reach at all."""

    def some(count: int) -> None:
        for _ in range(count):
            for params in given:
                bound.run(row, params)

    return f"{row}: 4 threads of bare NumPy have {_compared(_threads(some), 4, repeats)} of one"


def processes(location: Path, given: list[Params], row: str, repeats: int) -> str:
    """A large row by two processes: what the machine can reach at all."""
    request = json.dumps([str(location), row, [_for(row, params) for params in given]])
    command = [sys.executable, __file__, "--on-demand", request]
    begin = partial(subprocess.Popen, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    workers = [begin(text=True) for _ in range(2)]

    def together(count: int, times: int) -> None:
        for worker in workers[:count]:
            print(times, file=worker.stdin, flush=True)
        for worker in workers[:count]:
            worker.stdout.readline()

    together(2, 1)
    compared = _compared(together, 2, repeats)
    for worker in workers:
        worker.communicate()
    return f"{row}: 2 processes have {compared} of one"


def answer_on_demand(location: Path, row: str, given: list[Params]) -> None:
    """Answer a row as often as each line of the input says, and print a line when it is done."""
    ours = Ours(location)
    for line in sys.stdin:
        for _ in range(int(line)):
            for params in given:
                _sorted(ours.run(row, params))
        print(flush=True)


@dataclass(frozen=True)
class Compared:
    """The throughput of several workers in that of one, and how far the rounds are apart."""

    ratios: list[float]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def __str__(self) -> str:
        low, _, high = statistics.quantiles(self.ratios, n=4)
        return f"{self.ratio:.2f} times ({low:.2f} to {high:.2f}) the throughput"


def _compared(together: Callable[[int, int], None], count: int, repeats: int) -> Compared:
    """The same work by one worker and by several, in turns: the machine is not always as fast."""
    ratios = []
    for turn in range(ROUNDS):
        order = (1, count) if turn % 2 else (count, 1)
        spent = {n: seconds(partial(together, n, repeats // n)) for n in order}
        ratios.append(spent[1] / spent[count])
    return Compared(ratios)


def _threads(some: Callable[[int], None]) -> Callable[[int, int], None]:
    """Runs a share of the work in each of some threads."""

    def together(count: int, times: int) -> None:
        people = [threading.Thread(target=some, args=(times,)) for _ in range(count)]
        for thread in people:
            thread.start()
        for thread in people:
            thread.join()

    return together


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
    parser.add_argument("--cpu", action="store_true", help="compare processor time")
    parser.add_argument("--rows", help="only the rows whose name contains this")
    parser.add_argument("--threads", action="store_true", help="only several threads on one handle")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--on-demand", help=argparse.SUPPRESS)
    requested = parser.parse_args()
    if requested.cpu:
        Clock.use_processor_time()
    if requested.alone:
        location, row, params = json.loads(requested.alone)
        answer_alone(Path(location), row, params)
        return 0
    if requested.on_demand:
        location, row, several = json.loads(requested.on_demand)
        answer_on_demand(Path(location), row, several)
        return 0
    warnings.simplefilter("ignore")
    builders = [Ours] if requested.threads else [Ours, *available()]
    with folder(requested.location) as location:
        print(f"{requested.people:,} people, {requested.edges:,} edges")
        social = generate(requested.people, requested.edges)
        directory = location / f"{requested.people}-{requested.edges}"
        prepare(directory, social, builders)
        bound = Bound(social)
        given = bound.params()
        ours = directory / "ours"
        if requested.threads:
            return 0 if several_threads(ours, bound, given) else 1
        lines = contest(directory, bound, builders, requested.rows or "")
        if requested.rows:
            return 0 if all(line.holds for line in lines) else 1
        print(cold(ours, _for("1 hop", given[0])))
        memory(ours, given)
        holds = several_threads(ours, bound, given)
    return 0 if holds and all(line.holds for line in lines) else 1


def several_threads(location: Path, bound: Bound, given: list[Params]) -> bool:
    """Each row by several threads, and the bounds of the large ones."""
    # Long enough that every thread has several turns.
    holds = threads(location, given, SMALL, 512, SMALL_TARGET)
    for row, repeats in ((LARGE, 128), (LARGER, 32)):
        holds &= threads(location, given[:4], row, repeats, LARGE_TARGET)
        print(threads_of_numpy(bound, given[:4], row, repeats))
        print(processes(location, given[:4], row, repeats))
    return holds


if __name__ == "__main__":
    raise SystemExit(main())
