"""``format("omnigraph")``: types of a graph as frames, and frames as commits."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.errors import (
    GraphNotFound,
    InputError,
    KeyConflict,
    LoadError,
    OmniGraphError,
    OrphanEdge,
    RowLimitExceeded,
)
from omnigraph.spark import SparkEngine, SparkGraph, register
from omnigraph.spark.session.failures import translated
from omnigraph.spark.source.datasource import source_class
from tests.spark.test_frames import SCHEMA, files_of, frame, people


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph.init(tmp_path / "g.omni", SCHEMA, durability="os")


@pytest.fixture
def session(engine: SparkEngine) -> Any:
    register(engine.session)
    return engine.session


@pytest.fixture
def classic(spark: SparkEngine) -> Any:
    register(spark.session)
    return spark.session


def read(session: Any, graph: Graph, **options: str) -> Any:
    return session.read.format("omnigraph").options(**options).load(graph.uri)


def written(frame: Any, graph: Graph, save_mode: str = "append", **options: str) -> None:
    frame.write.format("omnigraph").mode(save_mode).options(**options).save(graph.uri)


def refused(work: Callable[[], Any]) -> OmniGraphError:
    """The error of ours inside that of Spark."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        work()
    return translated(caught.value, "the data source")


def rows_of(frame: Any) -> list[dict[str, Any]]:
    return sorted((row.asDict() for row in frame.collect()), key=repr)


# -- reading --------------------------------------------------------------------------------------


def test_rows_come_with_all_their_columns(session: Any, graph: Graph):
    moment = dt.datetime(2024, 5, 1, 10, 0, 0, 123_000)
    rows = {
        "name": ["a", "b"],
        "age": pa.array([3, None], pa.int32()),
        "big": pa.array([2**64 - 1, None], pa.uint64()),
        "seen": pa.array([moment, None], pa.timestamp("ms")),
        "born": pa.array([dt.date(1815, 12, 10), None]),
        "tags": pa.array([["x", "y"], None], pa.list_(pa.string())),
        "photo": pa.array([b"\0\1", None], pa.large_binary()),
        "at": pa.array([[0.5, 1.5], None], pa.list_(pa.float32(), 2)),
    }
    graph.load({"Person": pa.table(rows)})
    frame = read(session, graph, type="Person")
    assert [field.simpleString() for field in frame.schema] == [
        "id:string",
        "age:int",
        "at:array<float>",
        "big:decimal(20,0)",
        "born:date",
        "mail:string",
        "name:string",
        "photo:binary",
        "seen:timestamp",
        "tags:array<string>",
    ]
    table = frame.orderBy("id").toArrow()
    first, second = table.to_pylist()
    assert first == {
        "id": "a",
        "age": 3,
        "at": [0.5, 1.5],
        "big": Decimal(2**64 - 1),
        "born": dt.date(1815, 12, 10),
        "mail": None,
        "name": "a",
        "photo": b"\0\1",
        "seen": moment.replace(tzinfo=dt.UTC),
        "tags": ["x", "y"],
    }
    assert [name for name, value in second.items() if value is not None] == ["id", "name"]


def test_edges_have_src_and_dst(classic: Any, graph: Graph):
    graph.load({"Person": people(3), "Knows": pa.table({"from": ["p0"], "to": ["p1"]})})
    frame = read(classic, graph, type="Knows", columns="src, dst")
    assert rows_of(frame) == [{"src": "p0", "dst": "p1"}]


def test_a_type_without_rows_is_an_empty_frame(classic: Any, graph: Graph):
    assert read(classic, graph, type="Wrote").count() == 0


def test_a_frame_keeps_the_state_that_it_was_made_with(classic: Any, graph: Graph):
    graph.load({"Person": people(3)})
    frame = read(classic, graph, type="Person")
    graph.load({"Person": people(5)})
    assert frame.count() == 3
    assert read(classic, graph, type="Person").count() == 5


def test_a_graph_gives_frames_that_keep_their_state(session: Any, graph: Graph):
    """Spark Connect by itself asks a source again for every use of a frame."""
    graph.load({"Person": people(5, age=list(range(5)))})
    frame = SparkGraph(graph, spark=session).read("Person", ["name"], "age > 2")
    graph.load({"Person": people(9, age=list(range(9)))})
    assert rows_of(frame) == [{"name": "p3"}, {"name": "p4"}]


