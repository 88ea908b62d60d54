"""How long a one-row commit takes beside what Lance alone needs for it, and whether that stays so.

Run it with ``make bench`` or ``python bench/commit.py``. The floor is a staged append and its
commit, then one upsert of the same rows into a table that is compacted as the graph's manifest
is: whatever makes one row visible in two tables has to pay for that. What is compared runs turn
by turn in one process, so that noise of the machine hits both.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.fragment import write_fragments

from omnigraph import Graph
from omnigraph.commit.protocol import commit_write
from omnigraph.commit.publisher import _MAX_FRAGMENTS
from omnigraph.commit.rows import CommitRow, HeadRow, VersionRow, WriterKind, to_arrow
from omnigraph.commit.ulid import new_ulid, now_micros
from omnigraph.commit.write_request import PreparedWrite, WriteRequest, WriteView
from omnigraph.storage.tables.store import ROWS_PER_FRAGMENT

WARM_UP = 16
ROUNDS = 64
EARLY, LATE, WINDOW = 20, 1_000, 32
COLD, COLD_ROUNDS = 2_000, 15
TABLES = 8
GOALS = {"commit": 2.0, "history": 1.2, "compacted": 1.15, "open": 3.0}


def schema_text(tables: int) -> str:
    return "\n".join(f"node N{n} {{ name: String @key  age: I32? }}" for n in range(tables))


class Bench:
    """A graph and a bare copy of what Lance does for it, to which single rows are added."""

    def __init__(
        self,
        location: Path,
        tables: int = 1,
        durability: str = "os",
        *,
        auto_compact: bool = False,
    ) -> None:
        self.uri = str(location / "graph")
        self.tables = tables
        self.graph = Graph.init(
            self.uri, schema_text(tables), durability=durability, auto_compact=auto_compact
        )
        self.schema = self.graph.catalog.node("N0").arrow_schema()
        self.floor = Floor(location / "floor", self.schema, tables)
        self.ours: list[float] = []
        self.bare: list[float] = []
        self._added = 0

    def commit(self) -> None:
        """Add one row through the commit protocol, then one to the bare tables."""
        table, row = self._next()
        self.ours.append(seconds(lambda: self._write(table, row)))
        self.bare.append(self.floor.add(table, row))

    def append(self) -> None:
        """The same through ``Graph.append``, which looks whether the key is there already."""
        table, row = self._next()
        given = {f"N{table}": row.drop_columns("id")}
        self.ours.append(seconds(lambda: self.graph.append(given)))
        self.bare.append(self.floor.add(table, row))

    def grow(self, commits: int) -> None:
        """Add rows to the graph alone, without measuring."""
        for _ in range(commits):
            self._write(*self._next())

    def open_and_close(self) -> None:
        """What a new process does: nothing is warm."""
        Graph.open(self.uri).close()

    def forget(self) -> None:
        self.ours.clear()
        self.bare.clear()

    def _next(self) -> tuple[int, pa.Table]:
        number = self._added
        self._added += 1
        values = {"id": [f"n{number}"], "name": [f"n{number}"], "age": [number]}
        return number % self.tables, pa.table(
            {name: values[name] for name in self.schema.names}, self.schema
        )

    def _write(self, table: int, row: pa.Table) -> None:
        key = f"node:N{table}"

        def prepare(view: WriteView) -> PreparedWrite:
            return PreparedWrite({key: (view.stage.stage_append(view.table(key), row),)})

        commit_write(
            self.graph._handle.store, WriteRequest(WriterKind.LOAD, None, frozenset({key}), prepare)
        )


class Floor:
    """What Lance itself needs: handles are kept warm, rows are ready, nothing is checked."""

    def __init__(self, location: Path, schema: pa.Schema, tables: int) -> None:
        location.mkdir(parents=True)
        session = lance.Session(index_cache_size_bytes=64 << 20, metadata_cache_size_bytes=64 << 20)
        self._tables = []
        for number in range(tables):
            uri = str(location / str(number))
            LanceDataset.commit(
                uri, LanceOperation.Overwrite(schema, []), enable_stable_row_ids=True
            )
            self._tables.append(lance.dataset(uri, session=session))
        uri = str(location / "manifest")
        lance.write_dataset(to_arrow([HeadRow(None, new_ulid())]), uri, enable_stable_row_ids=True)
        self._manifest = lance.dataset(uri, session=session)

    def add(self, table: int, row: pa.Table) -> float:
        rows = self._rows(table)
        return seconds(lambda: (self._append(table, row), self._publish(rows)))

    def _rows(self, table: int) -> pa.Table:
        version = int(self._manifest.version) + 1
        commit = CommitRow(new_ulid(), version, None, now_micros(), new_ulid())
        info = {"manifest_path": "x" * 60, "manifest_size": 600, "e_tag": "y" * 24}
        pin = VersionRow(f"node:N{table}", version, None, version, info)
        return to_arrow([pin, commit, HeadRow(None, commit.commit_id, commit.parent)])

    def _append(self, table: int, row: pa.Table) -> None:
        dataset = self._tables[table]
        staged = write_fragments(
            row,
            dataset,
            mode="append",
            return_transaction=True,
            max_rows_per_file=ROWS_PER_FRAGMENT,
        )
        self._tables[table] = LanceDataset.commit(dataset, staged, max_retries=0)

    def _publish(self, rows: pa.Table) -> None:
        (
            self._manifest.merge_insert("object_id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .conflict_retries(0)
            .use_index(False)
            .execute(rows)
        )
        if len(self._manifest.get_fragments()) >= _MAX_FRAGMENTS:
            staged = write_fragments(
                self._manifest.to_table(),
                self._manifest,
                mode="overwrite",
                return_transaction=True,
                max_rows_per_file=ROWS_PER_FRAGMENT,
                enable_stable_row_ids=True,
            )
            self._manifest = LanceDataset.commit(self._manifest, staged, max_retries=0)


@dataclass(frozen=True, slots=True)
class Result:
    """A line of the report; ``note`` tells what the comparison alone does not."""

    what: str
    spent: float
    base: float
    target: float | None = None
    note: str = ""

    def __str__(self) -> str:
        ratio = self.spent / self.base
        target = "" if self.target is None else f"{self.target:.2f}"
        verdict = "" if self.target is None else ("ok" if ratio <= self.target else "MISSED")
        return (
            f"{self.what:46} {self.spent * 1000:10.2f} {self.base * 1000:10.2f} "
            f"{ratio:7.2f} {target:>6} {verdict:7} {self.note}"
        ).rstrip()


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as location:
        yield Path(location)


# -- what is measured -----------------------------------------------------------------------------


def commit_beside_floor(what: str, durability: str, target: float | None, *, keys: bool) -> Result:
    """One-row commits, each followed by what Lance alone needs."""
    with folder() as location:
        bench = Bench(location, durability=durability)
        step = bench.append if keys else bench.commit
        for _ in range(WARM_UP):
            step()
        bench.forget()
        for _ in range(ROUNDS):
            step()
        return Result(what, statistics.median(bench.ours), statistics.median(bench.bare), target)


def late_beside_early(tables: int, *, compacts: bool = False) -> Result:
    """Commits around the 1,000th of one graph, each beside one around the 20th of another.

    With ``compacts`` the keys are looked up, too: that is what a tail of fragments makes slow.
    """
    step = Bench.append if compacts else Bench.commit
    with folder() as location:
        old = Bench(location / "old", tables, auto_compact=compacts)
        young = Bench(location / "young", tables, auto_compact=compacts)
        for _ in range(LATE - WINDOW // 2):
            step(old)
        for _ in range(max(EARLY - WINDOW // 2, tables)):
            step(young)
        old.forget()
        young.forget()
        for _ in range(WINDOW):
            step(young)
            step(old)
        floor = statistics.median(old.bare) / statistics.median(young.bare)
        spread = "one table" if tables == 1 else f"{tables} tables in turn"
        return Result(
            f"{'append' if compacts else 'commit'} {LATE:,} against {EARLY}, {spread}"
            f"{', compacted' if compacts else ''}",
            statistics.median(old.ours),
            statistics.median(young.ours),
            GOALS["compacted" if compacts else "history"],
            f"Lance alone: {floor:.2f}",
        )


def opens_and_reads() -> Iterator[Result]:
    """A long history beside a short one: opened cold, then read warm."""
    with folder() as location:
        old, young = Bench(location / "old", TABLES), Bench(location / "young", TABLES)
        old.grow(COLD)
        young.grow(EARLY)
        cold: dict[Bench, list[float]] = {old: [], young: []}
        for _ in range(COLD_ROUNDS):
            for bench, times in cold.items():
                times.append(seconds(bench.open_and_close))
        yield Result(
            f"open cold, {COLD:,} commits against {EARLY}",
            statistics.median(cold[old]),
            statistics.median(cold[young]),
            GOALS["open"],
        )
        warm: dict[Bench, list[float]] = {old: [], young: []}
        store = old.graph._handle.store
        old.graph.snapshot()
        opened, looked = store.datasets.opened, store.objects.traffic.total
        for _ in range(ROUNDS):
            for bench, times in warm.items():
                times.append(seconds(bench.graph.snapshot))
        looks = (store.objects.traffic.total - looked) / ROUNDS
        yield Result(
            f"read warm, {COLD:,} commits against {EARLY}",
            statistics.median(warm[old]),
            statistics.median(warm[young]),
            note=f"{store.datasets.opened - opened} opens, {looks:.0f} looks at files each",
        )


def main() -> None:
    print(f"{'what':46} {'median ms':>10} {'beside ms':>10} {'ratio':>7} {'goal':>6}")
    target = GOALS["commit"]
    print(commit_beside_floor("commit of one row", "os", target, keys=False))
    print(commit_beside_floor("commit of one row, synced to disk", "disk", None, keys=False))
    print(commit_beside_floor("Graph.append of one row", "os", None, keys=True))
    print(late_beside_early(1))
    print(late_beside_early(TABLES))
    print(late_beside_early(1, compacts=True))
    print(late_beside_early(TABLES, compacts=True))
    for result in opens_and_reads():
        print(result)


if __name__ == "__main__":
    main()
