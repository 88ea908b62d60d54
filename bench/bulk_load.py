"""What a bulk load costs, stage by stage, beside DuckDB and Ladybug on the same files.

Run it with ``make bench`` or ``python bench/bulk_load.py``; ``--people`` and ``--edges`` make it
smaller. Ours is a load of NDJSON or Parquet with every rule and the build of all declared indexes,
DuckDB copies the same files into tables without an index or a key, Ladybug copies the Parquet
files into tables with keys. The floor writes the same rows and ids with bare calls of Lance and
lets Lance build the same indexes, without a rule, a check or a commit. Every load runs in a process
of its own, turn by turn, and reports processor seconds, wall seconds, its peak of memory and the
bytes on disk. On two cores a load takes at least half of its processor seconds. A peer that is not
installed is skipped: both come with the
extra ``bench``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from social.network import generate, tables
from social.texts import SCHEMA

PEOPLE, EDGES, ROUNDS, CORES = 100_000, 2_000_000, 3, 2
TYPES = ("Person", "Knows")
GOALS = {"rate": 0.8, "disk": 1.3}
Cost = dict[str, Any]


def write_files(folder: Path, people: int, edges: int) -> None:
    """The same graph as Parquet and as NDJSON."""
    rows = tables(generate(people, edges))
    for name in TYPES:
        pq.write_table(rows[name], folder / f"{name}.parquet")
    with (folder / "graph.ndjson").open("w") as file:
        for record in rows["Person"].to_pylist():
            file.write(json.dumps({"type": "Person", "data": record}) + "\n")
        for ends in rows["Knows"].to_pylist():
            line = {"edge": "Knows", "from": ends["src"], "to": ends["dst"]}
            file.write(json.dumps(line) + "\n")


# -- one load, in a process of its own ------------------------------------------------------------


@contextmanager
def measured(cost: Cost) -> Iterator[None]:
    used, start = time.process_time(), time.perf_counter()
    yield
    cost["cpu"] = time.process_time() - used
    cost["wall"] = time.perf_counter() - start
    # Not ``ru_maxrss``, which a process inherits from the one that started it.
    status = Path("/proc/self/status").read_text()
    cost["peak"] = int(status.partition("VmHWM:")[2].split()[0]) / 1024


def size_of(location: Path) -> float:
    """Megabytes of a file or of all files below a directory."""
    files = location.rglob("*") if location.is_dir() else location.parent.glob(f"{location.name}*")
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


class Stages:
    """Processor seconds of the whole process while a stage of the main thread runs.

    Stages that run inside another one are subtracted from it. What other threads do meanwhile,
    such as writing while the next block is decoded, is counted to the stage of the main thread.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner: list[float] = []

    def time(self, owner: Any, name: str, label: str) -> None:
        function = getattr(owner, name)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                return function(*args, **kwargs)
            start = time.process_time()
            self._inner.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.process_time() - start
                own = spent - self._inner.pop()
                self.seconds[label] = self.seconds.get(label, 0.0) + own
                if self._inner:
                    self._inner[-1] += spent

        setattr(owner, name, call)


def time_stages() -> Stages:
    from omnigraph.commit import protocol
    from omnigraph.maintain.optimize import indexes
    from omnigraph.storage.tables.store import TableStore
    from omnigraph.write import conform
    from omnigraph.write.load import gather, run, spool
    from omnigraph.write.validate.validator import Validator

    stages = Stages()
    stages.time(run, "read_data", "decode and convert")
    stages.time(gather, "new_ids", "make ids")
    stages.time(conform, "new_ids", "make ids")
    stages.time(gather.Gatherer, "_check", "row rules")
    stages.time(spool.Spool, "add", "hand rows to the writer")
    stages.time(Validator, "judge", "set rules")
    stages.time(run, "stage_deltas", "write the rest")
    stages.time(TableStore, "check_staged", "read back, checksums")
    stages.time(protocol.Write, "_commit", "commit, publish")
    stages.time(indexes, "_stage_all", "indexes")
    return stages