def test_any_state_can_be_read(classic: Any, graph: Graph):
    first = graph.load({"Person": people(3)})
    graph.tags.create("then", first.commit_id)
    graph.branches.create("b")
    graph.load({"Person": people(4)}, branch="b")
    graph.load({"Person": people(5)})

    def count(**options: str) -> int:
        return int(read(classic, graph, type="Person", **options).count())

    assert count() == 5
    assert count(branch="b") == 4
    assert count(tag="then") == 3
    assert count(snapshot=str(first.commit_id)) == 3
    assert count(version=str(first.version)) == 3


def here(graph: Graph, **options: str) -> list[dict[str, Any]]:
    """The rows of a read as the workers give them, without Spark."""
    source = source_class()({"path": graph.uri, **options})
    reader = source.reader(source.schema())  # type: ignore[arg-type]
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]  # type: ignore[union-attr]


CONDITIONS = {
    "age > 10": [11, 12, 13],
    'age > 10 and not (name = "p12")': [11, 13],
    "age in [1, 2] or mail is not null": [1, 2, 5],
    'tags contains "t3"': [3],
    'seen > datetime("2024-01-13T00:00:00")': [13],
    "big >= 12": [7, 12, 13],
    "age = -1": [],
}


@pytest.mark.parametrize("columns", ["name", "photo,name"])
def test_a_filter_is_a_condition_of_the_query_language(graph: Graph, columns: str):
    numbers = range(14)
    rows = people(
        14,
        age=list(numbers),
        mail=[f"m{n}" if n == 5 else None for n in numbers],
        tags=[[f"t{n}"] for n in numbers],
        seen=[dt.datetime(2024, 1, n + 1) for n in numbers],
        big=pa.array([2**64 - 1 if n == 7 else n for n in numbers], pa.uint64()),
        photo=pa.array([b"x" * n for n in numbers], pa.large_binary()),
    )
    graph.load({"Person": rows})
    for condition, wanted in CONDITIONS.items():
        actual = here(graph, type="Person", columns=columns, filter=condition)
        assert sorted(row["name"] for row in actual) == sorted(f"p{n}" for n in wanted), condition
        if columns != "name":
            assert all(row["photo"] == b"x" * int(row["name"][1:]) for row in actual)


def test_edges_are_filtered_by_their_ends_too(graph: Graph):
    ends = {"from": ["p0", "p1", "p1"], "to": ["p1", "p2", "p0"], "since": [1, 2, 3]}
    graph.load({"Person": people(3), "Knows": pa.table(ends)})
    actual = here(graph, type="Knows", columns="dst", filter='from = "p1" and since > 2')
    assert actual == [{"dst": "p0"}]


def test_scans_of_one_graph_do_not_mix_their_filters(classic: Any, graph: Graph):
    graph.load({"Person": people(10, age=list(range(10)))})
    young = read(classic, graph, type="Person", filter="age < 3")
    old = read(classic, graph, type="Person", filter="age >= 3")
    assert young.union(old).count() == 10
    whole = read(classic, graph, type="Person")
    assert whole.where("age < 3").union(whole.where("age >= 3")).count() == 10


def test_many_fragments_are_read_by_several_tasks(classic: Any, graph: Graph):
    for number in range(4):
        rows = pa.table({"name": [f"{number}-{n}" for n in range(10)]})
        graph.load({"Person": rows}, mode="append")
    frame = read(classic, graph, type="Person", partitions="2")
    parts = frame.selectExpr("spark_partition_id() AS part").groupBy("part").count().collect()
    assert sorted(row["count"] for row in parts) == [20, 20]


WRONG_READS: list[tuple[dict[str, str], str]] = [
    ({}, "the type is missing"),
    ({"type": "Persn"}, "there is no type 'Persn' in the schema"),
    ({"type": "Person", "colums": "id"}, "unknown option 'colums'"),
    ({"type": "Person", "columns": "id,nme"}, "Person has no column 'nme'"),
    ({"type": "Person", "columns": "id,id"}, "Person has only one column 'id'"),
    ({"type": "Person", "branch": "x"}, "branch 'x'"),
    ({"type": "Person", "tag": "x", "version": "1"}, "only one of"),
    ({"type": "Person", "filter": "agee > 3"}, "the filter 'agee > 3': type error: T11"),
    ({"type": "Person", "filter": "age > 3 } query b() { "}, "the filter 'age > 3 } query"),
    ({"type": "Person", "filter": "age > 3 delete Note where text is null"}, "more than a"),
    ({"type": "Person", "filter": "age > $x"}, "the filter 'age > $x': "),
    ({"type": "Person", "partitions": "0"}, "a whole number from 1 on"),
]


