"""How long loads and small writes take beside what parsing and Lance alone need for them.

Run it with ``make bench`` or ``python bench/load.py``. The floor of a load is the bare parse of the
same lines and the bare write of the same rows, without a conversion between them and without a
check; that of a small write is what Lance needs for it at least (a staged append for new rows, a
staged upsert where some are there) with its commit, and one upsert into a table that stands for
the graph's manifest. What is compared runs turn by turn in one process, so that noise of the
machine hits both; the peak of memory is that of a process of its own.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import msgspec
import pyarrow as pa
from commit import Floor, Result, folder, seconds
from lance import LanceDataset
from lance.fragment import write_fragments

from omnigraph import Graph
from omnigraph.storage.tables.store import ROWS_PER_FRAGMENT

SCHEMA = """\
node Person { name: String @key  email: String  age: I32?  score: F64?  born: Date? }
edge Knows: Person -> Person { weight: F64? }
"""
NODES, EDGES = 100_000, 500_000
LOADS = 3
WARM_UP, INSERTS = 8, 40
SIZES = {10_000: 20, 1_000_000: 10}
UPSERTED = 1_000
GOALS = {"load": 3.0, "insert": 2.0, "upsert": 1.5, "memory": 1_000}
INSERT = """
query add($name: String, $email: String, $age: I32) {
  insert Person { name: $name, email: $email, age: $age }
}
"""


def write_lines(path: Path) -> None:
    """The nodes, then the edges, one record a line."""
    chance = random.Random(1)
    with path.open("w") as file:
        for n in range(NODES):
            data = {"name": name(n), "email": f"{n}@example.org", "age": n % 90, "score": n / 7}
            data["born"] = f"{1950 + n % 60}-05-17"
            file.write(json.dumps({"type": "Person", "data": data}) + "\n")
        for n in range(EDGES):
            ends = {"from": name(chance.randrange(NODES)), "to": name(chance.randrange(NODES))}
            file.write(json.dumps({"edge": "Knows", **ends, "data": {"weight": n / 3}}) + "\n")


def name(number: int) -> str:
    return f"person-{number:07}"


# -- a load -----------------------------------------------------------------------------------


def load_beside_floor(directory: Path) -> Result:
    """Whole loads into new graphs, each followed by the bare parse and the bare write."""
    path = directory / "graph.ndjson"
    write_lines(path)
    ours, parsed, written = [], [], []
    for number in range(LOADS):
        with Graph.init(directory / f"g{number}", SCHEMA, durability="os") as graph:
            ours.append(seconds(lambda graph=graph: graph.load(path)))  # type: ignore[misc]
            parsed.append(seconds(lambda: parse(path)))
            tables = [graph.snapshot().read(kind) for kind in ("Person", "Knows")]
        target = directory / f"bare{number}"
        written.append(seconds(lambda t=tables, p=target: write_bare(t, p)))  # type: ignore[misc]
        shutil.rmtree(target)
        shutil.rmtree(directory / f"g{number}")
    parse_time, write_time = statistics.median(parsed), statistics.median(written)
    note = f"parse {parse_time:.2f} s, write {write_time:.2f} s; {memory(directory, path)}"
    what = f"load of {NODES:,} nodes and {EDGES:,} edges"
    return Result(what, statistics.median(ours), parse_time + write_time, GOALS["load"], note)


def parse(path: Path) -> None:
    """Whatever stands on each line, by the fastest parser that is at hand."""
    decode = msgspec.json.Decoder().decode
    with path.open("rb") as lines:
        for line in lines:
            decode(line)


def write_bare(tables: list[pa.Table], directory: Path) -> None:
    for number, table in enumerate(tables):
        uri = str(directory / str(number))
        staged = write_fragments(
            table, uri, mode="create", return_transaction=True, max_rows_per_file=ROWS_PER_FRAGMENT
        )
        LanceDataset.commit(uri, staged, enable_stable_row_ids=True)


def memory(directory: Path, path: Path) -> str:
    """The peak of a process that does nothing but the load."""
    call = [sys.executable, __file__, str(directory / "measured"), str(path)]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    peak = int(done.stdout)
    verdict = "ok" if peak < GOALS["memory"] else "MISSED"
    return f"peak {peak} MB of {GOALS['memory']}: {verdict}"


def load_alone(uri: str, path: str) -> None:
    with Graph.init(uri, SCHEMA, durability="os") as graph:
        graph.load(path)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


# -- small writes -----------------------------------------------------------------------------


class Copied(Floor):
    """The bare calls on a copy of a graph's table: the same fragments, the same indexes."""

    def __init__(self, directory: Path, graph: Graph) -> None:
        super().__init__(directory, graph.catalog.node("Person").arrow_schema(), 0)
        pin = graph._handle.store.manifest(None).current().pins["node:Person"]
        shutil.copytree(Path(graph.uri, pin.location), directory / "copied")
        session = lance.Session(index_cache_size_bytes=64 << 20, metadata_cache_size_bytes=64 << 20)
        self._tables.append(lance.dataset(str(directory / "copied"), session=session))