def load_ours(files: Path, kind: str, target: Path) -> Cost:
    from omnigraph import Graph

    cost: Cost = {}
    paths = [files / "graph.ndjson"]
    if kind == "parquet":
        paths = [files / f"{name}.parquet" for name in TYPES]
    stages = time_stages()
    with Graph.init(target, SCHEMA, durability="os") as graph:
        with measured(cost):
            graph.load(paths)
            graph.indexes.ensure()
        counts = {name: graph.snapshot().count(name) for name in TYPES}
    rows = sum(counts.values())
    return {**cost, "rows": rows, "disk": size_of(target), "stages": stages.seconds}


def load_duckdb(files: Path, kind: str, target: Path) -> Cost:
    import duckdb

    cost: Cost = {}
    base = duckdb.connect(str(target), config={"threads": CORES})
    base.execute("CREATE TABLE person(name VARCHAR, age INTEGER, city VARCHAR, bio VARCHAR)")
    base.execute("CREATE TABLE knows(src VARCHAR, dst VARCHAR)")
    lines = (
        f"read_json('{files}/graph.ndjson', format='newline_delimited', columns={{"
        "'type': 'VARCHAR', 'edge': 'VARCHAR', 'from': 'VARCHAR', 'to': 'VARCHAR', "
        "'data': 'STRUCT(name VARCHAR, age INTEGER, city VARCHAR, bio VARCHAR)'})"
    )
    people = f"SELECT data.name, data.age, data.city, data.bio FROM {lines} WHERE type = 'Person'"
    knows = f'SELECT "from", "to" FROM {lines} WHERE edge = \'Knows\''
    if kind == "parquet":
        people, knows = (f"SELECT * FROM '{files}/{name}.parquet'" for name in TYPES)
    with measured(cost):
        base.execute(f"INSERT INTO person {people}")
        base.execute(f"INSERT INTO knows {knows}")
        base.execute("CHECKPOINT")
    counts = (base.execute(f"SELECT count(*) FROM {t}").fetchone() for t in ("person", "knows"))
    rows = sum(count[0] for count in counts if count is not None)
    base.close()
    return {**cost, "rows": rows, "disk": size_of(target), "version": duckdb.__version__}


def load_ladybug(files: Path, kind: str, target: Path) -> Cost:
    import ladybug

    if kind != "parquet":
        raise ImportError("its extension for JSON is not part of the package")
    cost: Cost = {}
    base = ladybug.Database(str(target))
    run = ladybug.Connection(base, num_threads=CORES).execute
    run("CREATE NODE TABLE Person(name STRING, age INT32, city STRING, bio STRING, "
        "PRIMARY KEY(name))")  # fmt: skip
    run("CREATE REL TABLE Knows(FROM Person TO Person)")
    with measured(cost):
        for name in TYPES:
            run(f"COPY {name} FROM '{files}/{name}.parquet'")
        run("CHECKPOINT")
    people = run("MATCH (p:Person) RETURN count(*)").get_all()[0][0]
    knows = run("MATCH ()-[k:Knows]->() RETURN count(*)").get_all()[0][0]
    base.close()
    disk = size_of(target)
    return {**cost, "rows": people + knows, "disk": disk, "version": ladybug.__version__}


def load_floor(files: Path, kind: str, target: Path) -> Cost:
    """Bare writes of the rows, then bare builds of the indexes, those of the two tables at once."""
    import lance
    import pyarrow as pa

    from omnigraph.storage.tables.store import ROWS_PER_FRAGMENT
    from omnigraph.write.ids import new_ids

    if kind != "parquet":
        raise ImportError("it is measured with Parquet only")
    equality, text = ("BTREE", {}), ("INVERTED", {"with_position": True})
    wanted = {
        "Person": [
            *((name, equality) for name in ("id", "name", "bio")),
            *((name, text) for name in ("name", "bio")),
        ],
        "Knows": [(name, equality) for name in ("id", "src", "dst")],
    }

    def index(name: str) -> None:
        table = lance.dataset(str(target / name))
        numbers = [fragment.fragment_id for fragment in table.get_fragments()]
        for column, (method, settings) in wanted[name]:
            made = table.create_index_uncommitted(column, method, fragment_ids=numbers, **settings)
            if method == "INVERTED":
                table.merge_existing_index_segments([made])

    cost: Cost = {}
    rows = 0
    with measured(cost):
        for name in TYPES:
            read = pq.read_table(files / f"{name}.parquet")
            ids = read["name"] if name == "Person" else new_ids(len(read))
            lance.write_dataset(
                read.append_column("id", pa.chunked_array([ids]) if name == "Knows" else ids),
                str(target / name),
                max_rows_per_file=ROWS_PER_FRAGMENT,
                enable_stable_row_ids=True,
            )
            rows += len(read)
        with ThreadPoolExecutor(CORES) as pool:
            list(pool.map(index, TYPES))
    return {**cost, "rows": rows, "disk": size_of(target), "version": lance.__version__}


