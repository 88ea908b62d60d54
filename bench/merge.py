"""How long merging takes beside what Lance alone needs, and whether that depends on the table.

Run it with ``make bench`` or ``python bench/merge.py``; ``--large`` makes the large table smaller.
A branch changes 1,000 rows of a table and is merged back. The floor is one upsert of the same rows
into a bare copy of the table, committed. What makes a merge visible comes on top of that, whatever
the table: on a small one it is most of the time, so the goal is for the large one. What is compared
runs turn by turn in one process, so that noise of the machine hits both.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import lance
import pyarrow as pa

from omnigraph import Graph
from omnigraph.merge.bases import Ancestry, changes_between, common_state
from omnigraph.storage.tables.store import ROWS_PER_FRAGMENT

SMALL, LARGE, CHANGED = 10_000, 1_000_000, 1_000
WARM_UP, ROUNDS = 2, 9
GOALS = {"find": 2.0, "merge": 1.5}
MOST_MS = 10.0
SCHEMA = "node P { name: String @key  age: I32?  city: String? }\nedge K: P -> P"


def people(numbers: range, age: int) -> pa.Table:
    names = [f"p{number:08d}" for number in numbers]
    return pa.table(
        {
            "name": names,
            "age": pa.array([age] * len(names), pa.int32()),
            "city": [f"city {number % 97}" for number in numbers],
        }
    )


class Side:
    """A graph with one table of some rows, and a bare copy of that table."""

    def __init__(self, location: Path, rows: int) -> None:
        self.rows = rows
        self.graph = Graph.init(location / "graph", SCHEMA, durability="os")
        self.graph.append({"P": people(range(rows), 1)})
        schema = self.graph.catalog.node("P").arrow_schema()
        self._columns = schema
        self.bare = lance.write_dataset(
            self._stored(people(range(rows), 1)),
            str(location / "bare"),
            max_rows_per_file=ROWS_PER_FRAGMENT,
            enable_stable_row_ids=True,
        )
        self._round = 0

    def _stored(self, rows: pa.Table) -> pa.Table:
        return rows.append_column("id", rows["name"]).select(self._columns.names)

    def diverge(self, how: str) -> tuple[str, pa.Table]:
        """A branch that changed rows all over the table or side by side, or added some."""
        self._round += 1
        name = f"work{self._round}"
        self.graph.branches.create(name)
        first = self._round * CHANGED
        match how:
            case "new":
                numbers = range(self.rows + first, self.rows + first + CHANGED)
            case "neighbouring":
                numbers = range(first % self.rows, first % self.rows + CHANGED)
            case _:
                step = self.rows // CHANGED
                numbers = range(self._round % step, self.rows, step)[:CHANGED]
        rows = people(numbers, self._round + 1)
        self.graph.load({"P": rows}, branch=name)
        return name, self._stored(rows)

    def find(self, branch: str) -> None:
        """All that a merge does until it knows what both sides changed."""
        store = self.graph._handle.store
        theirs, ours = store.manifest(branch).current(), store.manifest(None).current()
        assert theirs.head is not None
        assert ours.head is not None
        ancestry = Ancestry(store, branch, None)
        commits = ancestry.common_commits([theirs.head.commit_id], [ours.head.commit_id])
        base = common_state(ancestry, commits)
        kind = self.graph.catalog.node("P")
        for side in (theirs, ours):
            changes_between(store, kind, base, side)

    def upsert(self, rows: pa.Table) -> None:
        """What Lance alone needs to get the rows into the table."""
        (
            self.bare.merge_insert("id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute(rows)
        )


@dataclass(frozen=True, slots=True)
class Result:
    """A line of the report."""

    what: str
    spent: float
    base: float | None = None
    target: float | None = None

    def __str__(self) -> str:
        if self.base is None:
            verdict = "ok" if self.spent * 1000 <= MOST_MS else "MISSED"
            target = f"{MOST_MS:.0f} ms"
            return f"{self.what:66} {self.spent * 1000:10.2f} {'':10} {'':7} {target:>6} {verdict}"
        ratio = self.spent / self.base
        target = "" if self.target is None else f"{self.target:.1f}"
        verdict = "" if self.target is None else ("ok" if ratio <= self.target else "MISSED")
        return (
            f"{self.what:66} {self.spent * 1000:10.2f} {self.base * 1000:10.2f} "
            f"{ratio:7.2f} {target:>6} {verdict}"
        ).rstrip()


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as location:
        yield Path(location)


def median(times: list[float]) -> float:
    return statistics.median(times[WARM_UP:])


# -- what is measured -----------------------------------------------------------------------------


def finding(small: Side, large: Side, how: str) -> Iterator[Result]:
    """The changes of a branch, in a large table beside a small one."""
    names = {side: side.diverge(how)[0] for side in (small, large)}
    tasks: dict[str, Callable[[Side], object]] = {
        "changes for a merge": lambda side: side.find(names[side]),
        "diff of the branch": lambda side: side.graph.snapshot().diff(
            side.graph.snapshot(names[side])
        ),
    }
    for what, task in tasks.items():
        times: dict[Side, list[float]] = {small: [], large: []}
        for _ in range(WARM_UP + ROUNDS):
            for side, spent in times.items():
                spent.append(seconds(lambda side=side, task=task: task(side)))
        sizes = f"{how} rows, {large.rows:,} against {small.rows:,}"
        spent, beside = median(times[large]), median(times[small])
        yield Result(f"{what}, {sizes}", spent, beside, GOALS["find"])


def merging(side: Side, how: str, target: float | None) -> Result:
    """A whole merge beside the bare upsert of the same rows."""
    ours, bare = [], []
    for _ in range(WARM_UP + ROUNDS):
        name, rows = side.diverge(how)
        ours.append(seconds(lambda name=name: side.graph.merge(name)))
        bare.append(seconds(lambda rows=rows: side.upsert(rows)))
        side.graph.branches.delete(name)
    what = f"merge of {CHANGED:,} {how} rows into {side.rows:,}"
    return Result(what, median(ours), median(bare), target)


def branching(side: Side) -> Result:
    times = []
    for number in range(WARM_UP + ROUNDS):
        name = f"fork{number}"
        times.append(seconds(lambda name=name: side.graph.branches.create(name)))
        side.graph.branches.delete(name)
    return Result(f"creating a branch, {side.rows:,} rows", median(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", type=int, default=LARGE, help="rows of the large table")
    rows = parser.parse_args().large
    print(f"{'what':66} {'median ms':>10} {'beside ms':>10} {'ratio':>7} {'goal':>6}")
    with folder() as location:
        (location / "small").mkdir()
        (location / "large").mkdir()
        small, large = Side(location / "small", SMALL), Side(location / "large", rows)
        for side in (small, large):
            print(branching(side))
        for how in ("neighbouring", "scattered"):
            for result in finding(small, large, how):
                print(result)
        for side in (small, large):
            for how in ("neighbouring", "scattered", "new"):
                print(merging(side, how, GOALS["merge"] if side is large else None))


if __name__ == "__main__":
    main()
