"""DataFrames of Spark in a load: the same graph, receipt, rejects and messages as Arrow tables."""

from __future__ import annotations

import datetime as dt
import json
import re
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.errors import InputError, LoadError, OmniGraphError, OrphanEdge
from omnigraph.spark import SparkEngine, SparkGraph
from tests.rotation import rotation
from tests.spark.inputs import content

pytestmark = pytest.mark.rotates(3)

_OWN_ID = re.compile("01[0-9A-Z]{24}")
SEEDS = 4
MORE_SEEDS = 40
FIRST = SEEDS + rotation() % 10 * MORE_SEEDS  # others each day
SCHEMA = """
node Person {
    name: String @key
    age: I32?
    mail: String? @unique
    big: U64?
    seen: DateTime?
    born: Date?
    tags: [String]?
    photo: Blob?
    at: Vector(2)?
    @range(age, 0..150)
}
node Note { text: String? }
edge Knows: Person -> Person { since: I64? }
edge Wrote: Person -> Note @card(0..2)
"""


def frame(engine: SparkEngine, table: pa.Table, partitions: int) -> Any:
    """The rows of a table in their order, in so many partitions."""
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    schema = from_arrow_schema(table.schema)
    rows = table.cast(to_arrow_schema(schema, timezone="UTC")).combine_chunks()
    size = -(-max(table.num_rows, 1) // partitions)

    def split(batches: Any) -> Any:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from rows.slice(number * size, size).to_batches()

    return engine.session.range(0, partitions, 1, partitions).mapInArrow(split, schema)


def people(count: int, **columns: list[Any]) -> pa.Table:
    rows: dict[str, Any] = {"name": [f"p{n}" for n in range(count)]}
    return pa.table(rows | columns)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(tmp_path / "g.omni", SCHEMA, durability="os")


def files_of(graph: Graph) -> set[Path]:
    return {path for path in Path(graph.uri).rglob("*") if path.is_file()}


# -- the same as in one process -------------------------------------------------------------------


def random_tables(random: Random) -> dict[str, pa.Table]:
    count = random.randrange(1, 40)
    bad = random.random() < 0.6
    odd = random.random() < 0.1 if bad else 0.0
    names = [f"p{n}" for n in range(count)]
    if bad and random.random() < 0.3:
        names[random.randrange(count)] = names[0]
    ages = [
        random.choice([None, 5, 20, 900 if bad and random.random() < 0.1 else 7]) for _ in names
    ]
    mails = [random.choice([None, f"m{random.randrange(30 if bad else 10**9)}"]) for _ in names]
    person: dict[str, Any] = {
        "name": names,
        "age": pa.array(ages, pa.int64()),
        "mail": mails,
        "tags": [random.choice([None, [], ["a", "b"]]) for _ in names],
        "at": pa.array(
            [random.choice([None, [1.0, 2.0], [1.0] if odd else [3.0, 4.0]]) for _ in names],
            pa.list_(pa.float32()),
        ),
    }
    if random.random() < 0.3:
        person["extra"] = names
    tables = {"Person": pa.table(person)}
    if random.random() < 0.8:
        edges = random.randrange(30)
        existing = [*names, "nobody"] if bad and random.random() < 0.3 else names
        knows: dict[str, Any] = {
            "from": [random.choice(existing) for _ in range(edges)],
            "to": [random.choice(names) for _ in range(edges)],
            "since": pa.array([random.randrange(100) for _ in range(edges)], pa.int32()),
        }
        if random.random() < 0.3:
            knows["id"] = [f"k{random.randrange(20)}" for _ in range(edges)]
        tables["Knows"] = pa.table(
            {k: pa.array(v, pa.string()) if k != "since" else v for k, v in knows.items()}
        )
    return tables


def said(graph: Graph, data: dict[str, Any], rejects: Path, **options: Any) -> Any:
    try:
        receipt = graph.load(data, rejects=rejects, **options)
    except OmniGraphError as error:
        words = f"{error.message} {error.hint} {error.details}"
        reported: Any = (type(error).__name__, _OWN_ID.sub("<id>", words))
    else:
        counts = {key: (c.inserted, c.updated, c.deleted) for key, c in receipt.tables.items()}
        reported = (counts, receipt.records, receipt.rejected, receipt.ignored)
    return reported, rejects.read_text() if rejects.exists() else None, content(graph)


def _compare(spark: SparkEngine, tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    tables = random_tables(random)
    options = {
        "mode": random.choice(["merge", "append", "overwrite"]),
        "max_rejects": random.choice([0, 0, 2, 100]),
        "strict_properties": random.random() < 0.2,
    }
    older = people(10, age=list(range(10))) if random.random() < 0.5 else None
    frames = {name: frame(spark, table, random.randrange(1, 4)) for name, table in tables.items()}
    matches = []
    for number, data in enumerate((tables, frames)):
        with Graph.init(tmp_path / f"{number}.omni", SCHEMA, durability="os") as graph:
            if older is not None:
                graph.load({"Person": older})
            matches.append(said(graph, data, tmp_path / f"{number}.rejects", **options))
            assert not list(Path(graph.uri, "__recovery").glob("*.staging"))
    assert matches[0] == matches[1]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_frames_load_as_tables_do(spark: SparkEngine, tmp_path: Path, seed: int):
    _compare(spark, tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, FIRST + MORE_SEEDS))
def test_many_frames_load_as_tables_do(spark: SparkEngine, tmp_path: Path, seed: int):
    _compare(spark, tmp_path, seed)


def test_several_frames_are_one_commit(engine: SparkEngine, graph: Graph):
    session = engine.session
    persons = session.createDataFrame([("Ada", 36), ("Bob", 40)], "name string, age int")
    knows = session.createDataFrame([("Ada", "Bob")], "from string, to string")
    before = len(graph.commits())
    receipt = SparkGraph(graph, spark=session).write(
        nodes={"Person": persons}, edges={"Knows": knows}
    )
    assert len(graph.commits()) == before + 1
    assert graph.commits()[0].commit_id == receipt.commit_id
    assert (receipt.affected_nodes, receipt.affected_edges) == (2, 1)


def test_a_graph_is_written_by_its_address_too(spark: SparkEngine, graph: Graph):
    persons = spark.session.createDataFrame([("Ada",)], "name string")
    receipt = SparkGraph(graph.uri).write(nodes={"Person": persons}, branch="b", from_branch="main")
    assert receipt.branch_created
    assert graph.snapshot("b").count("Person") == 1


def test_frames_and_tables_may_be_mixed(spark: SparkEngine, graph: Graph):
    knows = pa.table({"src": ["Ada"], "dst": ["Bob"]})
    persons = spark.session.createDataFrame([("Ada",), ("Bob",)], "name string")
    assert graph.load({"Person": persons, "Knows": knows}).affected_edges == 1


def test_auto_reads_a_frame_with_its_own_session(spark: SparkEngine, graph: Graph):
    persons = spark.session.createDataFrame([("Ada",)], "name string")
    assert graph.load({"Person": persons}).affected_nodes == 1
    with pytest.raises(InputError, match="only Spark reads"):
        graph.load({"Person": persons}, engine="local")


# -- types ----------------------------------------------------------------------------------------


def test_every_type_of_spark_finds_its_property(spark: SparkEngine, graph: Graph):
    columns = (
        "name string, age bigint, big decimal(20,0), seen timestamp, born date, "
        "tags array<string>, photo binary, at array<double>"
    )
    moment = dt.datetime(2024, 5, 1, 10, 0, 0, 123_000, tzinfo=dt.UTC)
    rows = [
        ("a", 3, Decimal(2**64 - 1), moment, dt.date(1815, 12, 10), ["x"], b"\0\1", [0.5, 1.5]),
        ("b", None, None, None, None, None, None, None),
    ]
    graph.load({"Person": spark.session.createDataFrame(rows, columns)})
    first, second = (json.loads(line)["data"] for line in graph.snapshot().export())
    assert first == {
        "id": "a",
        "age": 3,
        "at": [0.5, 1.5],
        "big": 2**64 - 1,
        "born": (dt.date(1815, 12, 10) - dt.date(1970, 1, 1)).days,
        "mail": None,
        "name": "a",
        "photo": "base64:AAE=",
        "seen": "2024-05-01T10:00:00.123",
        "tags": ["x"],
    }
    assert {name for name, value in second.items() if value is not None} == {"id", "name"}


@pytest.mark.parametrize(
    ("column", "value", "line", "message"),
    [
        ("age decimal(5,0)", Decimal(3), 1, "values of 'age' (decimals) do not fit I32?"),
        ("big decimal(20,0)", Decimal(-1), 2, "values of 'big' (decimals) do not fit U64?"),
        ("big decimal(20,1)", Decimal("1.5"), 1, "values of 'big' (decimals) do not fit U64?"),
        ("at array<float>", [1.0], 2, "do not fit Vector(2)?"),
        ("mail map<string,string>", {"a": "b"}, 1, "do not fit String?"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_row(
    spark: SparkEngine, graph: Graph, column: str, value: Any, line: int, message: str
):
    rows = [("a", None), ("b", value)]
    frame = spark.session.createDataFrame(rows, f"name string, {column}").coalesce(1)
    with pytest.raises(LoadError) as caught:
        graph.load({"Person": frame})
    assert caught.value.message.startswith(f"<Person>:{line}: ")
    assert message in caught.value.message


def test_a_column_that_is_there_twice_is_refused(spark: SparkEngine, graph: Graph):
    rows = spark.session.createDataFrame([("a", "b", "b")], "from string, src string, to string")
    with pytest.raises(LoadError, match=r"<Knows>:1: the column 'src' is given twice"):
        graph.load({"Knows": rows})


# -- all or nothing -------------------------------------------------------------------------------


def test_a_bad_row_refuses_everything_and_leaves_no_file(spark: SparkEngine, graph: Graph):
    persons = frame(spark, people(30), 3)
    knows = frame(spark, pa.table({"from": ["p0", "p1"], "to": ["p2", "nobody"]}), 2)
    before, commits = files_of(graph), len(graph.commits())
    with pytest.raises(OrphanEdge, match=r"<Knows>:2: "):
        graph.load({"Person": persons, "Knows": knows})
    assert files_of(graph) == before
    assert len(graph.commits()) == commits


def test_a_load_that_only_looks_leaves_no_file(spark: SparkEngine, graph: Graph):
    before = files_of(graph)
    receipt = graph.load({"Person": frame(spark, people(30), 3)}, dry_run=True)
    assert receipt.records == 30
    assert files_of(graph) == before


def test_a_frame_is_evaluated_once(spark: SparkEngine, graph: Graph, tmp_path: Path):
    """Also when rows are set aside, some of them only after all were seen."""
    log = tmp_path / "evaluated"

    def noted(batches: Any) -> Any:
        with log.open("a") as file:
            file.write("x")
        yield from batches

    rows = people(20, age=[900 if n in (3, 17) else n for n in range(20)], mail=["m"] * 20)
    persons = frame(spark, rows, 2).mapInArrow(noted, "name string, age bigint, mail string")
    rejects = tmp_path / "rejects"
    receipt = graph.load({"Person": persons}, rejects=rejects)
    assert (receipt.affected_nodes, receipt.rejected) == (1, 19)
    lines = [json.loads(line)["line"] for line in rejects.read_text().splitlines()]
    assert sorted(lines) == list(range(2, 21))
    assert log.read_text() == "xx"


def test_a_key_makes_a_load_happen_once(spark: SparkEngine, graph: Graph):
    rows = people(20, age=list(range(20)))
    first = graph.load({"Person": frame(spark, rows, 3)}, mode="append", idempotency_key="k")
    files = files_of(graph)
    again = graph.load({"Person": frame(spark, rows, 2)}, mode="append", idempotency_key="k")
    assert again.commit_id == first.commit_id
    assert files_of(graph) == files
    assert graph.snapshot().count("Person") == 20
    other = people(20, age=list(range(1, 21)))
    with pytest.raises(OmniGraphError, match="was used for another write"):
        graph.load({"Person": frame(spark, other, 2)}, mode="append", idempotency_key="k")