LOADS: dict[str, Callable[[Path, str, Path], Cost]] = {
    "ours": load_ours,
    "duckdb": load_duckdb,
    "ladybug": load_ladybug,
    "floor": load_floor,
}


def load_alone(name: str, kind: str, files: Path) -> Cost | None:
    """The cost of one load in a new process; ``None`` if the peer cannot run here."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-", dir=files) as location:
        call = [sys.executable, __file__, "--load", name, kind, str(files), f"{location}/target"]
        done = subprocess.run(call, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        if not reason.startswith(("ImportError", "ModuleNotFoundError")):
            raise RuntimeError(f"{name}: {reason}")
        print(f"{name:8} {kind:8} skipped: {reason}", flush=True)
        return None
    cost: Cost = json.loads(done.stdout)
    return cost


# -- the table ------------------------------------------------------------------------------------


def median(costs: list[Cost], what: str) -> float:
    return statistics.median(cost[what] for cost in costs)


def show(name: str, kind: str, costs: list[Cost]) -> None:
    cpu, wall = median(costs, "cpu"), median(costs, "wall")
    rate = median(costs, "rows") / wall / 1000
    print(
        f"{name:8} {kind:8} {cpu:7.2f} {wall:7.2f} {rate:9.0f} {median(costs, 'peak'):8.0f} "
        f"{median(costs, 'disk'):8.0f}  {costs[0].get('version', '')}",
        flush=True,
    )


def verdict(what: str, actual: float, is_met: bool, target: float) -> None:
    print(f"{what}: {actual:.2f}, goal {target:g}: {'ok' if is_met else 'MISSED'}")


def compare(kind: str, costs: dict[str, list[Cost]]) -> None:
    ours, duckdb, ladybug, floor = (costs.get(name, []) for name in LOADS)
    if duckdb:
        for what, unit in (("wall", "rows per second"), ("cpu", "rows per processor second")):
            ratio = median(duckdb, what) / median(ours, what)
            wanted = GOALS["rate"]
            verdict(f"{kind}: {unit}, of those of duckdb", ratio, ratio >= wanted, wanted)
    if ladybug:
        ratio = median(ours, "disk") / median(ladybug, "disk")
        verdict(f"{kind}: disk, of that of ladybug", ratio, ratio <= GOALS["disk"], GOALS["disk"])
    if floor:
        for what in ("cpu", "wall", "disk"):
            ratio = median(ours, what) / median(floor, what)
            print(f"{kind}: {what}, of that of the floor: {ratio:.2f}")
    total = median(ours, "cpu")
    stages = {name: statistics.median(c["stages"].get(name, 0.0) for c in ours)
              for name in ours[0]["stages"]}  # fmt: skip
    stages["rest"] = max(0.0, total - sum(stages.values()))
    for name, spent in sorted(stages.items(), key=lambda item: -item[1]):
        print(f"    {name:24} {spent:6.2f} cpu-s {100 * spent / total:5.0f} %")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=PEOPLE)
    parser.add_argument("--edges", type=int, default=EDGES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--load", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load is not None:
        name, kind, files, target = given.load
        print(json.dumps(LOADS[name](Path(files), kind, Path(target))))
        return 0
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as location:
        files = Path(location)
        write_files(files, given.people, given.edges)
        print(
            f"{'':8} {'':8} {'cpu-s':>7} {'wall s':>7} {'krows/s':>9} {'peak MB':>8} {'disk MB':>8}"
        )
        for kind in ("ndjson", "parquet"):
            costs: dict[str, list[Cost]] = {}
            names = list(LOADS)
            for _ in range(given.rounds):
                for name in list(names):
                    cost = load_alone(name, kind, files)
                    if cost is None:
                        names.remove(name)
                    else:
                        costs.setdefault(name, []).append(cost)
            for name, several in costs.items():
                show(name, kind, several)
            compare(kind, costs)
    return 0


if __name__ == "__main__":
    with suppress(AttributeError):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    raise SystemExit(main())
