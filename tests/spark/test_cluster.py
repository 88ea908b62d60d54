"""A cluster of one master and two workers does what one machine does, also when a worker dies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.errors import LoadError
from omnigraph.maintain.cleanup.retention import Orphan
from tests.maintain.orphan_files import orphans
from tests.spark import cluster_jobs as jobs
from tests.spark.cluster import WORKERS, Cluster, Process
from tests.spark.drivers import DriverProcess
from tests.spark.processes import alive, descendants, wait_until

# One cluster for all of them, in one process of the tests.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

PEOPLE = 1_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


class Drivers:
    """One driver at a time: it takes all cores of the cluster."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._settings: Mapping[str, str] = {}
        self._process: DriverProcess | None = None
        self._count = 0

    def get(self, settings: Mapping[str, str] | None = None) -> DriverProcess:
        """A driver with two executors, whatever a test before did to them."""
        if self._process is not None and self._settings != (settings or {}):
            self.close()
        self._cluster.fill()
        if self._process is None:
            self._count += 1
            self._settings = settings or {}
            self._process = DriverProcess(self._folder / str(self._count))
            config = self._cluster.config(settings)
            assert self._process.do(jobs.start, config)["slots"] == WORKERS
        process = self._process
        wait_until(lambda: process.do(jobs.executors) == len(self._cluster.executors()) == WORKERS)
        return process

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close()