@pytest.mark.parametrize(("options", "message"), WRONG_READS)
def test_a_wrong_read_is_refused(graph: Graph, options: dict[str, str], message: str):
    source = source_class()({"path": graph.uri, **options})
    with pytest.raises(OmniGraphError) as caught:
        source.reader(source.schema())
    assert message in caught.value.message


def test_a_wrong_read_is_refused_before_anything_runs(classic: Any, graph: Graph):
    with pytest.raises(Exception, match="hint: did you mean 'Person'") as caught:
        read(classic, graph, type="Persn")
    assert isinstance(translated(caught.value, "reading"), InputError)


def test_the_columns_are_not_for_the_caller_to_say(graph: Graph):
    source = source_class()({"path": graph.uri, "type": "Person"})
    with pytest.raises(InputError, match="a schema cannot be set"):
        source.reader(None)  # type: ignore[arg-type]


def test_a_graph_that_is_not_there_is_no_frame(classic: Any, tmp_path: Path):
    def work() -> Any:
        return classic.read.format("omnigraph").option("type", "A").load(str(tmp_path / "no"))

    assert isinstance(refused(work), GraphNotFound)


def test_no_plan_shows_how_storage_is_reached(
    classic: Any, graph: Graph, capsys: pytest.CaptureFixture[str]
):
    graph.load({"Person": people(3)})
    secret = {"aws_secret_access_key": "hush-hush"}
    classic.dataSource.register(source_class(secret))
    try:
        frame = read(classic, graph, type="Person", columns="name", filter="age is null")
        frame.explain(True)
        assert frame.count() == 3
    finally:
        register(classic)
    shown = capsys.readouterr().out
    assert "omnigraph" in shown
    assert "hush-hush" not in shown
    assert "hush-hush" not in repr(frame.schema)


# -- writing --------------------------------------------------------------------------------------


def test_a_write_is_one_commit(session: Any, graph: Graph):
    before = len(graph.commits())
    frame = session.createDataFrame([(f"p{n}", n) for n in range(20)], "name string, age int")
    written(frame.repartition(3), graph, type="Person", actor="spark")
    assert len(graph.commits()) == before + 1
    assert graph.commits()[0].actor == "spark"
    assert graph.snapshot().count("Person") == 20
    assert not list(Path(graph.uri, "__recovery").glob("*.staging"))


def test_what_was_read_can_be_written_again(classic: Any, graph: Graph, tmp_path: Path):
    rows = people(
        3,
        big=pa.array([2**64 - 1, None, 0], pa.uint64()),
        seen=[dt.datetime(2024, 5, 1, 10, 0, 0, 123_000), None, None],
        photo=pa.array([b"x", None, b""], pa.large_binary()),
        at=pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    )
    knows = pa.table({"from": ["p0", "p1"], "to": ["p1", "p2"], "since": [1, None]})
    graph.load({"Person": rows, "Knows": knows})
    with Graph.init(tmp_path / "copy.omni", SCHEMA) as copy:
        for name in ("Person", "Knows"):
            written(read(classic, graph, type=name), copy, type=name)
        assert list(copy.snapshot().export()) == list(graph.snapshot().export())


@pytest.mark.parametrize(
    ("save_mode", "mode", "left"),
    [
        ("append", "merge", {"a": 2, "b": 1, "c": 2}),
        ("overwrite", None, {"a": 2, "c": 2}),
        ("append", "overwrite", {"a": 2, "c": 2}),
    ],
)
def test_modes(classic: Any, graph: Graph, save_mode: str, mode: str | None, left: dict[str, int]):
    graph.load({"Person": pa.table({"name": ["a", "b"], "age": [1, 1]})})
    frame = classic.createDataFrame([("a", 2), ("c", 2)], "name string, age int")
    options = {} if mode is None else {"mode": mode}
    written(frame, graph, save_mode, type="Person", **options)
    actual = (json.loads(line)["data"] for line in graph.snapshot().export())
    assert {row["name"]: row["age"] for row in actual} == left


