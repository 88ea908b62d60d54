"""Exports by many processes: the rows of an export in one, in files that load reads again."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph import Graph
from omnigraph.commit.history import SnapshotRef
from omnigraph.commit.snapshot import Snapshot
from omnigraph.errors import InputError, OmniGraphError, StorageError
from omnigraph.spark import SparkEngine, export
from omnigraph.spark.export import ExportTask, export_files, write_file
from omnigraph.write.export import Export
from tests.spark.inputs import Pickling, in_process
from tests.spark.test_frames import SCHEMA, people

pytestmark = pytest.mark.rotates(3)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """A graph whose persons lie in several fragments."""
    graph = Graph.init(tmp_path / "g.omni", SCHEMA, durability="os")
    for number in range(3):
        rows = {
            "name": [f"{number}-{n}" for n in range(10)],
            "big": pa.array([2**64 - 1 - n for n in range(10)], pa.uint64()),
            "seen": [dt.datetime(2024, 5, 1, 10, 0, 0, 123_000)] * 10,
            "photo": pa.array([b"x" * n if n else None for n in range(10)], pa.large_binary()),
            "at": pa.array([[0.5, float(n)] for n in range(10)], pa.list_(pa.float32(), 2)),
            "tags": [["ä", "b"]] * 10,
        }
        graph.load({"Person": pa.table(rows)}, mode="append")
    ends = {"from": ["0-1", "0-2"], "to": ["2-3", "0-1"], "since": [1, None]}
    graph.load({"Knows": pa.table(ends), "Note": pa.table({"text": ["n"]})}, mode="append")
    return graph


@pytest.fixture
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.spark.export._FILE_ROWS", 10)


def exported(graph: Graph, dest: Path, form: str, **options: Any) -> int:
    """An export whose files are written here, one after the other, as other processes would."""
    job = Export(graph._handle.store, graph.catalog, _state(graph, **options), options.get("types"))
    return export_files(job, graph.catalog, dest, form, in_process)


def _state(graph: Graph, types: object = None, **ref: Any) -> Snapshot:
    return SnapshotRef(**ref).resolve(graph._handle.store)


def lines_of(dest: Path) -> list[str]:
    files = [*sorted(dest.glob("nodes/*/*")), *sorted(dest.glob("edges/*/*"))]
    return [line for file in files for line in file.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
def test_spark_exports_what_one_process_exports(
    engine: SparkEngine, graph: Graph, tmp_path: Path, form: str
):
    count = graph.snapshot().export(tmp_path / "out", form, engine="spark", spark=engine.session)
    assert count == 33
    with Graph.init(tmp_path / "copy.omni", SCHEMA) as copy:
        assert copy.load(tmp_path / "out").records == 33
        assert list(copy.snapshot().export()) == list(graph.snapshot().export())


@pytest.mark.usefixtures("_small_files")
def test_lines_are_those_of_any_export(graph: Graph, tmp_path: Path):
    assert exported(graph, tmp_path / "out", "ndjson") == 33
    assert sorted(lines_of(tmp_path / "out")) == sorted(graph.snapshot().export())
    names = sorted(str(path.relative_to(tmp_path / "out")) for path in _files(tmp_path / "out"))
    assert names == [
        "_SUCCESS",
        "edges/Knows/part-00000.ndjson",
        "edges/Wrote/part-00000.ndjson",
        "nodes/Note/part-00000.ndjson",
        "nodes/Person/part-00000.ndjson",
        "nodes/Person/part-00001.ndjson",
        "nodes/Person/part-00002.ndjson",
    ]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.usefixtures("_small_files")
def test_parquet_files_are_those_of_any_export(graph: Graph, tmp_path: Path):
    exported(graph, tmp_path / "out", "parquet")
    graph.snapshot().export(tmp_path / "one", "parquet")
    for part, name in (("nodes", "Person"), ("edges", "Knows"), ("edges", "Wrote")):
        many = pq.read_table(tmp_path / "out" / part / name)
        one = pq.read_table(tmp_path / "one" / part / f"{name}.parquet")
        assert many.schema == one.schema
        assert many.sort_by("id").to_pylist() == one.to_pylist()


@pytest.mark.usefixtures("_small_files")
def test_two_exports_of_one_state_are_the_same_bytes(graph: Graph, tmp_path: Path):
    for name in ("a", "b"):
        exported(graph, tmp_path / name, "ndjson")
    assert lines_of(tmp_path / "a") == lines_of(tmp_path / "b")


def test_any_state_and_some_types_can_be_exported(graph: Graph, tmp_path: Path):
    commit = graph.commits()[1].commit_id
    graph.branches.create("b")
    graph.load({"Person": people(2)}, branch="b", mode="append")
    assert exported(graph, tmp_path / "then", "ndjson", commit=commit) == 30
    assert exported(graph, tmp_path / "b", "ndjson", branch="b", types=["Person"]) == 32
    assert sorted(path.name for path in (tmp_path / "b" / "nodes").iterdir()) == ["Person"]
    assert not (tmp_path / "b" / "edges").exists()


def test_an_empty_graph_is_exported_and_loaded(tmp_path: Path):
    with Graph.init(tmp_path / "e.omni", SCHEMA) as empty:
        for form in ("ndjson", "parquet"):
            assert exported(empty, tmp_path / form, form) == 0
            assert empty.load(tmp_path / form).records == 0


# -- what dies ------------------------------------------------------------------------------------


def test_a_task_that_is_repeated_leaves_one_whole_file(graph: Graph, tmp_path: Path):
    """Whatever an attempt left behind that died."""

    class Twice(Pickling):
        def run(self, function: Any, tasks: Any, label: str = "") -> list[Any]:
            for task in tasks:
                Path(task.folder, f".{task.name}.dead").write_text('{"type": "Per')
            super().run(function, tasks, label)
            return super().run(function, tasks, label)

    job = Export(graph._handle.store, graph.catalog, _state(graph))
    assert export_files(job, graph.catalog, tmp_path / "out", "ndjson", Twice()) == 33
    assert sorted(lines_of(tmp_path / "out")) == sorted(graph.snapshot().export())
    assert not [path for path in _files(tmp_path / "out") if path.name.startswith(".")]


def test_an_export_that_fails_leaves_nothing(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = export.write_file

    def failing(task: ExportTask) -> int:
        if task.table_key == "node:Person":
            raise StorageError("the disk is gone")
        return real(task)

    class Failing(Pickling):
        def run(self, function: Any, tasks: Any, label: str = "") -> list[Any]:
            return [failing(task) for task in tasks]

    before = set(tmp_path.iterdir())
    job = Export(graph._handle.store, graph.catalog, _state(graph))
    with pytest.raises(StorageError, match="the disk is gone"):
        export_files(job, graph.catalog, tmp_path / "out", "ndjson", Failing())
    assert set(tmp_path.iterdir()) == before


def test_a_file_that_cannot_be_finished_is_not_there(graph: Graph, tmp_path: Path):
    job = Export(graph._handle.store, graph.catalog, _state(graph))
    taken: list[ExportTask] = []

    class Collecting(Pickling):
        def run(self, function: Any, tasks: Any, label: str = "") -> list[Any]:
            taken.extend(tasks)
            return [0 for _ in tasks]

    export_files(job, graph.catalog, tmp_path / "out", "ndjson", Collecting())
    task: ExportTask = pickle.loads(pickle.dumps(taken[0]))
    # The directory under which it was to be is gone: another attempt was faster, and all is done.
    with pytest.raises(OmniGraphError):
        write_file(task)
    assert not Path(task.folder).exists()


def test_a_directory_that_holds_something_is_not_touched(graph: Graph, tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(InputError, match="is not an empty directory"):
        exported(graph, tmp_path / "out", "ndjson")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"engine": "dask"}, "invalid engine 'dask'"),
        ({"engine": "spark"}, "needs a directory"),
    ],
)
def test_what_cannot_be_asked_for(graph: Graph, arguments: Any, message: str):
    with pytest.raises(InputError, match=message):
        graph.snapshot().export(**arguments)


def test_formats_are_two(graph: Graph, tmp_path: Path):
    with pytest.raises(InputError, match="invalid format 'csv'"):
        exported(graph, tmp_path / "out", "csv")


def test_lines_are_json(graph: Graph, tmp_path: Path):
    exported(graph, tmp_path / "out", "ndjson", types=["Knows"])
    first = json.loads(lines_of(tmp_path / "out")[0])
    assert sorted(first) == ["data", "edge", "from", "to"]
