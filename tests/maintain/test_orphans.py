"""Files that no version names are found, on every branch, with who may still need them."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.commit.staging import staging_marker
from omnigraph.errors import StorageCorrupt
from omnigraph.spark.load.run import fragment_targets
from omnigraph.storage.tables.fragments import write_staged_fragments
from tests.maintain.orphan_files import orphans

SCHEMA = """
node Person {
    name: String @key
    photo: Blob?
}
edge Knows: Person -> Person
"""
PHOTO = "base64:" + "aGVs" * 50_000


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """A graph with versions, a branch, deletions, indexes and a blob in a file of its own."""
    graph = Graph.init(tmp_path / "g.omni", SCHEMA, durability="os")
    graph.load([{"type": "Person", "data": {"name": "a", "photo": PHOTO}}])
    graph.load([{"type": "Person", "data": {"name": "b"}}])
    graph.branches.create("review/x")
    graph.load([{"type": "Person", "data": {"name": "a", "photo": None}}], branch="review/x")
    graph.load([{"edge": "Knows", "from": "a", "to": "b"}])
    graph.mutate('query q() { delete Person where name = "a" }')
    graph.indexes.ensure()
    return graph


def leave_rows(graph: Graph, branch: str | None = None) -> list[str]:
    """Write rows beside a table as a task does, and forget them."""
    store = graph._handle.store
    location = fragment_targets(store, graph.catalog, store.manifest(branch).current(), branch)
    schema = graph.catalog.node_types["Person"].arrow_schema()
    photos = pa.array([b"x" * 200_000], pa.large_binary())
    rows = pa.record_batch(
        {"id": ["z"], "name": ["z"], "photo": photos}, schema=pa.schema(list(schema))
    )
    parts = write_staged_fragments(location["node:Person"], schema, [rows])
    return [f"{location['node:Person'].path}/{name}" for part in parts for name in part.files]


def test_a_graph_that_nobody_died_of_has_none(graph):
    assert orphans(graph._handle.store) == []


@pytest.mark.parametrize("branch", [None, "review/x"])
def test_rows_that_were_never_committed_are_found_with_their_blobs(branch, graph, tmp_path):
    (written,) = leave_rows(graph, branch)
    actual = orphans(graph._handle.store)
    assert written in {orphan.path for orphan in actual}
    assert len(actual) == 2
    assert all(orphan.path.startswith(written.removesuffix(".lance")) for orphan in actual)
    assert all(orphan.needed_by == () for orphan in actual)
    assert all(timedelta(0) <= orphan.age < timedelta(hours=1) for orphan in actual)
    sizes = {orphan.path: orphan.size for orphan in actual}
    assert sizes == {path: (Path(graph.uri) / path).stat().st_size for path in sizes}


def test_a_write_that_stages_holds_what_it_wrote(graph):
    leave_rows(graph)
    store = graph._handle.store
    with staging_marker(store, None, store.manifest(None).current()) as operation:
        assert {orphan.needed_by for orphan in orphans(store)} == {(operation,)}
    assert {orphan.needed_by for orphan in orphans(store)} == {()}


def test_a_damaged_marker_is_not_passed_over(graph):
    graph._handle.store.objects.write("__recovery/01H.staging", "{}")
    with pytest.raises(StorageCorrupt, match="not a valid staging marker"):
        orphans(graph._handle.store)


def test_a_branch_reference_that_was_never_finished_is_an_orphan(tmp_path):
    """Lance writes a reference under a temporary name and links it; the writer died between."""
    root = tmp_path / "g.omni"
    with Graph.init(root, "node Person { name: String @key }") as graph:
        graph.append({"Person": pa.table({"name": ["Ada"]})})
        graph.branches.create("b")
        folder = root / "__manifest/_refs/branches"
        left = folder / f"b.json.tmp.{'0a' * 16}"
        left.write_bytes((folder / "b.json").read_bytes()[:10])
        assert graph.maintenance.verify().problems == ()
        assert set(graph.branches.list()) == {"b", "main"}
        os.utime(left, (0, 0))
        graph.maintenance.cleanup(keep_versions=1, min_age=timedelta())
        assert not left.exists()
        assert graph.maintenance.verify().problems == ()