@pytest.fixture(scope="module")
def drivers(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    actual = Drivers(cluster, tmp_path_factory.mktemp("drivers"))
    yield actual
    actual.close()


@pytest.fixture
def driver(drivers: Drivers) -> DriverProcess:
    return drivers.get()


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of all types, for about twenty shares."""
    path = tmp_path_factory.mktemp("lines") / "all.ndjson"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records()))
    return path


def records() -> Iterator[dict[str, Any]]:
    for n in range(PEOPLE):
        yield {"type": "Person", "data": {"name": f"p{n:04}", "age": n % 80}}
    for n in range(10):
        yield {"type": "Company", "data": {"name": f"c{n}"}}
    for n in range(PEOPLE):
        ends = {"from": f"p{n:04}", "to": f"p{n * 7 % PEOPLE:04}"}
        yield {"edge": "Knows", **ends, "data": {"id": f"k{n}", "since": n}}
    for n in range(0, PEOPLE, 3):
        ends = {"from": f"p{n:04}", "to": f"c{n % 10}"}
        yield {"edge": "WorksAt", **ends, "data": {"id": f"w{n}"}}


COUNTS = {"node:Person": PEOPLE, "node:Company": 10, "edge:Knows": PEOPLE, "edge:WorksAt": 334}


@pytest.fixture(scope="module")
def loaded(lines: Path, tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """What one process makes of the records, in the fragments that tasks would make."""
    graph = Graph.init(tmp_path_factory.mktemp("local") / "g.omni", jobs.SCHEMA, durability="os")
    every = lines.read_text().splitlines(keepends=True)
    for start in range(0, len(every), 400):
        part = lines.with_name(f"part-{start}.ndjson")
        part.write_text("".join(every[start : start + 400]))
        graph.load(part)
    return graph


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    Graph.init(tmp_path / "empty.omni", jobs.SCHEMA).close()
    return tmp_path / "empty.omni"


def content(location: Path) -> list[str]:
    with Graph.open(location, mode="r") as graph:
        return sorted(graph.snapshot().export())


def commits(location: Path) -> int:
    """How often something was written since the beginning."""
    with Graph.open(location, mode="r") as graph:
        return len(graph.commits()) - 1


def left_over(location: Path) -> list[Orphan]:
    """Files that no version names; nobody holds them."""
    with Graph.open(location) as graph:
        actual = orphans(graph._handle.store)
    assert all(orphan.needed_by == () for orphan in actual)
    return actual


def is_same(actual: pa.Table, expected: pa.Table, text: str) -> bool:
    rows, wanted = actual.to_pylist(), expected.to_pylist()
    if " order {" not in text:
        rows, wanted = sorted(rows, key=repr), sorted(wanted, key=repr)
    return actual.schema == expected.schema and rows == wanted


# -- what runs on it -------------------------------------------------------------------------------


def test_a_load_is_the_load_of_one_process(driver, lines, loaded, empty):
    assert driver.do(jobs.load_files, empty, lines) == COUNTS
    assert content(empty) == sorted(loaded.snapshot().export())
    assert commits(empty) == 1


def test_a_merge_replaces_what_is_there(driver, lines, empty, tmp_path):
    driver.do(jobs.load_files, empty, lines)
    newer = tmp_path / "newer.ndjson"
    persons = lines.read_text().splitlines()[: PEOPLE // 2]
    newer.write_text("\n".join(line.replace('"age": 3}', '"age": 99}') for line in persons))
    driver.do(jobs.load_files, empty, newer)
    assert len(content(empty)) == sum(COUNTS.values())
    assert commits(empty) == 2
    with Graph.open(empty) as graph:
        assert graph.snapshot().entity("Person", "p0003")["age"] == 99
        assert graph.snapshot().entity("Person", "p0963")["age"] == 3


def test_a_bad_line_in_the_last_share_is_named_and_nothing_is_left(driver, lines, empty, tmp_path):
    bad = tmp_path / "bad.ndjson"
    bad.write_text(lines.read_text() + '{"type": "Person", "data": {"name": 7}}\n')
    before = {path for path in empty.rglob("*") if path.is_file()}
    with pytest.raises(LoadError, match=f"bad.ndjson:{sum(COUNTS.values()) + 1}: "):
        driver.do(jobs.load_files, empty, bad)
    assert {path for path in empty.rglob("*") if path.is_file()} == before
    assert commits(empty) == 0


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
def test_an_export_is_the_export_of_one_process(form, driver, loaded, empty, tmp_path):
    assert driver.do(jobs.export_to, loaded.uri, tmp_path / "out", form) == sum(COUNTS.values())
    assert len(list(tmp_path.glob("out/nodes/Person/part-*"))) > 1
    with Graph.open(empty) as graph:
        graph.load(tmp_path / "out")
    assert content(empty) == sorted(loaded.snapshot().export())


@pytest.mark.parametrize("text", [*jobs.QUERIES, jobs.LONG_QUERY])
def test_a_query_gives_the_rows_of_one_process(text, driver, loaded):
    actual = driver.do(jobs.ask, loaded.uri, text)
    expected = loaded.query(f"query q() {{ {text} }}").to_arrow()
    assert actual.num_rows
    assert is_same(actual, expected, text)


def test_the_data_source_reads_and_writes_all_types(driver, loaded, empty):
    counts = driver.do(jobs.copy_by_source, loaded.uri, empty)
    assert counts == {key.partition(":")[2]: count for key, count in COUNTS.items()}
    assert content(empty) == sorted(loaded.snapshot().export())
    assert commits(empty) == len(COUNTS)


def test_frames_of_several_types_are_one_commit(driver, empty):
    counts = driver.do(jobs.write_frames, empty, [f"x{n}" for n in range(50)])
    assert counts == {"node:Person": 50, "edge:Knows": 49}
    assert commits(empty) == 1


def test_compaction_keeps_what_the_graph_holds(driver, lines, loaded, empty):
    driver.do(jobs.load_files, empty, lines)
    assert "node:Person" in driver.do(jobs.optimize, empty)
    assert content(empty) == sorted(loaded.snapshot().export())
    with Graph.open(empty) as graph:
        pin = graph._handle.store.manifest(None).current().pin("node:Person")
        assert len(graph._handle.store.table(pin).fragments()) == 1


# -- a worker dies ---------------------------------------------------------------------------------


@pytest.fixture
def gate(tmp_path: Path) -> jobs.Gate:
    (tmp_path / "gate").mkdir()
    return jobs.Gate(tmp_path / "gate")


def kill_kept(cluster: Cluster, gate: jobs.Gate, job: Future[Any]) -> None:
    """Kill the worker, with its executor, that works on what is held up; then hold up nothing."""
    kept = gate.folder / "held"
    wait_until(lambda: kept.exists() or job.done())
    assert kept.exists(), job.result()
    process = int(kept.read_text())
    cluster.kill_worker(host_of(cluster, process))
    (gate.folder / "go").touch()


def host_of(cluster: Cluster, process: int) -> Process:
    (actual,) = (worker for worker in cluster.workers if process in worker.below())
    return actual


def test_a_worker_that_dies_in_a_load_changes_nothing(driver, cluster, gate, lines, loaded, empty):
    load = driver.start(jobs.load_kept, gate, empty, lines)
    kill_kept(cluster, gate, load)
    assert load.result() == COUNTS
    assert content(empty) == sorted(loaded.snapshot().export())
    assert commits(empty) == 1
    # The share was written twice; who tidies up finds what the dead one wrote.
    assert left_over(empty)


def test_a_worker_that_dies_in_an_export_changes_nothing(
    driver, cluster, gate, loaded, empty, tmp_path
):
    export = driver.start(jobs.export_kept, gate, loaded.uri, tmp_path / "out", "ndjson")
    kill_kept(cluster, gate, export)
    assert export.result() == sum(COUNTS.values())
    assert not list(tmp_path.glob("out/**/.part-*"))
    with Graph.open(empty) as graph:
        graph.load(tmp_path / "out")
    assert content(empty) == sorted(loaded.snapshot().export())


@pytest.mark.parametrize("number", [1, 3, 4])
def test_a_worker_that_dies_in_a_query_changes_nothing(number, driver, cluster, gate, loaded):
    query = driver.start(jobs.ask_kept, gate, loaded.uri, jobs.LONG_QUERY, number)
    kill_kept(cluster, gate, query)
    actual, made = query.result()
    assert made >= number
    expected = loaded.query(f"query q() {{ {jobs.LONG_QUERY} }}").to_arrow()
    assert is_same(actual, expected, jobs.LONG_QUERY)


# -- tasks that run twice, and a driver that dies --------------------------------------------------


SPECULATING = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "100ms",
}


def test_a_share_that_two_tasks_work_on_is_loaded_once(drivers, gate, lines, loaded, empty):
    """The one that hangs is overtaken by another; both have written their rows."""
    counts = drivers.get(SPECULATING).do(jobs.load_kept, gate, empty, lines)
    assert counts == COUNTS
    assert (gate.folder / "held").exists()
    assert not (gate.folder / "go").exists()
    assert content(empty) == sorted(loaded.snapshot().export())
    assert commits(empty) == 1
    assert left_over(empty)


def test_executors_end_with_a_driver_that_is_killed(drivers, cluster, gate, lines, empty):
    driver = drivers.get()
    load = driver.start(jobs.load_kept, gate, empty, lines)
    wait_until(lambda: (gate.folder / "held").exists() or load.done())
    executors = cluster.executors()
    below = {pid for executor in executors for pid in descendants(executor)}
    driver.kill()
    wait_until(lambda: not any(map(alive, [*executors, *below])))
    drivers.close()
    assert load.exception() is not None
    assert commits(empty) == 0
    # The cluster serves the next one, and nothing of the dead one is in its way.
    assert drivers.get().do(jobs.load_files, empty, lines) == COUNTS
    assert commits(empty) == 1
