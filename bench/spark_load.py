"""What a bulk load on Spark costs beside bare parsing and writing, and beside other databases.

Run it with ``make bench`` or ``python bench/spark_load.py``; ``--nodes`` makes it smaller. The
floor is measured in the same run: two processes, each of which parses one half of the same lines
strictly and writes the rows to Lance, without a check and without a commit. Ours is a whole load
with every rule, on a session that is warm. Processor seconds are those of all processes together;
the peak of memory is the sum of what they hold, looked at many times a second. The peers are
optional: Ladybug and DuckDB come with the extra ``bench``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NODES = 1_000_000
EDGES_PER_NODE = 5
CORES = 2
GOALS = {"cpu": 1.5, "wall": 1.6, "memory": 4_000, "twice": 2.1}
SCHEMA = """\
node Person { name: String @key  email: String  age: I32?  score: F64?  born: Date? }
edge Knows: Person -> Person { weight: F64? }
"""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def write_lines(path: Path, nodes: int) -> None:
    """The nodes, then the edges, one record a line."""
    chance = random.Random(1)
    with path.open("w") as file:
        for n in range(nodes):
            file.write(
                f'{{"type": "Person", "data": {{"name": "person-{n:08}", "email": "{n}@example.org"'
                f', "age": {n % 90}, "score": {n / 7}, "born": "{1950 + n % 60}-05-17"}}}}\n'
            )
        for n in range(nodes * EDGES_PER_NODE):
            a, b = chance.randrange(nodes), chance.randrange(nodes)
            file.write(
                f'{{"edge": "Knows", "from": "person-{a:08}", "to": "person-{b:08}"'
                f', "data": {{"weight": {n / 3}}}}}\n'
            )


# -- measuring ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """What some work took."""

    wall: float
    cpu: float
    peak: float = 0.0

    def __str__(self) -> str:
        peak = f"{self.peak:8.0f} MB" if self.peak else f"{'–':>11}"
        return f"{self.wall:8.1f} s {self.cpu:8.1f} cpu-s {peak}"


def _tree(top: int) -> dict[int, tuple[float, int]]:
    """Processor seconds and bytes of a process and of all below it."""
    existing: dict[int, tuple[int, float, int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            spent = sum(map(int, fields[11:15])) / _TICKS
            existing[int(entry.name)] = (int(fields[1]), spent, int(fields[21]) * _PAGE)
    actual = {top}
    while more := {pid for pid, (parent, _, _) in existing.items() if parent in actual} - actual:
        actual |= more
    return {pid: existing[pid][1:] for pid in actual if pid in existing}


def measured(work: Callable[[], object], pid: int | None = None) -> Cost:
    """Run something; what it and every process below cost."""
    top = os.getpid() if pid is None else pid
    peak, is_over = 0, threading.Event()

    def look() -> None:
        nonlocal peak
        while not is_over.wait(0.05):
            peak = max(peak, sum(size for _, size in _tree(top).values()))

    before = sum(spent for spent, _ in _tree(top).values())
    watcher = threading.Thread(target=look)
    watcher.start()
    start = time.perf_counter()
    try:
        work()
    finally:
        wall = time.perf_counter() - start
        after = sum(spent for spent, _ in _tree(top).values())
        is_over.set()
        watcher.join()
    return Cost(wall, after - before, peak / 1e6)


# -- the floor ------------------------------------------------------------------------------------

_FLOOR = """
import sys
from pathlib import Path
import msgspec, pyarrow as pa
from lance.fragment import write_fragments