def test_a_write_may_make_its_branch(classic: Any, graph: Graph):
    frame = classic.createDataFrame([("a",)], "name string")
    written(frame, graph, type="Person", branch="b", from_branch="main")
    assert (graph.snapshot("b").count("Person"), graph.snapshot().count("Person")) == (1, 0)


def refusal(graph: Graph, frame: Any, **options: str) -> OmniGraphError:
    """What a write says that is refused and leaves nothing."""
    before, commits = files_of(graph), len(graph.commits())
    error = refused(lambda: written(frame, graph, **options))
    assert files_of(graph) == before
    assert len(graph.commits()) == commits
    return error


def test_a_bad_row_refuses_everything(spark: SparkEngine, classic: Any, graph: Graph):
    """Its number is that among all rows, in the order of the partitions."""
    rows = people(20, age=[900 if n == 17 else n for n in range(20)])
    error = refusal(graph, frame(spark, rows, 3), type="Person")
    assert error.message.startswith("<Person>:18: ")


def test_rules_among_all_rows_are_kept(classic: Any, graph: Graph):
    graph.load({"Person": people(3)})
    again = classic.createDataFrame([("p1",)], "name string")
    assert isinstance(refusal(graph, again, type="Person"), KeyConflict | LoadError)
    lost = classic.createDataFrame([("p1", "nobody")], "from string, to string")
    error = refusal(graph, lost, type="Knows")
    assert isinstance(error, OrphanEdge)
    assert error.message.startswith("<Knows>:1: ")


def test_rows_can_be_set_aside(classic: Any, graph: Graph, tmp_path: Path):
    rows = [(f"p{n}", 900 if n % 5 == 0 else n) for n in range(20)]
    frame = classic.createDataFrame(rows, "name string, age int").coalesce(1)
    rejects = tmp_path / "rejects"
    written(frame, graph, type="Person", max_rejects="4", rejects=str(rejects))
    assert graph.snapshot().count("Person") == 16
    lines = [json.loads(line)["line"] for line in rejects.read_text().splitlines()]
    assert lines == [1, 6, 11, 16]


def test_too_many_rows_point_to_the_other_writer(classic: Any, graph: Graph):
    frame = classic.createDataFrame([(f"p{n}",) for n in range(20)], "name string")
    error = refusal(graph, frame, type="Person", max_rows="19")
    assert isinstance(error, RowLimitExceeded)
    assert error.message.startswith("20 rows exceed the limit of 19")
    SparkGraph(graph, spark=classic).write(nodes={"Person": frame})
    assert graph.snapshot().count("Person") == 20


def test_a_key_makes_a_write_happen_once(classic: Any, graph: Graph):
    frame = classic.createDataFrame([(f"p{n}",) for n in range(9)], "name string")
    for parts in (2, 3):
        written(frame.repartition(parts), graph, type="Person", idempotency_key="k")
    assert graph.snapshot().count("Person") == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "the type is missing"),
        ({"type": "Person", "mode": "upsert"}, "invalid load mode 'upsert'"),
        ({"type": "Person", "max_reject": "3"}, "unknown option 'max_reject'"),
        ({"type": "Person", "branch": "nowhere"}, "nowhere"),
        ({"type": "Person", "strict_properties": "yes"}, "true or false, not 'yes'"),
    ],
)
def test_a_wrong_write_is_refused(graph: Graph, options: dict[str, str], message: str):
    before = files_of(graph)
    with pytest.raises(OmniGraphError) as caught:
        source_class()({"path": graph.uri, **options}).writer(None, False)  # type: ignore[arg-type]
    assert message in caught.value.message
    assert files_of(graph) == before


def test_an_aborted_write_leaves_what_may_be_committed(graph: Graph):
    """Spark aborts after a commit that failed, too, whatever became of it."""
    writer: Any = source_class()({"path": graph.uri, "type": "Person"}).writer(None, False)  # type: ignore[arg-type]
    message = writer.write(iter(people(3).to_batches()))
    writer.commit([message])
    writer.abort([message])
    assert graph.snapshot().count("Person") == 3
    assert len(list(graph.snapshot().export())) == 3
    assert not list(Path(graph.uri, "__recovery").glob("*.staging"))
