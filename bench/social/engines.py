"""Ours and its peers: each builds its copy of the network and answers rows by their name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph import Graph
from social.network import Social, tables
from social.texts import CYPHER, OURS, QUERIES, SCHEMA, SQL

THREADS = 2

Params = dict[str, Any]
Rows = list[tuple[Any, ...]]


class Ours:
    name = "ours"

    def __init__(self, location: Path) -> None:
        self.graph = Graph.open(location, mode="r")

    def responses(self, row: str) -> bool:
        return row in OURS

    def run(self, row: str, params: Params) -> pa.Table:
        return self.graph.query(QUERIES, OURS[row], params).to_arrow()

    def rows(self, actual: pa.Table) -> Rows:
        return _arrow_rows(actual)

    def close(self) -> None:
        self.graph.close()

    @staticmethod
    def build(location: Path, social: Social) -> None:
        with Graph.init(location, SCHEMA, durability="os") as graph:
            graph.append(tables(social))
            graph.indexes.ensure()
            for row in ("1 hop", "same city and company"):  # so that the topology is persisted
                graph.query(QUERIES, OURS[row], {"name": "person-000000"}).to_arrow()


class Prepared:
    """Ours, through a prepared query: for the rows where compiling and layers matter."""

    name = "prepared"
    _rows = ("point lookup", "1 hop", "2 hops, distinct, filter")

    def __init__(self, graph: Graph) -> None:
        self._queries = {row: graph.prepare(QUERIES, OURS[row]) for row in self._rows}

    def responses(self, row: str) -> bool:
        return row in self._rows

    def run(self, row: str, params: Params) -> pa.Table:
        return self._queries[row](params).to_arrow()

    def rows(self, actual: pa.Table) -> Rows:
        return _arrow_rows(actual)

    def close(self) -> None:
        """The graph belongs to ``Ours``."""


class Ladybug:
    name = "ladybug"

    def __init__(self, location: Path) -> None:
        import ladybug

        self._database = ladybug.Database(str(location))
        self._connection = ladybug.Connection(self._database, num_threads=THREADS)

    def responses(self, row: str) -> bool:
        return row in CYPHER

    def run(self, row: str, params: Params) -> Any:
        # A list and not Arrow, which takes it a millisecond to make.
        return self._connection.execute(CYPHER[row], params).get_all()

    def rows(self, actual: Any) -> Rows:
        return [tuple(row) for row in actual]

    def close(self) -> None:
        self._connection.close()
        self._database.close()

    @staticmethod
    def build(location: Path, social: Social) -> None:
        made = Ladybug(location)
        run = made._connection.execute
        run("CREATE NODE TABLE Person(name STRING, age INT32, city STRING, PRIMARY KEY(name))")
        run("CREATE NODE TABLE Company(name STRING, PRIMARY KEY(name))")
        run("CREATE REL TABLE Knows(FROM Person TO Person)")
        run("CREATE REL TABLE WorksAt(FROM Person TO Company)")
        for name, table in tables(social).items():
            file = location.with_suffix(f".{name}.parquet")
            pq.write_table(table.drop_columns("bio") if name == "Person" else table, file)
            run(f"COPY {name} FROM '{file}'")
            file.unlink()
        made.close()


class DuckDB:
    name = "duckdb"

    def __init__(self, location: Path) -> None:
        import duckdb

        self._connection = duckdb.connect(str(location))
        self._connection.execute(f"SET threads = {THREADS}")

    def responses(self, row: str) -> bool:
        return row in SQL

    def run(self, row: str, params: Params) -> Any:
        wanted = {name: value for name, value in params.items() if f"${name}" in SQL[row]}
        return self._connection.execute(SQL[row], wanted).fetchall()

    def rows(self, actual: Any) -> Rows:
        return [tuple(row) for row in actual]

    def close(self) -> None:
        self._connection.close()

    @staticmethod
    def build(location: Path, social: Social) -> None:
        made = DuckDB(location)
        run = made._connection.execute
        given = tables(social)
        person = given["Person"].drop_columns("bio")
        person = person.append_column("id", pa.array(np.arange(len(social.age)), pa.int32()))
        knows = pa.table({"src": social.src.astype("i4"), "dst": social.dst.astype("i4")})
        works = pa.table({"src": social.employee.astype("i4"), "dst": social.employer.astype("i4")})
        for name, table in (("person", person), ("knows", knows), ("works", works)):
            made._connection.register("given", table)
            run(f"CREATE TABLE {name} AS SELECT * FROM given")
            made._connection.unregister("given")
        run("CREATE UNIQUE INDEX by_name ON person(name)")
        made.close()


class Lance:
    """What Lance alone needs where it can answer: no language, no transaction over tables."""

    name = "lance"
    _rows = ("point lookup", "filter, sort, limit", "text search + 2 hops")

    def __init__(self, location: Path) -> None:
        import lance

        self._person = lance.dataset(str(location / "person"))
        self._knows = lance.dataset(str(location / "knows"))

    def responses(self, row: str) -> bool:
        return row in self._rows

    def run(self, row: str, params: Params) -> pa.Table:
        if row == "point lookup":
            return self._person.to_table(["age"], filter=f"name = '{params['name']}'")
        if row == "filter, sort, limit":
            actual = self._person.to_table(
                ["name", "age"], filter="age >= 30 AND age < 40 AND city = 'city-3'"
            )
            return actual.sort_by([("age", "descending"), ("name", "ascending")]).slice(0, 20)
        starts = self._person.to_table(["name", "_score"], full_text_query=params["words"])["name"]
        for _ in range(2):
            wanted = ", ".join(f"'{name}'" for name in starts.to_pylist())
            actual = self._knows.to_table(["dst"], filter=f"src IN ({wanted})")
            starts = actual["dst"].unique()
        return pa.table({"n": [len(starts)]})

    def rows(self, actual: pa.Table) -> Rows:
        return _arrow_rows(actual)

    def close(self) -> None:
        """Nothing is held open."""

    @staticmethod
    def build(location: Path, social: Social) -> None:
        import lance

        given = tables(social)
        person = lance.write_dataset(given["Person"], str(location / "person"))
        person.create_scalar_index("name", "BTREE")
        person.create_scalar_index("bio", "INVERTED")
        knows = lance.write_dataset(given["Knows"], str(location / "knows"))
        knows.create_scalar_index("src", "BTREE")


def _arrow_rows(table: pa.Table) -> Rows:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
