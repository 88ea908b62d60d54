"""How many one-row inserts per second eight threads of one handle commit, against one thread.

Run it with ``make bench`` or ``python bench/group_commit.py``. All writes are durable and go to one
branch. Rounds of one thread and of eight alternate, so that noise of the machine hits both; each
line is one pair of rounds, the last the median of the ratios.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from omnigraph import Graph

THREADS = 8
WRITES = 48
"""Of each round, over all threads."""
ROUNDS = 5
WARM_UP = 8
TARGET = 4.0

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""
INSERTS = {
    "nodes": "query add($n: String) { insert Person { name: $n, age: 7 } }",
    "edges": 'query add($n: String) { insert Knows { from: "p", to: $n } }',
}


class Bench:
    """A graph to which rows are added, each in a commit of its own."""

    def __init__(self, folder: Path, query: str) -> None:
        self.graph = Graph.init(folder / "graph", SCHEMA, durability="disk")
        self.graph.load([{"type": "Person", "data": {"name": "p"}}])
        self._query = query
        self._added = 0
        self._lock = threading.Lock()

    def rate(self, threads: int, writes: int) -> float:
        """Commits per second of so many threads."""
        workers = [
            threading.Thread(target=self._write, args=(writes // threads,)) for _ in range(threads)
        ]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return writes / (time.perf_counter() - start)

    def _write(self, count: int) -> None:
        for _ in range(count):
            with self._lock:
                self._added += 1
                number = self._added
            name = f"n{number}" if "Person" in self._query else "p"
            self.graph.mutate(self._query, params={"n": name})

    def sizes(self) -> Counter[int]:
        """How many groups of each size there are."""
        commits = self.graph.commits()
        ends = [c for c in commits if c.group is None or c.group.id == c.commit_id]
        return Counter(1 if commit.group is None else commit.group.size for commit in ends)


def compare(what: str, query: str) -> float:
    """Print the rates of some rounds; returns the median ratio."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        bench = Bench(Path(folder), query)
        bench.rate(1, WARM_UP)
        bench.rate(THREADS, WARM_UP)
        ratios = []
        for _ in range(ROUNDS):
            one, many = bench.rate(1, WRITES // 2), bench.rate(THREADS, WRITES)
            ratios.append(many / one)
            print(f"{what:8} {one:10.1f} {many:10.1f} {many / one:7.2f}")
        groups = ", ".join(f"{n} of {size}" for size, n in sorted(bench.sizes().items()))
        ratio = statistics.median(ratios)
        verdict = "ok" if ratio >= TARGET else "MISSED"
        print(
            f"{what:8} {'median':>21} {ratio:7.2f}  goal {TARGET:.1f} {verdict}; commits: {groups}"
        )
        bench.graph.close()
        return ratio


def main() -> None:
    print(f"{'':8} {'1 thread/s':>10} {f'{THREADS} threads/s':>10} {'ratio':>7}")
    for what, query in INSERTS.items():
        compare(what, query)


if __name__ == "__main__":
    main()
