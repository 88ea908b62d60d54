"""The counts of LDBC's Labelled Subgraph Query Benchmark beside Ladybug and DuckDB.

Run it with ``make bench`` or ``python bench/lsqb.py``. The data are the ``|``-separated files of
scale factor 0.1, those that queries 3, 6 and 9 need; ``--data`` names their directory. Without the
data nothing is measured. All engines run with two threads, turn by turn in one process, and every
count is compared with the published one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
from social.engines import THREADS
from social.measuring import Clock, Line, Target, measure

from omnigraph import Graph

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "lsqb" / "sf0.1"
TARGET = Target(best=0.8)
COUNTS = {"query 3": 30_456, "query 6": 55_607_896, "query 9": 51_009_398}
NODES = ("Country", "City", "Person", "Tag")
# The files of edges, with the type of the edge and of both ends.
EDGES = {
    "City_isPartOf_Country": ("PartOf", "City", "Country"),
    "Person_isLocatedIn_City": ("LivesIn", "Person", "City"),
    "Person_knows_Person": ("Knows", "Person", "Person"),
    "Person_hasInterest_Tag": ("Interest", "Person", "Tag"),
}
Tables = dict[str, pa.Table]

SCHEMA = "\n".join(
    [
        *(f"node {name} {{ key: String @key }}" for name in NODES),
        *(f"edge {name}: {src} -> {dst}" for name, src, dst in EDGES.values()),
    ]
)
_PATHS = "$a <knows> $b  $b <knows> $c  $c interest $t  $a.key != $c.key"
OURS = {
    "query 3": "$a <knows> $b  $b <knows> $c  $a <knows> $c  $a livesIn $x  $b livesIn $y  "
    "$c livesIn $z  $x partOf $k  $y partOf $k  $z partOf $k",
    "query 6": _PATHS,
    "query 9": f"{_PATHS}  not {{ $a <knows> $c }}",
}

_CYPHER_PATHS = (
    "MATCH (a:Person)-[:Knows]-(b:Person)-[:Knows]-(c:Person)-[:Interest]->(t:Tag) "
    "WHERE a.key <> c.key"
)
CYPHER = {
    "query 3": "MATCH (k:Country), (a:Person)-[:LivesIn]->(:City)-[:PartOf]->(k), "
    "(b:Person)-[:LivesIn]->(:City)-[:PartOf]->(k), (c:Person)-[:LivesIn]->(:City)-[:PartOf]->(k), "
    "(a)-[:Knows]-(b), (b)-[:Knows]-(c), (c)-[:Knows]-(a) RETURN count(*)",
    "query 6": f"{_CYPHER_PATHS} RETURN count(*)",
    "query 9": f"{_CYPHER_PATHS} AND NOT (a)-[:Knows]-(c) RETURN count(*)",
}

# Both directions of ``knows`` are stored, so that a join finds either.
_SQL_PATHS = (
    "SELECT count(*) FROM either k JOIN either l ON l.src = k.dst AND l.dst <> k.src "
    "JOIN interest i ON i.src = l.dst"
)
SQL = {
    "query 3": "SELECT count(*) FROM either k JOIN either l ON l.src = k.dst "
    "JOIN either m ON m.src = l.dst AND m.dst = k.src JOIN livesin x ON x.src = k.src "
    "JOIN livesin y ON y.src = l.src JOIN livesin z ON z.src = m.src "
    "JOIN partof p ON p.src = x.dst JOIN partof q ON q.src = y.dst AND q.dst = p.dst "
    "JOIN partof r ON r.src = z.dst AND r.dst = p.dst",
    "query 6": _SQL_PATHS,
    "query 9": f"{_SQL_PATHS} WHERE NOT EXISTS "
    "(SELECT 1 FROM either m WHERE m.src = k.src AND m.dst = l.dst)",
}


def read_tables(data: Path) -> Tables:
    """Nodes with their key, edges with both ends, by type."""

    def read(name: str, columns: list[str]) -> pa.Table:
        options = csv.ReadOptions(column_names=columns, skip_rows=1)
        return csv.read_csv(data / f"{name}.csv", options, csv.ParseOptions(delimiter="|"))

    nodes = {name: read(name, ["key"]) for name in NODES}
    return {**nodes, **{edge[0]: read(name, ["src", "dst"]) for name, edge in EDGES.items()}}


class Contender:
    """An engine with the graph of the benchmark; answers a query by its name."""

    name: str
    texts: dict[str, str]

    def responses(self, row: str) -> bool:
        return row in self.texts

    def rows(self, actual: int) -> list[int]:
        return [actual]


class Ours(Contender):
    name, texts = "ours", OURS

    def __init__(self, location: Path, tables: Tables) -> None:
        self._graph = Graph.init(location, SCHEMA, durability="os")
        texts = {
            name: table.cast(pa.schema([(column, pa.string()) for column in table.column_names]))
            for name, table in tables.items()
        }
        self._graph.append(texts)
        self._graph.indexes.ensure()

    def run(self, row: str, params: None) -> int:
        text = f"query q() {{ match {{ {OURS[row]} }} return {{ count($a) as n }} }}"
        return int(self._graph.query(text).rows()[0]["n"])

    def close(self) -> None:
        self._graph.close()


class Ladybug(Contender):
    name, texts = "ladybug", CYPHER

    def __init__(self, location: Path, tables: Tables) -> None:
        import ladybug

        self._database = ladybug.Database(str(location))
        self._connection = ladybug.Connection(self._database, num_threads=THREADS)
        for name in NODES:
            self._connection.execute(f"CREATE NODE TABLE {name}(key INT64, PRIMARY KEY(key))")
        for name, src, dst in EDGES.values():
            self._connection.execute(f"CREATE REL TABLE {name}(FROM {src} TO {dst})")
        for name, table in tables.items():
            file = location.with_suffix(f".{name}.parquet")
            pq.write_table(table, file)
            self._connection.execute(f"COPY {name} FROM '{file}'")

    def run(self, row: str, params: None) -> int:
        return int(self._connection.execute(CYPHER[row]).get_all()[0][0])

    def close(self) -> None:
        self._connection.close()
        self._database.close()


class DuckDB(Contender):
    name, texts = "duckdb", SQL

    def __init__(self, location: Path, tables: Tables) -> None:
        import duckdb

        self._connection = duckdb.connect(str(location))
        self._connection.execute(f"SET threads = {THREADS}")
        for name, table in tables.items():
            self._connection.register("given", table)
            self._connection.execute(f"CREATE TABLE {name.lower()} AS SELECT * FROM given")
            self._connection.unregister("given")
        self._connection.execute(
            "CREATE TABLE either AS SELECT src, dst FROM knows UNION ALL SELECT dst, src FROM knows"
        )

    def run(self, row: str, params: None) -> int:
        return int(self._connection.execute(SQL[row]).fetchone()[0])

    def close(self) -> None:
        self._connection.close()


class Published(Contender):
    """The counts that LDBC states; it is asked once and not timed against others."""

    name, texts = "published", dict.fromkeys(COUNTS, "")

    def run(self, row: str, params: None) -> int:
        return COUNTS[row]


def contenders(location: Path, tables: Tables) -> list[Any]:
    present: list[Any] = []
    for kind in (Ours, Ladybug, DuckDB):
        start = time.perf_counter()
        try:
            present.append(kind(location / kind.name, tables))
        except ImportError:
            print(f"{kind.name} is not installed and is left out: pip install '.[bench]'")
        else:
            print(f"  {kind.name} took {time.perf_counter() - start:.1f} s to build", flush=True)
    return present


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="the files of scale factor 0.1")
    parser.add_argument("--cpu", action="store_true", help="compare processor time")
    requested = parser.parse_args()
    data = requested.data
    if requested.cpu:
        Clock.use_processor_time()
    if not (data / "Person.csv").exists():
        print(f"skipped: no Person.csv in {data}; pass the directory of the data with --data")
        return 0
    holds = True
    with tempfile.TemporaryDirectory(prefix="omnigraph-lsqb-") as folder:
        engines = contenders(Path(folder), read_tables(data))
        print(Line.head())
        for row in COUNTS:
            line = measure(row, [*engines, Published()], [None], TARGET)
            holds &= line.holds
            print(line, flush=True)
        for engine in engines:
            engine.close()
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
