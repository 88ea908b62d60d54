"""States that another process removed while they were read here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.errors import HistoryGone, StorageMissing
from omnigraph.spark.export import export_files
from omnigraph.spark.session.opening import opened
from omnigraph.spark.source.reader import TypeScan
from omnigraph.storage.executor import ThreadExecutor
from omnigraph.storage.tables.fragments import TableLocator, locate_table, open_version
from omnigraph.write.export import Export

pytestmark = pytest.mark.rotates(3)

SCHEMA = """\
node Person { name: String @key  age: I32?  photo: Blob? }
edge Knows: Person -> Person
"""
NAMES = "query q() { match { $p: Person } return { $p.name } }"
WALK = 'query q() { match { $p: Person { name: "p1" } $p knows $q } return { $q.name } }'

ELSEWHERE = """
import sys
from omnigraph import Graph
with Graph.open(sys.argv[1], durability="os") as graph:
    for number in range(3):
        graph.mutate('query m() { update Person set { age: %d } where name = "p1" }' % number)
        graph.mutate('query m() { delete Knows where from = "p%d" }' % number)
    graph.maintenance.optimize()
    graph.maintenance.cleanup(keep_versions=1, min_age=0)
"""


def person(number: int) -> dict[str, object]:
    return {"type": "Person", "data": {"name": f"p{number}", "photo": "base64:AAEC"}}


def edge(number: int) -> dict[str, object]:
    return {"edge": "Knows", "from": f"p{number}", "to": f"p{(number + 1) % 8}"}


class Removed:
    """A graph, and handles of a state of it that was removed after they were opened."""

    def __init__(self, path: Path) -> None:
        with Graph.init(path, SCHEMA, durability="os") as graph:
            graph.load([*map(person, range(8)), *map(edge, range(8))])
        self.path = path
        self.graph = Graph.open(path, "r")
        self.snapshot = self.graph.snapshot()
        here = opened(str(path))
        actual = here.store.manifest(None).current()
        catalog = here.catalog_at(actual)
        self.location: TableLocator = locate_table(
            here.store.datasets, here.store.table(actual.pins["node:Person"])
        )
        self.catalog = catalog
        self.export = Export(opened(str(path)).store, catalog, actual)
        self.lines = Export(opened(str(path)).store, catalog, actual)
        done = subprocess.run(
            [sys.executable, "-c", ELSEWHERE, str(path)],
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def removed(tmp_path_factory: pytest.TempPathFactory) -> Removed:
    return Removed(tmp_path_factory.mktemp("removed") / "g.omni")


def scan_on_spark(removed: Removed) -> object:
    scan = TypeScan("Person", removed.location, pa.schema([("name", pa.string())]), None, ((0,),))
    return list(scan.read((0,)))


READS = {
    "query": lambda r: r.graph.query(NAMES, snapshot=r.snapshot).rows(),
    "walk": lambda r: r.graph.query(WALK, snapshot=r.snapshot).rows(),
    "read": lambda r: r.snapshot.read("Person", ["name"]),
    "scan": lambda r: list(r.snapshot.scan("Knows")),
    "entity": lambda r: r.snapshot.entity("Person", "p1"),
    "blob": lambda r: r.snapshot.read_blob("Person", "p1", "photo"),
    "blob facts": lambda r: r.snapshot.blob_info("Person", "p1", "photo"),
    "export": lambda r: list(r.lines.lines()),
    "worker": lambda r: open_version(r.location).read(["name"]),
    "data source": scan_on_spark,
    "export on spark": lambda r: export_files(
        r.export,
        r.catalog,
        r.path.parent / "out",
        "ndjson",
        ThreadExecutor(1),
    ),
}


@pytest.mark.parametrize("how", READS)
def test_a_state_that_was_removed_elsewhere_is_gone_and_not_damaged(removed, how):
    with pytest.raises(HistoryGone) as error:
        READS[how](removed)
    assert error.value.hint


def test_a_handle_that_found_its_state_removed_reads_the_newest(removed):
    with pytest.raises(HistoryGone):
        removed.graph.query(NAMES, snapshot=removed.snapshot)
    assert len(removed.graph.query(NAMES).rows()) == 8


@pytest.mark.parametrize("lost", ["data/*.lance", "_versions/*.manifest"])
def test_a_file_that_the_newest_state_lacks_is_missing(tmp_path, lost):
    """Nobody removes anything from it, so this is damage."""
    path = tmp_path / "g.omni"
    with Graph.init(path, SCHEMA, durability="os") as graph:
        graph.load([*map(person, range(8)), *map(edge, range(8))])
        location = path / graph.snapshot().tables["node:Person"]["path"]
    with Graph.open(path, "r") as graph:
        snapshot = graph.snapshot()
        for file in location.glob(lost):
            file.unlink()
        for read in (READS["query"], READS["read"], READS["entity"]):
            with pytest.raises(StorageMissing):
                read(type("Handles", (), {"graph": graph, "snapshot": snapshot}))
