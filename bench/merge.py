"""How long merging takes beside what Lance alone needs, and whether that depends on the table.

Run it with ``make bench`` or ``python bench/merge.py``; ``--large`` makes the large table smaller.
A branch changes 1,000 rows of a table and is merged back. The floor is one upsert of the same rows
into a bare copy of the table, committed; what makes the merge visible comes on top of that and is
part of the goal. What is compared runs turn by turn in one process, so that noise of the machine
hits both.
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
from omnigraph.merge.ancestry import Ancestry
from omnigraph.merge.bases import Committed, changes_between, common_state
from omnigraph.storage.tables import ROWS_PER_FRAGMENT

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

    def __init__(self, place: Path, rows: int) -> None:
        self.rows = rows
        self.graph = Graph.init(place / "graph", SCHEMA, durability="os")
        self.graph.append({"P": people(range(rows), 1)})
        schema = self.graph.catalog.node("P").arrow_schema()
        self._columns = schema
        self.bare = lance.write_dataset(
            self._stored(people(range(rows), 1)),
            str(place / "bare"),
            max_rows_per_file=ROWS_PER_FRAGMENT,
            enable_stable_row_ids=True,
        )
        self._round = 0

    def _stored(self, rows: pa.Table) -> pa.Table:
        return rows.append_column("id", rows["name"]).select(self._columns.names)

    def diverge(self, *, new: bool) -> tuple[str, pa.Table]:
        """A branch that changed rows all over the table, or added some; and those rows."""
        self._round += 1
        name = f"work{self._round}"
        self.graph.branches.create(name)
        if new:
            start = self.rows + self._round * CHANGED
            rows = people(range(start, start + CHANGED), self._round)
        else:
            step = self.rows // CHANGED
            rows = people(range(self._round % step, self.rows, step)[:CHANGED], self._round + 1)
        self.graph.load({"P": rows}, branch=name)
        return name, self._stored(rows)

    def find(self, branch: str) -> None:
        """All that a merge does until it knows what both sides changed."""
        store = self.graph._store
        theirs, ours = store.manifest(branch).current(), store.manifest(None).current()
        assert theirs.head is not None
        assert ours.head is not None
        ancestry = Ancestry(store, branch, None)
        _, base = common_state(ancestry, theirs.head.commit_id, ours.head.commit_id)
        kind = self.graph.catalog.node("P")
        for side in (theirs, ours):
            changes_between(store, kind, base, Committed(side))

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
    goal: float | None = None

    def __str__(self) -> str:
        if self.base is None:
            verdict = "ok" if self.spent * 1000 <= MOST_MS else "MISSED"
            goal = f"{MOST_MS:.0f} ms"
            return f"{self.what:50} {self.spent * 1000:10.2f} {'':10} {'':7} {goal:>6} {verdict}"
        ratio = self.spent / self.base
        goal = "" if self.goal is None else f"{self.goal:.1f}"
        verdict = "" if self.goal is None else ("ok" if ratio <= self.goal else "MISSED")
        return (
            f"{self.what:50} {self.spent * 1000:10.2f} {self.base * 1000:10.2f} "
            f"{ratio:7.2f} {goal:>6} {verdict}"
        ).rstrip()


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as place:
        yield Path(place)


def median(times: list[float]) -> float:
    return statistics.median(times[WARM_UP:])


# -- what is measured -----------------------------------------------------------------------------


def finding(small: Side, large: Side) -> Iterator[Result]:
    """The changes of a branch, in a large table beside a small one."""
    names = {side: side.diverge(new=False)[0] for side in (small, large)}
    tasks: dict[str, Callable[[Side], object]] = {
        "finding the changes for a merge": lambda side: side.find(names[side]),
    }
    for what, task in tasks.items():
        times: dict[Side, list[float]] = {small: [], large: []}
        for _ in range(WARM_UP + ROUNDS):
            for side, spent in times.items():
                spent.append(seconds(lambda side=side, task=task: task(side)))
        sizes = f"{large.rows:,} rows against {small.rows:,}"
        yield Result(f"{what}, {sizes}", median(times[large]), median(times[small]), GOALS["find"])


def merging(side: Side, *, new: bool) -> Result:
    """A whole merge beside the bare upsert of the same rows."""
    ours, bare = [], []
    for _ in range(WARM_UP + ROUNDS):
        name, rows = side.diverge(new=new)
        ours.append(seconds(lambda name=name: side.graph.branches.merge(name)))
        bare.append(seconds(lambda rows=rows: side.upsert(rows)))
        side.graph.branches.delete(name)
    what = "new" if new else "changed"
    return Result(
        f"merge of {CHANGED:,} {what} rows into {side.rows:,}",
        median(ours),
        median(bare),
        GOALS["merge"],
    )


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
    print(f"{'what':50} {'median ms':>10} {'beside ms':>10} {'ratio':>7} {'goal':>6}")
    with folder() as place:
        (place / "small").mkdir()
        (place / "large").mkdir()
        small, large = Side(place / "small", SMALL), Side(place / "large", rows)
        for side in (small, large):
            print(branching(side))
        for result in finding(small, large):
            print(result)
        for side in (small, large):
            for new in (False, True):
                print(merging(side, new=new))


if __name__ == "__main__":
    main()
