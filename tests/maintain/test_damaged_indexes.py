"""A damaged index: queries do without it, status and doctor name it, the next upkeep builds it."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow.compute as pc
import pytest

from omnigraph import Graph, verify_graph
from omnigraph.errors import StorageCorrupt
from omnigraph.maintain.optimize.indexes import DAMAGED
from omnigraph.storage import first_read
from omnigraph.storage.tables.fragments import locate_table, open_version
from tests.faults.damaged_reads import make, responses

pytestmark = pytest.mark.rotates(3)

DOC, LIKES = "node:Doc", "edge:Likes"
INDEXES = {
    "id_equality": DOC,
    "number_equality": DOC,
    "body_text": DOC,
    "vector_vector": DOC,
    "src_equality": LIKES,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    location = tmp_path_factory.mktemp("indexes") / "g.omni"
    make(location)
    return location, responses(location, writes=False), responses_after_writes(location)


def responses_after_writes(location):
    again = location.with_name("again.omni")
    shutil.copytree(location, again)
    return responses(again, writes=True)


@pytest.fixture
def path(made, tmp_path):
    path = tmp_path / "g.omni"
    shutil.copytree(made[0], path)
    return path


def table_of(path, key) -> Path:
    with Graph.open(path, "r") as graph:
        return path / graph.snapshot().tables[key]["path"]


def segments(path, key):
    """The files of the segments by the names of their indexes."""
    table = table_of(path, key)
    return {
        index.name: [table / "_indices" / str(segment.uuid) for segment in index.segments]
        for index in lance.dataset(str(table)).describe_indices()
    }


def damage(path, name, key=DOC):
    """Other bytes in the middle of every file of an index."""
    for folder in segments(path, key)[name]:
        for file in folder.glob("*.*"):
            spoil(file)


def spoil(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    middle = len(raw) // 2
    raw[middle - 20 : middle + 20] = bytes(item ^ 0xFF for item in raw[middle - 20 : middle + 20])
    file.write_bytes(raw)


def rebuilds(graph):
    """Why indexes are to be built anew, by table and name."""
    states = graph.indexes.status().indexes
    return {(i.table_key, f"{i.column}_{i.kind.name.lower()}"): i.rebuild for i in states}


@pytest.mark.parametrize("name", INDEXES)
def test_everything_is_found_without_it_and_only_it_is_built_anew(path, made, name):
    key = INDEXES[name]
    before = {k: segments(path, k) for k in (DOC, LIKES)}
    damage(path, name, key)
    assert responses(path, writes=False) == made[1]
    with Graph.open(path, durability="os") as graph:
        assert {n: why for n, why in rebuilds(graph).items() if why} == {(key, name): DAMAGED}
        (reasons,) = [t.reasons for t in graph.maintenance.doctor().tables if t.table_key == key]
        assert f"index {name}: {DAMAGED}" in reasons
        built = graph.indexes.ensure().built
        assert [f"{column}_{kind.name.lower()}" for _, column, kind in built] == [name]
        assert not any(rebuilds(graph).values())
        assert not graph.indexes.ensure().built
    after = {k: segments(path, k) for k in (DOC, LIKES)}
    changed = [n for k in after for n in after[k] if after[k][n] != before[k][n]]
    assert changed == [name]
    assert responses(path, writes=False) == made[1]


def test_writes_do_without_it(path, made):
    damage(path, "id_equality")
    damage(path, "src_equality", LIKES)
    assert responses(path, writes=True) == made[2]
    after = responses(path, writes=False)
    assert after == made[2]
    with Graph.open(path, durability="os") as graph:
        graph.indexes.ensure()
        graph.maintenance.cleanup(keep_versions=1, min_age=0)
    assert verify_graph(path).problems == ()
    assert responses(path, writes=False) == after


def test_optimize_builds_it_anew(path, made):
    damage(path, "number_equality")
    with Graph.open(path, durability="os") as graph:
        graph.maintenance.optimize()
        assert not any(rebuilds(graph).values())
    assert responses(path, writes=False) == made[1]
    with Graph.open(path, durability="os") as graph:
        graph.maintenance.cleanup(keep_versions=1, min_age=0)
    assert verify_graph(path).problems == ()


def test_an_index_that_lost_a_file_is_damaged(path, made):
    (folder,) = segments(path, DOC)["name_equality"]
    (folder / "page_lookup.lance").unlink()
    assert responses(path, writes=False) == made[1]


def test_without_records_the_form_of_a_file_is_looked_at(path, made):
    shutil.rmtree(path / "__checksums")
    (folder,) = segments(path, DOC)["number_equality"]
    for file in folder.glob("*.lance"):
        file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\0")
    assert responses(path, writes=False) == made[1]
    with Graph.open(path, "r") as graph:
        assert rebuilds(graph)[DOC, "number_equality"] == DAMAGED


def test_a_large_file_is_looked_at_by_size_and_form(path, monkeypatch):
    monkeypatch.setattr(first_read, "LARGEST", 100)
    (folder,) = segments(path, DOC)["number_equality"]
    spoil(folder / "page_data.lance")
    with Graph.open(path, "r") as graph:
        assert not any(rebuilds(graph).values())
    (folder / "page_data.lance").write_bytes(b"short")
    with Graph.open(path, "r") as graph:
        assert rebuilds(graph)[DOC, "number_equality"] == DAMAGED


def test_other_processes_are_sent_a_version_without_indexes(path):
    damage(path, "number_equality")
    with Graph.open(path, "r") as graph:
        pin = graph._handle.store.manifest(None).current().pins[DOC]
        location = locate_table(graph._handle.store.datasets, graph._handle.store.table(pin))
    assert location.has_damaged_index
    table = open_version(location)
    assert table.indexes() == {}
    assert table.count(pc.field("number") == 100) == 1


def test_a_branch_does_without_an_index_that_it_has_from_main(path):
    key = 'query q() { match { $d: Doc { name: "d0100" } } return { $d.number } }'
    with Graph.open(path, durability="os") as graph:
        graph.branches.create("aside")
        graph.load([{"type": "Doc", "data": {"name": "new", "number": 1}}], branch="aside")
    damage(path, "id_equality")
    damage(path, "name_equality")
    with Graph.open(path, durability="os") as graph:
        assert graph.query(key, branch="aside").rows() == [{"d.number": 100}]
        graph.mutate(
            'query q() { update Doc set { number: 3 } where name = "d0100" }', branch="aside"
        )
        assert graph.query(key, branch="aside").rows() == [{"d.number": 3}]
        assert graph.query(key).rows() == [{"d.number": 100}]


def test_a_branch_names_a_damaged_deletion_file_that_it_has_from_main(path):
    with Graph.open(path, durability="os") as graph:
        graph.branches.create("aside")
        graph.load([{"type": "Doc", "data": {"name": "new", "number": 1}}], branch="aside")
    (file,) = table_of(path, DOC).glob("_deletions/*")
    spoil(file)
    with Graph.open(path, "r") as graph, pytest.raises(StorageCorrupt, match=file.name):
        graph.snapshot("aside").read("Doc", ["name"])


# -- how often files are looked at ----------------------------------------------------------------


@pytest.fixture
def compared(monkeypatch):
    """The names of the files that are compared from now on."""
    names = []
    real = first_read.sum_and_tail

    def counting(file):
        names.append(Path(file).name)
        return real(file)

    monkeypatch.setattr(first_read, "sum_and_tail", counting)
    return names


def test_each_file_is_compared_once_and_no_index_before_it_is_asked(path, compared):
    condition = pc.field("number") == 100
    with Graph.open(path, "r") as graph:
        graph.snapshot().read("Doc", ["name"])
        assert not {"page_data.lance", "page_lookup.lance"} & {*compared}
        assert any(name.endswith(".arrow") for name in compared)
        compared.clear()
        graph.snapshot().read("Doc", ["name"], condition)
        assert sorted(compared) == ["page_data.lance", "page_lookup.lance"]
        compared.clear()
        graph.snapshot().read("Doc", ["name"], condition)
    with Graph.open(path, "r") as graph:
        graph.snapshot().read("Doc", ["name"], condition)
    assert compared == []


def test_what_a_process_wrote_itself_it_does_not_compare(path, compared):
    with Graph.open(path, durability="os") as graph:
        graph.mutate('query q() { update Doc set { number: 1 } where name = "d0100" }')
        graph.mutate('query q() { delete Doc where name = "d0099" }')
        graph.query('query q() { match { $d: Doc { name: "d0100" } } return { $d.number } }')
        compared.clear()
        for number in range(3):
            graph.mutate(f'query q() {{ delete Doc where name = "d00{number}9" }}')
            graph.query('query q() { match { $d: Doc { name: "d0100" } } return { $d.number } }')
    assert compared == []


def test_a_record_that_is_damaged_damages_no_file(path, made):
    for record in (path / "__checksums").iterdir():
        record.write_text(record.read_text().replace("sha256:", "sha256:0"))
    assert responses(path, writes=False) == made[1]
    with Graph.open(path, "r") as graph:
        assert not any(rebuilds(graph).values())