class Upserted(Copied):
    """The same for rows of which some are there."""

    def _append(self, table: int, row: pa.Table) -> None:
        dataset = self._tables[table]
        staged, _ = (
            dataset.merge_insert("id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute_uncommitted(row)
        )
        self._tables[table] = LanceDataset.commit(dataset, staged, max_retries=0)


def filled(directory: Path, rows: int) -> Graph:
    """A graph with so many people, their keys indexed."""
    graph = Graph.init(directory, SCHEMA, durability="os")
    graph.load({"Person": people(range(rows))})
    graph.indexes.ensure()
    return graph


def people(numbers: range | list[int]) -> pa.Table:
    return pa.table(
        {
            "name": [name(n) for n in numbers],
            "email": [f"{n}@example.org" for n in numbers],
            "age": pa.array([n % 90 for n in numbers], pa.int32()),
        }
    )


def turn_by_turn(
    rounds: int, ours: Callable[[int], object], bare: Callable[[int], float]
) -> tuple[float, float]:
    """The medians of both, after a few to warm up."""
    spent, base = [], []
    for number in range(WARM_UP + rounds):
        spent.append(seconds(lambda n=number: ours(n)))  # type: ignore[misc]
        base.append(bare(number))
    return statistics.median(spent[WARM_UP:]), statistics.median(base[WARM_UP:])


def insert_beside_floor(directory: Path) -> Result:
    """One row through a mutation, then the same row by the bare calls."""
    rows = 10_000
    with filled(directory / "g", rows) as graph:
        floor = Copied(directory / "floor", graph)
        schema = graph.catalog.node("Person").arrow_schema()

        def ours(number: int) -> None:
            n = rows + number
            values = {"name": name(n), "email": f"{n}@example.org", "age": n % 90}
            graph.mutate(INSERT, None, values)

        def bare(number: int) -> float:
            return floor.add(0, stored(people([rows + number]), schema))

        spent, base = turn_by_turn(INSERTS, ours, bare)
        return Result("insert of one row by a mutation", spent, base, GOALS["insert"])


def stored(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows in the columns of the table."""
    columns = {"id": table["name"], **{n: table[n] for n in table.column_names}}
    count = table.num_rows
    return pa.table([columns.get(f.name, pa.nulls(count, f.type)) for f in schema], schema=schema)


def upserts_beside_floor(directory: Path) -> Iterator[Result]:
    """Rows of which half are there, spread over the table."""
    for rows, rounds in SIZES.items():
        chance = random.Random(2)
        batches = []
        for n in range(WARM_UP + rounds):
            existing = chance.sample(range(rows), UPSERTED // 2)
            new = range(2 * rows + n * UPSERTED, 2 * rows + n * UPSERTED + UPSERTED // 2)
            batches.append(people([*existing, *new]))
        with filled(directory / f"g{rows}", rows) as graph:
            floor = Upserted(directory / f"floor{rows}", graph)
            schema = graph.catalog.node("Person").arrow_schema()
            ready = [stored(batch, schema) for batch in batches]
            spent, base = turn_by_turn(
                rounds,
                lambda n, graph=graph, batches=batches: graph.load({"Person": batches[n]}),
                lambda n, floor=floor, ready=ready: floor.add(0, ready[n]),
            )
        what = f"upsert of {UPSERTED:,} rows into {rows:,}"
        yield Result(what, spent, base, GOALS["upsert"])


def main() -> None:
    print(f"{'what':46} {'median ms':>10} {'beside ms':>10} {'ratio':>7} {'goal':>6}")
    with folder() as location:
        print(load_beside_floor(location))
    with folder() as location:
        print(insert_beside_floor(location))
    with folder() as location:
        for result in upserts_beside_floor(location):
            print(result)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        load_alone(*sys.argv[1:])
    else:
        main()
