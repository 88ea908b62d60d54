"""The program that loads is killed, wherever it is: all of the load is there, or nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.commit.failpoints import Failpoint
from omnigraph.spark import SparkConfig
from tests.maintain.orphan_files import orphans
from tests.spark import cluster_jobs as jobs
from tests.spark.drivers import DriverProcess
from tests.spark.processes import wait_until

PEOPLE = 300
COUNTS = {"node:Person": PEOPLE, "edge:Knows": PEOPLE}


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "people.ndjson"
    records = [{"type": "Person", "data": {"name": f"p{n}"}} for n in range(PEOPLE)]
    records += [{"edge": "Knows", "from": f"p{n}", "to": "p0"} for n in range(PEOPLE)]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    Graph.init(tmp_path / "g.omni", jobs.SCHEMA).close()
    return tmp_path / "g.omni"


def markers(graph: Path) -> list[str]:
    return [path.name for path in graph.glob("__recovery/*.staging")]


def load_again(lines: Path, location: Path) -> None:
    """The load is repeated under its key, by whichever engine: it is there once."""
    with Graph.open(location) as graph:
        graph.load(lines, "append", idempotency_key="once")
        actual = {"node:Person": graph.snapshot().count("Person")}
        actual["edge:Knows"] = graph.snapshot().count("Knows")
        assert actual == COUNTS
        loads = [commit for commit in graph.commits() if commit.actor != "omnigraph:recovery"]
        assert len(loads) <= 2


def test_killed_while_tasks_read_nothing_has_happened(spark_config, lines, empty, tmp_path):
    gate = jobs.Gate(tmp_path / "gate")
    gate.folder.mkdir()
    with DriverProcess(tmp_path / "driver") as driver:
        driver.do(jobs.start, spark_config)
        load = driver.start(jobs.load_kept, gate, empty, lines)
        wait_until(lambda: (gate.folder / "held").exists() or load.done())
        driver.kill()
        # Java and the workers notice: also the one that never ends by itself.
        driver.wait_for_children()
    assert load.exception() is not None
    (marker,) = markers(empty)
    with Graph.open(empty) as graph:
        assert len(graph.commits()) == 1
        assert graph.snapshot().count("Person") == 0
        left = orphans(graph._handle.store)
        assert left
        assert {orphan.needed_by for orphan in left} == {(marker.removesuffix(".staging"),)}
    load_again(lines, empty)


AT = [
    (Failpoint.WRITE_AFTER_LEASES, 0),
    (Failpoint.WRITE_AFTER_SIDECAR, None),
    (Failpoint.WRITE_BETWEEN_TABLES, None),
    (Failpoint.WRITE_AFTER_TABLES, None),
    (Failpoint.PUBLISH_AFTER, PEOPLE),
    (Failpoint.WRITE_AFTER_PUBLISH, PEOPLE),
]


@pytest.mark.slow
@pytest.mark.parametrize(("point", "rows"), AT, ids=[str(point) for point, _ in AT])
def test_killed_in_the_commit_all_is_there_or_nothing(
    point: Failpoint,
    rows: int | None,
    spark_config: SparkConfig,
    lines: Path,
    empty: Path,
    tmp_path: Path,
):
    with DriverProcess(tmp_path / "driver") as driver:
        driver.do(jobs.start, spark_config)
        driver.note_children()
        load = driver.start(jobs.load_dying, tmp_path / "seen", empty, lines, "once", point)
        assert isinstance(load.exception(), EOFError), load
        driver.wait_for_children()
    assert (tmp_path / "seen").read_text().split()[-1] == point
    assert len(markers(empty)) == 1
    # A reader heals nothing, and sees one state.
    with Graph.open(empty, mode="r") as graph:
        seen = graph.snapshot().count("Person"), graph.snapshot().count("Knows")
        assert seen in ((0, 0), (PEOPLE, PEOPLE))
    with Graph.open(empty) as graph:
        actual = graph.snapshot().count("Person")
        assert actual == graph.snapshot().count("Knows")
        assert actual in ((0, PEOPLE) if rows is None else (rows,))
        # The rows that were read are part of the graph, or of nothing.
        assert bool(orphans(graph._handle.store)) == (actual == 0)
        assert not list(empty.glob("__recovery/*.json"))
    load_again(lines, empty)