class Person(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    email: str
    age: int
    score: float
    born: str

class Weight(msgspec.Struct, forbid_unknown_fields=True):
    weight: float

class Node(msgspec.Struct, tag_field="type", tag="Person", forbid_unknown_fields=True):
    data: Person

class Edge(msgspec.Struct, rename={"start": "from", "end": "to"}, forbid_unknown_fields=True):
    edge: str
    start: str
    end: str
    data: Weight

path, target, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
nodes, edges = msgspec.json.Decoder(Node), msgspec.json.Decoder(Edge)
PEOPLE = pa.schema([("name", pa.string()), ("email", pa.string()), ("age", pa.int32()),
                    ("score", pa.float64()), ("born", pa.date32())])
KNOWS = pa.schema([("src", pa.string()), ("dst", pa.string()), ("weight", pa.float64())])

def blocks():
    with open(path, "rb") as file:
        file.seek(max(first - 1, 0))
        if first:
            file.readline()
        while file.tell() < last:
            data = file.read(min(1 << 20, last - file.tell())) + file.readline()
            yield data

def rows(block):
    lead = block.startswith(b'{"type"')
    if lead and b'"edge"' in block:
        cut = block.index(b'{"edge"')
        return nodes.decode_lines(block[:cut]), edges.decode_lines(block[cut:])
    return (nodes.decode_lines(block), []) if lead else ([], edges.decode_lines(block))

people, knows = [], []
def flush(kept, schema, name):
    if kept:
        reader = pa.RecordBatchReader.from_batches(schema, kept)
        write_fragments(reader, f"{target}/{name}", schema=schema, mode="overwrite")
        kept.clear()

for block in blocks():
    some, more = rows(block)
    if some:
        d = [each.data for each in some]
        born = pa.array([e.born for e in d]).cast(pa.date32())
        people.append(pa.record_batch([[e.name for e in d], [e.email for e in d],
            pa.array([e.age for e in d], pa.int32()), [e.score for e in d], born], schema=PEOPLE))
    if more:
        knows.append(pa.record_batch([[e.start for e in more], [e.end for e in more],
            [e.data.weight for e in more]], schema=KNOWS))
    if len(people) >= 64:
        flush(people, PEOPLE, "people")
    if len(knows) >= 64:
        flush(knows, KNOWS, "knows")
flush(people, PEOPLE, "people")
flush(knows, KNOWS, "knows")
"""


def floor(path: Path, location: Path) -> Cost:
    """The same lines parsed and the same rows written by two processes."""
    size = path.stat().st_size
    environ = {**os.environ, "LANCE_LOG": "error"}

    def work() -> None:
        running = [
            subprocess.Popen(
                [sys.executable, "-c", _FLOOR, path, location, str(first), str(last)], env=environ
            )
            for first, last in ((0, size // 2), (size // 2, size))
        ]
        if any(item.wait() for item in running):
            raise RuntimeError("the floor could not be measured")

    return measured(work)


# -- ours -----------------------------------------------------------------------------------------


def ours(paths: list[Path], location: Path) -> list[Cost]:
    """Loads into new graphs one after the other, after a small one that warms the session up."""
    from omnigraph import Graph
    from omnigraph.spark.session.config import SparkConfig
    from omnigraph.spark.session.engine import open_spark

    small = location / "small.ndjson"
    write_lines(small, 20_000)
    matches = []
    with open_spark(SparkConfig(master=f"local[{CORES},4]")) as spark:
        for number, path in enumerate([small, small, *paths]):
            with Graph.init(location / f"ours{number}", SCHEMA) as graph:
                receipts = []

                def work(
                    graph: Graph = graph, path: Path = path, reported: list = receipts
                ) -> None:
                    reported.append(graph.load(path, "append", engine="spark", spark=spark.session))

                matches.append(measured(work))
                counts = receipts[0].tables.values()
                assert receipts[0].records == sum(count.inserted for count in counts)
            shutil.rmtree(location / f"ours{number}")
    return matches[2:]


# -- the peers ------------------------------------------------------------------------------------


def duckdb_load(path: Path, location: Path) -> Cost:
    import duckdb

    base = duckdb.connect(str(location / "duck.db"), config={"threads": CORES})
    base.execute("CREATE TABLE person(name VARCHAR PRIMARY KEY, email VARCHAR, age INTEGER, "
                 "score DOUBLE, born DATE)")  # fmt: skip
    base.execute("CREATE TABLE knows(src VARCHAR, dst VARCHAR, weight DOUBLE)")
    lines = (
        f"read_json('{path}', format='newline_delimited', columns={{'type': 'VARCHAR', "
        "'edge': 'VARCHAR', 'from': 'VARCHAR', 'to': 'VARCHAR', 'data': 'STRUCT(name VARCHAR, "
        "email VARCHAR, age INTEGER, score DOUBLE, born DATE, weight DOUBLE)'})"
    )

    def work() -> None:
        base.execute(f"INSERT INTO person SELECT data.name, data.email, data.age, data.score, "
                     f"data.born FROM {lines} WHERE type = 'Person'")  # fmt: skip
        base.execute(f'INSERT INTO knows SELECT "from", "to", data.weight FROM {lines} '
                     f"WHERE edge = 'Knows'")  # fmt: skip
        base.execute("CHECKPOINT")

    cost = measured(work)
    base.close()
    return cost


def ladybug_load(path: Path, location: Path) -> Cost:
    """It has no COPY from mixed NDJSON: the lines are parted first, which is not counted."""
    import ladybug

    people, knows = location / "person.json", location / "knows.json"
    with path.open() as lines, people.open("w") as nodes, knows.open("w") as edges:
        for line in lines:
            record = json.loads(line)
            if "type" in record:
                nodes.write(json.dumps(record["data"]) + "\n")
            else:
                ends = {"from": record["from"], "to": record["to"]}
                edges.write(json.dumps({**ends, **record["data"]}) + "\n")
    base = ladybug.Database(str(location / "lady.db"))
    run = ladybug.Connection(base, num_threads=CORES).execute
    try:
        run("INSTALL json")
        run("LOAD EXTENSION json")
    except RuntimeError:
        raise RuntimeError("its extension for JSON cannot be had here") from None
    run("CREATE NODE TABLE Person(name STRING PRIMARY KEY, email STRING, age INT32, score DOUBLE, "
        "born DATE)")  # fmt: skip
    run("CREATE REL TABLE Knows(FROM Person TO Person, weight DOUBLE)")
    return measured(
        lambda: (run(f"COPY Person FROM '{people}'"), run(f"COPY Knows FROM '{knows}'"))
    )


def peers(path: Path, location: Path) -> Iterator[tuple[str, Cost | str]]:
    for name, load in (("duckdb", duckdb_load), ("ladybug", ladybug_load)):
        try:
            yield name, load(path, location)
        except ImportError:
            yield name, "not installed: pip install '.[bench]'"
        except RuntimeError as error:
            yield name, str(error).splitlines()[0][:80]


@contextmanager
def folder(given: str | None) -> Iterator[Path]:
    if given is not None:
        Path(given).mkdir(parents=True, exist_ok=True)
        yield Path(given)
        return
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as location:
        yield Path(location)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--location", help="keep the files here")
    requested = parser.parse_args()
    with folder(requested.location) as location:
        once, twice = (
            location / f"{requested.nodes}.ndjson",
            location / f"{2 * requested.nodes}.ndjson",
        )
        for path, nodes in ((once, requested.nodes), (twice, 2 * requested.nodes)):
            if not path.exists():
                write_lines(path, nodes)
        records = requested.nodes * (1 + EDGES_PER_NODE)
        print(f"{records:,} records, {once.stat().st_size / 1e6:.0f} MB, {CORES} cores")
        with folder(None) as scratch:
            bare = floor(once, scratch)
            print(f"{'floor':16}{bare}", flush=True)
            one, two = ours([once, twice], scratch)
            print(f"{'ours':16}{one}  {records / one.wall:,.0f} records/s", flush=True)
            print(f"{'ours, twice':16}{two}", flush=True)
            fastest = 0.0
            for name, cost in peers(once, scratch):
                rate = 0.0 if isinstance(cost, str) else records / cost.wall
                fastest = max(fastest, rate)
                shown = f"  {rate:,.0f} records/s" if rate else ""
                print(f"{name:16}{cost}{shown}", flush=True)
        verdicts = [
            ("cpu-seconds of the floor", one.cpu / bare.cpu, GOALS["cpu"]),
            ("wall of the floor", one.wall / bare.wall, GOALS["wall"]),
            ("peak memory, MB", one.peak, GOALS["memory"]),
            ("cpu-seconds of twice the input", two.cpu / one.cpu, GOALS["twice"]),
            ("wall of twice the input", two.wall / one.wall, GOALS["twice"]),
            ("fastest peer, records/s", fastest / (records / one.wall), 1.0),
        ]
        for what, actual, target in verdicts:
            print(
                f"{what}: {actual:.2f}, goal {target:g}: {'ok' if actual <= target else 'MISSED'}"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
